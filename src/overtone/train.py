"""Config and data -> a fitted model: which loss, for how long, and what is kept."""

import math
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import lru_cache, reduce
from time import perf_counter
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.tree_util import Partial
from jaxtyping import PRNGKeyArray
from scipy.optimize import minimize_scalar

from overtone import __version__
from overtone.build import (
    LEAST_NOISE,
    build,
    deepened,
    enlarged,
)
from overtone.calibration import with_calibrated_noise
from overtone.checkpoints import FileCheckpoint, digest
from overtone.collapsed import best_scales, collapsed_elbo, optimal_output, statistics, with_output
from overtone.compiling import quickly_compiled
from overtone.config import Config
from overtone.data import Batches
from overtone.decide import larger
from overtone.diagnostics import share_beyond
from overtone.fit import History, fit, two_cycles, warm_up_and_decay
from overtone.likelihoods import AbstractNoise, FlexibleNoise, Gaussian
from overtone.model import DeepGP, elbo
from overtone.natural import OutputMemory, natural_elbo, site_sums
from overtone.params import Positive, unwrap
from overtone.predictions import bound, log_density, over_rows

OUTPUT_ROWS, FINISH_ROWS = 8192, 2048  # rows times draws, at least, to fix the output layer; rows at a time
MOST_FINISH_ROWS = 200_000  # to go through once more after training; with more, the average over batches is as good
UNLIMITED, USUAL_STEPS = 10**6, 5000
ANNEALED = 1000  # steps until the divergence of the hidden layers counts whole
MANY_PASSES = 250  # through the rows: so often seen, they may be learned by heart
ADDED_WEIGHT = 0.2  # of the divergence of fine structure: with a diagonal q(v) and whole weight it learns too little
HELD_OUT_SHARE, FEWEST_HELD_OUT, MOST_HELD_OUT = 0.1, 200, 2000  # of the rows; fewer say too little
SCORE_DRAWS, BOUND_DRAWS = 8, 32
MOST_BEYOND = 0.1  # of a layer's variance, in waves that its features lack; with more, it grows
FACTORS = (-0.5, 1.0)  # logarithms, of the variance of flexible noise
MOST_RESERVED = 8.0  # seconds
CALIBRATION_SHARE = 0.1  # of the time
SHALLOW_SHARE = 0.25  # of time and steps, to find out what one layer can do
LIMITED_NOISES, LIMITED_SCALES = np.geomspace(1.1 * LEAST_NOISE, 1, 73), np.geomspace(1e-3, 1e3, 25)


class Run(NamedTuple):
    """How training is watched: with a progress bar, until somebody stops it, and with checkpoints in a folder."""

    progress: bool = False
    stop: Callable[[], bool] = lambda: False
    checkpoint: str | os.PathLike | None = None


def train(
    config: Config,
    X: np.ndarray,
    y: np.ndarray,
    run: Run = Run(),  # noqa: B008
    grows: bool = False,
) -> tuple[Config, DeepGP, History]:
    """Build the model of a resolved config and fit it to X (N, D) and y (N, Q), standardised if it has units.

    Returns the config with the depth and the number of frequencies that the model has at last; more than at first only
    if it `grows`. Call it under `jax.enable_x64(True)`: arrays keep the config's precision, and the closed-form output
    layer can use double precision for its one linear system.
    """
    began = perf_counter()
    X, y = (np.asarray(values, config.dtype) for values in (X, y))
    data = Data(X, y, *_hold_out(config, len(X)))
    steps = config.max_steps or (UNLIMITED if config.max_time else USUAL_STEPS)

    def limits(until: float, share: float) -> dict:
        """A share of the steps, and the time until a share of all is over; some is for the closed form at last."""
        time = config.max_time and until * max(0.85 * config.max_time, config.max_time - MOST_RESERVED)
        return {"steps": max(1, round(share * steps)), "seconds": time and time - (perf_counter() - began)}

    def better(*stages: Stage) -> Stage:
        return max(stages, key=lambda stage: _score(stage, data))

    if not config.chooses_depth:
        model = build(config, X, y)
        if config.limited and config.output == "collapsed":
            model = _with_best_scales(model, X, y)
        more = larger(config, X) if grows else config
        stage = _stage(config, model, data, run, **limits(1.0, 1.0), grows=more != config)
        if stage.history.outgrown:
            model = enlarged(build(more, X, y), stage.model)
            left = limits(1.0, 1 - len(stage.history.loss) / steps)
            stage = better(stage, _stage(more, model, data, run, **left))
    else:
        shallow, share = replace(config, method="vff", n_layers=1), SHALLOW_SHARE
        first = _stage(shallow, build(shallow, X, y), data, run, **limits(share, share))
        stage, left = first, limits(1.0, 1 - share)
        if not config.max_time or left["seconds"] > share * config.max_time:  # otherwise compiling took it all
            model = deepened(build(config, X, y), first.model)
            stage = better(first, _stage(config, model, data, run, **left))
    model = _with_tested_noise(stage, data)
    if config.output == "collapsed" and config.preset != "paper":
        seconds = CALIBRATION_SHARE * config.max_time if config.max_time else math.inf
        model = with_calibrated_noise(model, stage.key, X, y, seconds)
    model = _finished(config, model, stage.key, X, y)
    kept = replace(config, n_layers=len(model.layers), n_inducing=stage.config.n_inducing)
    return kept, model, replace(stage.history, seconds=perf_counter() - began)


