"""The protocol: p(y | f) of P targets given F functions at each row.

A new likelihood implements `log_prob`, `sample` and `predictive`, and says how it starts. Quadrature gives the two
integrals against a Gaussian f; a class overrides them where they have a closed form, or a good bound.
"""

from abc import abstractmethod
from functools import lru_cache
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.special import ndtri
from scipy.stats import qmc

from overtone.mixture import Mixture

NUM_NODES, NUM_JOINT_NODES = 20, 64
NOISE_FLOOR = 1e-6  # variance, for a target of variance 1


class AbstractLikelihood(eqx.Module):
    """p(y | f), independent over rows. Shapes broadcast over leading axes."""

    joint: ClassVar[bool] = False  # does a target depend on several functions?

    @staticmethod
    @abstractmethod
    def view(y: np.ndarray) -> np.ndarray:
        """What functions look like, roughly, at rows with these targets: how fast they vary can be seen in it."""

    @classmethod
    def start(cls, y: np.ndarray, noise: float, num_features: int, dtype: np.dtype) -> "AbstractLikelihood":
        """Where training starts, with a guess of the noise variance and the number of the output layer's features."""
        raise NotImplementedError(f"{cls.__name__} is no likelihood to start from.")

    @property
    @abstractmethod
    def reference(self) -> Float[Array, " F"]:
        """The variance of a usual row, as an observation of each function: the unit of sites' precisions."""

    @property
    def reach(self) -> Float[Array, " F"] | float:
        """How far one row may ask each function to move in a natural-gradient step; see `overtone.natural`."""
        return np.inf

    @abstractmethod
    def log_prob(self, y: Float[Array, "*#S N Q"], f: Float[Array, "*#S N F"]) -> Float[Array, "*S N P"]:
        """log p(y | f)."""

    @abstractmethod
    def sample(self, key: PRNGKeyArray, f: Float[Array, "*S N F"]) -> Float[Array, "*S N P"]:
        """y ~ p(y | f)."""

    @abstractmethod
    def predictive(self, mean: Float[Array, "S N F"], var: Float[Array, "S N F"]) -> Any:
        """The distribution of y for f that is one of S Gaussians, each as likely as the others."""

    def at(self, A: Float[Array, "M R"], shape: tuple[int, ...]) -> "AbstractLikelihood":
        """The likelihood of rows with these features, which matter only if its parameters vary with the inputs."""
        return self

    def kl(self) -> Float[Array, ""] | float:
        """Of whatever it has of functions of its own."""
        return 0.0

    def expected_log_prob(
        self, y: Float[Array, "N Q"], mean: Float[Array, "*S N F"], var: Float[Array, "*S N F"]
    ) -> Float[Array, "*S N P"]:
        """E[log p(y | f)] for f ~ N(mean, var), or a lower bound of it."""
        log_weights, values = self._at_nodes(y, mean, var)
        return jnp.sum(jnp.exp(log_weights) * values, axis=0)

    def log_predictive(
        self, y: Float[Array, "N Q"], mean: Float[Array, "*S N F"], var: Float[Array, "*S N F"]
    ) -> Float[Array, "*S N P"]:
        """log E[p(y | f)] for f ~ N(mean, var)."""
        log_weights, values = self._at_nodes(y, mean, var)
        return jax.nn.logsumexp(log_weights + values, axis=0)

    def _at_nodes(self, y, mean, var):
        f, log_weights = at_nodes(mean, var, self.joint)
        return log_weights, self.log_prob(y, f)


class AbstractNoise(AbstractLikelihood):
    """A likelihood of y in the units of f, whose predictive distribution is a mixture of Gaussians."""

    @staticmethod
    def view(y):
        return y

    @property
    def usual_noise(self) -> Float[Array, " P"]:
        """The noise variance to tell a user."""
        return self.reference

    @abstractmethod
    def components(self, mean: Float[Array, "S N F"], var: Float[Array, "S N F"]) -> tuple[Array, Array, Array]:
        """y for f ~ N(mean, var) as a mixture of C Gaussians: log weights, means and variances (C, S, N, P)."""

    def predictive(self, mean, var):
        parts = self.components(mean, var)
        log_weights, means, variances = (part.reshape(-1, *part.shape[2:]) for part in parts)
        return Mixture(means, variances, jax.nn.log_softmax(log_weights, axis=0))


def expected_log_prob(likelihood: AbstractLikelihood, y, mean, var) -> Array:
    """The same as the likelihood's, and 0 where y is missing (NaN)."""
    values = likelihood.expected_log_prob(jnp.nan_to_num(y), mean, var)
    return jnp.where(jnp.isnan(y[..., : values.shape[-1]]), 0, values)


def at_nodes(mean: Float[Array, "*S N F"], var: Float[Array, "*S N F"], joint: bool, num: int = NUM_NODES):
    """Values of f ~ N(mean, var) (K, *S, N, F) at the nodes of a rule, and the logs of its weights (K, 1, ...)."""
    nodes, weights = joint_nodes(mean.shape[-1]) if joint and mean.shape[-1] > 1 else gauss_hermite(num)
    nodes = jnp.asarray(nodes, mean.dtype).reshape(len(nodes), *[1] * (mean.ndim - 1), -1)
    log_weights = jnp.asarray(np.log(weights), mean.dtype).reshape(-1, *[1] * mean.ndim)
    return mean + jnp.sqrt(var) * nodes, log_weights


@lru_cache(maxsize=8)
def gauss_hermite(num: int) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(num)
    return nodes, weights / weights.sum()


@lru_cache(maxsize=64)
def joint_nodes(dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Points (K, dim) of equal weight for expectations under N(0, I): quasi-random, in pairs x and -x, and linearly
    transformed so that polynomials of degree three are integrated exactly."""
    half = max(NUM_JOINT_NODES // 2, 1 << (2 * dim - 1).bit_length())
    points = ndtri(qmc.Sobol(dim, scramble=False).random(half) + 0.5 / half)
    points = np.concatenate([points, -points])
    points = points @ np.linalg.inv(np.linalg.cholesky(points.T @ points / len(points))).T
    return points, np.full(len(points), 1 / len(points))


def log_normal(y: Array, mean: Array, var: Array) -> Array:
    return -0.5 * (jnp.log(2 * jnp.pi * var) + (y - mean) ** 2 / var)
