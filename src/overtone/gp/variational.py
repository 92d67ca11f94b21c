"""The variational posterior q(v) of whitened inducing variables, whose prior is N(0, I).

One Gaussian for each block (B) of M variables and each output (P); blocks are independent under q. Its covariance is
    S = L diag(variances) L^T,   L unit lower triangular, or the identity,
so q is never degenerate. Writing A for the whitened cross-covariance between inducing variables and function values:
    mean = A^T m,   variance from q = diag(A^T S A),   KL = (tr S + |m|^2 - M - log|S|) / 2.
L is a stored array as it is, so that matrix products read it from where it lies, and its rows come before the outputs,
so that one product serves all outputs.
"""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from overtone.numerics.params import Param


class AbstractGaussian(eqx.Module):
    """q(v) = N(mean, L diag(exp(2 log_diag)) L^T) for each block and output."""

    mean: Param  # (B, P, M)
    log_diag: Param  # (B, P, M)

    @property
    @abstractmethod
    def factor(self) -> Float[Array, "B M P M"] | None:
        """L, or None for the identity."""

    @property
    def variances(self) -> Float[Array, "B P M"]:
        """The variances of the columns of L."""
        return jnp.exp(2 * self.log_diag)

    def kl(self) -> Float[Array, ""]:
        """Return KL(q || N(0, I)), summed over blocks and outputs."""
        columns = 1.0 if self.factor is None else jnp.sum(self.factor**2, axis=1)
        return 0.5 * jnp.sum(self.variances * columns + self.mean**2 - 1 - 2 * self.log_diag)

    def project(self, A: Float[Array, "BM N"]) -> Float[Array, "N P"]:
        """Return A^T m."""
        return (jnp.swapaxes(self.mean, 0, 1).reshape(self.mean.shape[1], -1) @ A).T

    def spread(self, A: Float[Array, "BM N"]) -> Float[Array, "N P"]:
        """Return the sum over blocks of A^T S A, for each column of A."""
        blocks = self._blocks(A)
        if self.factor is None:
            return jnp.einsum("bmn,bpm->np", blocks**2, self.variances)
        return jnp.einsum("bpkn,bpk->np", jnp.einsum("bmpk,bmn->bpkn", self.factor, blocks) ** 2, self.variances)

    def sample(self, key: PRNGKeyArray) -> Float[Array, "B P M"]:
        """Return one draw of v."""
        v = jnp.exp(self.log_diag) * jax.random.normal(key, self.mean.shape, self.mean.dtype)
        return self.mean + (v if self.factor is None else jnp.einsum("bmpk,bpk->bpm", self.factor, v))

    def _blocks(self, A: Float[Array, "BM N"]) -> Float[Array, "B M N"]:
        return A.reshape(self.mean.shape[0], self.mean.shape[2], -1)


class Full(AbstractGaussian):
    """S without structure."""

    unit: Param  # L, (B, M, P, M): its ones and zeros have no gradient, and so stay

    @staticmethod
    def start(shape: tuple[int, int, int], variance: float, dtype) -> "Full":
        """Return q with mean zero and covariance variance * I."""
        num_blocks, num_outputs, size = shape
        eye = np.broadcast_to(np.eye(size, dtype=dtype)[None, :, None], (num_blocks, size, num_outputs, size))
        return Full(*_start(shape, variance, dtype), jax.device_put(eye))

    @property
    def factor(self):
        row, column = np.arange(self.unit.shape[1])[:, None, None], np.arange(self.unit.shape[-1])
        return jnp.where(row > column, self.unit, jax.lax.stop_gradient(self.unit))


class Joint:
    """A full covariance over all features of a layer, of all blocks together: stands for `Full` in `Layer(q=...)`."""

    @staticmethod
    def start(shape: tuple[int, int, int], variance: float, dtype) -> Full:
        num_blocks, num_outputs, size = shape
        return Full.start((1, num_outputs, num_blocks * size), variance, dtype)


class MeanField(AbstractGaussian):
    """S diagonal."""

    @staticmethod
    def start(shape: tuple[int, int, int], variance: float, dtype) -> "MeanField":
        """Return q with mean zero and covariance variance * I."""
        return MeanField(*_start(shape, variance, dtype))

    @property
    def factor(self):
        return None


def _start(shape: tuple[int, int, int], variance: float, dtype) -> tuple[Array, Array]:
    """Return a mean of zero and the logs of standard deviations variance^1/2."""
    return jax.device_put(np.zeros(shape, dtype)), jax.device_put(np.full(shape, 0.5 * np.log(variance), dtype))
