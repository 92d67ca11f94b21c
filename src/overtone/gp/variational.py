"""The variational posterior q(v) of whitened inducing variables, whose prior is N(0, I).

One Gaussian for each block (B) of M variables and each output (P); blocks are independent under q. Its covariance is
    S = diag(variances) + U diag(weights) U^T,
where a kind of posterior may lack one of the two. Writing A for the whitened cross-covariance between inducing
variables and function values:
    mean = A^T m,   variance from q = diag(A^T S A),   KL = (tr S + |m|^2 - M - log|S|) / 2.
U is a stored array as it is, so that matrix products read it from where it lies, and its rows come before the outputs,
so that one product serves all outputs.
"""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from overtone.numerics.linalg import small_log_det
from overtone.numerics.params import Param


class AbstractGaussian(eqx.Module):
    """q(v) = N(mean, diag(variances) + U diag(weights) U^T) for each block and output."""

    mean: eqx.AbstractVar[Param]  # (B, P, M)

    @property
    @abstractmethod
    def variances(self) -> Float[Array, "B P M"] | None: ...

    @property
    @abstractmethod
    def factor(self) -> tuple[Float[Array, "B M P rank"], Float[Array, "B P rank"]] | None:
        """U and the weights of its columns, or None."""

    @property
    def triangular(self) -> bool:
        """Whether each output's U is lower triangular."""
        return False

    @abstractmethod
    def kl(self) -> Float[Array, ""]:
        """Return KL(q || N(0, I)), summed over blocks and outputs."""

    def project(self, A: Float[Array, "BM N"]) -> Float[Array, "N P"]:
        """Return A^T m."""
        return jnp.einsum("bmn,bpm->np", self._blocks(A), self.mean)

    def spread(self, A: Float[Array, "BM N"]) -> Float[Array, "N P"]:
        """Return the sum over blocks of A^T S A, for each column of A."""
        blocks, total = self._blocks(A), jnp.zeros((), A.dtype)
        if self.variances is not None:
            total = jnp.einsum("bmn,bpm->np", blocks**2, self.variances)
        if self.factor is not None:
            U, weights = self.factor
            total = total + jnp.einsum("bpkn,bpk->np", jnp.einsum("bmpk,bmn->bpkn", U, blocks) ** 2, weights)
        return total

    def sample(self, key: PRNGKeyArray) -> Float[Array, "B P M"]:
        """Return one draw of v."""
        v, keys = self.mean, jax.random.split(key)
        if self.variances is not None:
            v = v + jnp.sqrt(self.variances) * jax.random.normal(keys[0], v.shape, v.dtype)
        if self.factor is not None:
            U, weights = self.factor
            eps = jnp.sqrt(weights) * jax.random.normal(keys[1], weights.shape, v.dtype)
            v = v + jnp.einsum("bmpk,bpk->bpm", U, eps)
        return v

    def _blocks(self, A: Float[Array, "BM N"]) -> Float[Array, "B M N"]:
        return A.reshape(self.mean.shape[0], self.mean.shape[2], -1)


class Full(AbstractGaussian):
    """S = L diag(exp(2 log_diag)) L^T with L unit lower triangular, so q is never degenerate."""

    mean: Param  # (B, P, M)
    log_diag: Param  # (B, P, M)
    unit: Param  # L, (B, M, P, M): its ones and zeros have no gradient, and so stay

    @staticmethod
    def start(shape: tuple[int, int, int], variance: float, dtype) -> "Full":
        """Return q with mean zero and covariance variance * I."""
        num_blocks, num_outputs, size = shape
        eye = np.broadcast_to(np.eye(size, dtype=dtype)[None, :, None], (num_blocks, size, num_outputs, size))
        return Full(*_start(shape, variance, dtype), jax.device_put(eye))

    @property
    def variances(self):
        return None

    @property
    def factor(self):
        return _below_diagonal(self.unit), jnp.exp(2 * self.log_diag)

    @property
    def triangular(self):
        return True

    def kl(self):
        U, weights = self.factor
        columns = jnp.sum(U**2, axis=1)
        return 0.5 * jnp.sum(weights * columns + self.mean**2 - 1 - 2 * self.log_diag)


@jax.custom_vjp
def _below_diagonal(unit: Float[Array, "B M P M"]) -> Float[Array, "B M P M"]:
    """Return the matrices as they are, with a gradient strictly below the diagonal only."""
    return unit


def _strictly_lower(_, gradient):
    row, column = np.arange(gradient.shape[1])[:, None, None], np.arange(gradient.shape[-1])
    return (jnp.where(row > column, gradient, 0),)


_below_diagonal.defvjp(lambda unit: (unit, None), _strictly_lower)


class Joint:
    """A full covariance over all features of a layer, of all blocks together: stands for `Full` in `Layer(q=...)`."""

    @staticmethod
    def start(shape: tuple[int, int, int], variance: float, dtype) -> Full:
        num_blocks, num_outputs, size = shape
        return Full.start((1, num_outputs, num_blocks * size), variance, dtype)


class MeanField(AbstractGaussian):
    """S diagonal."""

    mean: Param  # (B, P, M)
    log_diag: Param  # (B, P, M)

    @staticmethod
    def start(shape: tuple[int, int, int], variance: float, dtype) -> "MeanField":
        """Return q with mean zero and covariance variance * I."""
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
    """S = diag(exp(2 log_diag)) + U U^T, a diagonal and `rank` directions: O(M rank) numbers in place of O(M^2)."""

    mean: Param  # (B, P, M)
    log_diag: Param  # (B, P, M)
    directions: Param  # (B, M, P, rank)

    @staticmethod
    def start(shape: tuple[int, int, int], variance: float, dtype, rank: int = 8) -> "LowRank":
        """Return q with mean zero and covariance near variance * I: at U = 0 exactly, U would have no gradient."""
        num_blocks, num_outputs, size = shape
        scale = 0.1 * (variance / rank) ** 0.5
        U = np.random.default_rng(0).normal(0, scale, size=(num_blocks, size, num_outputs, rank))
        return LowRank(*_start(shape, variance, dtype), jax.device_put(U.astype(dtype)))

    @property
    def variances(self):
        return jnp.exp(2 * self.log_diag)

    @property
    def factor(self):
        U = self.directions
        return U, jnp.ones((U.shape[0], *U.shape[2:]), U.dtype)

    def kl(self):
        # log|D + U U^T| = log|D| + log|I + W^T W| with W = D^-1/2 U.
        W = self.directions * jnp.exp(-jnp.swapaxes(self.log_diag, 1, 2))[..., None]
        inner = jnp.einsum("bmpi,bmpj->bpij", W, W) + jnp.eye(W.shape[-1], dtype=W.dtype)
        trace = jnp.sum(self.variances) + jnp.sum(self.directions**2)
        return 0.5 * (trace + jnp.sum(self.mean**2 - 1 - 2 * self.log_diag) - jnp.sum(small_log_det(inner)))


def _start(shape: tuple[int, int, int], variance: float, dtype) -> tuple[Array, Array]:
    """Return a mean of zero and the logs of standard deviations variance^1/2."""
    return jax.device_put(np.zeros(shape, dtype)), jax.device_put(np.full(shape, 0.5 * np.log(variance), dtype))
