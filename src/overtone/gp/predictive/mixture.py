"""A mixture of S Gaussians at each of N rows and P outputs.

This is what a deep GP predicts: S draws through the inner layers, the last layer's Gaussian for
each. The sample axis stays inside: every method returns arrays of shape (N, P).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from overtone.numerics.roots import increasing_root

MAX_QUANTILE_STEPS = 60


def average(values: Float[Array, "S N P"], log_weights: Float[Array, "S N P"] | None) -> Float[Array, "N P"]:
    """Return the mean over the components; without weights, all count alike."""
    return jnp.mean(values, axis=0) if log_weights is None else jnp.sum(jnp.exp(log_weights) * values, axis=0)


class Mixture(eqx.Module):
    """The mixture sum_s weights[s] N(means[s], variances[s]); without weights, all components count alike."""

    means: Float[Array, "S N P"]
    variances: Float[Array, "S N P"]
    log_weights: Float[Array, "S N P"] | None = None

    def _average(self, values: Float[Array, "S N P"]) -> Float[Array, "N P"]:
        return average(values, self.log_weights)

    def mean(self) -> Float[Array, "N P"]:
        """Return the mean."""
        return self._average(self.means)

    def var(self) -> Float[Array, "N P"]:
        """Return the variance, which is the mean of the variances plus the variance of the means."""
        return self._average(self.variances + (self.means - self.mean()) ** 2)

    def std(self) -> Float[Array, "N P"]:
        """Return the standard deviation."""
        return jnp.sqrt(self.var())

    def log_prob(self, y: Float[Array | np.ndarray, "N P"]) -> Float[Array, "N P"]:
        """Return log sum_s weights[s] N(y; ...), the log of the mean and never the mean of the logs."""
        squares = (y - self.means) ** 2 / self.variances
        log_components = -0.5 * (squares + jnp.log(2 * jnp.pi * self.variances))
        log_weights = -jnp.log(self.means.shape[0]) if self.log_weights is None else self.log_weights
        return jax.nn.logsumexp(log_components + log_weights, axis=0)

    def cdf(self, y: Float[Array | np.ndarray, "N P"]) -> Float[Array, "N P"]:
        """Return P(Y <= y)."""
        return self._average(jax.scipy.stats.norm.cdf(y, self.means, jnp.sqrt(self.variances)))

    def crps(self, y: Float[Array | np.ndarray, "N P"]) -> Float[Array, "N P"]:
        """Return the continuous ranked probability score, E|Y - y| - E|Y - Y'| / 2.

        Y and Y' are independent draws of the mixture.
        """

        def distance_to_all(component):
            mean, var = component
            return self._average(_mean_absolute(self.means - mean, self.variances + var))

        between_draws = self._average(jax.lax.map(distance_to_all, (self.means, self.variances)))
        return self._average(_mean_absolute(jnp.asarray(y) - self.means, self.variances)) - 0.5 * between_draws

    def quantile(self, level: float | Float[Array, ""]) -> Float[Array, "N P"]:
        """Return the value below which a share `level` of the mass lies, by Newton's method.

        The mixture's quantile lies between the smallest and the largest of its components'.
        """
        flat = jax.tree.map(lambda a: a.reshape(len(a), 1, -1), self)  # one long loop over rows and outputs
        std, eps = jnp.sqrt(flat.variances), jnp.finfo(self.means.dtype).eps
        component_quantiles = flat.means + std * jax.scipy.stats.norm.ppf(level)
        low, high = component_quantiles.min(axis=0), component_quantiles.max(axis=0)
        start = jnp.clip(flat.mean() + flat.std() * jax.scipy.stats.norm.ppf(level), low, high)
        tolerance = eps * (2 * jnp.abs(start) + 32 * flat.std())

        def excess(x):
            z = (x - flat.means) / std
            excess = flat._average(jax.scipy.special.ndtr(z)) - level
            density = flat._average(jax.scipy.stats.norm.pdf(z) / std)
            return excess, density, jnp.abs(excess) <= 8 * eps * level

        quantile = increasing_root(excess, low, high, start, tolerance, MAX_QUANTILE_STEPS)
        return quantile.reshape(self.means.shape[1:])


def _mean_absolute(mean: Array, var: Array) -> Array:
    """Return E|Z| of Z ~ N(mean, var)."""
    std = jnp.sqrt(var)
    z = mean / std
    return 2 * std * jax.scipy.stats.norm.pdf(z) + mean * (2 * jax.scipy.stats.norm.cdf(z) - 1)
