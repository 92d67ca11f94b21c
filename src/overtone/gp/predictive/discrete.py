"""Predictive distributions of classes and counts. As in a `Mixture`, the axis of draws stays inside."""

from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.stats import norm

from overtone.gp.predictive.mixture import average, of_rows

NUM_STRATA = 16  # pieces of a Gaussian
MAX_HALVINGS = 60  # of the bracket of a quantile
MAX_CRPS_STEPS = 64  # of the integral over counts
CRPS_TAIL = 1e-4  # the probability that the integral leaves out at either end


class Classes(eqx.Module):
    """The probability of each class."""

    probabilities: Float[Array, "N C"]

    def mean(self) -> Float[Array, "N C"]:
        """Return the means of the classes' indicators, which are the probabilities."""
        return self.probabilities


class Counts(eqx.Module):
    """A mixture of Poisson distributions whose rates are uncertain: `spreads` are their relative standard deviations.

    Without weights, all components count alike.
    """

    rates: Float[Array, "S N P"]
    spreads: Float[Array, "S N P"]
    log_weights: Float[Array, "S N P"] | None = None

    def _average(self, values: Float[Array, "S N P"]) -> Float[Array, "N P"]:
        return average(values, self.log_weights)

    @of_rows
    def mean(self) -> Float[Array, "N P"]:
        """Return the mean count."""
        return self._average(self.rates)

    @of_rows
    def std(self) -> Float[Array, "N P"]:
        """Return the standard deviation: a Poisson distribution's variance is its rate; that of the rates is added."""
        within = self.rates + (self.rates * self.spreads) ** 2
        return jnp.sqrt(self._average(within + (self.rates - self.mean()) ** 2))

    @of_rows
    def at_most(self, y: Float[Array, "N P"]) -> Float[Array, "N P"]:
        """Return P(Y <= y)."""
        return self._average(poisson_cdf(jnp.floor(y), self.rates, self.spreads))

    @of_rows
    def cdf(self, y: Float[Array, "N P"]) -> Float[Array, "N P"]:
        """Return P(Y < y) + P(Y = y) / 2, which is nearly uniform where predictions are honest."""
        return 0.5 * (self.at_most(y) + self.at_most(y - 1))

    @of_rows
    def quantile(self, level: float | Float[Array, ""]) -> Float[Array, "N P"]:
        """Return the smallest count with at least this share of the mass at or below it, by bisection."""
        upper = self.rates + 10 * jnp.sqrt(self.rates + (self.rates * self.spreads) ** 2)
        high = jnp.ceil(jnp.max(upper, axis=0) + 20)

        def is_open(state):
            halvings, low, high = state
            return (halvings < MAX_HALVINGS) & jnp.any(high - low > 1)

        def halve(state):
            halvings, low, high = state  # P(Y <= low) < level <= P(Y <= high)
            middle = jnp.floor(0.5 * (low + high))
            below = self.at_most(middle) < level
            return halvings + 1, jnp.where(below, middle, low), jnp.where(below, high, middle)

        return jax.lax.while_loop(is_open, halve, (0, -jnp.ones_like(high), high))[2]

    @of_rows
    def crps(self, y: Float[Array, "N P"]) -> Float[Array, "N P"]:
        """Return the continuous ranked probability score, the integral of (P(Y <= x) - [y <= x])^2.

        It is a sum over whole numbers x, or over both ends of steps where there are many.
        """
        low = jnp.minimum(self.quantile(CRPS_TAIL), y)
        high = jnp.maximum(self.quantile(1 - CRPS_TAIL), y)
        step = jnp.maximum(jnp.ceil((high - low) / MAX_CRPS_STEPS), 1)

        def add_step(i, total):
            ends = low + step * i, low + step * (i + 1) - 1
            return total + 0.5 * step * sum((self.at_most(x) - (y <= x)) ** 2 for x in ends)

        return jax.lax.fori_loop(0, MAX_CRPS_STEPS + 1, add_step, jnp.zeros_like(y))


