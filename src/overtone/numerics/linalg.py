"""Structured positive definite operators.

With whitened inducing variables, inference touches Kuu through one operation only:
`whiten(B) = R^-1 B` for some square root R R^T = Kuu. Each structure has its own R.
"""

from abc import abstractmethod
from collections.abc import Callable
from math import comb

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


class AbstractPSDOperator(eqx.Module):
    """A symmetric positive definite M x M matrix K with a square root R, R R^T = K."""

    @abstractmethod
    def whiten(self, B: Float[Array, "M N"]) -> Float[Array, "M N"]:
        """Return R^-1 B, so that whiten(B)^T whiten(C) = B^T K^-1 C."""

    @abstractmethod
    def dense(self) -> Float[Array, "M M"]:
        """Return the matrix itself, for tests and inspection."""


class Dense(AbstractPSDOperator):
    """A matrix without structure: R is its Cholesky factor."""

    matrix: Float[Array, "M M"]

    def whiten(self, B):
        chol = jnp.linalg.cholesky(self.matrix)
        return jax.scipy.linalg.solve_triangular(chol, B, lower=True)

    def dense(self):
        return self.matrix


class Identity(AbstractPSDOperator):
    """K = I, for variables that are white already."""

    size: int = eqx.field(static=True)

    def whiten(self, B):
        return B

    def dense(self):
        return jnp.eye(self.size)


class DiagonalPlusLowRank(AbstractPSDOperator):
    """K = diag(d) + W W^T, in O(M rank), with no M x M matrix anywhere.

    U = diag(d)^-1/2 W,  C C^T = I + U^T U,  T = I + U (I + C)^-1 U^T  has  T T^T = I + U U^T,
    so R = diag(d)^1/2 T. Scaling by d first removes the whole spread of the spectrum: K may have
    a condition number of 1e14 while that of I + U U^T is about 2, which needs no jitter.
    """

    diagonal: Float[Array, " M"]
    low_rank: Float[Array, "M rank"]

    def whiten(self, B):
        # T^-1 = I - U (I + C)^-T C^-1 U^T
        root = jnp.sqrt(self.diagonal)[:, None]
        U, scaled = self.low_rank / root, B / root
        eye = jnp.eye(U.shape[1], dtype=U.dtype)
        C = small_cholesky(eye + U.T @ U)
        inner = small_inverse(eye + C).T @ small_inverse(C)
        return scaled - (U @ inner) @ (U.T @ scaled)

    def dense(self):
        return jnp.diag(self.diagonal) + self.low_rank @ self.low_rank.T


class BlockDiagonal(AbstractPSDOperator):
    """K = blockdiag(K_1, ..., K_B): one operator whose leaves carry a leading axis of B blocks."""

    blocks: AbstractPSDOperator
    num_blocks: int = eqx.field(static=True)

    def whiten(self, B):
        stacked = B.reshape(self.num_blocks, -1, B.shape[1])
        over_blocks = one_by_one if isinstance(self.blocks, Dense) else jax.vmap
        return over_blocks(lambda op, b: op.whiten(b))(self.blocks, stacked).reshape(B.shape)

    def dense(self):
        return jax.scipy.linalg.block_diag(*jax.vmap(lambda op: op.dense(), axis_size=self.num_blocks)(self.blocks))


def one_by_one(function: Callable) -> Callable:
    """Return `jax.vmap` of a function that calls LAPACK, as calls for one matrix after the other.

    jaxlib 0.10 shares the matrices of one call out among the threads of a pool, in which the call itself waits: two
    such calls in one program, on a machine with two cores, wait for each other forever. Calls with one matrix do not.
    """

    def call(*arguments):
        if len(jax.tree.leaves(arguments)[0]) > 1:
            return jax.lax.map(lambda each: function(*each), arguments)
        result = function(*jax.tree.map(lambda leaf: leaf[0], arguments))
        return jax.tree.map(lambda leaf: leaf[None], result)

    return call


def cholesky_of_sums(K: Float[Array, "M M"], rounding: float) -> Float[Array, "M M"]:
    """Return the Cholesky factor of a sum of products whose rounding errors have this relative size.

    The errors of millions of terms can make the sum indefinite. In that case, a bound on them is added to its diagonal.
    """
    chol = jnp.linalg.cholesky(K)
    bound = len(K) ** 0.5 * rounding * jnp.max(jnp.diagonal(K)) * jnp.eye(len(K), dtype=K.dtype)
    return jax.lax.cond(jnp.all(jnp.isfinite(chol)), lambda _: chol, jnp.linalg.cholesky, K + bound)


