"""What every structured operator must do. A new operator is one more line in OPERATORS."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from overtone.linalg import BlockDiagonal, Dense, DiagonalPlusLowRank, small_cholesky, small_inverse, small_log_det

RNG = np.random.default_rng(0)
SQUARE = RNG.normal(size=(6, 6))
SPREAD = np.geomspace(1, 1e10, 6)  # a diagonal as wide as that of Fourier features


def low_rank(rank, blocks=()):
    return jnp.asarray(np.tile(SPREAD, (*blocks, 1))), jnp.asarray(RNG.normal(size=(*blocks, 6, rank)))


OPERATORS = {
    "dense": lambda: Dense(jnp.asarray(SQUARE @ SQUARE.T + np.eye(6))),
    "rank 1": lambda: DiagonalPlusLowRank(*low_rank(1)),
    "rank 2": lambda: DiagonalPlusLowRank(*low_rank(2)),
    "rank 3": lambda: DiagonalPlusLowRank(*low_rank(3)),
    "blocks": lambda: BlockDiagonal(jax.vmap(DiagonalPlusLowRank)(*low_rank(2, (3,))), 3),
}
pytestmark = pytest.mark.usefixtures("x64")


@pytest.mark.parametrize("name", OPERATORS)
def test_whitening_is_a_square_root_of_the_inverse(name):
    operator = OPERATORS[name]()
    K = np.asarray(operator.dense())
    np.testing.assert_array_equal(K, K.T)
    B, C = RNG.normal(size=(2, len(K), 4))
    product = operator.whiten(jnp.asarray(B)).T @ operator.whiten(jnp.asarray(C))
    np.testing.assert_allclose(product, B.T @ np.linalg.solve(K, C), rtol=1e-9, atol=1e-11)


def test_diagonal_plus_low_rank_is_safe_in_single_precision():
    d, W = low_rank(3)
    B = jnp.asarray(RNG.normal(size=(6, 4)))
    exact = DiagonalPlusLowRank(d, W).whiten(B)
    single = DiagonalPlusLowRank(*(x.astype(jnp.float32) for x in (d, W))).whiten(B.astype(jnp.float32))
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, exact, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_small_factorisations_agree_with_lapack(size):
    K = SQUARE[:size] @ SQUARE[:size].T
    L = np.linalg.cholesky(K)
    np.testing.assert_allclose(small_cholesky(jnp.asarray(K)), L, rtol=1e-12)
    np.testing.assert_allclose(small_inverse(jnp.asarray(L)), np.linalg.inv(L), rtol=1e-11, atol=1e-14)


def test_log_determinants_of_many_matrices_and_their_gradient():
    K = RNG.normal(size=(3, 2, 8, 8))
    K = jnp.asarray(np.eye(8) + K @ np.swapaxes(K, -1, -2))
    np.testing.assert_allclose(small_log_det(K), np.linalg.slogdet(K)[1], rtol=1e-12)
    gradient = jax.grad(lambda K: jnp.sum(small_log_det(K)))(K)
    np.testing.assert_allclose(gradient, np.linalg.inv(K), rtol=1e-9, atol=1e-12)
