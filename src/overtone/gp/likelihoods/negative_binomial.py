"""The negative binomial distribution: counts that vary more than Poisson's."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from overtone.gp.likelihoods.base import start_noise
from overtone.gp.likelihoods.counts import AbstractCounts
from overtone.gp.predictive.discrete import Counts, merged
from overtone.numerics.params import Param

START_DISPERSION, MIN_DISPERSION = 0.5, 1e-4
STIRLING_FROM = 8.0  # where three terms of Stirling's series have an error of 3e-10
NUM_GROUPS = 32  # of the rates, and of the gamma factor
NUM_GAMMA_NODES = 512


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


def gamma_groups(
    shape: Float[Array, " P"],
) -> tuple[Float[Array, "K P"], Float[Array, "K P"], Float[Array, "K P"]]:
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
