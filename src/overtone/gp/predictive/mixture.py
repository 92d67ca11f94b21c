"""A mixture of S Gaussians at each of N rows and P outputs, and its correction on the scale of normal scores.

This is what a deep GP predicts: S draws through the inner layers, the last layer's Gaussian for
each. The sample axis stays inside: every method returns arrays of shape (N, P).
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from overtone.numerics.roots import increasing_root

MAX_QUANTILE_STEPS = 60
MAX_PAIRED = 64  # components whose pairs are gone through one by one
NUM_NODES, COMPONENT_REACH = 64, 6.0  # of a rule for all distributions; how far beyond components' means, in their stds
STEP, SCORE_REACH = 0.5, 5.0  # of a rule for means, in standard deviations of a score
MAX_SLOPE = 2.0  # of values by their score between two nodes of it, as a multiple of the mean slope there


def average(values: Float[Array, "S N P"], log_weights: Float[Array, "S N P"] | None) -> Float[Array, "N P"]:
    """Return the mean over the components; without weights, all count alike."""
    return jnp.mean(values, axis=0) if log_weights is None else jnp.sum(jnp.exp(log_weights) * values, axis=0)


def of_rows(method: Callable) -> Callable:
    """Let a method of a distribution compute in its precision, whatever JAX is set to, and take one column as (N,)."""

    @wraps(method)
    def call(self, *arguments):
        widest = max((leaf.dtype for leaf in jax.tree.leaves(self)), key=lambda dtype: dtype.itemsize)
        with jax.enable_x64(True) if widest == np.float64 else nullcontext():
            arrays = map(jnp.asarray, arguments)
            return method(self, *(a[:, None] if a.ndim == 1 else a for a in arrays))

    return call


class Mixture(eqx.Module):
    """The mixture sum_s weights[s] N(means[s], variances[s]); without weights, all components count alike."""

    means: Float[Array, "S N P"]
    variances: Float[Array, "S N P"]
    log_weights: Float[Array, "S N P"] | None = None

    def _average(self, values: Float[Array, "S N P"]) -> Float[Array, "N P"]:
        return average(values, self.log_weights)

    @of_rows
    def mean(self) -> Float[Array, "N P"]:
        """Return the mean."""
        return self._average(self.means)

    @of_rows
    def var(self) -> Float[Array, "N P"]:
        """Return the variance, which is the mean of the variances plus the variance of the means."""
        return self._average(self.variances + (self.means - self.mean()) ** 2)

    @of_rows
    def std(self) -> Float[Array, "N P"]:
        """Return the standard deviation."""
        return jnp.sqrt(self.var())

    @of_rows
    def log_prob(self, y: Float[Array, "N P"]) -> Float[Array, "N P"]:
        """Return log sum_s weights[s] N(y; ...), the log of the mean and never the mean of the logs."""
        squares = (y - self.means) ** 2 / self.variances
        log_components = -0.5 * (squares + jnp.log(2 * jnp.pi * self.variances))
        log_weights = -jnp.log(self.means.shape[0]) if self.log_weights is None else self.log_weights
        return jax.nn.logsumexp(log_components + log_weights, axis=0)

    @of_rows
    def cdf(self, y: Float[Array, "N P"]) -> Float[Array, "N P"]:
        """Return P(Y <= y)."""
        return self._average(jax.scipy.stats.norm.cdf(y, self.means, jnp.sqrt(self.variances)))

    @of_rows
    def crps(self, y: Float[Array, "N P"]) -> Float[Array, "N P"]:
        """Return the continuous ranked probability score, E|Y - y| - E|Y - Y'| / 2.

        Y and Y' are independent draws of the mixture.
        """
        half_distance = self._half_distance_by_pairs() if len(self.means) <= MAX_PAIRED else self._half_distance()
        return self._average(_mean_absolute(y - self.means, self.variances)) - half_distance

    def _half_distance_by_pairs(self) -> Float[Array, "N P"]:
        """Return E|Y - Y'| / 2 of independent draws, over all pairs of components."""

        def distance_to_all(component):
            mean, var = component
            return self._average(_mean_absolute(self.means - mean, self.variances + var))

        return 0.5 * self._average(jax.lax.map(distance_to_all, (self.means, self.variances)))

    def _half_distance(self) -> Float[Array, "N P"]:
        """Return the same of many components, the integral of F (1 - F): the trapezoidal rule in arsinh of x.

        The rule reaches the ends of the outermost components, each row's own.
        """
        mean, std = self.mean(), self.std()
        ends = jnp.abs(self.means - mean) + COMPONENT_REACH * jnp.sqrt(self.variances)
        end = jnp.arcsinh(jnp.max(ends, axis=0) / std)

        def integrand(share):
            below = self.cdf(mean + std * jnp.sinh(share * end))
            return below * (1 - below) * jnp.cosh(share * end)

        shares = jnp.asarray(np.linspace(-1, 1, NUM_NODES), mean.dtype)
        return std * end * jnp.sum(jax.lax.map(integrand, shares), axis=0) * (shares[1] - shares[0])

    @of_rows
    def quantile(self, level: float | Float[Array, ""]) -> Float[Array, "N P"]:
        """Return the value below which a share `level` of the mass lies."""
        return self.at_score(jnp.full(self.means.shape[1:], jax.scipy.special.ndtri(level), self.means.dtype))

    @of_rows
    def score(self, y: Float[Array, "N P"]) -> Float[Array, "N P"]:
        """Return the normal score of y, Phi^-1(F(y)), which is accurate in both tails."""
        below, above = (self._tail(y, side) for side in (1, -1))
        return jnp.where(below < above, _score(below), -_score(above))

    def _tail(self, y: Float[Array, "N P"], side: Float[Array, "N P"] | int) -> Float[Array, "N P"]:
        """Return P(Y <= y) where side is 1, and P(Y > y) where it is -1."""
        return self._average(jax.scipy.special.ndtr(side * (y - self.means) / jnp.sqrt(self.variances)))

    @of_rows
    def at_score(self, score: Float[Array, "N P"]) -> Float[Array, "N P"]:
        """Return the values of which these are the normal scores, by Newton's method on scores, nearly straight lines.

        A quantile of the mixture lies between the smallest and the largest of its components'.
        """
        flat = jax.tree.map(lambda a: a.reshape(len(a), 1, -1), self)  # one long loop over rows and outputs
        score, std = score.reshape(1, -1), jnp.sqrt(flat.variances)
        side, eps = jnp.where(score < 0, 1, -1).astype(std.dtype), jnp.finfo(std.dtype).eps
        of_components = flat.means + std * score
        low, high = of_components.min(axis=0), of_components.max(axis=0)
        start = jnp.clip(flat.mean() + flat.std() * score, low, high)
        tolerance = eps * (2 * jnp.abs(start) + 32 * flat.std())

        def excess(x):
            tail = flat._tail(x, side)
            found = side * _score(tail)
            density = flat._average(jax.scipy.stats.norm.pdf((x - flat.means) / std) / std)
            slope = density / jax.scipy.stats.norm.pdf(found)
            return found - score, slope, jnp.abs(found - score) <= 8 * eps

        value = increasing_root(excess, low, high, start, tolerance, MAX_QUANTILE_STEPS)
        return value.reshape(self.means.shape[1:])