@lru_cache
def strata() -> tuple[np.ndarray, np.ndarray]:
    """Return the means and standard deviations of N(0, 1) in pieces of equal probability."""
    edges = norm.ppf(np.linspace(0, 1, NUM_STRATA + 1))
    density, moment = norm.pdf(edges), np.nan_to_num(edges, posinf=0, neginf=0) * norm.pdf(edges)
    means = -NUM_STRATA * np.diff(density)
    return means, np.sqrt(1 - NUM_STRATA * np.diff(moment) - means**2)


def merged(
    positions: Float[Array, " S"],
    weights: Float[Array, " S"],
    means: Float[Array, "S *N"],
    variances: Float[Array, "S *N"],
    num_groups: int,
) -> tuple[Float[Array, " K"], Float[Array, "K *N"], Float[Array, "K *N"]]:
    """Return weights, means and variances of K groups of S components; the mixture keeps its mean and its variance.

    The positions of the components increase. A component belongs to the two groups next to it, the more the nearer it
    is: normal distributions in place of such groups add up to a smooth distribution, while in place of groups side by
    side they leave ripples.
    """
    scaled = (positions - positions[0]) / (positions[-1] - positions[0]) * (num_groups - 1)
    below = jnp.clip(jnp.floor(scaled).astype(int), 0, num_groups - 2)
    share_above = scaled - below
    sides = (below, weights * (1 - share_above)), (below + 1, weights * share_above)
    by_side = [jax.nn.one_hot(group, num_groups, dtype=weights.dtype) * share[:, None] for group, share in sides]
    group_weights = jnp.sum(sum(by_side), axis=0)

    def average(shares, values):
        total = jnp.tensordot(shares, values, axes=(0, 0), precision=jax.lax.Precision.HIGHEST)
        return total / jnp.maximum(group_weights, jnp.finfo(total.dtype).tiny).reshape(-1, *[1] * (total.ndim - 1))

    group_means = average(sum(by_side), means)
    squares = [variances + (means - group_means[group]) ** 2 for group, _ in sides]
    return group_weights, group_means, average(by_side[0], squares[0]) + average(by_side[1], squares[1])


def poisson_cdf(
    k: Float[Array, "*#S"], rate: Float[Array, "*#S"], spread: Float[Array, "*#S"] | float = 0.0
) -> Float[Array, "*S"]:
    """Return P(Y <= k) for whole k: exact for k < 2, then by Peizer and Pratt's normal approximation (1968).

    Its error is below 2.1e-4. The exact value is an incomplete gamma function, hundreds of times slower. A rate that is
    uncertain by a factor of standard deviation `spread` makes the distribution wider, as far as it is normal: the
    variance is rate + (rate spread)^2.
    """
    rate = jnp.maximum(rate, np.finfo(np.float32).tiny)
    centre = jnp.maximum(k, 2) + 0.5
    ratio = (centre - rate) / centre
    # The deviance 2 (c log(c / rate) - c + rate) is c ratio^2 (1 + 2 ratio / 3 + ratio^2 / 2 + ...).
    by_series = jnp.abs(ratio) < 1e-2
    safe_ratio = jnp.where(by_series, 0.5, jnp.minimum(ratio, 1 - 1e-7))
    deviance = -2 * (jnp.log1p(-safe_ratio) + safe_ratio)
    series = jnp.sqrt(1 + 2 * ratio / 3 + ratio**2 / 2)
    root = jnp.where(by_series, series, jnp.sqrt(deviance) / jnp.abs(safe_ratio))
    distance = centre + 1 / 6 - rate + 0.02 / (centre + 0.5)
    approximate = jax.scipy.stats.norm.cdf(distance / jnp.sqrt(centre * (1 + rate * spread**2)) * root)
    exact = jnp.exp(-rate) * jnp.where(k < 1, 1, 1 + rate)
    return jnp.where(k < 0, 0, jnp.where(k < 2, exact, approximate))
