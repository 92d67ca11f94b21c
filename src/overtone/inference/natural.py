"""The output layer by natural gradients, for minibatches and any likelihood.

The best q(v) depends on the data through two sums over sites (see `overtone.inference.output_layer`). A minibatch
estimates both; a natural-gradient step of size rho on q moves their running averages by rho towards the estimate (Khan
and Lin 2017), and
    q(v) = N(S c, S),   S = (I + gram / noise)^-1,   c = projected / noise
follows, where both sums are in units of the usual noise, so that q is right for the noise of the moment.
The q of a step has not seen the step's own rows: the bound and its gradient are unbiased.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from overtone.gp.likelihoods.base import expected_log_prob
from overtone.gp.model import DeepGP
from overtone.inference.batches import random_rows
from overtone.inference.objective import MANY_STEPS, AbstractObjective, KLWeights
from overtone.inference.output_layer import (
    optimum,
    reference_noise,
    sites,
    with_output,
    with_output_from_rows,
    without_output,
)
from overtone.numerics.linalg import one_by_one
from overtone.numerics.params import unwrap


class OutputMemory(eqx.Module):
    """What is known of the output layer's data, and the q(v) that was last made of it."""

    step: Int[Array, ""]
    planned: Int[Array, ""]  # steps
    num_data: Float[Array, ""]
    gram: Float[Array, "P M M"]  # sum over all sites of precision a a^T, in units of the usual noise, estimated
    projected: Float[Array, "P M"]  # sum of precision value a
    mean: Float[Array, "P M"]
    covariance: Float[Array, "P M M"]
    kl: Float[Array, ""]

    @staticmethod
    def start(model: DeepGP, num_data: int) -> "OutputMemory":
        """Return a memory of nothing, in which q is the prior."""
        layer = model.output
        size, outputs, dtype = layer.features.num_features, layer.num_outputs, layer.q.mean.dtype
        zeros, widest = np.zeros((outputs, size), dtype), jax.dtypes.canonicalize_dtype(np.float64)
        covariance = np.broadcast_to(np.eye(size, dtype=dtype), (outputs, size, size))
        sums = np.zeros((outputs, size, size), widest), zeros.astype(widest)
        steps = np.asarray([0, MANY_STEPS], np.int32)
        arrays = *steps, np.asarray(num_data, dtype), *sums, zeros, covariance, np.zeros((), dtype)
        return OutputMemory(*map(jax.device_put, arrays))


class NaturalGradient(AbstractObjective):
    """An unbiased estimate of the bound, with the output layer's q(v) by natural gradients."""

    num_samples: int = eqx.field(static=True, default=1)
    kl: KLWeights = KLWeights()
    rate: float = eqx.field(static=True, default=0.05)  # of the averages; before enough steps, all steps count alike
    refresh: int = eqx.field(static=True, default=4)  # steps after which q follows the averages
    finish_rows: int = eqx.field(static=True, default=200_000)  # at most
    full_batch = False

    def init(self, model, data):
        return without_output(model), OutputMemory.start(model, len(data.X))

    def loss(self, model, state, key, batch):
        model, (X, y) = unwrap(model), batch
        layer, noise = model.output, reference_noise(model)
        inputs = model.propagate(model.draw_noise(key, self.num_samples, X.shape[0]), X)[-1][0]
        Z, H = layer.at(inputs.reshape(-1, inputs.shape[-1]))
        target, offset = jnp.tile(y, (len(inputs), 1)), layer.mean_function(Z)
        A = layer.features.whitened(layer.kernel, H)
        share = state.num_data / A.shape[1]

        memory = _refreshed(state, noise, self.refresh)
        mean, spread = (memory.mean @ A).T, _spread(memory.covariance, A).T
        var = layer.features.unexplained(layer.kernel, A, H)[:, None] + spread
        likelihood = model.likelihood_with(A, H)
        kl = memory.kl + model.likelihood.kl() + self.kl.hidden(model, memory, X.dtype)
        bound = share * jnp.sum(expected_log_prob(likelihood, target, mean + offset, var)) - kl

        A, *of_rows = jax.lax.stop_gradient((A, *sites(likelihood, target, mean, var, offset)))
        precision, projected = (share * noise.astype(A.dtype)[:, None] * part.T for part in of_rows)
        rate = jnp.maximum(self.rate, 1 / (1 + memory.step))
        moved = (
            memory.step + 1,
            memory.gram + rate * ((A * precision[:, None]) @ A.T - memory.gram),
            memory.projected + rate * (projected @ A.T - memory.projected),
        )
        return -bound / state.num_data, eqx.tree_at(lambda m: (m.step, m.gram, m.projected), memory, moved)

    def finish(self, model, state, key, data=None):
        """Return the model with q(v) of the averages or, given rows, of those; of very many, of a random part.

        The averages are those of the last steps, some 20,000 rows, taken for all: q is surer of them than it may be. A
        part of the rows counts for no more than it is.
        """
        if data is None:
            return with_output(model, state.gram, state.projected)
        # Sites of other likelihoods than the Gaussian are made around the q of the averages.
        known = with_output(model, state.gram, state.projected)
        return with_output_from_rows(known, key, *random_rows(data, self.finish_rows))


def _refreshed(memory: OutputMemory, noise: Float[Array, " P"], every: int) -> OutputMemory:
    """Return the memory with q made of the averages, every few steps, by a system in the precision of `noise`."""

    def refresh(memory: OutputMemory, noise) -> OutputMemory:
        dtype, eye = memory.mean.dtype, jnp.eye(memory.gram.shape[-1], dtype=noise.dtype)
        # Products round independently: a matrix of such errors has a norm of half the root of its size, times one.
        num_errors = 0.5 * len(eye) ** 0.5

        def one(gram, projected, noise):
            rounding = num_errors * jnp.finfo(dtype).eps * jnp.max(jnp.diagonal(gram)) / noise
            found = optimum((gram + rounding * noise * eye) / noise, projected / noise)
            return tuple(part.astype(dtype) for part in found)

        mean, covariance, kl = one_by_one(one)(memory.gram, memory.projected, noise)
        return eqx.tree_at(lambda m: (m.mean, m.covariance, m.kl), memory, (mean, covariance, jnp.sum(kl)))

    memory, noise = jax.lax.stop_gradient((memory, noise))
    due = (memory.step % every == 0) | (memory.step < 4 * every)
    return jax.lax.cond(due, refresh, lambda memory, _: memory, memory, noise)


def _spread(S: Float[Array, "P M M"], A: Float[Array, "M N"]) -> Float[Array, "P N"]:
    """Return A^T S A for each column of A, for symmetric S that need no gradient; that by A is 2 S A."""
    fixed_A, SA = jax.lax.stop_gradient((A, S @ A))
    return jnp.sum((2 * A - fixed_A) * SA, axis=1)
