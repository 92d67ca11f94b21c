"""Likelihoods p(y | f).

A new one implements `log_prob`, `moments` and `sample`; Gauss-Hermite quadrature gives the two integrals
against a Gaussian f, and a class overrides them where they have a closed form.
"""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from overtone.params import Param

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(20)


class AbstractLikelihood(eqx.Module):
    """p(y | f), independent over rows and outputs. Shapes broadcast over leading axes."""

    @property
    def reference(self) -> Float[Array, " P"]:
        """The usual noise variance of each output, where there is such a thing: the unit of sites' precisions."""
        return jnp.ones(1)

    @abstractmethod
    def log_prob(self, y: Float[Array, "*#S N P"], f: Float[Array, "*#S N P"]) -> Float[Array, "*S N P"]:
        """log p(y | f)."""

    @abstractmethod
    def moments(
        self, mean: Float[Array, "*S N P"], var: Float[Array, "*S N P"]
    ) -> tuple[Float[Array, "*S N P"], Float[Array, "*S N P"]]:
        """Mean and variance of y for f ~ N(mean, var)."""

    @abstractmethod
    def sample(self, key: PRNGKeyArray, f: Float[Array, "*S N P"]) -> Float[Array, "*S N P"]:
        """y ~ p(y | f)."""

    def at(self, A: Float[Array, "M R"], shape: tuple[int, ...]) -> "AbstractLikelihood":
        """The likelihood of rows with these features, which matter only if its parameters vary with the inputs."""
        return self

    def kl(self) -> Float[Array, ""] | float:
        """Of whatever it has of functions of its own."""
        return 0.0

    def components(self, mean: Float[Array, "S N P"], var: Float[Array, "S N P"]):
        """y for f ~ N(mean, var) as a mixture of C Gaussians: log weights, means and variances (C, S, N, P)."""
        mean, var = self.moments(mean, var)
        return jnp.zeros((1, *mean.shape), mean.dtype), mean[None], var[None]

    def expected_log_prob(
        self, y: Float[Array, "N P"], mean: Float[Array, "*S N P"], var: Float[Array, "*S N P"]
    ) -> Float[Array, "*S N P"]:
        """E[log p(y | f)] for f ~ N(mean, var)."""
        return jnp.sum(jnp.exp(_log_weights(mean)) * self._at_nodes(y, mean, var), axis=0)

    def log_predictive(
        self, y: Float[Array, "N P"], mean: Float[Array, "*S N P"], var: Float[Array, "*S N P"]
    ) -> Float[Array, "*S N P"]:
        """log E[p(y | f)] for f ~ N(mean, var)."""
        return jax.nn.logsumexp(_log_weights(mean) + self._at_nodes(y, mean, var), axis=0)

    def _at_nodes(self, y, mean, var):
        nodes = jnp.asarray(NODES, mean.dtype)
        f = mean + jnp.sqrt(var) * nodes.reshape(-1, *[1] * mean.ndim)
        return self.log_prob(y, f)


def _log_weights(mean: Array) -> Array:
    log_weights = np.log(WEIGHTS / WEIGHTS.sum())
    return jnp.asarray(log_weights, mean.dtype).reshape(-1, *[1] * mean.ndim)


class Gaussian(AbstractLikelihood):
    """y = f + e, e ~ N(0, noise), one noise variance for each output."""

    noise: Param  # (P,)

    @property
    def reference(self):
        return self.noise

    def log_prob(self, y, f):
        return _log_normal(y, f, self.noise)

    def moments(self, mean, var):
        return mean, var + self.noise

    def sample(self, key, f):
        return f + jnp.sqrt(self.noise) * jax.random.normal(key, f.shape, f.dtype)

    def expected_log_prob(self, y, mean, var):
        return _log_normal(y, mean, self.noise) - 0.5 * var / self.noise

    def log_predictive(self, y, mean, var):
        return _log_normal(y, mean, var + self.noise)


