"""Counts whose log rate is a function of the inputs: Poisson's, and negative binomial ones, which vary more."""

from abc import abstractmethod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from overtone.gp.likelihoods.base import MIN_VARIANCE, AbstractLikelihood, at_nodes, start_noise
from overtone.gp.predictive.discrete import Counts, merged, strata
from overtone.numerics.params import OptionalParam, Param
from overtone.numerics.roots import increasing_root

MAX_MODE_STEPS = 30
MODE_TOLERANCE = 1e-3  # of the distance from the mode, in standard deviations there
START_DISPERSION, MIN_DISPERSION = 0.5, 1e-4
STIRLING_FROM = 8.0  # where three terms of Stirling's series have an error of 3e-10
NUM_GROUPS = 32  # of the rates, and of the gamma factor
NUM_GAMMA_NODES = 512


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
        if y.shape[1] % 2:
            raise ValueError(
                f"targets of counts must be columns of counts, then as many of log exposures; got {y.shape[1]} columns."
            )
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


class NegativeBinomial(AbstractCounts):
    """y ~ Poisson(mu g) with mu = exposure exp(base + f) and g ~ Gamma(r, r), r = 1 / dispersion.

    The mean is mu, the variance mu + dispersion mu^2, and
        p(y | f) = Gamma(y + r) / (Gamma(r) y!) (mu / (r + mu))^y (r / (r + mu))^r.
    """

    dispersion: Param = START_DISPERSION  # (P,), or a number to start from

    def initialised(self, y, num_features, dtype):
        dispersion = start_noise(self.dispersion, self.num_functions(y), MIN_DISPERSION, dtype)
        return NegativeBinomial(self.start_base(y, dtype), dispersion)

    def derivatives(self, counts, log_rate):
        """Return (y - mu) r / (r + mu) and r mu (y + r) / (r + mu)^2."""
        r = 1 / self.dispersion
        share = jax.nn.sigmoid(log_rate - jnp.log(r))  # mu / (r + mu)
        rest = jax.nn.sigmoid(jnp.log(r) - log_rate)
        return counts * rest - r * share, (counts + r) * share * rest

    def log_prob(self, y, f):
        counts, log_exposure = jnp.split(y, 2, axis=-1)
        r, log_rate = 1 / self.dispersion, self.base + f + log_exposure
        constant = log_rising_power(r, counts) - jax.lax.lgamma(counts + 1)
        return constant + counts * log_rate - (counts + r) * jax.nn.softplus(log_rate - jnp.log(r))

    def sample(self, key, f):
        gamma_key, poisson_key = jax.random.split(key)
        r = 1 / self.dispersion
        factor = jax.random.gamma(gamma_key, r, f.shape, f.dtype) / r
        return jax.random.poisson(poisson_key, jnp.exp(self.base + f) * factor).astype(f.dtype)

    def predictive(self, mean, var):
        """Return every group of rates times every group of the gamma factor."""
        weights, rates, spreads = grouped_rates(*self.rates(mean, var))
        gamma_weights, factors, gamma_spreads = (part[:, None, None] for part in gamma_groups(1 / self.dispersion))
        products = rates * factors
        squares = spreads**2 + gamma_spreads**2 + (spreads * gamma_spreads) ** 2  # of the product's relative spread
        log_weights = jnp.broadcast_to(jnp.log(weights[:, None, None] * gamma_weights), products.shape)
        parts = products, jnp.sqrt(squares), log_weights
        return Counts(*(part.reshape(-1, *mean.shape[1:]) for part in parts))


def log_rising_power(r: Float[Array, "*#S"], y: Float[Array, "*#S"]) -> Float[Array, "*S"]:
    """Return log(Gamma(y + r) / (Gamma(r) r^y)), for large r without the difference of two large numbers."""
    large = jnp.maximum(r, STIRLING_FROM)
    by_series = (y + large - 0.5) * jnp.log1p(y / large) - y + _stirling_rest(y + large) - _stirling_rest(large)
    small = jnp.minimum(r, STIRLING_FROM)
    directly = jax.lax.lgamma(y + small) - jax.lax.lgamma(small) - y * jnp.log(small)
    return jnp.where(r >= STIRLING_FROM, by_series, directly)


def _stirling_rest(a: Array) -> Array:
    """Return log Gamma(a) - (a - 1/2) log a + a - log(2 pi) / 2 for large a."""
    return (1 / 12 - (1 / 360 - 1 / (1260 * a**2)) / a**2) / a


def grouped_rates(
    rates: Float[Array, "S N P"], spreads: Float[Array, "S N P"]
) -> tuple[Float[Array, " K"], Float[Array, "K N P"], Float[Array, "K N P"]]:
    """Return weights, means and relative spreads of a few groups of S rates of equal weight, by their order."""
    num = len(rates)
    if num <= NUM_GROUPS:
        return jnp.full(num, 1 / num, rates.dtype), rates, spreads
    ordered, variances = jax.lax.sort((rates, (rates * spreads) ** 2), dimension=0, num_keys=1)
    rank = (np.arange(num) + 0.5) / num
    positions = jnp.asarray(rank + 2 / np.pi * np.arcsin(np.sqrt(rank)), rates.dtype)  # smaller groups in the tails
    weights, means, variances = merged(positions, jnp.full_like(positions, 1 / num), ordered, variances, NUM_GROUPS)
    return weights, means, _relative(means, variances)


def gamma_groups(shape: Float[Array, " P"]) -> tuple[Float[Array, "K P"], Float[Array, "K P"], Float[Array, "K P"]]:
    """Return weights, means and relative spreads of a few groups of the values of g ~ Gamma(r, r), of each shape r.

    The trapezoidal rule for log g gives the weights of many values. Groups are narrow in log g, and none is heavy.
    """

    def one(r):
        low = jnp.maximum(-7 / jnp.sqrt(r), -14)
        high = jnp.log(1 + 12 / r + 5 / jnp.sqrt(r))
        log_g = jnp.linspace(low, high, NUM_GAMMA_NODES, dtype=r.dtype)
        beyond = jnp.log(0.5 + (NUM_GAMMA_NODES - 1) / (r * (high - low)))  # what lies below goes to the first
        log_weights = (r * (log_g - jnp.expm1(log_g))).at[0].add(beyond)
        node_weights = jax.nn.softmax(log_weights)
        below = jnp.cumsum(node_weights) - 0.5 * node_weights
        positions = below / below[-1] + jnp.linspace(0, 1, NUM_GAMMA_NODES, dtype=r.dtype)
        weights, means, variances = merged(positions, node_weights, jnp.exp(log_g), jnp.zeros_like(log_g), NUM_GROUPS)
        return weights, means, _relative(means, variances)

    return jax.vmap(one, out_axes=-1)(shape)


def _relative(means: Array, variances: Array) -> Array:
    return jnp.sqrt(variances) / jnp.maximum(means, np.finfo(np.float32).tiny)
