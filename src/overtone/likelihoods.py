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


def _log_normal(y: Array, mean: Array, var: Array) -> Array:
    return -0.5 * (jnp.log(2 * jnp.pi * var) + (y - mean) ** 2 / var)
