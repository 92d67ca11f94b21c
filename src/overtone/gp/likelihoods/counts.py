"""Counts whose log rate is a function of the inputs; the simplest of them, Poisson's."""

from abc import abstractmethod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from overtone.gp.likelihoods.base import AbstractLikelihood, at_nodes
from overtone.gp.predictive.discrete import Counts, strata
from overtone.numerics.params import OptionalParam
from overtone.numerics.roots import increasing_root

MAX_MODE_STEPS = 30
MODE_TOLERANCE = 1e-3  # of the distance from the mode, in standard deviations there
MIN_VARIANCE = 1e-10


class AbstractCounts(AbstractLikelihood):
    """Counts of mean exposure exp(base + f). Targets are P columns of counts, then P of log exposures."""

    counts = True
    base: OptionalParam = None  # (P,)

    @abstractmethod
    def derivatives(
        self, counts: Float[Array, "*#S N P"], log_rate: Float[Array, "*#S N P"]
    ) -> tuple[Float[Array, "*S N P"], Float[Array, "*S N P"]]:
        """Return the score and the information: the first derivative of log p(y | f) in f, minus the second.

        log p(y | f) has to be concave, and highest where the rate is the count.
        """

    @staticmethod
    def rough_functions(y):
        counts, log_exposure = np.split(y, 2, axis=1)
        rates = np.log(counts + 0.5) - log_exposure
        return rates - np.nanmean(rates, axis=0)

    def num_functions(self, y):
        return y.shape[1] // 2

    def start_base(self, y: np.ndarray, dtype: Any) -> Any:
        """Return the log of the mean rate of each target, unless a base was given."""
        counts, log_exposure = np.split(np.asarray(y, float), 2, axis=1)
        exposure = np.where(np.isnan(counts), np.nan, np.exp(log_exposure))
        base = np.log((np.nansum(counts, axis=0) + 0.5) / np.nansum(exposure, axis=0))
        return jax.device_put(base.astype(dtype)) if self.base is None else self.base

    @property
    def reference(self):
        return jnp.ones_like(self.base)

    @property
    def reach(self):
        return jnp.ones_like(self.base)  # a row of twice the rate asks for no more than exp(1) times

    def log_predictive(self, y, mean, var):
        """Apply a Gauss-Hermite rule about the mode of p(y | f) N(f; mean, var).

        As a function of f, p(y | f) may be far narrower than N(f; mean, var). The rule's nodes need no gradient: what
        it gives hardly depends on where they are.
        """
        counts, log_exposure = jnp.split(y, 2, axis=-1)
        var = jnp.maximum(var, MIN_VARIANCE)
        fixed, *arguments = jax.lax.stop_gradient((self, counts, self.base + mean + log_exposure, var))
        mode, std = fixed._mode(*arguments)
        z, log_weights = at_nodes(jnp.zeros_like(mean), jnp.ones_like(mean), self.joint)
        shift = mode + std * z  # f - mean
        # The ratio of N(f; mean, var) to the rule's density.
        log_ratio = jnp.log(std) - 0.5 * jnp.log(var) - 0.5 * (shift**2 / var - z**2)
        return jax.nn.logsumexp(log_weights + self.log_prob(y, mean + shift) + log_ratio, axis=0)

    def _mode(
        self, counts: Float[Array, "N P"], log_rate: Float[Array, "*S N P"], var: Float[Array, "*S N P"]
    ) -> tuple[Float[Array, "*S N P"], Float[Array, "*S N P"]]:
        """Return the mode of p(y | mean + shift) N(shift; 0, var) and its standard deviation, by Newton's method.

        Args:
            counts: what is observed.
            log_rate: the log rate where the shift is 0.
            var: the variance of the shift.
        """
        # The score has the sign of y - rate, and at a rate of 1/2 it is at least -1/2.
        best = jnp.log(jnp.maximum(counts, 0.5)) - log_rate
        low, high = jnp.minimum(best, 0) - 0.5 * var, jnp.maximum(best, 0)
        _, information = self.derivatives(counts, log_rate + best)
        start = best * information / (information + 1 / var)

        def descent(shift):
            score, information = self.derivatives(counts, log_rate + shift)
            slope, precision = shift / var - score, information + 1 / var
            return slope, precision, jnp.abs(slope) <= MODE_TOLERANCE * jnp.sqrt(precision)

        mode = increasing_root(descent, low, high, start, 0.0, MAX_MODE_STEPS)
        _, information = self.derivatives(counts, log_rate + mode)
        return mode, 1 / jnp.sqrt(information + 1 / var)

    def rates(
        self, mean: Float[Array, "S N P"], var: Float[Array, "S N P"]
    ) -> tuple[Float[Array, "K N P"], Float[Array, "K N P"]]:
        """Return the rate exp(base + f) as a mixture of K pieces of equal weight: their means and relative spreads."""
        centres, spreads = (jnp.asarray(part, mean.dtype).reshape(-1, *[1] * mean.ndim) for part in strata())
        spread = jnp.sqrt(var) * spreads
        rates = jnp.exp(self.base + mean + jnp.sqrt(var) * centres + 0.5 * spread**2)
        return rates.reshape(-1, *mean.shape[1:]), spread.reshape(-1, *mean.shape[1:])


class Poisson(AbstractCounts):
    """y ~ Poisson(exposure exp(base + f))."""

    def initialised(self, y, num_features, dtype):
        return Poisson(self.start_base(y, dtype))

    def derivatives(self, counts, log_rate):
        rate = jnp.exp(log_rate)
        return counts - rate, rate

    def log_prob(self, y, f):
        counts, log_exposure = jnp.split(y, 2, axis=-1)
        log_rate = self.base + f + log_exposure
        return counts * log_rate - jnp.exp(log_rate) - jax.lax.lgamma(counts + 1)

    def expected_log_prob(self, y, mean, var):
        """Use E[exp f] = exp(mean + var / 2)."""
        counts, log_exposure = jnp.split(y, 2, axis=-1)
        log_rate = self.base + mean + log_exposure
        return counts * log_rate - jnp.exp(log_rate + 0.5 * var) - jax.lax.lgamma(counts + 1)

    def sample(self, key, f):
        return jax.random.poisson(key, jnp.exp(self.base + f)).astype(f.dtype)

    def predictive(self, mean, var):
        return Counts(*self.rates(mean, var))
