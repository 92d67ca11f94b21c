"""A mixture of S Gaussians at each of N rows and P outputs.

This is what a deep GP predicts: S draws through the inner layers, the last layer's Gaussian for
each. The sample axis stays in here: every method returns arrays of shape (N, P).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

MOST_TURNS = 60  # of the search for a quantile


class Mixture(eqx.Module):
    """sum_s weights[s] N(means[s], variances[s]); without weights, all count alike."""

    means: Float[Array, "S N P"]
    variances: Float[Array, "S N P"]
    log_weights: Float[Array, "S N P"] | None = None

    def _average(self, values: Float[Array, "S N P"]) -> Float[Array, "N P"]:
        if self.log_weights is None:
            return jnp.mean(values, axis=0)
        return jnp.sum(jnp.exp(self.log_weights) * values, axis=0)

    def mean(self) -> Float[Array, "N P"]:
        return self._average(self.means)

    def var(self) -> Float[Array, "N P"]:
        """Mean of the variances plus variance of the means."""
        return self._average(self.variances + (self.means - self.mean()) ** 2)

    def std(self) -> Float[Array, "N P"]:
        return jnp.sqrt(self.var())

    def log_prob(self, y: Float[Array, "N P"]) -> Float[Array, "N P"]:
        """log sum_s weights[s] N(y; ...), the log of the mean and never the mean of the logs."""
        z = (y - self.means) ** 2 / self.variances
        log_components = -0.5 * (z + jnp.log(2 * jnp.pi * self.variances))
        log_weights = -jnp.log(self.means.shape[0]) if self.log_weights is None else self.log_weights
        return jax.nn.logsumexp(log_components + log_weights, axis=0)

    def cdf(self, y: Float[Array, "N P"]) -> Float[Array, "N P"]:
        return self._average(jax.scipy.stats.norm.cdf(y, self.means, jnp.sqrt(self.variances)))

    def crps(self, y: Float[Array, "N P"]) -> Float[Array, "N P"]:
        """The continuous ranked probability score, E|Y - y| - E|Y - Y'| / 2 for independent Y and Y' of the mixture."""

        def to_others(component):
            mean, var = component
            return self._average(_absolute(self.means - mean, self.variances + var))

        spread = self._average(jax.lax.map(to_others, (self.means, self.variances)))
        return self._average(_absolute(y - self.means, self.variances)) - 0.5 * spread

    def quantile(self, level: float | Float[Array, ""]) -> Float[Array, "N P"]:
        """The value below which a share `level` of the mass lies, by Newton's method.

        The mixture's quantile lies between the smallest and the largest of its components'. Where a step would leave
        the bracket, or the steps do not get shorter, the bracket is halved instead.
        """
        flat = jax.tree.map(lambda a: a.reshape(len(a), 1, -1), self)  # one long loop over rows and outputs
        std, eps = jnp.sqrt(flat.variances), jnp.finfo(self.means.dtype).eps
        each = flat.means + std * jax.scipy.stats.norm.ppf(level)
        low, high = each.min(axis=0), each.max(axis=0)
        start = jnp.clip(flat.mean() + flat.std() * jax.scipy.stats.norm.ppf(level), low, high)
        near = eps * (2 * jnp.abs(start) + 32 * flat.std())

        def improve(state):
            turn, low, high, x, last = state
            z = (x - flat.means) / std
            excess = flat._average(jax.scipy.special.ndtr(z)) - level
            low, high = jnp.where(excess < 0, x, low), jnp.where(excess < 0, high, x)
            to = x - excess / flat._average(jax.scipy.stats.norm.pdf(z) / std)
            good = (to >= low) & (to <= high) & (jnp.abs(to - x) < 0.5 * last)
            to = jnp.where(good, to, 0.5 * (low + high))
            # What is found stays, whatever the other rows still need.
            to = jnp.where((last <= near) | (jnp.abs(excess) <= 8 * eps * level), x, to)
            return turn + 1, low, high, to, jnp.abs(to - x)

        def goes_on(state):
            turn, _, _, _, last = state
            return (turn < MOST_TURNS) & jnp.any(last > near)

        found = jax.lax.while_loop(goes_on, improve, (0, low, high, start, jnp.full_like(start, jnp.inf)))[3]
        return found.reshape(self.means.shape[1:])


def _absolute(mean: Array, var: Array) -> Array:
    """E|Z| of Z ~ N(mean, var)."""
    std = jnp.sqrt(var)
    z = mean / std
    return 2 * std * jax.scipy.stats.norm.pdf(z) + mean * (2 * jax.scipy.stats.norm.cdf(z) - 1)