class MixtureNoise(AbstractLikelihood):
    """y = f + e, where e has C Gaussian components, which may differ from row to row: arrays are (C, ..., P)."""

    log_weights: Param
    means: Param
    variances: Param

    def log_prob(self, y, f):
        return self.log_predictive(y, f, jnp.zeros_like(f))

    def expected_log_prob(self, y, mean, var):
        """A lower bound: f is averaged in each component, which is then as responsible for y as that makes it."""
        each = _log_normal(y, mean + self.means, self.variances) - 0.5 * var / self.variances
        return jax.nn.logsumexp(self.log_weights + each, axis=0)

    def log_predictive(self, y, mean, var):
        return jax.nn.logsumexp(self.log_weights + _log_normal(y, mean + self.means, var + self.variances), axis=0)

    def components(self, mean, var):
        shape = (len(self.means), *mean.shape)
        return jnp.broadcast_to(self.log_weights, shape), mean + self.means, var + self.variances

    def moments(self, mean, var):
        weights = jnp.exp(self.log_weights)
        shift = jnp.sum(weights * self.means, axis=0)
        return mean + shift, var + jnp.sum(weights * (self.variances + (self.means - shift) ** 2), axis=0)

    def sample(self, key, f):
        which_key, noise_key = jax.random.split(key)
        shape = (len(self.means), *f.shape)
        chosen = jax.random.categorical(which_key, jnp.broadcast_to(self.log_weights, shape), axis=0)
        means, variances = (
            jnp.take_along_axis(jnp.broadcast_to(part, shape), chosen[None], axis=0)[0]
            for part in (self.means, self.variances)
        )
        return f + means + jnp.sqrt(variances) * jax.random.normal(noise_key, f.shape, f.dtype)


START_SCALES = np.array([0.3, 0.6, 1.0, 2.0, 4.0])  # of the components' deviations
PRIOR_SCALES = np.array([1.0, 0.5, 1.0])  # of log weights, means in units of the target, log variances
NOISE_FLOOR = 1e-6  # variance, for a target of variance 1


class FlexibleNoise(eqx.Module):
    """Mixture noise whose log weights, means and log variances vary with the inputs: heavy tails, skew, several modes.

    Each is a number plus a GP that is known through the output layer's features; its whitened variables w, N(0, I) a
    priori, are at their most probable values.
    """

    base: Param  # (3, C, P)
    weight: Param  # (3, C, P, M)

    @staticmethod
    def start(noise: float, num_outputs: int, size: int, dtype) -> "FlexibleNoise":
        log_variances = np.log(noise * START_SCALES**2)
        base = np.stack([0 * log_variances, 0 * log_variances, log_variances])
        base = np.repeat(base[:, :, None], num_outputs, axis=2).astype(dtype)
        weight = np.zeros((*base.shape, size), dtype)
        return FlexibleNoise(jax.device_put(base), jax.device_put(weight))

    @property
    def reference(self) -> Float[Array, " P"]:
        """The harmonic mean of the components' variances, where the features say nothing."""
        return 1 / jnp.sum(jax.nn.softmax(self.base[0], axis=0) * jnp.exp(-self.base[2]), axis=0)

    def at(self, A: Float[Array, "M R"], shape: tuple[int, ...]) -> MixtureNoise:
        """The noise at rows with whitened features A of a process of variance 1."""
        scales = jnp.asarray(PRIOR_SCALES, A.dtype)[:, None, None, None]
        values = self.base[..., None] + scales * (self.weight @ A)
        log_weights, means, log_variances = (jnp.moveaxis(v, 1, 2).reshape(len(v), *shape, -1) for v in values)
        return MixtureNoise(jax.nn.log_softmax(log_weights, axis=0), means, NOISE_FLOOR + jnp.exp(log_variances))

    def kl(self) -> Float[Array, ""]:
        """What the prior takes off: -log N(w; 0, I), up to a constant."""
        return 0.5 * jnp.sum(self.weight**2)


def _log_normal(y: Array, mean: Array, var: Array) -> Array:
    return -0.5 * (jnp.log(2 * jnp.pi * var) + (y - mean) ** 2 / var)