def _outgrown(model: DeepGP) -> bool:
    """Do trained kernels have much variance in waves that the features of their layers lack?"""
    return any(share_beyond(layer) > MOST_BEYOND for layer in model.layers)


def _with_best_scales(model: DeepGP, X: np.ndarray, y: np.ndarray) -> DeepGP:
    """A shallow, band-limited model with the kernel's variance and the noise where the bound is largest."""
    gram, projected = map(np.asarray, _all_sums(model, jax.random.key(0), X, y))
    squares, dtype = np.sum(y.astype(float) ** 2, axis=0), y.dtype
    scale, noise = best_scales(gram, projected, squares, len(X), LIMITED_NOISES, LIMITED_SCALES)
    kernel: Any = model.layers[0].kernel  # additive, in one input
    variance = scale * np.asarray(unwrap(kernel.parts.variance))
    found = Positive(variance.astype(dtype)), Gaussian(Positive(noise.astype(dtype), lower=LEAST_NOISE))
    return eqx.tree_at(lambda m: (m.layers[0].kernel.parts.variance, m.likelihood), model, found)


class Data(NamedTuple):
    X: np.ndarray
    y: np.ndarray
    rows: np.ndarray  # to train on
    held_out: np.ndarray  # to tell when to stop, and how deep the model should be


class Stage(NamedTuple):
    config: Config
    model: DeepGP
    key: PRNGKeyArray
    history: History


