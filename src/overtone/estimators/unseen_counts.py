"""Widen predictions of counts where a category is unseen: as `unseen` does it for numbers, on the scale of log rates.

A row is predicted as if it had each of the known categories in turn, and all of these predictions are one mixture. The
differences of their log rates are stretched until the variance between them is s^2 (1 + 1 / L), times the square by
which Student's t is wider than a normal distribution at 95 %, and the mean stays what it is.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from overtone.estimators.unseen import Replaced, replaced, stretch
from overtone.gp import model as deep
from overtone.gp.predictive.discrete import Counts
from overtone.inference import predictions
from overtone.numerics.compiling import compiled, one_blas_thread

GROUPS = 32  # of rates, for each draw and turn, which a program holds at once
MAX_LOG_STD = 1.0  # of rates, beyond which differences of a few categories are not stretched


def with_unseen_counts(model: Any, compute: Callable, X: Any, parts: tuple, *others: np.ndarray) -> tuple:
    """Return results (..., N, P) for the rows of X, of which those with unseen categories are computed here.

    compute: one of the programs below; others: what it takes of each row, besides inputs, weights and shifts.
    """
    found = replaced(model, X) if model.model_.likelihood.counts else None
    if found is None:
        return parts
    Z, dtype = model._inputs(found.flat())[0].reshape(found.inputs.shape), model.config_.dtype
    weights, moved, rows = found.weights.astype(dtype), shifts(model, found).astype(dtype), found.rows
    with jax.enable_x64(True), one_blas_thread():
        key = jax.random.key(model.config_.random_state)
        draws = model.config_.n_predict_samples or predictions.usual_draws(model.model_)
        program, chunks = partial(compute, model.model_, key, draws), (Z, weights, moved, *(o[rows] for o in others))
        mixed = predictions.over_rows(program, *chunks, draws=GROUPS * draws * weights.shape[1])
    for part, values in zip(parts, mixed, strict=True):
        part[..., rows, :] = values
    return parts


def shifts(model: Any, found: Replaced) -> np.ndarray:
    """Return what is added to the log rates of each turn, (R, T, P)."""
    of_layers = model._over_rows(predictions.layers, found.flat(), corrected=False)
    f, spread = (found.of_turns(part) for part in of_layers[-2:])
    away = f - found.averaged(f)[:, None]
    std = np.sqrt(found.averaged(away**2))
    factor = np.clip(MAX_LOG_STD / np.maximum(std, 1e-9), 1.0, stretch(found.levels)[:, None])
    stretched, rates = (factor - 1)[:, None] * away, np.exp(f + 0.5 * spread**2)
    growth = found.averaged(rates * np.exp(stretched)) / found.averaged(rates)
    return stretched - np.log(growth)[:, None]


def _flat(X: Any) -> Any:
    return X.reshape(-1, X.shape[-1])


def _distribution(model, key, num_samples, X, weights, moved, offset) -> Counts:
    """Return the mixture over the turns of each row."""
    counts = deep.predict(model, key, _flat(X), num_samples=num_samples, offset=_flat(moved + offset[:, None]))
    logs = jnp.full_like(counts.rates, -np.log(len(counts.rates))) if counts.log_weights is None else counts.log_weights

    def joined(part):
        """Return an array of (components, R T, P) as one of (components T, R, P)."""
        part = part.reshape(len(part), *weights.shape, -1)
        return jnp.moveaxis(part, 2, 1).reshape(-1, len(weights), part.shape[-1])

    return Counts(*map(joined, (counts.rates, counts.spreads, logs + _flat(jnp.log(weights)[..., None]))))


@compiled
def moments(model, key, num_samples, X, weights, moved, offset):
    """Return mean and standard deviation of y."""
    distribution = _distribution(model, key, num_samples, X, weights, moved, offset)
    return distribution.mean(), distribution.std()


@compiled
def quantiles(model, key, num_samples, levels, X, weights, moved, offset):
    """Return quantiles of y, of shape (levels, R, P)."""
    distribution = _distribution(model, key, num_samples, X, weights, moved, offset)
    return (jax.vmap(distribution.quantile)(levels),)


def _density(model, key, num_samples, X, weights, moved, y):
    """Return log p(y), by the likelihood's own rule, which is more accurate than `Counts`."""
    counts, log_exposure = jnp.split(jnp.broadcast_to(y[:, None], (*weights.shape, y.shape[1])), 2, axis=-1)
    targets = _flat(jnp.concatenate([counts, log_exposure + moved], axis=-1))
    of_turns = deep.log_density(model, key, _flat(X), targets, num_samples=num_samples)
    return jax.nn.logsumexp(of_turns.reshape(*weights.shape, -1), axis=1, b=weights[..., None])


@compiled
def log_density(model, key, num_samples, X, weights, moved, y):
    """Return log p(y) for each row and output."""
    return (_density(model, key, num_samples, X, weights, moved, y),)


@compiled
def scores(model, key, num_samples, X, weights, moved, y, offset):
    """Return the mean, log p(y), P(Y < y) and the continuous ranked probability score for each row and output."""
    distribution = _distribution(model, key, num_samples, X, weights, moved, offset)
    density = _density(model, key, num_samples, X, weights, moved, y)
    y = y[:, : density.shape[1]]
    return distribution.mean(), density, distribution.cdf(y), distribution.crps(y)
