"""Mixtures of Gaussians as noise, which may vary with the inputs."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from overtone.gp.likelihoods.base import NOISE_FLOOR, START_NOISE, AbstractFamily, AbstractNoise, log_normal
from overtone.numerics.params import OptionalParam, Param

START_SCALES = np.array([0.3, 0.6, 1.0, 2.0, 4.0])  # of the components' deviations
PRIOR_SCALES = np.array([1.0, 0.5, 1.0])  # of log weights, means in units of the target, log variances


class MixtureNoise(AbstractNoise):
    """y = f + e, where e has C Gaussian components, which may differ from row to row: arrays are (C, ..., P)."""

    log_weights: Param
    means: Param
    variances: Param

    def initialised(self, y, num_features, dtype):
        return self

    @property
    def reference(self):
        """The harmonic mean of the variances."""
        return 1 / jnp.sum(jnp.exp(self.log_weights) / self.variances, axis=0)

    def log_prob(self, y, f):
        return self.log_predictive(y, f, jnp.zeros_like(f))

    def expected_log_prob(self, y, mean, var):
        """Return a lower bound: f is averaged in each component, which is as responsible for y as that makes it."""
        each = log_normal(y, mean + self.means, self.variances) - 0.5 * var / self.variances
        return jax.nn.logsumexp(self.log_weights + each, axis=0)

    def log_predictive(self, y, mean, var):
        return jax.nn.logsumexp(self.log_weights + log_normal(y, mean + self.means, var + self.variances), axis=0)

    def components(self, mean, var):
        return jnp.broadcast_arrays(self.log_weights, mean + self.means, var + self.variances)

    def sample(self, key, f):
        which_key, noise_key = jax.random.split(key)
        shape = (len(self.means), *f.shape)
        chosen = jax.random.categorical(which_key, jnp.broadcast_to(self.log_weights, shape), axis=0)
        means, variances = (
            jnp.take_along_axis(jnp.broadcast_to(part, shape), chosen[None], axis=0)[0]
            for part in (self.means, self.variances)
        )
        return f + means + jnp.sqrt(variances) * jax.random.normal(noise_key, f.shape, f.dtype)


class FlexibleNoise(AbstractFamily):
    """Mixture noise whose log weights, means and log variances vary with the inputs: heavy tails, skew, several modes.

    Each is a number plus a GP that is known through the output layer's features; its whitened variables w, N(0, I) a
    priori, are at their most probable values.
    """

    noise: float = eqx.field(static=True, default=START_NOISE)  # to start from
    base: OptionalParam = None  # (3, C, P)
    weight: OptionalParam = None  # (3, C, P, M)

    def initialised(self, y, num_features, dtype):
        if self.base is not None:
            return self
        log_variances = np.log(self.noise * START_SCALES**2)
        base = np.stack([0 * log_variances, 0 * log_variances, log_variances])
        base = np.repeat(base[:, :, None], y.shape[1], axis=2).astype(dtype)
        weight = np.zeros((*base.shape, num_features), dtype)
        return FlexibleNoise(self.noise, jax.device_put(base), jax.device_put(weight))

    @property
    def reference(self) -> Float[Array, " P"]:
        """The harmonic mean of the components' variances, where the features say nothing."""
        return 1 / jnp.sum(jax.nn.softmax(self.base[0], axis=0) * jnp.exp(-self.base[2]), axis=0)

    def at(self, project, shape):
        scales = jnp.asarray(PRIOR_SCALES, self.base.dtype)[:, None, None, None]
        projected = project(self.weight.reshape(-1, self.weight.shape[-1]))
        values = self.base[..., None] + scales * projected.reshape(*self.base.shape, -1)
        log_weights, means, log_variances = (jnp.moveaxis(v, 1, 2).reshape(len(v), *shape, -1) for v in values)
        return MixtureNoise(jax.nn.log_softmax(log_weights, axis=0), means, NOISE_FLOOR + jnp.exp(log_variances))

    def scaled(self, log_factor: float) -> "FlexibleNoise":
        """Return the same noise with all variances times a factor."""
        return FlexibleNoise(self.noise, self.base.at[2].add(np.asarray(log_factor, self.base.dtype)), self.weight)

    def kl(self) -> Float[Array, ""]:
        """Return what the prior takes off: -log N(w; 0, I), up to a constant."""
        return 0.5 * jnp.sum(self.weight**2)