def _stage(
    config: Config, model: DeepGP, data: Data, run: Run, *, steps: int, seconds: float | None, grows: bool = False
) -> Stage:
    """Train a model for as many steps or seconds; one that grows, until it is found too small."""
    output, memory = config.output, None
    X, y = data.X[data.rows], data.y[data.rows]
    num_data = jax.device_put(np.asarray(len(X), config.dtype))
    if output == "collapsed":
        loss = Partial(negative_collapsed, num_samples=config.n_samples)
    elif output == "natural":
        loss = Partial(negative_natural, num_data=num_data, num_samples=config.n_samples)
        memory = OutputMemory.start(model)
    else:
        loss = Partial(negative_elbo, num_data=num_data, num_samples=config.n_samples)
    schedule: Callable = warm_up_and_decay
    if output == "natural" and len(data.held_out):
        schedule = Partial(two_cycles, many=jax.device_put(np.asarray(MANY_PASSES * len(X) // config.batch_size)))
    key, checkpoint = jax.random.key(config.random_state), None
    if run.checkpoint is not None:
        identity = {**asdict(config), "steps": steps, "data": digest(data.X, data.y), "version": __version__}
        checkpoint = FileCheckpoint(run.checkpoint, f"{config.num_layers}-layers-{config.n_inducing}", identity)

    def score(model: DeepGP, memory: OutputMemory | None) -> float:
        sums = (memory.gram, memory.projected) if memory is not None else None
        sums = _all_sums(model, key, X, y) if output == "collapsed" else sums
        model = model if sums is None else _with_output(model, *sums)
        return held_out_density(model, key, data.X[data.held_out], data.y[data.held_out])

    model, memory, history = fit(
        model,
        loss,
        Batches(X, y, batch_size=len(X) if output == "collapsed" else config.batch_size, seed=config.random_state),
        key=key,
        optim=adam(config.rate),
        steps=steps,
        seconds=seconds,
        score=score if len(data.held_out) else None,
        schedule=schedule,
        memory=memory,
        describe=_describe,
        progress=run.progress,
        stop=run.stop,
        outgrown=_outgrown if grows else lambda _: False,
        checkpoint=checkpoint,
    )
    if memory is not None:
        model = _with_output(model, memory.gram, memory.projected)
    return Stage(config, model, key, history)


def _with_tested_noise(stage: Stage, data: Data) -> DeepGP:
    """Flexible noise, which training makes too small where the model has learned its rows by heart, times a factor.

    It is the one that rows which training has not seen find best.
    """
    model, noise = stage.model, stage.model.likelihood
    if not isinstance(noise, FlexibleNoise) or not len(data.held_out):
        return model
    X, y = data.X[data.held_out], data.y[data.held_out]

    def scaled(log_factor: float) -> DeepGP:
        return eqx.tree_at(lambda m: m.likelihood, model, noise.scaled(log_factor))

    def loss(log_factor: float) -> float:
        value = held_out_density(scaled(log_factor), stage.key, X, y)
        return -value if np.isfinite(value) else np.inf

    found: Any = minimize_scalar(loss, bounds=FACTORS, method="bounded", options={"xatol": 0.03, "maxiter": 10})
    best = found.x if found.fun < loss(0.0) else 0.0
    return scaled(best)


def _score(stage: Stage, data: Data) -> float:
    """How good is a model? By the log density of held-out rows or, without them, by the bound."""
    if len(data.held_out):
        return max((value for _, value in stage.history.scores), default=-np.inf)
    model = _finished(stage.config, stage.model, stage.key, data.X, data.y)
    return float(bound(model, jax.random.fold_in(stage.key, 1), BOUND_DRAWS, data.X, data.y))


def _finished(config: Config, model: DeepGP, key: PRNGKeyArray, X: np.ndarray, y: np.ndarray) -> DeepGP:
    """The model with the output layer's q(v) in closed form from these rows, unless it was trained or they are many."""
    if config.output == "adam" or (config.output == "natural" and len(X) > MOST_FINISH_ROWS):
        return model
    return _with_output(model, *_all_sums(model, key, X, y))


def _hold_out(config: Config, num: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows to train on, and those that tell when to stop."""
    held_out = min(int(HELD_OUT_SHARE * num), MOST_HELD_OUT)
    held_out = held_out if held_out >= FEWEST_HELD_OUT and config.preset != "paper" else 0
    if config.held_out == "last":
        return np.arange(num - held_out), np.arange(num - held_out, num)
    order = np.random.default_rng(config.random_state).permutation(num)
    return np.sort(order[held_out:]), np.sort(order[:held_out])


def _with_output(model: DeepGP, gram, projected) -> DeepGP:
    return with_output(model, quickly_compiled(optimal_output)(model, gram, projected))


def held_out_density(model: DeepGP, key: PRNGKeyArray, X: np.ndarray, y: np.ndarray) -> float:
    """Mean log predictive density of rows that training has not seen."""
    (densities,) = over_rows(lambda *chunk: log_density(model, key, SCORE_DRAWS, *chunk), X, y)
    missing = np.isnan(y[:, : densities.shape[1]])
    return float(np.mean(np.sum(np.where(missing, 0, densities), axis=1)))


def negative_elbo(model: DeepGP, memory: None, key, X, y, *, num_data, num_samples: int):
    """The loss: minus the evidence lower bound per row."""
    return -elbo(model, key, X, y, num_data=num_data, num_samples=num_samples) / num_data, memory


def negative_collapsed(model: DeepGP, memory: None, key, X, y, *, num_samples: int):
    """The loss with the output layer in closed form."""
    return -collapsed_elbo(model, key, X, y, num_samples=num_samples) / len(X), memory


def negative_natural(model: DeepGP, memory: OutputMemory, key, X, y, *, num_data, num_samples: int):
    """The loss with the output layer by natural gradients; the divergence of the hidden layers comes in slowly."""
    weight = jnp.minimum(1, memory.step / ANNEALED).astype(X.dtype)
    weights = {"hidden_weight": weight, "added_weight": ADDED_WEIGHT}
    bound, memory = natural_elbo(model, memory, key, X, y, num_data=num_data, num_samples=num_samples, **weights)
    return -bound / num_data, memory


def _all_sums(model: DeepGP, key, X: np.ndarray, y: np.ndarray) -> tuple:
    """What the output layer's q(v) needs to know of all rows, from many draws of the hidden layers."""
    rows, draws = min(len(X), FINISH_ROWS), max(1, OUTPUT_ROWS // len(X))
    exact = isinstance(model.likelihood, Gaussian) and not np.isnan(y).any()

    def sums(first: int):
        place = np.arange(first, first + rows)  # the last chunk is filled up with rows of weight 0
        chunk = tuple(a[np.minimum(place, len(X) - 1)] for a in (X, y))
        weights = (place < len(X)).astype(float)
        return _output_sums(model, jax.random.fold_in(key, first), chunk, weights, draws, exact)

    return reduce(lambda a, b: jax.tree.map(np.add, a, b), map(sums, range(0, len(X), rows)))


@quickly_compiled
def _output_sums(model: DeepGP, key, rows: tuple, weights, num_samples: int, exact: bool):
    X, y = rows
    if exact:
        return statistics(model, key, X, y, weights, num_samples=num_samples)[:2]
    return site_sums(model, key, X, y, weights, num_samples)


def _describe(model: DeepGP, loss: float) -> dict[str, str]:
    shown = {"ELBO/N": f"{-loss:.3f}"}
    if isinstance(model.likelihood, (AbstractNoise, FlexibleNoise)):
        shown["noise"] = f"{np.sqrt(np.mean(unwrap(model.likelihood).usual_noise)):.3f}"
    return shown


@lru_cache(maxsize=64)  # one object for each setting, so that the compiled training loop is shared
def adam(learning_rate: float) -> optax.GradientTransformation:
    return optax.adam(learning_rate)
