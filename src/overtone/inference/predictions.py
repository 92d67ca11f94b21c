"""Prediction for any number of rows.

Programs run on chunks of one size, so that memory is bounded, and nothing is compiled again for another number of rows.
`predict`, `elbo` and `sample_functions` are for users of the library; estimators take the smaller programs below.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from overtone.gp import model as deep
from overtone.gp.model import DeepGP, check_rows, columns
from overtone.gp.neighbours import mixed
from overtone.gp.pathwise import draw_paths, follow
from overtone.gp.predictive.mixture import Corrected, change_of_density
from overtone.inference.devices import shared
from overtone.inference.objective import rows_of
from overtone.numerics.compiling import compiled, one_blas_thread, quickly_compiled
from overtone.numerics.params import unwrap

CHUNK_ROWS, CHUNK_PRODUCTS = 256, 4096  # rows, and rows times draws, that fit into the processor's cache


def predict(model: DeepGP, X: Any, *, key: PRNGKeyArray, num_samples: int | None = None, offset: Any = 0.0) -> Any:
    """Return the predictive distribution of y at the rows of X (N, D): a `Mixture`, `Counts` or `Classes`.

    Its methods (mean, std, cdf, quantile, log_prob and so on) return arrays of shape (N, P). An offset (N, 1) is added
    to the functions, such as the log of an exposure.
    """
    with jax.enable_x64(True), one_blas_thread():
        X = np.asarray(X, dtype_of(model))
        offset = columns(offset) if np.ndim(offset) else np.full((len(X), 1), offset)
        check_rows(X, offset, "offset")
        offset = offset.astype(X.dtype)
        draws = num_samples or usual_draws(model)
        program = partial(compiled(deep.predict), model, key, num_samples=draws)
        rows = over_rows(lambda X, offset: program(X, offset=offset), X, offset, draws=draws)
        return jax.tree.map(lambda leaf: jax.device_put(leaf.astype(X.dtype)), rows)


def usual_draws(model: DeepGP) -> int:
    """Return how many draws of the hidden layers a prediction has, unless a number is given.

    The effects of many units add up to something smooth, whose moments need two draws for each unit.
    """
    width = sum(model.hidden_widths)
    return 1 if width == 0 else 64 if width < 8 else max(32, 2 * width)


def elbo(model: DeepGP, data: tuple[Any, Any], *, key: PRNGKeyArray, num_samples: int = 64) -> float:
    """Return the evidence lower bound of all rows (X, y), by fresh draws of the hidden layers."""
    with jax.enable_x64(True), one_blas_thread():
        return float(bound(model, key, num_samples, *rows_of(model, data)))


class Functions(eqx.Module):
    """Draws of a model's functions: the same draw gives the same values wherever and whenever it is asked."""

    model: DeepGP
    paths: list[Any]

    def __call__(self, X: Any) -> np.ndarray:
        """Return what each draw expects of y at the rows of X: (draws, N, P)."""
        return self.layers(X)[0]

    def layers(self, X: Any) -> tuple[np.ndarray, ...]:
        """Return what each draw expects of y, then its values in each layer: (draws, N, units)."""

        def compute(X):
            expected, values = quickly_compiled(follow)(self.model, self.paths, X)
            return expected, *values

        with jax.enable_x64(True), one_blas_thread():
            return over_rows(compute, np.asarray(X, dtype_of(self.model)))


def sample_functions(model: DeepGP, num: int, *, key: PRNGKeyArray, prior: bool = False) -> Functions:
    """Return draws of whole functions from the posterior, or from the prior."""
    with jax.enable_x64(True), one_blas_thread():
        return Functions(model, quickly_compiled(draw_paths)(model, key, num, prior))


def dtype_of(model: DeepGP) -> Any:
    """Return the precision of a model."""
    return unwrap(model.output.q).mean.dtype


