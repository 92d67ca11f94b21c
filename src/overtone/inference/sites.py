"""Rows as observations of the output layer with Gaussian noise, whatever the likelihood: their sites.

Around the q(v) of the moment each row acts on the output layer like an observation with Gaussian noise: with
E = E[log p(y | f)], f ~ N(mean, var),
    precision = -2 dE/dvar,    precision times value = dE/dmean + precision mean
(for Gaussian noise 1/noise and y). Where a likelihood says how far a row may reach, the precision is raised until the
site's value is no farther from the mean: Newton's steps would overshoot, and the optimum's mean is the same.
The best q depends on the data through two sums over sites, of precision a a^T and of precision value a.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from overtone.gp.likelihoods import AbstractLikelihood
from overtone.gp.likelihoods.base import expected_log_prob
from overtone.gp.model import DeepGP
from overtone.numerics.params import unwrap


def sites(
    likelihood: AbstractLikelihood,
    y: Float[Array, "N Q"],
    mean: Float[Array, "N F"],
    var: Float[Array, "N F"],
    offset: Float[Array, "N F"] | float = 0.0,
) -> tuple[Float[Array, "N F"], Float[Array, "N F"]]:
    """Return the precision of each row's site, and precision times value, for functions N(offset + mean, var)."""

    def total(mean, var):
        return jnp.sum(expected_log_prob(likelihood, y, mean + offset, var))

    by_mean, by_var = jax.grad(total, argnums=(0, 1))(mean, var)
    precision = jnp.maximum(-2 * by_var, jnp.abs(by_mean) / likelihood.reach)
    return precision, by_mean + precision * mean


def site_sums(
    model: DeepGP, key: PRNGKeyArray, X: Float[Array, "N D"], y: Float[Array, "N Q"], weights, num_samples: int
) -> tuple[Float[Array, "P M M"], Float[Array, "P M"]]:
    """Return both sums over the sites of these rows, in units of the usual noise, averaged over hidden draws."""
    model = unwrap(model)
    layer, noise = model.output, reference_noise(model)

    def one(key):
        inputs, mean, var = (part[0] for part in model.propagate(model.draw_noise(key, 1, X.shape[0]), X)[-1])
        Z, H = layer.at(inputs)
        offset = layer.mean_function(Z)
        A = layer.features.whitened(layer.kernel, H)
        of_rows = sites(model.likelihood_with(A, H), y, mean - offset, var, offset)
        precision, projected = ((noise * weights[:, None] * part).T for part in of_rows)
        return A.astype(noise.dtype), precision / num_samples, projected / num_samples

    num_samples = num_samples if len(model.layers) > 1 else 1
    draws = jax.lax.map(one, jax.random.split(key, num_samples))
    A, precision, projected = (jnp.moveaxis(part, 0, 1).reshape(part.shape[1], -1) for part in draws)  # rows of all
    return jax.lax.map(lambda each: (A * each) @ A.T, precision), projected @ A.T


def reference_noise(model: DeepGP) -> Float[Array, " P"]:
    """Return the usual noise variance of each output, in the widest precision that is switched on."""
    return model.likelihood.reference.astype(jax.dtypes.canonicalize_dtype(jnp.float64))
