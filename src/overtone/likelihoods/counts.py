"""Counts."""

import jax
import jax.numpy as jnp
import numpy as np

from overtone.discrete import Counts, strata
from overtone.likelihoods.base import NUM_NODES, AbstractLikelihood, gauss_hermite
from overtone.params import Param

NEWTON_STEPS = 25


class Poisson(AbstractLikelihood):
    """y ~ Poisson(exposure exp(base + f)). Targets are P columns of counts, then P of log exposures."""

    base: Param  # (P,)

    @staticmethod
    def view(y):
        counts, log_exposure = np.split(y, 2, axis=1)
        rates = np.log(counts + 0.5) - log_exposure
        return rates - np.nanmean(rates, axis=0)

    @classmethod
    def start(cls, y, noise, num_features, dtype):
        counts, log_exposure = np.split(np.asarray(y, float), 2, axis=1)
        exposure = np.where(np.isnan(counts), np.nan, np.exp(log_exposure))
        base = np.log((np.nansum(counts, axis=0) + 0.5) / np.nansum(exposure, axis=0))
        return cls(jax.device_put(base.astype(dtype)))

    @property
    def reference(self):
        return jnp.ones_like(self.base)

    @property
    def reach(self):
        return jnp.ones_like(self.base)  # a row of twice the rate asks for no more than exp(1) times

    def log_prob(self, y, f):
        counts, log_exposure = jnp.split(y, 2, axis=-1)
        log_rate = self.base + f + log_exposure
        return counts * log_rate - jnp.exp(log_rate) - jax.lax.lgamma(counts + 1)

    def expected_log_prob(self, y, mean, var):
        """E[exp f] = exp(mean + var / 2)."""
        counts, log_exposure = jnp.split(y, 2, axis=-1)
        log_rate = self.base + mean + log_exposure
        return counts * log_rate - jnp.exp(log_rate + 0.5 * var) - jax.lax.lgamma(counts + 1)

    def log_predictive(self, y, mean, var):
        """By a rule about the mode of N(f; mean, var) p(y | f), which may be far narrower than N(f; mean, var).

        Newton's steps come down to it from the larger of the mean and the rate that fits y, and never go beyond it.
        """
        counts, log_exposure = jnp.split(y, 2, axis=-1)
        offset, var = self.base + log_exposure, jnp.maximum(var, 1e-10)
        f = jnp.maximum(mean, jnp.log(counts + 0.5) - offset)
        for _ in range(NEWTON_STEPS):
            rate = jnp.exp(f + offset)
            f = f + (counts - rate - (f - mean) / var) / (rate + 1 / var)
        std = 1 / jnp.sqrt(jnp.exp(f + offset) + 1 / var)
        nodes, weights = gauss_hermite(NUM_NODES)
        z = jnp.asarray(nodes, mean.dtype).reshape(-1, *[1] * mean.ndim)
        log_weights = jnp.asarray(np.log(weights), mean.dtype).reshape(z.shape)
        at = f + std * z
        values = self.log_prob(y, at) - 0.5 * ((at - mean) ** 2 / var - z**2) + jnp.log(std) - 0.5 * jnp.log(var)
        return jax.nn.logsumexp(log_weights + values, axis=0)

    def sample(self, key, f):
        return jax.random.poisson(key, jnp.exp(self.base + f)).astype(f.dtype)

    def predictive(self, mean, var):
        centres, spreads = (jnp.asarray(s, mean.dtype).reshape(-1, *[1] * mean.ndim) for s in strata())
        spread = jnp.sqrt(var) * spreads
        rates = jnp.exp(self.base + mean + jnp.sqrt(var) * centres + 0.5 * spread**2)
        return Counts(*(part.reshape(-1, *part.shape[2:]) for part in (rates, spread)))
