"""The output layer by natural gradients, for minibatches of regression with Gaussian noise.

The optimal q(v) of the last layer depends on the data through two sums over rows, A A^T and A y. A minibatch estimates
both; a natural-gradient step of size rho on q moves their running averages by rho towards the estimate, and
    q(v) = N(S c, S),   S = (I + gram / noise)^-1,   c = (A y) / noise
follows, at the noise of the moment. So all else is trained against a q that is the optimum, up to the averaging.
The q of a step has not seen the step's own rows: the bound and its gradient are unbiased.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from overtone.collapsed import gaussian_noise
from overtone.features.base import residual
from overtone.model import DeepGP
from overtone.params import unwrap

RATE = 0.05  # of the averages, once they have seen enough steps; before, all steps count alike
REFRESH = 4  # steps after which q follows the averages


class OutputMemory(eqx.Module):
    """What is known of the output layer's data, and the q(v) that was last made of it."""

    step: Int[Array, ""]
    gram: Float[Array, "M M"]  # sum of A A^T over all rows, estimated
    projected: Float[Array, "P M"]  # sum of A y
    mean: Float[Array, "P M"]
    covariance: Float[Array, "P M M"]
    kl: Float[Array, ""]

    @staticmethod
    def start(model: DeepGP) -> "OutputMemory":
        """Nothing is known: q is the prior."""
        layer = model.layers[-1]
        size, outputs, dtype = layer.features.num_features, layer.num_outputs, layer.q.mean.dtype
        zeros, widest = np.zeros((outputs, size), dtype), jax.dtypes.canonicalize_dtype(np.float64)
        covariance = np.broadcast_to(np.eye(size, dtype=dtype), (outputs, size, size))
        sums = np.zeros((size, size), widest), zeros.astype(widest)
        arrays = np.zeros((), np.int32), *sums, zeros, covariance, np.zeros((), dtype)
        return OutputMemory(*map(jax.device_put, arrays))


def natural_elbo(
    model: DeepGP,
    memory: OutputMemory,
    key: PRNGKeyArray,
    X: Float[Array, "N D"],
    y: Float[Array, "N P"],
    *,
    num_data: int,
    num_samples: int = 1,
) -> tuple[Float[Array, ""], OutputMemory]:
    """An unbiased estimate of the bound under the memory's q(v), and the memory after these rows."""
    model = unwrap(model)
    layer, noise = model.layers[-1], gaussian_noise(model)
    inputs, _, _ = model.propagate(model.draw_noise(key, num_samples, X.shape[0]), X)[-1]
    Z, H = layer.place(inputs.reshape(-1, inputs.shape[-1]))
    target = jnp.tile(y, (len(inputs), 1)) - layer.mean_function(Z)
    A = layer.features.whitened(layer.kernel, H)
    share = num_data / A.shape[1]

    memory, noise = _refreshed(memory, noise), noise.astype(A.dtype)
    var = residual(layer.kernel, A, H) + _spread(memory.covariance, A)
    each = jnp.log(2 * jnp.pi * noise)[:, None] + ((target.T - memory.mean @ A) ** 2 + var) / noise[:, None]
    kl = sum((layer.kl() for layer in model.layers[:-1]), start=memory.kl)
    bound = -0.5 * share * jnp.sum(each) - kl

    A, target = jax.lax.stop_gradient((A, target))
    rate = jnp.maximum(RATE, 1 / (1 + memory.step))
    moved = (
        memory.step + 1,
        memory.gram + rate * (share * (A @ A.T) - memory.gram),
        memory.projected + rate * (share * (target.T @ A.T) - memory.projected),
    )
    return bound, eqx.tree_at(lambda m: (m.step, m.gram, m.projected), memory, moved)


def _refreshed(memory: OutputMemory, noise: Float[Array, " P"]) -> OutputMemory:
    """The memory with q made of the averages, every few steps; the system is solved in the precision of `noise`."""

    def refresh(memory: OutputMemory, noise) -> OutputMemory:
        dtype, eye = memory.mean.dtype, jnp.eye(len(memory.gram), dtype=noise.dtype)

        def one(projected, noise):
            chol = jnp.linalg.cholesky(eye + memory.gram / noise)
            half = jax.scipy.linalg.solve_triangular(chol, eye, lower=True)
            covariance = half.T @ half
            mean = covariance @ projected / noise
            log_det = 2 * jnp.sum(jnp.log(jnp.diagonal(chol)))
            kl = 0.5 * (jnp.trace(covariance) + mean @ mean - len(mean) + log_det)
            return mean.astype(dtype), covariance.astype(dtype), kl.astype(dtype)

        mean, covariance, kl = jax.vmap(one)(memory.projected, noise)
        return eqx.tree_at(lambda m: (m.mean, m.covariance, m.kl), memory, (mean, covariance, jnp.sum(kl)))

    memory, noise = jax.lax.stop_gradient((memory, noise))
    due = (memory.step % REFRESH == 0) | (memory.step < 4 * REFRESH)
    return jax.lax.cond(due, refresh, lambda memory, _: memory, memory, noise)


@jax.custom_vjp
def _spread(S: Float[Array, "P M M"], A: Float[Array, "M N"]) -> Float[Array, "P N"]:
    """A^T S A for each column of A, for symmetric S that need no gradient."""
    return _spread_forward(S, A)[0]


def _spread_forward(S, A):
    SA = S @ A
    return jnp.sum(A * SA, axis=1), (S, SA)


def _spread_backward(saved, gradient):
    S, SA = saved
    return jnp.zeros_like(S), 2 * jnp.sum(gradient[:, None] * SA, axis=0)


_spread.defvjp(_spread_forward, _spread_backward)
