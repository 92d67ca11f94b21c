"""The variational posterior q(v) of whitened inducing variables, whose prior is N(0, I).

One Gaussian for each output (P) and block (B) of M variables; blocks are independent under q. Its covariance is
    S = diag(variances) + U U^T,
where a kind of posterior may lack one of the two. Writing A for the whitened cross-covariance between inducing
variables and function values:
    mean = A^T m,   variance from q = sum variances A^2 + |U^T A|^2,   KL = (tr S + |m|^2 - M - log|S|) / 2.
In every array the block is the last axis but one. The rows of U lead: one large matrix product then serves all
outputs and blocks.
"""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from overtone.params import Param


class AbstractGaussian(eqx.Module):
    """q(v) = N(mean, diag(variances) + U U^T) for each output and block."""

    mean: eqx.AbstractVar[Param]  # (P, B, M)

    @property
    @abstractmethod
    def variances(self) -> Float[Array, "P B M"] | None: ...

    @property
    @abstractmethod
    def factor(self) -> Float[Array, "M P B rank"] | None:
        """U."""

    @abstractmethod
    def kl(self) -> Float[Array, ""]:
        """KL(q || N(0, I)), summed over outputs and blocks."""

    def project(self, A: Float[Array, "BM N"]) -> Float[Array, "N P"]:
        """A^T m."""
        return A.T @ self.mean.reshape(self.mean.shape[0], -1).T

    def spread(self, A: Float[Array, "BM N"]) -> Float[Array, "N P"]:
        """sum over blocks of A^T S A, for each column of A."""
        total, U = jnp.zeros((), A.dtype), self.factor
        if self.variances is not None:
            total = (A**2).T @ self.variances.reshape(self.mean.shape[0], -1).T
        if U is not None:
            blocks = A.reshape(*self.mean.shape[1:], -1)
            total = total + jnp.sum(jnp.einsum("mpbk,bmn->pbkn", U, blocks) ** 2, axis=(1, 2)).T
        return total

    def sample(self, key: PRNGKeyArray) -> Float[Array, "P B M"]:
        """One draw of v."""
        v, U, keys = self.mean, self.factor, jax.random.split(key)
        if self.variances is not None:
            v = v + jnp.sqrt(self.variances) * jax.random.normal(keys[0], v.shape, v.dtype)
        if U is not None:
            v = v + jnp.einsum("mpbk,pbk->pbm", U, jax.random.normal(keys[1], U.shape[1:], v.dtype))
        return v


class Full(AbstractGaussian):
    """U lower triangular; its diagonal is exp(log_diag), so q is never degenerate."""

    mean: Param  # (P, B, M)
    log_diag: Param  # (P, B, M)
    lower: Param  # (M, P, B, M), of which the strictly lower triangle counts

    @staticmethod
    def start(shape: tuple[int, int, int], variance: float, dtype) -> "Full":
        """Mean zero, covariance variance * I."""
        return Full(*_start(shape, variance, dtype), jnp.asarray(np.zeros((shape[-1], *shape), dtype)))

    @property
    def variances(self):
        return None

    @property
    def factor(self):
        row, column = (np.arange(len(self.lower)).reshape(shape) for shape in ((-1, 1, 1, 1), (1, 1, 1, -1)))
        lower = jnp.where(row > column, self.lower, 0)
        return jnp.where(row == column, jnp.exp(self.log_diag), lower)

    def kl(self):
        # The strictly lower part of U, and its diagonal.
        trace = jnp.sum(self.factor**2)
        return 0.5 * (trace + jnp.sum(self.mean**2 - 1 - 2 * self.log_diag))


class MeanField(AbstractGaussian):
    """S diagonal."""

    mean: Param  # (P, B, M)
    log_diag: Param  # (P, B, M)

    @staticmethod
    def start(shape: tuple[int, int, int], variance: float, dtype) -> "MeanField":
        """Mean zero, covariance variance * I."""
        return MeanField(*_start(shape, variance, dtype))

    @property
    def variances(self):
        return jnp.exp(2 * self.log_diag)

    @property
    def factor(self):
        return None

    def kl(self):
        return 0.5 * jnp.sum(self.variances + self.mean**2 - 1 - 2 * self.log_diag)


class LowRank(AbstractGaussian):
    """A diagonal and `rank` directions of correlation, O(M rank) numbers in place of O(M^2)."""

    mean: Param  # (P, B, M)
    log_diag: Param  # (P, B, M)
    directions: Param  # (M, P, B, rank)

    @staticmethod
    def start(shape: tuple[int, int, int], variance: float, dtype, rank: int) -> "LowRank":
        """Mean zero, covariance near variance * I: at U = 0 exactly, U would have no gradient."""
        U = np.random.default_rng(0).normal(0, 0.1 * (variance / rank) ** 0.5, size=(shape[-1], *shape[:-1], rank))
        return LowRank(*_start(shape, variance, dtype), jnp.asarray(U.astype(dtype)))

    @property
    def variances(self):
        return jnp.exp(2 * self.log_diag)

    @property
    def factor(self):
        return self.directions

    def kl(self):
        # log|D + U U^T| = log|D| + log|I + W^T W| with W = D^-1/2 U.
        W = self.directions * jnp.exp(-jnp.moveaxis(self.log_diag, -1, 0))[..., None]
        inner = jnp.einsum("mpbi,mpbj->pbij", W, W) + jnp.eye(W.shape[-1], dtype=W.dtype)
        diagonal = jnp.diagonal(jnp.linalg.cholesky(inner), axis1=-2, axis2=-1)
        trace = jnp.sum(self.variances) + jnp.sum(self.directions**2)
        return 0.5 * (trace + jnp.sum(self.mean**2 - 1 - 2 * self.log_diag)) - jnp.sum(jnp.log(diagonal))


def _start(shape: tuple[int, int, int], variance: float, dtype) -> tuple[Array, Array]:
    """Mean zero, standard deviation variance^1/2."""
    return jnp.asarray(np.zeros(shape, dtype)), jnp.asarray(np.full(shape, 0.5 * np.log(variance), dtype))
