"""What happens between two turns of the training loop: the clock, early stopping, retreats, a progress bar.

A callback is told when training starts, after every turn and when it ends, and may change what `Training` says. What a
callback knows can be kept in a checkpoint and given back to it.
"""

import math
from collections.abc import Callable
from time import perf_counter
from typing import Any

from tqdm.auto import tqdm

from overtone.inference.loop import Training
from overtone.inference.schedules import DECAY_SHARE

CLOCK_STEPS = 2  # the first turns of a clock, of one step each
SCORE_SHARE = 0.05  # of the time, at most, is spent on scores


class Callback:
    """Does nothing; the others override what they need."""

    def start(self, training: Training) -> None: ...

    def after_turn(self, training: Training) -> None: ...

    def end(self, training: Training) -> None: ...

    def known(self, training: Training) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what a checkpoint should keep: trees of arrays, and what JSON can express."""
        return {}, {}

    def restore(self, training: Training, arrays: dict[str, Any], about: dict[str, Any]) -> None:
        """Take back what `known` returned."""


class Retreat(Callback):
    """Goes on after a divergence, from the last good parameters and with shorter steps, a few times.

    The optimiser must heed the factor that the loop tells it, as those of `overtone.inference.schedules.planned` do.
    """

    def __init__(self, times: int = 3, factor: float = 0.3):
        self.times, self.factor, self.taken = times, factor, 0

    def after_turn(self, training):
        hopeless = bool(math.isnan(training.losses[0][0]))
        if training.diverged and self.taken < self.times and training.step < training.steps and not hopeless:
            self.taken, training.diverged = self.taken + 1, False
            training.factor *= self.factor

    def known(self, training):
        return {}, {"taken": self.taken}

    def restore(self, training, arrays, about):
        self.taken = about["taken"]


class Clock(Callback):
    """Plans the number of steps by their pace, so that training ends after about `seconds`.

    The first two turns have one step each, since the first takes the time of any compilation. So it is again in a run
    that goes on from a checkpoint.
    """

    def __init__(self, seconds: float | int, turn_seconds: float = 0.5):
        self.seconds, self.turn_seconds = seconds, turn_seconds
        self.pace: float | None = None

    def start(self, training):
        training.turn_steps, self.pace, self.is_cold = 1, None, True

    def after_turn(self, training):
        if self.is_cold:
            self.is_cold = False
        elif not training.diverged:
            self.pace = training.pace if self.pace is None else 0.7 * self.pace + 0.3 * training.pace
            left = self.seconds - (perf_counter() - training.began)
            planned = training.step + max(0, int(left / (self.pace * (1 + SCORE_SHARE))))
            training.steps = min(training.most_steps, planned)
            training.turn_steps = min(training.chunk, 1 + int(self.turn_seconds / self.pace))


class EarlyStopping(Callback):
    """Scores the model now and then, keeps the best one, and lets training decay and end once scores no longer rise.

    score(model, objective_state) is a number, such as the log density of held-out rows. Scores are flat if those of the
    last `patience` of all steps so far are no higher than those before by `gain`, but not before `least_steps`. If
    scores cost time that a clock counts, `timed` keeps them to a small share of it.
    """

    def __init__(
        self, score: Callable, timed: bool = False, patience: float = 0.5, least_steps: int = 3000, gain: float = 1e-3
    ):
        self.score, self.timed, self.patience, self.least_steps, self.gain = score, timed, patience, least_steps, gain
        self.best, self.ending = None, False

    def start(self, training):
        self.cost, self.last, self.is_cold = 0.0, perf_counter(), True

    def after_turn(self, training):
        due = training.step >= training.steps or not self.timed or perf_counter() - self.last > self.cost / SCORE_SHARE
        if training.diverged or not due:
            return
        began, candidate = perf_counter(), (training.model, training.objective_state)
        value = float(self.score(*candidate))
        if math.isfinite(value):
            if value >= max((v for _, v in training.scores), default=-math.inf):
                self.best = candidate
            training.scores.append((training.step, value))
        self.last = perf_counter()
        # The first score takes the time of any compilation, which says nothing about the next.
        self.cost, self.is_cold = 0.0 if self.is_cold else self.last - began, False
        if not self.ending and training.step >= self.least_steps and self._is_flat(training):
            self.ending = True
            training.most_steps = min(training.most_steps, 1 + int(training.step / (1 - DECAY_SHARE)))
            training.steps = min(training.steps, training.most_steps)

    def _is_flat(self, training: Training) -> bool:
        split = (1 - self.patience) * training.step
        recent = [v for s, v in training.scores if s > split]
        before = [v for s, v in training.scores if s <= split]
        return bool(recent and before) and not max(recent) > max(before) + self.gain

    def end(self, training):
        training.kept = self.best

    def known(self, training):
        best = self.best or (training.model, training.objective_state)
        return {"best": best}, {"ending": self.ending, "has_best": self.best is not None}

    def restore(self, training, arrays, about):
        self.ending, self.best = about["ending"], arrays["best"] if about["has_best"] else None


class StopWhen(Callback):
    """Ends training once `asked()` is true."""

    def __init__(self, asked: Callable[[], bool]):
        self.asked = asked

    def start(self, training):
        self.after_turn(training)

    def after_turn(self, training):
        if training.goes_on and self.asked():
            training.message = (
                f"Training was stopped at step {training.step} of {training.steps}; the model is the best so far."
            )


class ProgressBar(Callback):
    """Shows a label, steps, pace and what `describe(model, loss)` returns.

    The first turn takes the time of any compilation, and the first steps of a clock are single ones: they say nothing
    about the pace, and the end is unknown until then.
    """

    def __init__(
        self,
        describe: Callable[[Any, float], dict[str, str]] = lambda _, loss: {"loss": f"{loss:.3f}"},
        label: str | None = None,
    ):
        self.describe, self.label, self.warm = describe, label, False

    def start(self, training):
        self.bar, self.warm = tqdm(desc=self.label, initial=training.step, unit="step"), False

    def after_turn(self, training):
        if self.warm or not training.goes_on:
            self.bar.total = training.steps
            self.bar.update(training.step - self.bar.n)
        else:
            self.bar.initial = self.bar.n = self.bar.last_print_n = training.step
            self.bar.unpause()
        self.warm = training.step > CLOCK_STEPS
        if not training.diverged:
            self.bar.set_postfix(self.describe(training.model, float(training.losses[-1].mean())))

    def end(self, training):
        self.bar.close()
