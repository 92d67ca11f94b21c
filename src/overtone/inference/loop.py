"""The training loop: any model, any objective, any optimiser. It does steps, and nothing else.

Many steps run in one jitted loop, a turn. The clock, early stopping, checkpoints, a progress bar and what to do about a
divergence are callbacks (see `overtone.inference.callbacks`), which see the training between two turns.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from time import perf_counter
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import PRNGKeyArray

from overtone.inference.batches import Batches
from overtone.inference.devices import anywhere, everywhere, kept_everywhere, mean_over_parts, shared_batches
from overtone.inference.objective import AbstractObjective, Rows, rows_of
from overtone.inference.processes import agreed, lost_processes
from overtone.numerics.compiling import jitted, one_blas_thread
from overtone.numerics.params import trainable

CHUNK_STEPS = 100  # in a turn, at most


class DivergedWarning(UserWarning):
    """Training met a non-finite loss and stopped early."""


@dataclass(frozen=True)
class History:
    """What happened: the loss of each step, the time it took, (step, score) pairs, and why it stopped early, if so.

    Where several stages were trained, `choice` says which was kept, and why; `noise` says what is known of its noise.
    """

    loss: np.ndarray
    seconds: float
    scores: list[tuple[int, float]] = field(default_factory=list)
    message: str = ""
    choice: str = ""
    noise: str = ""


class Fitted(NamedTuple):
    """A trained model, the objective's last state, and the history of the training."""

    model: Any
    state: Any
    history: History


def fit(
    model: Any,
    objective: AbstractObjective,
    data: tuple[Any, Any],
    *,
    key: PRNGKeyArray,
    optim: optax.GradientTransformation,
    steps: int,
    batch_size: int | None = None,
    callbacks: Sequence[Any] = (),
    finish: bool = True,
) -> Fitted:
    """Maximise an objective over rows (X, y) by `steps` steps of an optimiser, and finish the model in closed form.

    Batches have `batch_size` rows, or all of them. The optimiser is told `step`, `steps` and `factor` as extra
    arguments, and whatever line searches need; nothing is multiplied in besides. With `finish=False` the model is left
    as the steps made it.
    """
    with jax.enable_x64(True), one_blas_thread():  # only for what asks for it: models and rows keep their own precision
        training = Training(model, objective, data, key, optim, steps, batch_size, callbacks)
        for callback in callbacks:
            callback.start(training)
        training.agree()
        while training.goes_on:
            training.advance()
            for callback in callbacks:
                callback.after_turn(training)
            training.agree()
        for callback in callbacks:
            callback.end(training)
        training.check_last_step()
        model, state = training.model, training.objective_state
        if finish:
            model = objective.finish(model, state, key, training.data)
    return Fitted(model, state, training.history())


_with_extra_args = lru_cache(maxsize=64)(optax.with_extra_args_support)  # one object, so that programs are shared


