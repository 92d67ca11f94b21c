"""Trigonometric polynomials against direct products, values and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from overtone.features import PerDimension, PinnedFourierFeatures
from overtone.features.base import AbstractInducingFeatures
from overtone.kernels import Additive, Matern12, Matern32, Matern52
from overtone.variational import Full, LowRank, MeanField

RNG = np.random.default_rng(0)
pytestmark = pytest.mark.usefixtures("x64")


def low_rank(shape, variance, dtype):
    return LowRank.start(shape, variance, dtype, rank=4)


def layer(kind, posterior, dtype):
    """Features, kernel, q and inputs of a layer with three inputs and two outputs, inside and outside the interval."""
    rng = np.random.default_rng(1)
    ends = (jnp.full(3, edge, dtype) for edge in (-0.02, 1.02))
    features = PerDimension(PinnedFourierFeatures(*ends, 12, kind.order), 3)
    kernel = Additive(kind(jnp.asarray([0.3, 0.5, 0.2], dtype), jnp.asarray([0.1, 0.3, 1.0], dtype)))
    q = posterior((3, 2, features.num_features // 3), 0.5, dtype)
    q = jax.tree.map(lambda leaf: leaf + (0.1 * rng.normal(size=leaf.shape)).astype(dtype), q)
    return features, kernel, q, jnp.asarray(rng.uniform(-0.2, 1.2, size=(257, 3)), dtype)


@pytest.mark.parametrize(
    ("kind", "posterior"), [(Matern12, Full.start), (Matern32, Full.start), (Matern52, Full.start), (Matern32, MeanField.start), (Matern32, low_rank)]
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
    args = layer(kind, Full.start, np.float32)
    exact = jax.jit(AbstractInducingFeatures.marginals)(*jax.tree.map(lambda leaf: leaf.astype(np.float64), args))
    ours, generic = jax.jit(PerDimension.marginals)(*args), jax.jit(AbstractInducingFeatures.marginals)(*args)
    for fast, direct, truth in zip(ours, generic, exact, strict=True):
        assert fast.dtype == np.float32
        assert float(jnp.abs(fast - truth).max()) < 4 * float(jnp.abs(direct - truth).max()) + 2e-6
