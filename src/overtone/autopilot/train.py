"""A plan and data -> a fitted model: which stages, for how long, and what is kept."""

import os
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from time import perf_counter
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from tqdm.auto import tqdm

from overtone.autopilot.build import build, deepened, objective, with_scales
from overtone.autopilot.exact import fit_exact, with_noise
from overtone.autopilot.held_out import held_out_densities, held_out_density, hold_out, with_tested_noise
from overtone.autopilot.local import Learned, Neighbours, learn_neighbours
from overtone.autopilot.policies import BAND_LIMIT, DEPTH, EXACT, HOLD_OUT, LOCAL, START, TIME
from overtone.autopilot.record import Plan
from overtone.gp.model import DeepGP
from overtone.inference.batches import random_rows
from overtone.inference.calibration import with_calibrated_noise
from overtone.inference.callbacks import Callback, Clock, EarlyStopping, ProgressBar, Retreat, StopWhen
from overtone.inference.checkpoints import Checkpoint, digest
from overtone.inference.collapsed import best_scales
from overtone.inference.evidence import freedom, with_variances_times
from overtone.inference.log import Log
from overtone.inference.loop import History, fit
from overtone.inference.objective import AbstractObjective, Rows
from overtone.inference.output_layer import output_sums
from overtone.inference.predictions import bound
from overtone.inference.processes import agreed, check_alike
from overtone.inference.quasi_newton import fit_quasi_newton
from overtone.inference.schedules import plain_adam, planned_adam
from overtone.inference.updating import with_more_points, with_more_rows
from overtone.numerics.compiling import one_blas_thread
from overtone.numerics.params import unwrap
from overtone.storage.rows import without
from overtone.version import __version__


class Run(NamedTuple):
    """How training is watched: with a progress bar, until somebody stops it, with checkpoints and with a log."""

    progress: bool = False
    stop: Callable[[], bool] = lambda: False
    checkpoint: str | os.PathLike | None = None  # a folder
    log: str | os.PathLike | None = None  # a file of JSON lines


class Parts(NamedTuple):
    """What a trial may replace: functions of the plan, and of the model that was built."""

    objective: Callable[[Plan], AbstractObjective] = objective
    optim: Callable[[float], optax.GradientTransformation] = planned_adam
    prepared: Callable[[DeepGP, Rows], DeepGP] = lambda model, _: model


class Stage(NamedTuple):
    """A trained model, the objective and its last state, and the history of the training."""

    model: DeepGP
    objective: AbstractObjective
    state: Any
    history: History

    def noted(self, **sentences: str) -> "Stage":
        """Return the stage with sentences in its history."""
        return self._replace(history=replace(self.history, **sentences))


class Trained(NamedTuple):
    """A model, the history of its training, and the GPs of neighbours with the reason why there are any, or none."""

    model: DeepGP
    history: History
    neighbours: Neighbours = ()
    why: str = ""


def train(
    plan: Plan,
    X: Any,
    y: Any,
    run: Run = Run(),  # noqa: B008
    parts: Parts = Parts(),  # noqa: B008
) -> Trained:
    """Build the model of a plan and fit it to X (N, D) and y (N, Q), standardised if they are numbers with units.

    Both may be views of rows (see `overtone.storage.rows`) in place of arrays.
    """
    # Double precision is for what asks for it: the model and the rows keep the plan's.
    with jax.enable_x64(True), one_blas_thread():
        stages, share = _Stages(plan, X, y, run, parts), DEPTH.shallow_share
        if plan.exact_kernel:
            stage = stages.train_exact()
            if plan.num_layers > 1 and stages.has_time_for(share) and (deep := stages.train_deep()):
                stage = stages.proved(deep, stage)
        elif len(plan.depths) == 1:
            stage = stages.train(plan, stages.model(plan), 1.0, 1.0)
        else:
            stage = shallow = stages.train_shallow(share)
            if deep := stages.train_deep(shallow):
                stage = deep if stages.score(deep) > stages.score(shallow) else shallow
        model, one_layer = stage.model, len(stage.model.layers) == 1
        exact = plan.is_exact(model)
        if one_layer and plan.calibrated and not plan.band_limited and not exact:
            factor = freedom(model, len(X))
            if plan.varying_noise:
                model = stage.objective.finish(model, stage.state, stages.key, stages.rows)
                model, noise = with_noise(plan, model, stages.key, stages.rows, run.stop)
                stage = stage.noted(noise=noise)
            model = with_variances_times(model, factor)
        if not (one_layer and plan.varying_noise):  # noise that varies comes from all rows, the held-out ones too
            model = with_tested_noise(model, stages.key, stages.all_held_out)
        if plan.calibrated:
            limit = TIME.calibration_share * plan.seconds if plan.seconds else np.inf
            model = with_calibrated_noise(model, stages.key, *stages.rows, limit)
        learned = Learned()
        if plan.neighbours and not exact:
            # Held-out rows must be new to the output layer as well. Where neighbours are asked, they know these rows.
            known = stage.objective.finish(model, stage.state, stages.key, stages.training_rows)
            learned = learn_neighbours(known, stages.key, stages.training_rows, stages.all_held_out, plan)
            model = known if learned.neighbours else model
        if not learned.neighbours:
            model = stage.objective.finish(model, stage.state, stages.key, stages.rows)
    history = replace(stage.history, seconds=perf_counter() - stages.began)
    return Trained(model, history, learned.neighbours, learned.why)