def over_rows(compute: Callable[..., Any], *arrays: np.ndarray, draws: int = 1) -> Any:
    """Return compute(*arrays), a tree of arrays (..., N, P) of so many draws of hidden layers, by chunks of rows.

    Chunks are computed side by side, since one of them does not keep all cores busy.
    """
    rows = max(1, min(CHUNK_ROWS, CHUNK_PRODUCTS // draws)) * len(jax.local_devices())
    if len(lengths := {len(a) for a in arrays}) > 1:
        raise ValueError(f"all arrays must have the same rows; got {sorted(lengths)}.")
    wide = jax.dtypes.canonicalize_dtype(np.float64) == np.float64

    def of_chunk(first: int) -> Any:
        chunk = [a[first : first + rows] for a in arrays]
        size = len(chunk[0])
        padded = [np.concatenate([c, np.repeat(c[-1:], rows - size, axis=0)]) for c in chunk]
        with jax.enable_x64(wide):  # a thread has settings of its own
            return jax.tree.map(lambda leaf: np.asarray(leaf)[..., :size, :], compute(*shared(padded)))

    starts = range(0, len(arrays[0]), rows)
    parts = [of_chunk(first) for first in starts[:1]]  # compiled once
    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        parts += pool.map(of_chunk, starts[1:])
    finally:
        pool.shutdown(cancel_futures=True)
    return jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=-2), *parts)


def _distribution(model: DeepGP, key: PRNGKeyArray, num_samples: int, X, offset, *correction) -> Any:
    """Return the predictive distribution, corrected by the means and variances of scores if there are any."""
    distribution = deep.predict(model, key, X, num_samples=num_samples, offset=offset)
    return Corrected(distribution, mixed(*correction)) if correction else distribution


@compiled
def moments(model: DeepGP, key: PRNGKeyArray, num_samples: int, X, offset, *correction):
    """Return mean and standard deviation of y."""
    distribution = _distribution(model, key, num_samples, X, offset, *correction)
    return distribution.moments() if correction else (distribution.mean(), distribution.std())


@compiled
def quantiles(model: DeepGP, key: PRNGKeyArray, num_samples: int, levels, X, offset, *correction):
    """Return quantiles of y, of shape (levels, N, P)."""
    distribution = _distribution(model, key, num_samples, X, offset, *correction)
    return (jax.vmap(distribution.quantile)(levels),)


@compiled
def probabilities(model: DeepGP, key: PRNGKeyArray, num_samples: int, X):
    """Return the probability of each class."""
    return (deep.predict(model, key, X, num_samples=num_samples).mean(),)


@compiled
def log_density(model: DeepGP, key: PRNGKeyArray, num_samples: int, X, y, *correction):
    """Return log p(y) for each row and output."""
    density = deep.log_density(model, key, X, y, num_samples=num_samples)
    if correction:
        score = _distribution(model, key, num_samples, X, 0.0).score(y)
        density += change_of_density(mixed(*correction), score)
    return (density,)


@compiled
def scores_of_rows(model: DeepGP, key: PRNGKeyArray, num_samples: int, X, y):
    """Return the normal score of each target, a number."""
    return (_distribution(model, key, num_samples, X, 0.0).score(y),)


@compiled
def scores(model: DeepGP, key: PRNGKeyArray, num_samples: int, X, y, offset, *correction):
    """Return the mean, log p(y), P(Y < y) and the continuous ranked probability score for each row and output."""
    distribution = _distribution(model, key, num_samples, X, offset, *correction)
    if correction:
        return distribution.mean(), distribution.log_prob(y), distribution.cdf(y), distribution.crps(y)
    density = deep.log_density(model, key, X, y, num_samples=num_samples)
    y = y[:, : density.shape[1]]
    return distribution.mean(), density, distribution.cdf(y), distribution.crps(y)


@quickly_compiled
def layers(model: DeepGP, key: PRNGKeyArray, num_samples: int, X):
    """Return mean and standard deviation of every layer's function: (mean_1, std_1, mean_2, std_2, ...)."""
    marginals = deep.layer_marginals(model, key, X, num_samples=num_samples)
    return tuple(moment for m in marginals for moment in (m.mean(), m.std()))


@quickly_compiled
def bound(model: DeepGP, key: PRNGKeyArray, num_samples: int, X, y):
    """Return the evidence lower bound of all rows, averaged over single draws to keep memory small."""
    one = jax.lax.map(lambda k: deep.elbo(model, k, X, y, num_data=len(X)), jax.random.split(key, num_samples))
    return one.mean()


@quickly_compiled
def observations(model: DeepGP, key: PRNGKeyArray, num_draws: int, X, offset):
    """Return draws of y, of shape (draws, N, P): each one function through all layers, plus noise."""

    def one(key):
        function_key, row_key, noise_key = jax.random.split(key, 3)
        inputs, f = deep.draw(model, function_key, row_key, X)[-1]
        return unwrap(model).likelihood_at(inputs[None]).sample(noise_key, f[None] + offset)[0]

    return jax.lax.map(one, jax.random.split(key, num_draws))
