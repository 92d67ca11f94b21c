"""Fit a nearest-neighbour GP to the scores of rows, test it on rows that training has not seen, and ask it."""

from itertools import combinations_with_replacement, product
from time import perf_counter
from typing import Any
from weakref import finalize

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float
from scipy.spatial import KDTree
from scipy.special import ndtr

from overtone.gp.neighbours import NeighbourGP, conditional, mixed
from overtone.gp.predictive.mixture import Mixture
from overtone.numerics.compiling import compiled, one_blas_thread

NUM_NEIGHBOURS = 32
MAX_SCORE = 5.0  # farther outliers say no more to their neighbours
STEPS, BATCH_ROWS, LOOKUP_STEPS, RATE = 80, 512, 5, 0.1  # of Adam; neighbours are looked up again every few steps
START_NEIGHBOURS, SHORTEST = 8, 1e-3  # the usual distance of the eighth row is the first lengthscale, if not too short
MAX_SHARE = 0.9995
MAX_FITTED = 100_000  # rows among which neighbours are looked up while lengthscales are learned
SLACK = 0.5  # rows farther than 1 / (1 + SLACK) of the distance to the last neighbour may be missed by the search
CHUNK_ROWS = 1024
MAX_GAIN = 8.0
SCALES = tuple(float(scale) for scale in np.exp(np.arange(-4, 5.5, 0.5)))  # of variances, narrow and wide
WEIGHTS = (0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95)  # of the wide one
COVERAGE = 0.945  # of intervals of 95 %, at least, by the rows that choose the scales


class Search:
    """The rows nearest to others, by a k-d tree in the metric of a GP.

    The search may miss some of the farther neighbours, and then finds others hardly farther away: with a million rows
    of eight inputs it finds 97.5 % of the 32 nearest, in a third of the time.
    """

    def __init__(self, inputs: np.ndarray, lengthscales: np.ndarray):
        self.lengthscales = np.asarray(lengthscales, float)
        self.tree = KDTree(inputs / self.lengthscales)

    def nearest(self, X: np.ndarray, num: int) -> np.ndarray:
        """Return the indices (N, num) of the rows nearest to each of X, the nearest one first."""
        _, found = self.tree.query(X / self.lengthscales, num, eps=SLACK, workers=-1)
        return np.asarray(found).reshape(len(X), num)


_searches: dict[Any, Search] = {}


def search_of(process: NeighbourGP) -> Search:
    """Return the search among the rows of a GP, which is made once and lives as long as these rows."""
    lengthscales = np.asarray(process.lengthscales)
    if (key := (id(process.inputs), lengthscales.tobytes())) not in _searches:
        _searches[key] = Search(np.asarray(process.inputs), lengthscales)
        finalize(process.inputs, _searches.pop, key, None)
    return _searches[key]


class _Metric(eqx.Module):
    """What is learned, without constraints."""

    log_lengthscales: Float[Array, " D"]
    logit_share: Float[Array, ""]

    @property
    def share(self) -> Float[Array, ""]:
        return MAX_SHARE * jax.nn.sigmoid(self.logit_share)


def fit_neighbours(X: np.ndarray, scores: np.ndarray, *, seed: int = 0, seconds: float = np.inf) -> NeighbourGP:
    """Return the GP of the scores (N,) of rows X (N, D), each of which is likely given its neighbours.

    Minibatches of rows are scored by their neighbours among all rows. After some seconds, compilation not counted, the
    GP is taken as it is.
    """
    began, rng, all_rows = perf_counter(), np.random.default_rng(seed), (X, scores)
    if len(X) > MAX_FITTED:
        chosen = rng.choice(len(X), MAX_FITTED, replace=False)
        X, scores = X[chosen], scores[chosen]
    X, scores = np.asarray(X, float), np.clip(np.asarray(scores, float), -MAX_SCORE, MAX_SCORE)
    X, scores = X[np.isfinite(scores)], scores[np.isfinite(scores)]
    num_rows, num_inputs = X.shape
    num, size = min(NUM_NEIGHBOURS, num_rows - 1), min(BATCH_ROWS, num_rows)
    with jax.enable_x64(True), one_blas_thread():
        some = X[rng.choice(num_rows, size, replace=False)]
        distance, _ = KDTree(X).query(some, min(START_NEIGHBOURS, num_rows))
        start = np.log(max(float(np.median(distance[:, -1])), SHORTEST))
        metric: Any = _Metric(jnp.full(num_inputs, start), jnp.zeros(()))
        unit = scores / max(np.sqrt(np.mean(scores**2)), 1e-6)
        optim = optax.adam(RATE)
        state = optim.init(metric)
        search = Search(X, np.exp(metric.log_lengthscales))
        for step in range(STEPS):
            if perf_counter() - began > seconds:
                break
            if step and step % LOOKUP_STEPS == 0:
                search = Search(X, np.exp(metric.log_lengthscales))
            rows = rng.choice(num_rows, size, replace=False)
            near = _others(search.nearest(X[rows], num + 1), rows)
            metric, state = _improved(metric, state, X[rows], unit[rows], X[near], unit[near])
            began = perf_counter() if step == 0 else began  # once compiled
        process = NeighbourGP(jnp.zeros((0, num_inputs)), jnp.zeros(0), jnp.exp(metric.log_lengthscales), metric.share)
        return with_rows(process, *all_rows)


