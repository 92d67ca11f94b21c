"""Products of features for pairs of inputs: do they carry the product kernel, and are they what was asked for?"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from overtone.config import Config
from overtone.decide import resolved
from overtone.features import FourierFeatures, PairProducts, PinnedFourierFeatures
from overtone.kernels import Matern32, Products
from overtone.sklearn import DeepGPRegressor

RNG = np.random.default_rng(0)
X = RNG.uniform(size=(30, 4))
LENGTHSCALES, VARIANCES = np.array([[0.4, 0.9], [0.6, 0.5]]), np.array([0.7, 1.9])
KINDS = {
    "pinned": lambda num: PinnedFourierFeatures(jnp.full((2, 2), -0.1), jnp.full((2, 2), 1.1), num, 1),
    "paper's": lambda num: FourierFeatures(jnp.full((2, 2), -1.0), jnp.full((2, 2), 2.0), num),
}


@pytest.fixture
def kernel(x64):
    return Products(jnp.asarray(VARIANCES), Matern32(jnp.ones((2, 2)), jnp.asarray(LENGTHSCALES)))


def _matern32(x: np.ndarray, lengthscale: float) -> np.ndarray:
    r = np.sqrt(3) * np.abs(x[:, None] - x) / lengthscale
    return (1 + r) * np.exp(-r)


def _covariance() -> np.ndarray:
    each = [_matern32(x, scale) for x, scale in zip(X.T, LENGTHSCALES.ravel(), strict=True)]
    return VARIANCES[0] * each[0] * each[1] + VARIANCES[1] * each[2] * each[3]


def test_features_of_pairs_carry_the_product_kernel(kernel):
    K = _covariance()
    np.testing.assert_allclose(kernel.gram(jnp.asarray(X), jnp.asarray(X)), K, rtol=1e-12)
    np.testing.assert_allclose(kernel.diag(jnp.asarray(X)), np.diag(K), rtol=1e-12)
    left = []
    for num in (4, 8, 24):
        features = PairProducts(KINDS["pinned"](num), 2)
        A = np.asarray(features.whitened(kernel, jnp.asarray(X)))
        assert len(A) == features.num_features == 2 * features.parts.num_features**2
        assert np.linalg.eigvalsh(K - A.T @ A).min() > -1e-8  # never more than the process has
        left.append(np.max(np.diag(K - A.T @ A)))
    assert left[0] > 2 * left[1] > 4 * left[2]
    assert left[2] < 0.01 * np.max(K)
    np.testing.assert_allclose(A.T @ A, K, atol=2 * left[2])


@pytest.mark.parametrize("kind", KINDS)
def test_they_are_kronecker_products_and_a_part_of_finer_ones(kernel, kind):
    features = PairProducts(KINDS[kind](3), 2)
    finer = features.finer()
    A, F = (np.asarray(f.whitened(kernel, jnp.asarray(X))) for f in (features, finer))
    for pair in (0, 1):
        one = [
            np.asarray(
                _part(features.parts, pair, i).whitened(_part(kernel.parts, pair, i), jnp.asarray(X[:, [2 * pair + i]]))
            )
            for i in (0, 1)
        ]
        block = A.reshape(2, -1, len(X))[pair]
        for n in (0, 7):
            np.testing.assert_allclose(block[:, n], VARIANCES[pair] ** 0.5 * np.kron(one[0][:, n], one[1][:, n]))
    R = np.asarray(features.part_of(kernel, finer, jnp.eye(finer.num_features))).T
    np.testing.assert_allclose(R @ F, A, atol=1e-8)
    np.testing.assert_allclose(R @ R.T, np.eye(len(A)), atol=1e-8)


def _part(tree, pair: int, i: int):
    return jax.tree.map(lambda leaf: leaf[pair, i], tree)


def test_outside_is_said_of_each_column(x64):
    features = PairProducts(KINDS["pinned"](3), 2)
    rows = np.full((2, 4), 0.5)
    rows[1, 2] = 1.2
    np.testing.assert_array_equal(features.outside(jnp.asarray(rows)), rows > 1.1)


def test_pairs_are_followed_and_saved(tmp_path):
    """A board of 5 x 5 random levels: what one input says depends on the other one in no simple way."""
    rng = np.random.default_rng(0)
    table, levels = rng.uniform(size=(3000, 3)), rng.standard_normal((5, 5))
    target = levels[(5 * table[:, 0]).astype(int), (5 * table[:, 2]).astype(int)]
    train, test = slice(0, 2500), slice(2500, None)
    settings = {"n_inducing": 4, "max_steps": 150, "hidden_width": 3, "n_projections": 3, "likelihood": "gaussian"}
    fitted = DeepGPRegressor(**settings, pairs=[[0, 2]]).fit(table[train], target[train])  # a list will do
    assert fitted.config_.pairs == ((0, 2),)
    without = DeepGPRegressor(**settings).fit(table[train], target[train])
    left, left_without = (1 - model.score(table[test], target[test]) for model in (fitted, without))
    assert left < 0.7 * left_without
    fitted.save(tmp_path / "model.safetensors")
    again = DeepGPRegressor.load(tmp_path / "model.safetensors")
    assert again.pairs == ((0, 2),)
    np.testing.assert_array_equal(again.predict(table[test]), fitted.predict(table[test]))


def test_what_pairs_may_be():
    table, Y = RNG.uniform(size=(100, 3)), RNG.uniform(size=(100, 1))
    assert resolved(Config(pairs=((0, 2),)), table, Y).pairs == ((0, 2),)
    with pytest.raises(ValueError, match="pairs must be of inputs from 0 to 2; got"):
        resolved(Config(pairs=((0, 3),)), table, Y)
    for wrong in (((0, 0),), ((0,),), ((0, 1, 2),), (0, 1), ((0, "1"),), 3):
        with pytest.raises(ValueError, match="pairs must be pairs of different inputs"):
            Config(pairs=wrong).validate()
    for shallow in (
        Config("vff", pairs=((0, 1),)),
        Config("dgp", pairs=((0, 1),)),
        Config(n_layers=1, pairs=((0, 1),)),
    ):
        with pytest.raises(ValueError, match="pairs are for the first of several layers of Fourier features"):
            shallow.validate()
