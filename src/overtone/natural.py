"""The output layer by natural gradients, for minibatches.

Around the q(v) of the moment each row acts on the output layer like an observation with Gaussian noise, its site: with
E = E[log p(y | f)], f ~ N(mean, var),
    precision = -2 dE/dvar,    precision times value = dE/dmean + precision mean
(for Gaussian noise 1/noise and y). Where a likelihood says how far a row may reach, the precision is raised until the
site's value is no farther from the mean: Newton's steps would overshoot, and the optimum's mean is the same.
The best q depends on the data through two sums over sites, of precision a a^T and of precision value a. A minibatch
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
from jaxtyping import Array, Float, Int, PRNGKeyArray

from overtone.collapsed import reference_noise
from overtone.likelihoods import AbstractLikelihood
from overtone.likelihoods.base import expected_log_prob
from overtone.linalg import one_by_one
from overtone.model import DeepGP
from overtone.params import unwrap

RATE = 0.05  # of the averages, once they have seen enough steps; before, all steps count alike
REFRESH = 4  # steps after which q follows the averages


class OutputMemory(eqx.Module):
    """What is known of the output layer's data, and the q(v) that was last made of it."""

    step: Int[Array, ""]
    gram: Float[Array, "P M M"]  # sum over all sites of precision a a^T, in units of the usual noise, estimated
    projected: Float[Array, "P M"]  # sum of precision value a
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
        sums = np.zeros((outputs, size, size), widest), zeros.astype(widest)
        arrays = np.zeros((), np.int32), *sums, zeros, covariance, np.zeros((), dtype)
        return OutputMemory(*map(jax.device_put, arrays))


def natural_elbo(
    model: DeepGP,
    memory: OutputMemory,
    key: PRNGKeyArray,
    X: Float[Array, "N D"],
    y: Float[Array, "N Q"],
    *,
    num_data: int | Float[Array, ""],
    num_samples: int = 1,
    hidden_weight: float | Float[Array, ""] = 1.0,
    added_weight: float = 1.0,
) -> tuple[Float[Array, ""], OutputMemory]:
    """An unbiased estimate of the bound under the memory's q(v), and the memory after these rows.

    The divergence of the hidden layers, and of the processes added to them, may count less than it should.
    """
    model = unwrap(model)
    layer, noise = model.layers[-1], reference_noise(model)
    inputs, _, _ = model.propagate(model.draw_noise(key, num_samples, X.shape[0]), X)[-1]
    Z, H = layer.place(inputs.reshape(-1, inputs.shape[-1]))
    target, offset = jnp.tile(y, (len(inputs), 1)), layer.mean_function(Z)
    A = layer.features.whitened(layer.kernel, H)
    share = num_data / A.shape[1]

    memory = _refreshed(memory, noise)
    mean, var = (memory.mean @ A).T, (layer.features.unexplained(layer.kernel, A, H) + _spread(memory.covariance, A)).T
    likelihood = model.likelihood_of(A, H, (A.shape[1],))
    hidden = sum((layer.kl(added_weight) for layer in model.layers[:-1]), start=jnp.zeros((), X.dtype))
    kl = memory.kl + model.likelihood.kl() + hidden_weight * hidden
    bound = share * jnp.sum(expected_log_prob(likelihood, target, mean + offset, var)) - kl

    A, *of_sites = jax.lax.stop_gradient((A, *sites(likelihood, target, mean, var, offset)))
    precision, projected = (share * noise.astype(A.dtype)[:, None] * part.T for part in of_sites)
    rate = jnp.maximum(RATE, 1 / (1 + memory.step))
    moved = (
        memory.step + 1,
        memory.gram + rate * ((A * precision[:, None]) @ A.T - memory.gram),
        memory.projected + rate * (projected @ A.T - memory.projected),
    )
    return bound, eqx.tree_at(lambda m: (m.step, m.gram, m.projected), memory, moved)


def sites(
    likelihood: AbstractLikelihood,
    y: Float[Array, "N Q"],
    mean: Float[Array, "N F"],
    var: Float[Array, "N F"],
    offset: Float[Array, "N F"] | float = 0.0,
) -> tuple[Float[Array, "N F"], Float[Array, "N F"]]:
    """The precision of each row's site, and precision times value, for functions N(offset + mean, var)."""

    def total(mean, var):
        return jnp.sum(expected_log_prob(likelihood, y, mean + offset, var))

    by_mean, by_var = jax.grad(total, argnums=(0, 1))(mean, var)
    precision = jnp.maximum(-2 * by_var, jnp.abs(by_mean) / likelihood.reach)
    return precision, by_mean + precision * mean


def site_sums(
    model: DeepGP, key: PRNGKeyArray, X: Float[Array, "N D"], y: Float[Array, "N Q"], weights, num_samples: int
):
    """Both sums over the sites of these rows, around the model's own q(v), averaged over hidden draws."""
    model = unwrap(model)
    layer, noise = model.layers[-1], reference_noise(model)

    def one(key):
        inputs, mean, var = (part[0] for part in model.propagate(model.draw_noise(key, 1, X.shape[0]), X)[-1])
        Z, H = layer.place(inputs)
        offset = layer.mean_function(Z)
        A = layer.features.whitened(layer.kernel, H)
        of_sites = sites(model.likelihood_of(A, H, (len(X),)), y, mean - offset, var, offset)
        precision, projected = ((noise * weights[:, None] * part).T for part in of_sites)
        return A.astype(noise.dtype), precision / num_samples, projected / num_samples

    num_samples = num_samples if len(model.layers) > 1 else 1
    draws = jax.lax.map(one, jax.random.split(key, num_samples))
    A, precision, projected = (jnp.moveaxis(part, 0, 1).reshape(part.shape[1], -1) for part in draws)  # rows of all
    return jax.lax.map(lambda each: (A * each) @ A.T, precision), projected @ A.T


def _refreshed(memory: OutputMemory, noise: Float[Array, " P"]) -> OutputMemory:
    """The memory with q made of the averages, every few steps; the system is solved in the precision of `noise`."""

    def refresh(memory: OutputMemory, noise) -> OutputMemory:
        dtype, eye = memory.mean.dtype, jnp.eye(memory.gram.shape[-1], dtype=noise.dtype)

        def one(gram, projected, noise):
            rounding = jnp.finfo(dtype).eps * jnp.max(jnp.diagonal(gram)) / noise  # of the products in the sum
            chol = jnp.linalg.cholesky((1 + rounding) * eye + gram / noise)
            half = jax.scipy.linalg.solve_triangular(chol, eye, lower=True)
            covariance = half.T @ half
            mean = covariance @ projected / noise
            log_det = 2 * jnp.sum(jnp.log(jnp.diagonal(chol)))
            kl = 0.5 * (jnp.trace(covariance) + mean @ mean - len(mean) + log_det)
            return mean.astype(dtype), covariance.astype(dtype), kl.astype(dtype)

        mean, covariance, kl = one_by_one(one)(memory.gram, memory.projected, noise)
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
