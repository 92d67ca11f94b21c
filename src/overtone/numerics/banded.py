"""Banded positive definite matrices, as sums of squares of differences of neighbouring variables.

    c^T K c = |first s_{k-1}|^2 + sum_{j=k}^{M-1} |each s_j|^2,
    s_j = (c_j, D c_j / h, ..., D^k c_j / h^k),   D c_j = c_j - c_{j-1},   h the step,
where s_{k-1} ends with D^(k-1): a matrix of bandwidth k. Gram matrices of splines are of this kind, with c the
coefficients of a function and s_j what they say of it between two knots. Their entries are far larger than c^T K c for
a smooth c, which is the small rest of a long alternating sum: in single precision, a Cholesky factorisation of the
entries fails with 30 cubic splines. Differences hold the smooth part as it is, squares are never formed, and nothing
cancels.
"""

from math import comb

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from overtone.numerics.linalg import AbstractPSDOperator, small_inverse


class Banded(AbstractPSDOperator):
    """K of M = `size` > k variables, with at most k rows of `first`.

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