def updated(plan: Plan, model: DeepGP, X: np.ndarray, y: np.ndarray) -> DeepGP:
    """Return a trained model that knows these rows besides its own; an exact GP has them as inducing points, too."""
    with jax.enable_x64(True), one_blas_thread():
        if plan.is_exact(model):
            points = np.asarray(unwrap(model.output.features).Z, X.dtype)  # pyright: ignore
            new = np.array([row for row in np.unique(X, axis=0) if not (points == row).all(axis=1).any()])
            room = EXACT.max_rows - len(points)
            model = with_more_points(model, new[:room].reshape(-1, X.shape[1]))
        return with_more_rows(model, X, y, key=jax.random.key(plan.seed))


class _Stages:
    """The stages of one fit, with the rows and the clock that they share."""

    def __init__(self, plan: Plan, X: Any, y: Any, run: Run, parts: Parts):
        self.began, self.plan, self.run, self.parts = perf_counter(), plan, run, parts
        if plan.output == "collapsed":  # which takes all rows at every step
            X, y = np.asarray(X), np.asarray(y)
        self.rows, self.key = Rows(X, y), jax.random.key(plan.seed)
        held_out = hold_out(plan, len(X))
        self.training_rows = Rows(without(X, held_out), without(y, held_out))
        self.all_held_out = Rows(X[held_out], y[held_out])
        # Rows that tell when to stop have been looked at many times, and cannot tell which stage is better.
        stop_by, choose_by = (held_out[::2], held_out[1::2]) if plan.exact_kernel else (held_out, held_out[:0])
        self.held_out, self.choose_by = Rows(X[stop_by], y[stop_by]), Rows(X[choose_by], y[choose_by])

        self.identity = {"version": __version__}
        if run.checkpoint is not None or jax.process_count() > 1:
            self.identity["data"] = digest(X, y)
            check_alike((self.identity, plan.decisions, jax.__version__))

    def model(self, plan: Plan) -> DeepGP:
        model = self.parts.prepared(build(plan, *random_rows(self.rows, START.max_rows)), self.rows)
        return with_best_scales(model, self.rows) if plan.band_limited and plan.output == "collapsed" else model

    def train(self, plan: Plan, model: DeepGP, until: float, share: float) -> Stage:
        """Train a model for a share of the steps, and until a share of the time is over."""
        aim, steps = self.parts.objective(plan), max(1, round(share * plan.steps))
        if plan.optimiser == "l-bfgs":
            return self.train_quasi_newton(aim, model, steps)
        callbacks: list[Callback] = [Retreat()]
        if plan.seconds is not None:
            callbacks.append(Clock(self.seconds_left(until)))
        if len(self.held_out.X):
            callbacks.append(
                EarlyStopping(lambda *trained: self.held_out_score(aim, *trained), plan.seconds is not None)
            )
        if self.run.progress:
            label = {1: "one layer", 2: "two layers"}.get(plan.num_layers, f"{plan.num_layers} layers")
            callbacks.append(ProgressBar(_describe, label))
        callbacks.append(StopWhen(self.run.stop))
        if self.run.log is not None:
            callbacks.append(Log(self.run.log, f"{plan.num_layers} layers"))
        if self.run.checkpoint is not None:
            identity = {**self.identity, **plan.decisions, "steps": steps, "objective": aim}
            callbacks.append(Checkpoint(self.run.checkpoint, f"{plan.num_layers}-layers", identity))
        fitted = fit(
            model,
            aim,
            self.training_rows,
            key=self.key,
            optim=(plain_adam if plan.optimiser == "plain adam" else self.parts.optim)(plan.learning_rate),
            steps=steps,
            batch_size=plan.batch_size,
            callbacks=callbacks,
            finish=False,
        )
        model = fitted.model if aim.full_batch else aim.finish(fitted.model, fitted.state, self.key)
        return Stage(model, aim, fitted.state, fitted.history)

    def train_quasi_newton(self, aim: AbstractObjective, model: DeepGP, steps: int) -> Stage:
        """Train one layer by L-BFGS over all rows, until its bound no longer rises or the time is over."""

        def stop() -> bool:
            return (self.plan.seconds is not None and self.seconds_left(1.0) < 0) or self.run.stop()

        fitted = fit_quasi_newton(model, aim, self.training_rows, key=self.key, steps=steps, stop=stop)
        return Stage(fitted.model, aim, fitted.state, fitted.history)

    def train_shallow(self, until: float) -> Stage:
        """Train one layer, until a share of the time is over."""
        shallow = self.plan.shallow()
        return self.train(shallow, self.model(shallow), until, DEPTH.shallow_share)

    def train_deep(self, shallow: Stage | None = None) -> Stage | None:
        """Train all layers of the plan, those of a series from where one layer gets to, if there is time left then."""
        share = DEPTH.shallow_share
        if shallow is None and self.rows.X.shape[1] > 1:
            return self.train(self.plan, self.model(self.plan), 1.0, 1.0)
        shallow = shallow or self.train_shallow(1 - (1 - share) * self.share_left())  # after an exact GP
        if not self.has_time_for(share):
            return None
        return self.train(self.plan, deepened(self.model(self.plan), shallow.model), 1.0, 1 - share)

    def train_exact(self) -> Stage:
        """Fit the exact GP that a small table or series starts with."""
        steps = count(1)
        with tqdm(desc="exact GP", unit="step", disable=not self.run.progress) as bar:

            def stop() -> bool:
                late = self.plan.seconds is not None and self.seconds_left(EXACT.time_share) < 0
                bar.update()
                return (next(steps) >= EXACT.min_steps and late) or self.run.stop()

            fitted, aim = fit_exact(self.plan, self.rows, self.key, stop)
        return Stage(fitted.model, aim, fitted.state, fitted.history)

    def proved(self, deep: Stage, exact: Stage) -> Stage:
        """Return the deep stage if rows that neither has seen prove that it is better, and otherwise the exact one.

        Of a series, no rows are kept for that, and the bounds of all rows decide.
        """
        if not len(self.choose_by.X):
            return deep if self.score(deep) > self.score(exact) else exact
        both = (
            stage.objective.finish(stage.model, stage.state, self.key, self.training_rows) for stage in (deep, exact)
        )
        better, worse = (held_out_densities(model, self.key, self.choose_by) for model in both)
        gain = better - worse
        error = np.std(gain, ddof=1) / len(gain) ** 0.5
        kept = deep if np.mean(gain) > EXACT.standard_errors * error else exact
        which = "Two layers are kept" if kept is deep else "One layer, an exact GP, is kept"
        why = f"two layers gain {np.mean(gain):.2f} nats per row (standard error {error:.2f})"
        choice = f"{which}: on {len(gain)} held-out rows, {why}."
        return kept.noted(choice=choice)

    def has_time_for(self, share: float) -> bool:
        """Return whether there is time for another stage, or whether compiling took it all."""
        return self.share_left() > share

    def share_left(self) -> float:
        """Return the share of the time that is left; without a limit, all of it."""
        return 1.0 if self.plan.seconds is None else float(agreed(self.seconds_left(1.0) / self.plan.seconds))

    def seconds_left(self, until: float) -> float:
        """Return the time until a share of all is over; some is reserved for the closed form at last."""
        total = self.plan.seconds or 0.0
        reserved = min(TIME.reserved_share * total, TIME.reserved_seconds)
        reserved += LOCAL.time_share * total if self.plan.neighbours else 0.0
        return until * (total - reserved) - (perf_counter() - self.began)

    def held_out_score(self, aim: AbstractObjective, model: DeepGP, state: Any) -> float:
        model = aim.finish(model, state, self.key, self.training_rows if aim.full_batch else None)
        return held_out_density(model, self.key, self.held_out)

    def score(self, stage: Stage) -> float:
        """Return how good a model is, by the log density of held-out rows or, without them, by the bound.

        Of the bound, more layers have to gain a little, or they are not worth it.
        """
        if len(self.held_out.X):
            return max((value for _, value in stage.history.scores), default=-np.inf)
        model = stage.objective.finish(stage.model, stage.state, self.key, self.rows)
        worth = DEPTH.min_gain_nats * (len(model.layers) - 1)
        return float(bound(model, jax.random.fold_in(self.key, 1), HOLD_OUT.bound_draws, *self.rows)) - worth


def with_best_scales(model: DeepGP, rows: Rows) -> DeepGP:
    """Return a shallow, band-limited model with the kernel's variance and the noise where the bound is largest."""
    gram, projected = map(np.asarray, output_sums(model, jax.random.key(0), *rows))
    squares = np.sum(rows.y.astype(float) ** 2, axis=0)
    noises, scales = np.geomspace(*BAND_LIMIT.noises), np.geomspace(*BAND_LIMIT.scales)
    return with_scales(model, *best_scales(gram, projected, squares, len(rows.X), noises, scales))


def _describe(model: DeepGP, loss: float) -> dict[str, str]:
    """Return what a progress bar shows: the objective per row, and the usual noise."""
    shown, noise = {"objective/N": f"{-loss:.3f}"}, unwrap(model.likelihood).usual_noise
    return shown if noise is None else {**shown, "noise": f"{np.sqrt(np.mean(noise)):.3f}"}
