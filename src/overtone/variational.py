"""The variational posterior q(v) of whitened inducing variables, whose prior is N(0, I).

One Gaussian for each output (P) and block (B) of M variables; blocks are independent under q. Writing
A for the whitened cross-covariance between inducing variables and function values:
    mean = A^T m,   variance from q = |R^T A|^2,   KL = (|R|^2 + |m|^2 - M - log|R R^T|) / 2.
"""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from overtone.params import Param


class AbstractGaussian(eqx.Module):
    """q(v) = N(mean, R R^T) for each output and block."""

    mean: eqx.AbstractVar[Param]

    @abstractmethod
    def spread(self, A: Float[Array, "BM N"]) -> Float[Array, "N P"]:
        """sum over blocks of |R^T A|^2."""

    @abstractmethod
    def sqrt(self) -> Float[Array, "P B M M"]:
        """R."""

    @abstractmethod
    def kl(self) -> Float[Array, ""]:
        """KL(q || N(0, I)), summed over outputs and blocks."""

    @abstractmethod
    def sample(self, key: PRNGKeyArray) -> Float[Array, "P B M"]:
        """One draw of v."""

    def project(self, A: Float[Array, "BM N"]) -> Float[Array, "N P"]:
        """A^T m."""
        return A.T @ self.mean.reshape(self.mean.shape[0], -1).T


class Full(AbstractGaussian):
    """R lower triangular; its diagonal is exp(log_diag), so q is never degenerate."""

    mean: Param  # (P, B, M)
    log_diag: Param  # (P, B, M)
    lower: Param  # (P, B, M, M), of which the strictly lower triangle counts

    @staticmethod
    def start(shape: tuple[int, int, int], variance: float, dtype) -> "Full":
        """Mean zero, covariance variance * I."""
        num_outputs, num_blocks, size = shape
        return Full(
            mean=jnp.asarray(np.zeros(shape, dtype)),
            log_diag=jnp.asarray(np.full(shape, 0.5 * np.log(variance), dtype)),
            lower=jnp.asarray(np.zeros((num_outputs, num_blocks, size, size), dtype)),
        )

    def sqrt(self):
        eye = jnp.eye(self.mean.shape[-1], dtype=self.mean.dtype)
        return jnp.tril(self.lower, -1) + jnp.exp(self.log_diag)[..., None] * eye

    def spread(self, A):
        blocks = A.reshape(*self.mean.shape[1:], -1)
        return jnp.sum(jnp.einsum("pbmk,bmn->pbkn", self.sqrt(), blocks) ** 2, axis=(1, 2)).T

    def kl(self):
        trace = jnp.sum(jnp.tril(self.lower, -1) ** 2) + jnp.sum(jnp.exp(2 * self.log_diag))
        return 0.5 * (trace + jnp.sum(self.mean**2 - 1 - 2 * self.log_diag))

    def sample(self, key):
        eps = jax.random.normal(key, self.mean.shape, self.mean.dtype)
        return self.mean + jnp.einsum("pbmk,pbk->pbm", self.sqrt(), eps)


class MeanField(AbstractGaussian):
    """R diagonal."""

    mean: Param  # (P, B, M)
    log_diag: Param  # (P, B, M)

    @staticmethod
    def start(shape: tuple[int, int, int], variance: float, dtype) -> "MeanField":
        """Mean zero, covariance variance * I."""
        return MeanField(
            mean=jnp.asarray(np.zeros(shape, dtype)),
            log_diag=jnp.asarray(np.full(shape, 0.5 * np.log(variance), dtype)),
        )

    def sqrt(self):
        return jnp.exp(self.log_diag)[..., None] * jnp.eye(self.mean.shape[-1], dtype=self.mean.dtype)

    def spread(self, A):
        return (A**2).T @ jnp.exp(2 * self.log_diag).reshape(self.mean.shape[0], -1).T

    def kl(self):
        return 0.5 * jnp.sum(jnp.exp(2 * self.log_diag) + self.mean**2 - 1 - 2 * self.log_diag)

    def sample(self, key):
        eps = jax.random.normal(key, self.mean.shape, self.mean.dtype)
        return self.mean + jnp.exp(self.log_diag) * eps
