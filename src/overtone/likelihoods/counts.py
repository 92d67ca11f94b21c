"""Counts."""

import jax
import jax.numpy as jnp
import numpy as np

from overtone.discrete import Counts
from overtone.likelihoods.base import AbstractLikelihood, at_nodes
from overtone.params import Param

RATE_NODES = 7


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

    def sample(self, key, f):
        return jax.random.poisson(key, jnp.exp(self.base + f)).astype(f.dtype)

    def predictive(self, mean, var):
        f, log_weights = at_nodes(mean, var, False, RATE_NODES)
        rates = jnp.exp(self.base + f)
        log_weights = jnp.broadcast_to(log_weights, rates.shape) - jnp.log(mean.shape[0])
        return Counts(*(part.reshape(-1, *part.shape[2:]) for part in (rates, log_weights)))
