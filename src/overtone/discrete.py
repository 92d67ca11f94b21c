"""What a model predicts where targets are counts or classes. Like `Mixture`, the axis of draws stays in here."""

from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.stats import norm

HALVINGS, GRID, STRATA = 60, 64, 16


class Classes(eqx.Module):
    """The probability of each class."""

    probabilities: Float[Array, "N C"]

    def mean(self) -> Float[Array, "N C"]:
        """Of the indicators of the classes."""
        return self.probabilities


class Counts(eqx.Module):
    """A mixture of Poisson distributions, all as likely, with rates whose logarithms are uncertain by `spreads`."""

    rates: Float[Array, "S N P"]
    spreads: Float[Array, "S N P"]

    def mean(self) -> Float[Array, "N P"]:
        return jnp.mean(self.rates, axis=0)

    def std(self) -> Float[Array, "N P"]:
        """Of a Poisson distribution the variance is the rate; that of the rates is added."""
        within = self.rates + (self.rates * self.spreads) ** 2
        return jnp.sqrt(jnp.mean(within + (self.rates - self.mean()) ** 2, axis=0))

    def at_most(self, y: Float[Array, "N P"]) -> Float[Array, "N P"]:
        """P(Y <= y)."""
        return jnp.mean(poisson_cdf(jnp.floor(y), self.rates, self.spreads), axis=0)

    def cdf(self, y: Float[Array, "N P"]) -> Float[Array, "N P"]:
        """P(Y < y) + P(Y = y) / 2, which is near uniform where predictions are honest."""
        return 0.5 * (self.at_most(y) + self.at_most(y - 1))

    def quantile(self, level: float | Float[Array, ""]) -> Float[Array, "N P"]:
        """The smallest count with at least this share of the mass at or below it, by bisection."""
        wide = self.rates + 10 * jnp.sqrt(self.rates + (self.rates * self.spreads) ** 2)
        high = jnp.ceil(jnp.max(wide, axis=0) + 20)

        def halve(_, bracket):
            low, high = bracket  # P(Y <= low) < level <= P(Y <= high)
            middle = jnp.floor(0.5 * (low + high))
            below = self.at_most(middle) < level
            return jnp.where(below, middle, low), jnp.where(below, high, middle)

        _, high = jax.lax.fori_loop(0, HALVINGS, halve, (-jnp.ones_like(high), high))
        return high

    def crps(self, y: Float[Array, "N P"]) -> Float[Array, "N P"]:
        """The integral of (P(Y <= x) - [y <= x])^2, at whole numbers, or at the ends of steps where they are many."""
        low, high = jnp.minimum(self.quantile(1e-4), y), jnp.maximum(self.quantile(1 - 1e-4), y)
        step = jnp.maximum(jnp.ceil((high - low) / GRID), 1)

        def one(i, total):
            ends = low + step * i, low + step * (i + 1) - 1
            return total + 0.5 * step * sum((self.at_most(x) - (y <= x)) ** 2 for x in ends)

        return jax.lax.fori_loop(0, GRID + 1, one, jnp.zeros_like(y))


@lru_cache
def strata() -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations of N(0, 1) in pieces of equal probability."""
    edges = norm.ppf(np.linspace(0, 1, STRATA + 1))
    density, moment = norm.pdf(edges), np.nan_to_num(edges, posinf=0, neginf=0) * norm.pdf(edges)
    means = -STRATA * np.diff(density)
    return means, np.sqrt(1 - STRATA * np.diff(moment) - means**2)


def poisson_cdf(
    k: Float[Array, "*#S"], rate: Float[Array, "*#S"], spread: Float[Array, "*#S"] | float = 0.0
) -> Float[Array, "*S"]:
    """P(Y <= k) for whole k: exact for k < 2, then the normal approximation of Peizer and Pratt (1968), within 2.1e-4.

    The exact one is an incomplete gamma function, hundreds of times slower. A rate whose logarithm is uncertain by
    `spread` makes the distribution wider, as far as it is normal: the variance is rate + (rate spread)^2.
    """
    rate = jnp.maximum(rate, np.finfo(np.float32).tiny)
    centre = jnp.maximum(k, 2) + 0.5
    ratio = (centre - rate) / centre
    # The deviance 2 (c log(c / rate) - c + rate) is c ratio^2 (1 + 2 ratio / 3 + ratio^2 / 2 + ...).
    near = jnp.abs(ratio) < 1e-2
    safe = jnp.where(near, 0.5, jnp.minimum(ratio, 1 - 1e-7))
    deviance = -2 * (jnp.log1p(-safe) + safe)
    root = jnp.where(near, jnp.sqrt(1 + 2 * ratio / 3 + ratio**2 / 2), jnp.sqrt(deviance) / jnp.abs(safe))
    distance = centre + 1 / 6 - rate + 0.02 / (centre + 0.5)
    approximate = jax.scipy.stats.norm.cdf(distance / jnp.sqrt(centre * (1 + rate * spread**2)) * root)
    few = jnp.exp(-rate) * jnp.where(k < 1, 1, 1 + rate)
    return jnp.where(k < 0, 0, jnp.where(k < 2, few, approximate))
