"""A predictive distribution that is corrected on the scale of its normal scores.

F is the distribution function of the base, p its density, and z = Phi^-1(F(y)) the score of y, N(0, 1) under the base.
Under the correction scores have another distribution function G, with density g, so that
    F*(y) = G(z),   log p*(y) = log p(y) + log g(z) - log N(z; 0, 1).
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from overtone.gp.predictive.mixture import Mixture

STEP, REACH = 0.5, 5.0  # of a rule for means, in standard deviations of a score


class Corrected(eqx.Module):
    """What a base predicts once the scores of its rows and outputs are known to have a certain distribution."""

    base: Mixture
    scores: Mixture

    def score(self, y: Float[Array | np.ndarray, "N P"]) -> Float[Array, "N P"]:
        """Return the normal score of y under the correction."""
        return self.scores.score(self.base.score(y))

    def at_score(self, score: Float[Array, "N P"]) -> Float[Array, "N P"]:
        """Return the values of which these are the normal scores."""
        return self.base.at_score(self.scores.at_score(score))

    def cdf(self, y: Float[Array | np.ndarray, "N P"]) -> Float[Array, "N P"]:
        """Return P(Y <= y)."""
        return jax.scipy.special.ndtr(self.score(y))

    def quantile(self, level: float | Float[Array, ""]) -> Float[Array, "N P"]:
        """Return the value below which a share `level` of the mass lies."""
        return self.at_score(self._full(jax.scipy.special.ndtri(level)))

    def log_prob(self, y: Float[Array | np.ndarray, "N P"]) -> Float[Array, "N P"]:
        """Return log p(y)."""
        return self.base.log_prob(y) + change_of_density(self.scores, self.base.score(y))

    def moments(self) -> tuple[Float[Array, "N P"], Float[Array, "N P"]]:
        """Return mean and standard deviation."""
        nodes, values = self._values()
        mean = jnp.tensordot(_weights(nodes), values, 1)
        return mean, jnp.sqrt(jnp.tensordot(_weights(nodes), (values - mean) ** 2, 1))

    def mean(self) -> Float[Array, "N P"]:
        """Return the mean."""
        return self.moments()[0]

    def var(self) -> Float[Array, "N P"]:
        """Return the variance."""
        return self.std() ** 2

    def std(self) -> Float[Array, "N P"]:
        """Return the standard deviation."""
        return self.moments()[1]

    def crps(self, y: Float[Array | np.ndarray, "N P"]) -> Float[Array, "N P"]:
        """Return the continuous ranked probability score, E|Y - y| - E|Y - Y'| / 2.

        Both are integrals over scores. That of |Y - y| has a bend at y, whose part in the rule's error is known.
        """
        y = jnp.asarray(y)
        nodes, values = self._values()
        weights = _weights(nodes)
        to_y = jnp.tensordot(weights, jnp.abs(values - y), 1)
        score = self.score(y)
        log_density = jax.scipy.stats.norm.logpdf(score)
        slope = jnp.exp(log_density - self.log_prob(y))  # of y by its score
        part = jnp.mod((score - nodes[0]) / STEP, 1.0)
        bend = slope * jnp.exp(log_density) * STEP**2 * (part * (1 - part) - 1 / 6)
        # E|Y - Y'| / 2 = E[Y (2 F(Y) - 1)]
        half_distance = jnp.tensordot(weights * (2 * jax.scipy.special.ndtr(nodes) - 1), values, 1)
        return to_y - bend - half_distance

    def sample(self, key: PRNGKeyArray) -> Float[Array, "N P"]:
        """Return a draw of y."""
        means = self.base.means
        return self.at_score(jax.random.normal(key, means.shape[1:], means.dtype))

    def _values(self) -> tuple[Float[Array, " K"], Float[Array, "K N P"]]:
        """Return scores at even steps, and the values that have them."""
        nodes = jnp.asarray(np.arange(-REACH, REACH + STEP / 2, STEP), self.base.means.dtype)
        return nodes, jax.lax.map(lambda node: self.at_score(self._full(node)), nodes)

    def _full(self, value: Any) -> Float[Array, "N P"]:
        """Return an array with this value for each row and output."""
        return jnp.full(self.base.means.shape[1:], value, self.base.means.dtype)


def change_of_density(scores: Mixture, score: Float[Array, "N P"]) -> Float[Array, "N P"]:
    """Return log g(z) - log N(z; 0, 1)."""
    return scores.log_prob(score) - jax.scipy.stats.norm.logpdf(score)


def _weights(nodes: Float[Array, " K"]) -> Float[Array, " K"]:
    """Return the weights of the trapezoidal rule under N(0, 1), which is exact to rounding for smooth functions."""
    weights = jnp.exp(-0.5 * nodes**2)
    return weights / jnp.sum(weights)
