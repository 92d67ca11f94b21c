"""A mixture of S Gaussians with equal weights, at each of N rows and P outputs.

This is what a deep GP predicts: S draws through the inner layers, the last layer's Gaussian for
each. The sample axis stays in here: every method returns arrays of shape (N, P).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class Mixture(eqx.Module):
    """(1/S) sum_s N(means[s], variances[s])."""

    means: Float[Array, "S N P"]
    variances: Float[Array, "S N P"]

    def mean(self) -> Float[Array, "N P"]:
        return jnp.mean(self.means, axis=0)

    def var(self) -> Float[Array, "N P"]:
        """Mean of the variances plus variance of the means."""
        return jnp.mean(self.variances, axis=0) + jnp.var(self.means, axis=0)

    def std(self) -> Float[Array, "N P"]:
        return jnp.sqrt(self.var())

    def log_prob(self, y: Float[Array, "N P"]) -> Float[Array, "N P"]:
        """log (1/S) sum_s N(y; ...), the log of the mean and never the mean of the logs."""
        z = (y - self.means) ** 2 / self.variances
        log_components = -0.5 * (z + jnp.log(2 * jnp.pi * self.variances))
        return jax.nn.logsumexp(log_components, axis=0) - jnp.log(self.means.shape[0])

    def cdf(self, y: Float[Array, "N P"]) -> Float[Array, "N P"]:
        return jnp.mean(jax.scipy.stats.norm.cdf(y, self.means, jnp.sqrt(self.variances)), axis=0)

    def quantile(self, level: float | Float[Array, ""]) -> Float[Array, "N P"]:
        """The value below which a share `level` of the mass lies, by bisection.

        The mixture's quantile lies between the smallest and the largest of its components'.
        """
        each = self.means + jnp.sqrt(self.variances) * jax.scipy.stats.norm.ppf(level)

        def halve(_, bracket):
            low, high = bracket
            middle = 0.5 * (low + high)
            below = self.cdf(middle) < level
            return jnp.where(below, middle, low), jnp.where(below, high, middle)

        low, high = jax.lax.fori_loop(0, 60, halve, (each.min(axis=0), each.max(axis=0)))
        return 0.5 * (low + high)
