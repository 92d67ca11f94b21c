"""Gaussian noise, of one variance or of one that is a function of its own."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from overtone.gp.likelihoods.base import (
    NOISE_FLOOR,
    NUM_NODES,
    START_NOISE,
    AbstractNoise,
    at_nodes,
    log_normal,
    start_noise,
)
from overtone.numerics.params import OptionalParam, Param


class Gaussian(AbstractNoise):
    """y = f + e, e ~ N(0, noise), one noise variance for each output."""

    noise: Param = START_NOISE  # (P,), or a number to start from
    least: float = eqx.field(static=True, default=NOISE_FLOOR)

    def initialised(self, y, num_features, dtype):
        return Gaussian(start_noise(self.noise, y.shape[1], self.least, dtype), self.least)

    @property
    def reference(self):
        return self.noise

    def log_prob(self, y, f):
        return log_normal(y, f, self.noise)

    def sample(self, key, f):
        return f + jnp.sqrt(self.noise) * jax.random.normal(key, f.shape, f.dtype)

    def components(self, mean, var):
        return jnp.zeros((1, *mean.shape), mean.dtype), mean[None], (var + self.noise)[None]

    def expected_log_prob(self, y, mean, var):
        return log_normal(y, mean, self.noise) - 0.5 * var / self.noise

    def log_predictive(self, y, mean, var):
        return log_normal(y, mean, var + self.noise)


class Heteroscedastic(AbstractNoise):
    """y = f + e, e ~ N(0, exp(base + h)): for P targets, the first P functions are f and the last P are h."""

    noise: float = eqx.field(static=True, default=START_NOISE)  # to start from
    base: OptionalParam = None  # (P,), the log of a usual noise variance

    def initialised(self, y, num_features, dtype):
        base = jax.device_put(np.full(y.shape[1], np.log(self.noise), dtype)) if self.base is None else self.base
        return Heteroscedastic(self.noise, base)

    def num_functions(self, y):
        return 2 * y.shape[1]

    @property
    def reference(self):
        return jnp.concatenate([jnp.exp(self.base), jnp.full_like(self.base, 2)])  # h has Fisher information 1/2

    @property
    def usual_noise(self):
        return jnp.exp(self.base)

    @property
    def reach(self):
        return jnp.concatenate([jnp.full_like(self.base, jnp.inf), jnp.ones_like(self.base)])

    def _noise(self, h):
        return NOISE_FLOOR + jnp.exp(self.base + h)

    def log_prob(self, y, f):
        f, h = jnp.split(f, 2, axis=-1)
        return log_normal(y, f, self._noise(h))

    def sample(self, key, f):
        f, h = jnp.split(f, 2, axis=-1)
        return f + jnp.sqrt(self._noise(h)) * jax.random.normal(key, f.shape, f.dtype)

    def expected_log_prob(self, y, mean, var):
        """Integrate over f in closed form, over h at the nodes of a rule."""
        (mean, h), (var, var_h) = (jnp.split(part, 2, axis=-1) for part in (mean, var))
        h, log_weights = at_nodes(h, var_h, False)
        values = log_normal(y, mean, self._noise(h)) - 0.5 * var / self._noise(h)
        return jnp.sum(jnp.exp(log_weights) * values, axis=0)

    def components(self, mean, var, num_nodes: int = 5):
        """Integrate over f in closed form, over h at the nodes of a rule."""
        (mean, h), (var, var_h) = (jnp.split(part, 2, axis=-1) for part in (mean, var))
        h, log_weights = at_nodes(h, var_h, False, num_nodes)
        return jnp.broadcast_arrays(log_weights, mean, var + self._noise(h))

    def log_predictive(self, y, mean, var):
        log_weights, mean, var = self.components(mean, var, NUM_NODES)
        return jax.nn.logsumexp(log_weights + log_normal(y, mean, var), axis=0)