def _score(share: Float[Array, "N P"]) -> Float[Array, "N P"]:
    """Return Phi^-1 of a share, which is finite for the smallest ones too."""
    return jax.scipy.special.ndtri(jnp.maximum(share, jnp.finfo(share.dtype).tiny))


def _mean_absolute(mean: Array, var: Array) -> Array:
    """Return E|Z| of Z ~ N(mean, var)."""
    std = jnp.sqrt(var)
    z = mean / std
    return 2 * std * jax.scipy.stats.norm.pdf(z) + mean * (2 * jax.scipy.stats.norm.cdf(z) - 1)


class Corrected(eqx.Module):
    """What a base predicts once the scores of its rows and outputs are known to have a certain distribution.

    F is the distribution function of the base, p its density, and z = Phi^-1(F(y)) the score of y, N(0, 1) under the
    base. Under the correction scores have another distribution function G, with density g, so that
        F*(y) = G(z),   log p*(y) = log p(y) + log g(z) - log N(z; 0, 1).
    """

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

        Both are integrals over scores. That of |Y - y| has a bend at y, whose part in the rule's error is known: there
        is none where y lies beyond all nodes, and values between two nodes rise hardly more steeply than from one to
        the other, whatever a density that is nearly zero, as of an outlier, says of their slope.
        """
        y = jnp.asarray(y)
        nodes, values = self._values()
        weights = _weights(nodes)
        to_y = jnp.tensordot(weights, jnp.abs(values - y), 1)
        score = self.score(y)
        log_density = jax.scipy.stats.norm.logpdf(score)
        around = (values[:-1] < y) & (y <= values[1:])
        rise = jnp.sum(jnp.where(around, jnp.diff(values, axis=0), 0), axis=0)  # 0 beyond all nodes
        slope = jnp.exp(log_density - self.log_prob(y))  # of y by its score
        slope = jnp.minimum(slope, MAX_SLOPE * rise / STEP)
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
        nodes = jnp.asarray(np.arange(-SCORE_REACH, SCORE_REACH + STEP / 2, STEP), self.base.means.dtype)
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
