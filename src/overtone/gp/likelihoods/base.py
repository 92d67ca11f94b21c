"""The protocol: p(y | f) of P targets given F functions at each row.

A new likelihood is an `AbstractLikelihood` with `log_prob`, `sample` and `predictive`, which says how it starts.
Quadrature gives the two integrals against a Gaussian f; a class overrides them where they have a closed form, or a good
bound. One whose parameters vary with the inputs is an `AbstractFamily`.
"""

from abc import abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.special import ndtri
from scipy.stats import qmc

from overtone.numerics.params import Positive, is_number

NUM_NODES, NUM_JOINT_NODES = 20, 64
MIN_VARIANCE = 1e-10  # of f, below which derivatives by nodes would be rounding, or infinite


class AbstractFamily(eqx.Module):
    """A likelihood whose parameters may vary with the inputs: bound to rows by `at`, it is an `AbstractLikelihood`."""

    classes: ClassVar[bool] = False  # are targets classes 0, 1, 2, ...?
    counts: ClassVar[bool] = False  # are targets counts, with columns of log exposures behind them?

    @abstractmethod
    def at(
        self, project: Callable[[Float[Array, "K M"]], Float[Array, "K R"]], shape: tuple[int, ...]
    ) -> "AbstractLikelihood":
        """Return the likelihood of rows of this shape; project(W) is W A, with whitened features A of variance 1."""

    @abstractmethod
    def initialised(self, y: np.ndarray, num_features: int, dtype: Any) -> "AbstractFamily":
        """Return the likelihood as training starts with it, for targets y and an output layer of so many features."""

    @staticmethod
    def rough_functions(y: np.ndarray) -> np.ndarray:
        """Return rough values of the functions at rows with these targets, from which spectra are estimated."""
        return y

    def num_functions(self, y: Any) -> int:
        """Return the number of functions that targets y (N, Q), an array or a view of rows, depend on."""
        return y.shape[1]

    @property
    @abstractmethod
    def reference(self) -> Float[Array, " F"]:
        """The variance of a usual row, as an observation of each function: the unit of sites' precisions."""

    @property
    def usual_noise(self) -> Float[Array, " P"] | None:
        """The noise variance to tell a user, where there is one."""
        return None if self.classes or self.counts else self.reference

    def kl(self) -> Float[Array, ""] | float:
        """Return the divergence of whatever functions of its own the likelihood has."""
        return 0.0


class AbstractLikelihood(AbstractFamily):
    """p(y | f), independent over rows. Shapes broadcast over leading axes."""

    joint: ClassVar[bool] = False  # does a target depend on several functions?

    def at(self, project, shape):
        return self

    @property
    def reach(self) -> Float[Array, " F"] | float:
        """How far one row may ask each function to move in a natural-gradient step; see `inference.output_layer`."""
        return np.inf

    @abstractmethod
    def log_prob(self, y: Float[Array, "*#S N Q"], f: Float[Array, "*#S N F"]) -> Float[Array, "*S N P"]:
        """Return log p(y | f)."""

    @abstractmethod
    def sample(self, key: PRNGKeyArray, f: Float[Array, "*S N F"]) -> Float[Array, "*S N P"]:
        """Return a draw of y given f."""

    @abstractmethod
    def predictive(self, mean: Float[Array, "S N F"], var: Float[Array, "S N F"]) -> Any:
        """Return the distribution of y where f is one of S Gaussians, each as likely as the others."""

    def expected_log_prob(
        self, y: Float[Array, "N Q"], mean: Float[Array, "*S N F"], var: Float[Array, "*S N F"]
    ) -> Float[Array, "*S N P"]:
        """Return E[log p(y | f)] for f ~ N(mean, var), or a lower bound of it."""
        log_weights, values = self._at_nodes(y, mean, var)
        return jnp.sum(jnp.exp(log_weights) * values, axis=0)

    def log_predictive(
        self, y: Float[Array, "N Q"], mean: Float[Array, "*S N F"], var: Float[Array, "*S N F"]
    ) -> Float[Array, "*S N P"]:
        """Return log E[p(y | f)] for f ~ N(mean, var)."""
        log_weights, values = self._at_nodes(y, mean, var)
        return jax.nn.logsumexp(log_weights + values, axis=0)

    def _at_nodes(self, y, mean, var):
        f, log_weights = at_nodes(mean, var, self.joint)
        return log_weights, self.log_prob(y, f)


def expected_log_prob(likelihood: AbstractLikelihood, y, mean, var) -> Array:
    """Return the likelihood's own expectation, and 0 where y is missing (NaN)."""
    values = likelihood.expected_log_prob(jnp.nan_to_num(y), mean, var)
    return jnp.where(jnp.isnan(y[..., : values.shape[-1]]), 0, values)


def at_nodes(mean: Float[Array, "*S N F"], var: Float[Array, "*S N F"], joint: bool, num: int = NUM_NODES):
    """Return f ~ N(mean, var) at the nodes of a rule (K, *S, N, F), and the logs of its weights (K, 1, ...)."""
    nodes, weights = joint_nodes(mean.shape[-1]) if joint and mean.shape[-1] > 1 else gauss_hermite(num)
    nodes = jnp.asarray(nodes, mean.dtype).reshape(len(nodes), *[1] * (mean.ndim - 1), -1)
    log_weights = jnp.asarray(np.log(weights), mean.dtype).reshape(-1, *[1] * mean.ndim)
    return mean + jnp.sqrt(jnp.maximum(var, MIN_VARIANCE)) * nodes, log_weights


@lru_cache(maxsize=8)
def gauss_hermite(num: int) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(num)
    return nodes, weights / weights.sum()


@lru_cache(maxsize=64)
def joint_nodes(dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Return points (K, dim) of equal weight for expectations under N(0, I).

    They are quasi-random, in pairs x and -x, and linearly transformed so that cubic polynomials are exact.
    """
    half = max(NUM_JOINT_NODES // 2, 1 << (2 * dim - 1).bit_length())
    points = ndtri(qmc.Sobol(dim, scramble=False).random(half) + 0.5 / half)
    points = np.concatenate([points, -points])
    points = points @ np.linalg.inv(np.linalg.cholesky(points.T @ points / len(points))).T
    return points, np.full(len(points), 1 / len(points))


def start_noise(noise: Any, num_targets: int, lower: float, dtype: Any) -> Any:
    """Return a noise variance for each target, above a least one; a parameter that is ready stays as it is."""
    return Positive(np.full(num_targets, max(noise, 1.1 * lower), dtype), lower=lower) if is_number(noise) else noise
