"""What every structured operator must do. A new operator is one more line in OPERATORS."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from overtone.numerics.linalg import (
    Banded,
    BlockDiagonal,
    Dense,
    DiagonalPlusLowRank,
    Identity,
    small_cholesky,
    small_inverse,
    triangular,
)

RNG = np.random.default_rng(0)
SQUARE = RNG.normal(size=(6, 6))
SPREAD = np.geomspace(1, 1e10, 6)  # a diagonal as wide as that of Fourier features


def low_rank(rank, blocks=()):
    return jnp.asarray(np.tile(SPREAD, (*blocks, 1))), jnp.asarray(RNG.normal(size=(*blocks, 6, rank)))


def bands(bandwidth, blocks=(), step=0.3):
    """Return the squares of a banded matrix, and the step of its differences."""
    k, rng = bandwidth, np.random.default_rng(bandwidth)
    parts = rng.normal(size=(*blocks, k, k)), rng.normal(size=(*blocks, k + 1, k + 1)), np.full(blocks, step)
    return tuple(map(jnp.asarray, parts))


OPERATORS = {
    "dense": lambda: Dense(jnp.asarray(SQUARE @ SQUARE.T + np.eye(6))),
    "rank 1": lambda: DiagonalPlusLowRank(*low_rank(1)),
    "rank 2": lambda: DiagonalPlusLowRank(*low_rank(2)),
    "rank 3": lambda: DiagonalPlusLowRank(*low_rank(3)),
    "identity": lambda: Identity(6),
    "bandwidth 1": lambda: Banded(*bands(1), 9),
    "bandwidth 3": lambda: Banded(*bands(3), 9),
    "blocks": lambda: BlockDiagonal(jax.vmap(DiagonalPlusLowRank)(*low_rank(2, (3,))), 3),
    "banded blocks": lambda: BlockDiagonal(jax.vmap(lambda *parts: Banded(*parts, 9))(*bands(2, (3,))), 3),
}
pytestmark = pytest.mark.usefixtures("x64")


def dense(operator):
    return np.asarray(eqx.filter_jit(type(operator).dense)(operator))


def whitened(operator, B):
    return np.asarray(eqx.filter_jit(type(operator).whiten)(operator, jnp.asarray(B)))


@pytest.mark.parametrize("name", OPERATORS)
def test_whitening_is_a_square_root_of_the_inverse(name):
    operator = OPERATORS[name]()
    K = dense(operator)
    np.testing.assert_array_equal(K, K.T)
    B, C = RNG.normal(size=(2, len(K), 4))
    product = whitened(operator, B).T @ whitened(operator, C)
    np.testing.assert_allclose(product, B.T @ np.linalg.solve(K, C), rtol=1e-9, atol=1e-11)


def test_diagonal_plus_low_rank_is_safe_in_single_precision():
    d, W = low_rank(3)
    B = jnp.asarray(RNG.normal(size=(6, 4)))
    exact = whitened(DiagonalPlusLowRank(d, W), B)
    single = whitened(DiagonalPlusLowRank(*(x.astype(jnp.float32) for x in (d, W))), B.astype(jnp.float32))
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, exact, rtol=1e-4, atol=1e-6)


def sum_of_squares(first, each, step, size):
    """Return K from its definition: the differences of all variables at once, by np.diff of the unit vectors."""
    k = first.shape[1]
    differences = np.full((k + 1, size, size), np.nan)
    for i in range(k + 1):
        differences[i, i:] = np.diff(np.eye(size), n=i, axis=0) / step**i
    roots = [first @ differences[:k, k - 1], *(each @ differences[:, j] for j in range(k, size))]
    return sum(root.T @ root for root in roots)


@pytest.mark.parametrize("bandwidth", [1, 2, 3, 5])
def test_banded_is_a_sum_of_squares_of_differences(bandwidth):
    parts = bands(bandwidth)
    K = sum_of_squares(*map(np.asarray, parts), 12)
    np.testing.assert_allclose(dense(Banded(*parts, 12)), K, rtol=1e-11, atol=1e-12 * np.abs(K).max())
    assert np.all(K[np.abs(np.subtract.outer(np.arange(12), np.arange(12))) > bandwidth] == 0)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_banded_takes_a_first_square_of_fewer_rows(rows):
    first, each, step = bands(3)
    K, B = sum_of_squares(*map(np.asarray, (first[:rows], each, step)), 12), RNG.normal(size=(12, 4))
    A = whitened(Banded(first[:rows], each, step, 12), B)
    np.testing.assert_allclose(A.T @ A, B.T @ np.linalg.solve(K, B), rtol=1e-8, atol=1e-11)


def test_banded_has_the_gradient_of_finite_differences():
    parts, B, weights = bands(3), *map(jnp.asarray, RNG.normal(size=(2, 9, 4)))
    sizes = np.cumsum([part.size for part in (*parts, B)])
    flat = np.concatenate([np.ravel(part) for part in (*parts, B)])

    def total(flat):
        first, each, step, B = jnp.split(flat, sizes[:-1])
        return jnp.sum(weights * Banded(first.reshape(3, 3), each.reshape(4, 4), step[0], 9).whiten(B.reshape(9, 4)))

    values, step = jax.jit(jax.vmap(total)), 1e-6 * np.eye(len(flat))
    differences = (values(jnp.asarray(flat + step)) - values(jnp.asarray(flat - step))) / 2e-6
    gradient = jax.jit(jax.grad(total))(jnp.asarray(flat))
    np.testing.assert_allclose(gradient, differences, rtol=1e-5, atol=1e-6)


def test_banded_is_safe_in_single_precision():
    """Also if the condition number of its diagonally scaled entries is beyond 1e10, the inverse of rounding squared."""
    parts, B = bands(3, step=0.01), RNG.normal(size=(100, 4))
    K = dense(Banded(*parts, 100))
    scale = np.sqrt(np.diag(K))
    assert np.linalg.cond(K / scale / scale[:, None]) > 1e10
    exact = whitened(Banded(*parts, 100), B)
    single = whitened(Banded(*(part.astype(jnp.float32) for part in parts), 100), B.astype(np.float32))
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, exact, rtol=1e-4, atol=1e-5 * np.abs(exact).max())


def test_triangular_root_of_a_sum_of_squares():
    L = np.asarray(jax.jit(triangular)(jnp.asarray(SQUARE[:, :4])))
    np.testing.assert_allclose(L.T @ L, SQUARE[:, :4].T @ SQUARE[:, :4], rtol=1e-12)
    np.testing.assert_array_equal(L, np.tril(L))
    assert np.all(np.diag(L) > 0)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_small_factorisations_agree_with_lapack(size):
    K = SQUARE[:size] @ SQUARE[:size].T
    L = np.linalg.cholesky(K)
    np.testing.assert_allclose(jax.jit(small_cholesky)(jnp.asarray(K)), L, rtol=1e-12)
    np.testing.assert_allclose(jax.jit(small_inverse)(jnp.asarray(L)), np.linalg.inv(L), rtol=1e-11, atol=1e-14)