def with_rows(process: NeighbourGP, X: np.ndarray, scores: np.ndarray) -> NeighbourGP:
    """Return the same GP, known at other rows; those without a score are left out."""
    there = np.isfinite(scores)
    known = X[there], np.clip(scores[there], -MAX_SCORE, MAX_SCORE)
    arrays = tuple(jax.device_put(part.astype("float32")) for part in known)
    return eqx.tree_at(lambda p: (p.inputs, p.scores), process, arrays)


def _others(near: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the neighbours without the row itself or, where copies of it come before it, without the last one."""
    own = near == rows[:, None]
    own[~own.any(axis=1), -1] = True
    return near[~own].reshape(len(rows), -1)


@compiled
def _improved(metric: Any, state: Any, x, scores, near, near_scores):
    """Return the metric and the optimiser's state after one step."""

    def loss(metric: _Metric) -> Float[Array, ""]:
        lengthscales = jnp.exp(metric.log_lengthscales)
        mean, var = conditional(metric.share, x / lengthscales, near / lengthscales, near_scores)
        return jnp.mean(0.5 * (jnp.log(var) + (scores - mean) ** 2 / var))

    updates, state = optax.adam(RATE).update(jax.grad(loss)(metric), state)
    return optax.apply_updates(metric, updates), state


def from_neighbours(process: NeighbourGP, X: np.ndarray) -> Mixture:
    """Return the distribution of the scores of new rows X, a mixture for N rows and one output."""
    said, dtype = said_by_neighbours(process, X), np.asarray(process.scores).dtype
    mean, narrow, wide = (part[:, None].astype(dtype) for part in said)
    with jax.enable_x64(True):
        return mixed(mean, narrow, wide, np.asarray(process.weight, dtype))


def said_by_neighbours(process: NeighbourGP, X: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the mean and both variances (N,) of the scores of new rows X."""
    inputs, scores, search, parts = np.asarray(process.inputs), np.asarray(process.scores), search_of(process), []
    # The rows themselves, which may be millions, are no part of the program.
    metric = eqx.tree_at(lambda p: (p.inputs, p.scores), process, (inputs[:0], scores[:0]))
    with jax.enable_x64(True), one_blas_thread():
        for first in range(0, len(X), CHUNK_ROWS):
            chunk = np.asarray(X[first : first + CHUNK_ROWS], float)
            padded = np.concatenate([chunk, np.repeat(chunk[-1:], CHUNK_ROWS - len(chunk), axis=0)])
            near = search.nearest(padded, min(NUM_NEIGHBOURS, len(scores)))
            found = _said(metric, padded, inputs[near], scores[near])
            parts.append([np.asarray(part)[: len(chunk)] for part in found])
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


@compiled
def _said(process: NeighbourGP, x, near, near_scores):
    lengthscales = process.lengthscales
    return process.trusted(*conditional(process.share, x / lengthscales, near / lengthscales, near_scores))


def with_tested_scale(process: NeighbourGP, X: np.ndarray, scores: np.ndarray) -> tuple[NeighbourGP, np.ndarray]:
    """Return the GP with the gain and scales that rows not seen in training find best, and the nats that each gains."""
    mean, var, _ = said_by_neighbours(_with_scales(process, 1.0, (1.0, 1.0), 0.5), X)
    z = np.clip(np.asarray(scores, float), -2 * MAX_SCORE, 2 * MAX_SCORE)
    gain = float(np.clip(np.sum(z * mean / var) / max(np.sum(mean**2 / var), 1e-12), 0.0, MAX_GAIN))
    variances = [var * scale ** (1 - var) for scale in SCALES]
    nats = [0.5 * (z**2 - np.log(s) - (z - gain * mean) ** 2 / s) for s in variances]
    below = [ndtr((z - gain * mean) / np.sqrt(s)) for s in variances]
    best, best_nats = (gain, (1.0, 1.0), 0.5), np.full(len(z), -np.inf)
    # The likeliest scales are too narrow where some rows are copies of others, so intervals have to cover as well.
    for least in (COVERAGE, 0.0):
        for (i, j), weight in product(combinations_with_replacement(range(len(SCALES)), 2), WEIGHTS):
            found = np.logaddexp(np.log1p(-weight) + nats[i], np.log(weight) + nats[j])
            if found.mean() > best_nats.mean():
                cdf = (1 - weight) * below[i] + weight * below[j]
                if np.mean(np.abs(cdf - 0.5) < 0.475) >= least:
                    best, best_nats = (gain, (SCALES[i], SCALES[j]), weight), found
        if np.isfinite(best_nats.mean()):
            break
    return _with_scales(process, *best), best_nats


def _with_scales(process: NeighbourGP, gain: float, scales: tuple[float, float], weight: float) -> NeighbourGP:
    """Return the GP with these numbers as arrays, so that one program serves all."""
    with jax.enable_x64(True):
        arrays = jax.tree.map(lambda number: jax.device_put(np.asarray(number)), (gain, scales, weight))
    return eqx.tree_at(lambda p: (p.gain, p.scales, p.weight), process, arrays)