class Training:
    """A fit on its way: parameters, the states of optimiser and objective, and what callbacks may change.

    They may lower `steps` (planned) and `most_steps` (asked for), set `turn_steps` (in the next turn, at most `chunk`),
    the `factor` that the optimiser is told, and `message`, which ends the training.
    """

    def __init__(self, model, objective, data, key, optim, steps, batch_size, callbacks):
        self.began, self.objective, self.key, self.callbacks = perf_counter(), objective, key, callbacks
        self.data = rows_of(model, data)
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"batch_size must be at least 1; got {batch_size}.")
        model, first_state = objective.init(model, self.data)
        params, self.static = eqx.partition(model, trainable(model))
        params = agreed(jax.tree.map(np.asarray, params))
        params = jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf)), params)  # not weakly typed, in any turn
        self.optim = _with_extra_args(optim)
        self.state = params, jax.jit(self.optim.init)(params), first_state
        self.good = self.state  # the last one that is known to have a finite loss
        size = len(self.data.X) if objective.full_batch or batch_size is None else batch_size
        self.batches = Batches(*self.data, batch_size=size, seed=int(jax.random.key_data(key)[-1]))
        self.step, self.steps, self.most_steps, self.factor = 0, steps, steps, 1.0
        self.chunk = self.turn_steps = CHUNK_STEPS  # whatever the number of steps: one program serves all
        self.losses: list[np.ndarray] = []
        self.scores: list[tuple[int, float]] = []
        self.message, self.diverged, self.pace = "", False, 0.0
        self.kept: Any = None

    @property
    def goes_on(self) -> bool:
        return self.step < self.steps and not self.message and not self.diverged

    @property
    def model(self) -> Any:
        """The model of this moment or, at the end, the one that a callback has kept."""
        return self.kept[0] if self.kept else anywhere(eqx.combine(self.state[0], self.static))

    @property
    def objective_state(self) -> Any:
        return self.kept[1] if self.kept else anywhere(self.state[2])

    def advance(self, probe: bool = False) -> None:
        """Do the steps of one turn, or none of them if one leads where there is no finite loss.

        A probe is one step that is taken back at once: only to see whether there is a finite loss.
        """
        began, count = perf_counter(), 1 if probe else min(self.turn_steps, self.chunk, self.steps - self.step)
        # Arrays, not Python numbers: those would be constants of the compiled loop.
        span = np.asarray([self.step, self.step + count, self.steps])
        told = jax.device_put((span, np.asarray(self.factor), np.full(self.chunk, np.nan)))
        given = everywhere((self.state, self.static, self.objective, self.optim, self.key, *told))
        batches = shared_batches(self.batches.take(self.step, self.chunk), self.batches.batch_size)
        if self.step + count < self.steps:
            self.batches.expect(self.step + count, self.chunk)
        with lost_processes():
            state, losses, finite = jitted(_run)(*given, batches)
            losses = np.asarray(losses)
        self.diverged = not (np.isfinite(losses[0]) if probe else finite)
        if not probe:
            self.losses.append(losses[:count])
            self.step, self.pace = self.step + count, (perf_counter() - began) / count
            self.good = self.state if np.isfinite(losses[0]) else self.good
            self.state = state
        if self.diverged:
            self.state = self.good

    def agree(self) -> None:
        """Take over what the first of several processes has decided."""
        if jax.process_count() == 1:
            return
        decided = np.asarray([self.steps, self.most_steps, self.turn_steps, self.diverged, bool(self.message)])
        (*steps, diverged, ended), factor = agreed((decided, np.asarray(self.factor)))
        (self.steps, self.most_steps, self.turn_steps), self.factor = map(int, steps), float(factor)
        self.diverged, self.message = bool(diverged), (self.message or "Training was stopped.") if ended else ""

    def check_last_step(self) -> None:
        """Go back to the last good state if the last step led where there is no finite loss."""
        if self.losses and not self.diverged and bool(agreed(np.asarray(self.kept is None))):
            self.advance(probe=True)

    def history(self) -> History:
        """Return what happened, with a warning if it ended in a divergence."""
        losses = np.concatenate([*self.losses, np.zeros(0)])
        if self.diverged:
            self.message = (
                f"The loss or its gradient was not finite, at last at step {self.step} of {self.steps}; training "
                f"stopped and kept the last good parameters. Try a smaller learning rate, "
                f"or look for extreme values in the data."
            )
            warnings.warn(self.message, DivergedWarning, stacklevel=3)
        return History(losses[np.isfinite(losses)], perf_counter() - self.began, self.scores, self.message)


def _run(state, static, objective: AbstractObjective, optim: Any, key, span, factor, losses, batches):
    """Do the steps from span[0] up to span[1], of span[2] in all, one for each stacked batch (or all with one).

    A gradient that is not finite shows in the next loss and, at the end, in the parameters.
    """
    first, last, steps = span
    value_and_gradient = eqx.filter_value_and_grad(objective.loss, has_aux=True)
    if not objective.full_batch:
        value_and_gradient = mean_over_parts(value_and_gradient, num=batches[0].shape[1])

    def one_step(carried):
        i, losses, (params, optim_state, objective_state), _ = carried
        batch = Rows(*(jax.lax.dynamic_index_in_dim(part, i, keepdims=False) for part in batches))
        told_state = objective.told(objective_state, steps.astype(jnp.int32))
        given = told_state, jax.random.fold_in(key, first + i), batch
        model = eqx.combine(params, static)
        (value, objective_state), gradient = value_and_gradient(model, *given)
        gradient = eqx.filter(gradient, trainable(model))
        told = {"step": first + i, "steps": steps, "factor": factor, "value": value, "grad": gradient}

        def value_fn(params, step=None, steps=None, factor=None):  # Optax tells it all that it does not need itself
            return objective.loss(eqx.combine(params, static), *given)[0]

        updates, optim_state = optim.update(gradient, optim_state, params, **told, value_fn=value_fn)
        finite = jnp.isfinite(value)
        losses = losses.at[i].set(jnp.where(finite, value, jnp.nan).astype(losses.dtype))
        return i + 1, losses, (optax.apply_updates(params, updates), optim_state, objective_state), finite

    def goes_on(carried):
        i, _, _, finite = carried
        return finite & (first + i < last)

    start = jnp.zeros_like(first), losses, state, jnp.asarray(True)
    _, losses, state, finite = jax.lax.while_loop(goes_on, one_step, start)
    finite = finite & jnp.isfinite(sum(jnp.sum(jnp.abs(part)) for part in jax.tree.leaves(state[0])))
    return kept_everywhere((state, losses, finite))