def small_cholesky(K: Float[Array, "r r"]) -> Float[Array, "r r"]:
    """Return the Cholesky factor of a matrix of two or three rows, with all operations written out.

    A library call and its derivative cost far more than these few operations, above all to compile.
    """
    size = K.shape[0]
    L = [[jnp.zeros((), K.dtype)] * size for _ in range(size)]
    for i in range(size):
        for j in range(i):
            L[i][j] = (K[i, j] - sum(L[i][k] * L[j][k] for k in range(j))) / L[j][j]
        L[i][i] = jnp.sqrt(K[i, i] - sum(L[i][k] ** 2 for k in range(i)))
    return jnp.stack([jnp.stack(row) for row in L])


def small_inverse(L: Float[Array, "r r"]) -> Float[Array, "r r"]:
    """Return the inverse of a lower triangular matrix of a few rows, with all operations written out."""
    size = L.shape[0]
    X = [[jnp.zeros((), L.dtype)] * size for _ in range(size)]
    for i in range(size):
        X[i][i] = 1 / L[i, i]
        for j in range(i):
            X[i][j] = -sum(L[i, k] * X[k][j] for k in range(j, i)) / L[i, i]
    return jnp.stack([jnp.stack(row) for row in X])


class Banded(AbstractPSDOperator):
    """A sum of squares of differences of neighbouring variables, for M = `size` > k and at most k rows of `first`.

        c^T K c = |first s_{k-1}|^2 + sum_{j=k}^{M-1} |each s_j|^2,
        s_j = (c_j, D c_j / h, ..., D^k c_j / h^k),   D c_j = c_j - c_{j-1},   h the step,
    where s_{k-1} ends with D^(k-1): a matrix of bandwidth k. Gram matrices of splines are of this kind, with c the
    coefficients of a function and s_j what they say of it between two knots. Their entries are far larger than c^T K c
    for a smooth c, which is the small rest of a long alternating sum: in single precision, a Cholesky factorisation of
    the entries fails with 30 cubic splines. Differences hold the smooth part as it is, squares are never formed, and
    nothing cancels.

    R is the Cholesky factor of K, but for signs of columns and a rotation of the last k. The variables are
    eliminated one after the other, in O(M k^3): the last entry of s_j is all that is new compared with s_{j-1}, and
    stands for c_{j-k}, which occurs in no later square.
    """

    first: Float[Array, "rows k"]
    each: Float[Array, "_ k1"]
    step: Float[Array, ""]
    size: int = eqx.field(static=True)

    def whiten(self, B):
        k, dtype = self.first.shape[1], self.first.dtype
        # D^i c_{j-1} = D^i c_j - D^(i+1) c_j, so s_{j-1} = F s_j
        F = jnp.eye(k, k + 1, dtype=dtype) - self.step * jnp.eye(k, k + 1, k=1, dtype=dtype)

        def eliminate(left, row):
            root, b = left  # |root s|^2 and the linear functions b^T s are left of what comes before
            root = triangular(jnp.concatenate([root @ F, self.each]))
            b = (F.T @ b).at[0].add(row)  # c_j is the first entry of s_j
            whitened = b[k] / root[k, k]
            return (root[:k, :k], b[:k] - jnp.outer(root[k, :k], whitened)), whitened

        to_c = jnp.asarray(from_differences(k), dtype) * self.step ** np.arange(k)
        start = jnp.pad(self.first, ((0, k - len(self.first)), (0, 0))), to_c.T @ B[:k]
        (root, b), whitened = jax.lax.scan(eliminate, start, B[k:])
        return jnp.concatenate([whitened, small_inverse(root).T @ b])

    def dense(self):
        def in_c(root):
            """Return the matrix of |root s|^2 as a quadratic form in the variables c."""
            size = root.shape[1]
            to_s = np.linalg.inv(from_differences(size)) / self.step ** np.arange(size)[:, None]
            return to_s.T @ root.T @ root @ to_s

        k = self.first.shape[1]
        window = np.arange(self.size - k)[:, None] + np.arange(k + 1)
        K = jnp.zeros((self.size, self.size), self.first.dtype).at[:k, :k].set(in_c(self.first))
        K = K.at[window[:, :, None], window[:, None, :]].add(in_c(self.each))
        return (K + K.T) / 2


def triangular(A: Float[Array, "n k"]) -> Float[Array, "k k"]:
    """Return the lower triangular L with L^T L = A^T A, by Gram and Schmidt's method from the last column on."""
    rows = []
    for j in reversed(range(A.shape[1])):
        q = A[:, j] / jnp.sqrt(jnp.sum(A[:, j] ** 2))
        rows.append(q @ A)
        A = (A - jnp.outer(q, rows[-1])).at[:, j:].set(0)
    return jnp.stack(rows[::-1])


def from_differences(size: int) -> np.ndarray:
    """Return the matrix that maps (c_j, D c_j, D^2 c_j, ...) to (..., c_{j-1}, c_j): c_{j-l} = (1 - D)^l c_j."""
    return np.array([[(-1.0) ** i * comb(lag, i) for i in range(size)] for lag in reversed(range(size))])
