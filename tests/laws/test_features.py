"""What every kind of inducing features must do. A new kind is one more line in FEATURES."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from overtone.gp.features import BSplines, Fourier, InducingPoints, PerDimension, PinnedFourier
from overtone.gp.kernels import Additive, Linear, Matern12, Matern32, Matern52, Periodic, SquaredExponential
from overtone.gp.variational import Full, MeanField
from tests.examples import Laplacian
from tests.posteriors import KINDS, root, shaken

RNG = np.random.default_rng(0)
Z2 = RNG.uniform(size=(6, 2))


def scalar(kind):
    return kind(jnp.asarray(1.3), jnp.asarray(0.4))


def pair(kind):
    return Additive(kind(jnp.asarray([1.3, 0.6]), jnp.asarray([0.4, 1.1])))


def fourier(*shape):
    return Fourier(5, jnp.full(shape, -0.5), jnp.full(shape, 1.7))


def splines(*shape):
    return BSplines(9, jnp.full(shape, -0.5), jnp.full(shape, 1.7))


def pinned(order, *shape):
    return PinnedFourier(5, jnp.full(shape, -0.5), jnp.full(shape, 1.7), order)


FEATURES = {
    "points, rbf": lambda: (
        InducingPoints(jnp.asarray(Z2)),
        SquaredExponential(jnp.asarray(1.3), jnp.full(2, 0.3)),
    ),
    "points, matern": lambda: (InducingPoints(jnp.asarray(Z2)), Matern32(jnp.asarray(1.3), jnp.ones(2))),
    "points, additive": lambda: (InducingPoints(jnp.asarray(Z2)), pair(Matern52)),
    "fourier 1/2": lambda: (fourier(), scalar(Matern12)),
    "fourier 3/2": lambda: (fourier(), scalar(Matern32)),
    "fourier 5/2": lambda: (fourier(), scalar(Matern52)),
    "pinned 1/2": lambda: (pinned(0), scalar(Matern12)),
    "pinned 3/2": lambda: (pinned(1), scalar(Matern32)),
    "pinned 5/2": lambda: (pinned(2), scalar(Matern52)),
    "pinned, additive": lambda: (PerDimension(pinned(1, 2), 2), pair(Matern32)),
    "splines 1/2": lambda: (splines(), scalar(Matern12)),
    "splines 3/2": lambda: (splines(), scalar(Matern32)),
    "splines 5/2": lambda: (splines(), scalar(Matern52)),
    "splines, additive": lambda: (PerDimension(splines(2), 2), pair(Matern32)),
    "points, sum": lambda: (
        InducingPoints(jnp.asarray(Z2)),
        Matern32(jnp.asarray(1.3), jnp.ones(2)) + Linear(jnp.asarray(0.5)),
    ),
    "points, product": lambda: (
        InducingPoints(jnp.asarray(Z2)),
        Matern32(jnp.asarray(1.3), jnp.ones(2)) * Periodic(jnp.asarray(1.0), jnp.ones(2), jnp.full(2, 0.7)),
    ),
    "fourier, additive": lambda: (PerDimension(fourier(2), 2), pair(Matern32)),
    "laplacian": lambda: (Laplacian(8, -1.0, 2.0), scalar(Matern52)),
}
APPROXIMATE = {"laplacian"}  # a truncated eigen-expansion: its covariances belong to a process near f, not to f
pytestmark = pytest.mark.usefixtures("x64")


def make(name):
    features, kernel = FEATURES[name]()
    num_dims = 2 if any(word in name for word in ("points", "additive")) else 1
    return features, kernel, jnp.asarray(np.random.default_rng(1).uniform(-1, 2.2, size=(9, num_dims)))


@eqx.filter_jit
def dense(features, kernel, X):
    """Kuu, Kuf, Kff and its diagonal."""
    return features.Kuu(kernel).dense(), features.Kuf(kernel, X), kernel.gram(X, X), kernel.diag(X)


@eqx.filter_jit
def whitened(features, kernel, X):
    return features.whitened(kernel, X)


@pytest.mark.parametrize("name", FEATURES)
def test_shapes(name):
    features, kernel, X = make(name)
    Kuu, Kuf, _, _ = dense(features, kernel, X)
    assert Kuu.shape == (features.num_features,) * 2
    assert Kuf.shape == (features.num_features, len(X))
    assert features.num_features % features.num_blocks == 0


@pytest.mark.parametrize("name", sorted(set(FEATURES) - APPROXIMATE))
def test_features_and_function_are_jointly_gaussian(name):
    """[[Kuu, Kuf], [Kfu, Kff]] has no negative eigenvalue, once u is scaled to unit variance."""
    features, kernel, X = make(name)
    Kuu, Kuf, Kff, _ = map(np.asarray, dense(features, kernel, X))
    joint = np.block([[Kuu, Kuf], [Kuf.T, Kff]])
    scale = np.sqrt(np.diag(joint))
    assert np.linalg.eigvalsh(joint / scale / scale[:, None]).min() > -1e-12


@pytest.mark.parametrize("name", FEATURES)
def test_whitened_covariances_agree_with_dense_algebra(name):
    features, kernel, X = make(name)
    Kuu, Kuf, _, _ = map(np.asarray, dense(features, kernel, X))
    A = np.asarray(whitened(features, kernel, X))
    np.testing.assert_allclose(A.T @ A, Kuf.T @ np.linalg.solve(Kuu, Kuf), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", FEATURES)
def test_projections_are_products_with_the_whitened_features(name):
    features, kernel, X = make(name)
    weights = jnp.asarray(np.random.default_rng(1).normal(size=(3, features.num_features)))
    projected = eqx.filter_jit(lambda f, k, x: f.project(k, weights, x))(features, kernel, X)
    np.testing.assert_allclose(projected, weights @ features.whitened(kernel, X), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", sorted(set(FEATURES) - APPROXIMATE))
def test_marginals_agree_with_dense_algebra(name, kind):
    features, kernel, X = make(name)
    num_blocks = features.num_blocks
    q = KINDS[kind]((num_blocks, 3, features.num_features // num_blocks), 0.7, np.float64)
    q = shaken(q, 0.3, np.random.default_rng(2))
    mean, var = _marginals((features, kernel, q, X))
    A = np.asarray(whitened(features, kernel, X))
    prior = np.asarray(dense(features, kernel, X)[3]) - np.sum(A**2, axis=0)
    for p in range(3):
        S = np.zeros((features.num_features,) * 2)
        for b in range(num_blocks):
            R = root(q, b, p)
            block = slice(b * len(R), (b + 1) * len(R))
            S[block, block] = R @ R.T
        np.testing.assert_allclose(mean[:, p], A.T @ np.asarray(q.mean)[:, p].ravel(), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(var[:, p], prior + np.sum(A * (S @ A), axis=0), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", sorted(set(FEATURES) - APPROXIMATE))
def test_single_precision_agrees_with_double(name):
    features, kernel, X = make(name)
    q = MeanField.start((features.num_blocks, 1, features.num_features // features.num_blocks), 0.5, np.float64)
    args = features, kernel, q, X
    narrow = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf, np.float32)), args)
    for exact, single in zip(_marginals(args), _marginals(narrow), strict=True):
        assert single.dtype == jnp.float32
        np.testing.assert_allclose(single, exact, atol=2e-4)


@eqx.filter_jit
def _marginals(args):
    features, kernel, q, X = args
    return features.marginals(kernel, q, X)


@pytest.mark.parametrize("name", FEATURES)
def test_gradients_are_finite(name):
    features, kernel, X = make(name)
    q = Full.start((1, 1, features.num_features), 0.5, np.float64)
    edges = jnp.asarray([[-0.5], [1.7]]) * jnp.ones((1, X.shape[1]))  # the edges of the Fourier interval

    def total(kernel, X):
        mean, var = features.marginals(kernel, q, X)
        return mean.sum() + var.sum()

    grads = eqx.filter_jit(jax.grad(total, argnums=(0, 1)))(kernel, jnp.concatenate([X, edges]))
    assert all(np.all(np.isfinite(g)) for g in jax.tree.leaves(grads))
