"""Trigonometric polynomials against direct products, values and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from overtone.gp.features import PerDimension, PinnedFourier
from overtone.gp.features.base import AbstractInducingFeatures
from overtone.gp.kernels import Additive, Matern12, Matern32, Matern52
from overtone.numerics import trigpoly
from overtone.numerics.trigpoly import CHUNK_ROWS, evaluate, harmonics, sum_over_chunks, sums
from tests.posteriors import KINDS, shaken

RNG = np.random.default_rng(0)
pytestmark = pytest.mark.usefixtures("x64")


@pytest.mark.parametrize("num", [1, 2, 7, 50])
def test_harmonics_are_the_sinusoids(num):
    t = RNG.uniform(-2, 2, size=5)
    below, above = (np.asarray(table).reshape(-1, 2, 5) for table in harmonics(jnp.asarray(t), num))
    assert len(below) >= num
    table = np.concatenate([below, above])
    assert 2 * num <= len(table) <= 2 * num + 2 * num**0.5 + 1
    k = np.arange(1, len(table) + 1)[:, None]
    np.testing.assert_allclose(
        table, np.stack([np.cos(2 * np.pi * k * t), np.sin(2 * np.pi * k * t)], axis=1), atol=1e-11
    )


def sinusoids(num, t):
    k = 2 * jnp.pi * jnp.arange(num + 1)[:, None]
    return jnp.concatenate([jnp.cos(k * t), jnp.sin(k[1:] * t)])


@pytest.mark.parametrize("num", [1, 2, 9])
def test_sinusoids_and_their_gradient_are_those_of_cos_and_sin(num):
    t, weights = jnp.asarray(RNG.uniform(size=5)), jnp.asarray(RNG.normal(size=(2 * num + 1, 5)))
    np.testing.assert_allclose(trigpoly.sinusoids(t, num), sinusoids(num, t), atol=1e-12)
    ours = jax.grad(lambda t: jnp.sum(weights * trigpoly.sinusoids(t, num)))(t)
    theirs = jax.grad(lambda t: jnp.sum(weights * sinusoids(num, t)))(t)
    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("num_low", [2, 22])
@pytest.mark.parametrize("num", [1, 2, 9])
def test_values_and_gradients_agree_with_direct_products(num, num_low):
    high, t = RNG.normal(size=(3, 4 * num + 1)), RNG.uniform(0, 1, size=8)
    low = RNG.normal(size=(num_low, 2 * num + 1))
    args = jax.tree.map(jnp.asarray, (high, low, t))

    def direct(high, low, t):
        return high @ sinusoids(2 * num, t), low @ sinusoids(num, t)

    def loss(function, argnums):
        def value(*args):
            return sum(jnp.sum(jnp.sin(values) * jnp.arange(8)) for values in jax.tree.leaves(function(*args)))

        return jax.jit(jax.value_and_grad(value, argnums=argnums))

    for argnums in ((0, 1, 2), (0, 1), (2,)):  # fixed points take a shorter way
        ours, theirs = loss(evaluate, argnums)(*args), loss(direct, argnums)(*args)
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


def test_one_of_the_values_alone_has_a_gradient():
    high, low, t = jnp.ones((1, 9)), jnp.ones((1, 5)), jnp.linspace(0, 1, 4)
    slope = jax.grad(lambda t: jnp.sum(evaluate(high, low, t)[0]))(t)
    np.testing.assert_allclose(slope, jax.grad(lambda t: jnp.sum(high @ sinusoids(4, t)))(t), rtol=1e-12)


@pytest.mark.parametrize("num", [1, 9])
def test_sums_and_their_gradients_agree_with_direct_products(num):
    rows = 8
    args = RNG.normal(size=(2, rows)), RNG.normal(size=(4, rows)), RNG.uniform(0, 1, rows)

    def direct(high, low, t, num):
        return high @ sinusoids(2 * num, t).T, low @ sinusoids(num, t).T

    def both(function):
        def value(*args):
            result = function(*args, num)
            return sum(jnp.sum(jnp.sin(a / rows)) for a in jax.tree.leaves(result)), result

        return jax.jit(jax.value_and_grad(value, argnums=(0, 1, 2), has_aux=True))(*jax.tree.map(jnp.asarray, args))

    for a, b in zip(*(jax.tree.leaves(both(function)) for function in (sums, direct)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("rows", [8, CHUNK_ROWS, 2 * CHUNK_ROWS + 5])
def test_sums_over_chunks(rows):
    x, Y = jnp.asarray(RNG.normal(size=rows)), jnp.asarray(RNG.normal(size=(rows, 2)))

    def of_rows(x, Y, is_row):
        return (is_row * jnp.sin(x)) @ Y, jnp.sum(is_row)

    (total, count), gradient = jax.value_and_grad(
        lambda x: (lambda both: (jnp.sum(both[0]), both[1]))(sum_over_chunks(of_rows, x, Y)), has_aux=True
    )(x)
    assert count == rows
    np.testing.assert_allclose(total, jnp.sum(jnp.sin(x) @ Y), rtol=1e-10)
    np.testing.assert_allclose(gradient, jnp.cos(x) * jnp.sum(Y, axis=1), rtol=1e-10)


def layer(kind, posterior, dtype):
    """Features, kernel, q and inputs of a layer with three inputs and two outputs, inside and outside the interval."""
    rng = np.random.default_rng(1)
    ends = (jnp.full(3, edge, dtype) for edge in (-0.02, 1.02))
    features = PerDimension(PinnedFourier(12, *ends, kind.order), 3)
    kernel = Additive(kind(jnp.asarray([0.3, 0.5, 0.2], dtype), jnp.asarray([0.1, 0.3, 1.0], dtype)))
    q = KINDS[posterior]((3, 2, features.num_features // 3), 0.5, dtype)
    q = shaken(q, 0.1, rng)
    return features, kernel, q, jnp.asarray(rng.uniform(-0.2, 1.2, size=(257, 3)), dtype)


@pytest.mark.parametrize(
    ("kind", "posterior"),
    [(Matern12, "full"), (Matern32, "full"), (Matern52, "full"), (Matern32, "mean-field")],
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
    args = layer(kind, "full", np.float32)
    exact = jax.jit(AbstractInducingFeatures.marginals)(*jax.tree.map(lambda leaf: leaf.astype(np.float64), args))
    ours, generic = jax.jit(PerDimension.marginals)(*args), jax.jit(AbstractInducingFeatures.marginals)(*args)
    for fast, direct, truth in zip(ours, generic, exact, strict=True):
        assert fast.dtype == np.float32
        assert float(jnp.abs(fast - truth).max()) < 4 * float(jnp.abs(direct - truth).max()) + 2e-6
