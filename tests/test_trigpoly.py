"""Trigonometric polynomials against direct products, values and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from overtone.features import PerDimension, PinnedFourierFeatures
from overtone.features.base import AbstractInducingFeatures
from overtone.features.pinned import MANY_ROWS
from overtone.kernels import Additive, Matern12, Matern32, Matern52
from overtone.trigpoly import antidiagonal_sums, evaluate, harmonics, linear_coefficients, quadratic_coefficients
from overtone.variational import Full, MeanField

RNG = np.random.default_rng(0)
pytestmark = pytest.mark.usefixtures("x64")


def test_antidiagonal_sums():
    Q = RNG.normal(size=(2, 4, 4))
    expected = [[np.trace(q[:, ::-1], k) for k in range(3, -4, -1)] for q in Q]
    np.testing.assert_allclose(antidiagonal_sums(jnp.asarray(Q)), expected, rtol=1e-12)


@pytest.mark.parametrize("degree", [1, 2, 7, 16, 37])
def test_harmonics_are_the_sinusoids(degree):
    t = RNG.uniform(-10, 10, size=5)
    k = np.arange(degree + 1)[:, None]
    expected = np.stack([np.cos(k * t), np.sin(k * t)], axis=1)
    np.testing.assert_allclose(harmonics(jnp.asarray(t), degree), expected, atol=1e-12)


@pytest.mark.parametrize("M", [1, 2, 9])
def test_polynomials_and_their_gradients_agree_with_direct_products(M):
    Q, v, t = RNG.normal(size=(3, 2 * M + 1, 2 * M + 1)), RNG.normal(size=(4, 2 * M + 1)), RNG.uniform(0, 6, size=8)
    args = jnp.asarray(Q + np.swapaxes(Q, 1, 2)), jnp.asarray(v), jnp.asarray(t)
    weights = jnp.asarray(RNG.normal(size=8))

    def polynomial(Q, v, t):
        return evaluate(quadratic_coefficients(Q), linear_coefficients(v), t)

    def direct(Q, v, t):
        k = jnp.arange(M + 1)[:, None]
        phi = jnp.concatenate([jnp.cos(k * t), jnp.sin(k[1:] * t)])
        return jnp.einsum("mn,rmk,kn->rn", phi, Q, phi), v @ phi

    def loss(function):
        def value(Q, v, t):
            symmetric = 0.5 * (Q + jnp.swapaxes(Q, 1, 2))
            return sum(jnp.sum(jnp.sin(values) @ weights) for values in function(symmetric, v, t))

        return jax.jit(jax.value_and_grad(value, argnums=(0, 1, 2)))

    (ours, our_gradient), (theirs, their_gradient) = loss(polynomial)(*args), loss(direct)(*args)
    assert float(ours) == pytest.approx(float(theirs), rel=1e-11)
    for a, b in zip(our_gradient, their_gradient, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)


def layer(kind, posterior, dtype):
    """Features, kernel, q and inputs of a layer with three inputs and two outputs, inside and outside the interval."""
    rng = np.random.default_rng(1)
    ends = (jnp.full(3, edge, dtype) for edge in (-0.02, 1.02))
    features = PerDimension(PinnedFourierFeatures(*ends, 12, kind.order), 3)
    kernel = Additive(kind(jnp.asarray([0.3, 0.5, 0.2], dtype), jnp.asarray([0.1, 0.3, 1.0], dtype)))
    q = posterior.start((2, 3, features.num_features // 3), 0.5, dtype)
    q = jax.tree.map(lambda leaf: leaf + (0.1 * rng.normal(size=leaf.shape)).astype(dtype), q)
    return features, kernel, q, jnp.asarray(rng.uniform(-0.2, 1.2, size=(MANY_ROWS, 3)), dtype)


@pytest.mark.parametrize(
    ("kind", "posterior"), [(Matern12, Full), (Matern32, Full), (Matern52, Full), (Matern32, MeanField)]
)
def test_layer_marginals_and_gradients_agree_with_the_generic_path(kind, posterior):
    def loss(marginals):
        def value(*args):
            mean, var = marginals(*args)
            return jnp.mean(jnp.sin(mean)) + jnp.mean(jnp.sqrt(var)), (mean, var)

        return jax.jit(jax.value_and_grad(value, argnums=(0, 1, 2, 3), has_aux=True))

    args = layer(kind, posterior, np.float64)
    (_, ours), our_gradient = loss(PerDimension.marginals)(*args)
    (_, theirs), their_gradient = loss(AbstractInducingFeatures.marginals)(*args)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)
    for a, b in zip(jax.tree.leaves(our_gradient), jax.tree.leaves(their_gradient), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-11)


@pytest.mark.parametrize("kind", [Matern12, Matern32, Matern52])
def test_single_precision_is_as_exact_as_the_generic_path(kind):
    """Both round; the polynomial must be no worse than a few times the direct product, measured against float64."""
    args = layer(kind, Full, np.float32)
    exact = jax.jit(AbstractInducingFeatures.marginals)(*jax.tree.map(lambda leaf: leaf.astype(np.float64), args))
    ours, generic = jax.jit(PerDimension.marginals)(*args), jax.jit(AbstractInducingFeatures.marginals)(*args)
    for fast, direct, truth in zip(ours, generic, exact, strict=True):
        assert fast.dtype == np.float32
        assert float(jnp.abs(fast - truth).max()) < 4 * float(jnp.abs(direct - truth).max()) + 2e-6
