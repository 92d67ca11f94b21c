"""The training loop: any model, any loss, any optimiser. It knows nothing of Gaussian processes.

Many steps run in one jitted loop, a turn. A run that diverges goes on from the parameters before that turn with
smaller steps, and if that does not help, ends with a usable model and a sentence that says what happened.
A run ends after a number of steps, when its time is over, or when a score of the model no longer rises.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PRNGKeyArray
from tqdm.auto import tqdm

from overtone.compiling import compiled
from overtone.params import trainable

M = TypeVar("M")
LARGE = 65_536  # numbers: such an array is not packed with others
WARM_UP, DECAY = 100, 0.5  # steps at the start (at most a quarter of all), share of all steps at the end
TURN = 0.5  # seconds of training after which the clock is read
SCORE_SHARE = 0.05  # of the time, at most, is spent on scores
RETREATS, SMALLER = 3, 0.3  # after a step that is not finite; steps are then shorter by this factor
ASKED = 0.25  # of the steps, after which a model may turn out too small
PATIENCE, LEAST_STEPS, GAIN = 0.5, 3000, 1e-3  # share of the steps so far without a gain; steps before; what is a gain


@runtime_checkable
class BatchSource(Protocol):
    """Whatever gives the stacked batches of some steps, like `overtone.data.Batches`."""

    def take(self, first: int, num: int) -> tuple[np.ndarray, ...]: ...


@runtime_checkable
class Checkpoint(Protocol):
    """Keeps what training knows, somewhere safe: see `overtone.checkpoints`."""

    def load(self, like: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """What was kept, if anything: trees of arrays with the structure of `like`, and numbers."""
        ...

    def save(self, known: Callable[[], tuple[dict[str, Any], dict[str, Any]]], last: bool) -> None:
        """Keep what `known()` returns, or not yet, unless it is the last time."""
        ...


class DivergedWarning(UserWarning):
    """Training met a non-finite loss and stopped early."""


@dataclass(frozen=True)
class History:
    """What happened: the loss of each step, the time it took, (step, score) pairs, and why it stopped early, if so."""

    loss: np.ndarray
    seconds: float
    scores: list[tuple[int, float]] = field(default_factory=list)
    message: str = ""
    outgrown: bool = False


def warm_up_and_decay(step: Array, steps: Array) -> Array:
    """Rises over the first steps, stays at 1, and falls as a cosine to a hundredth over the last part."""
    rise = (step + 1) / jnp.minimum(WARM_UP, 1 + steps // 4)
    left = jnp.clip((steps - step) / (DECAY * steps), 0, 1)
    return jnp.minimum(rise, 1) * (0.505 - 0.495 * jnp.cos(jnp.pi * left))


def two_cycles(step: Array, steps: Array, *, many: Array) -> Array:
    """The same twice, over a quarter of the steps and over the rest, if there are as many or more.

    Where the later steps only learn the rows by heart, the best model is then that at the end of the first cycle.
    """
    short = jnp.where(steps < many, 0, steps // 4)
    first = step < short
    return warm_up_and_decay(jnp.where(first, step, step - short), jnp.where(first, short, steps - short))


def fit(
    model: M,
    loss: Callable[..., Array],
    batches: BatchSource,
    *,
    key: PRNGKeyArray,
    optim: optax.GradientTransformation,
    steps: int,
    seconds: float | None = None,
    score: Callable[[M, Any], float] | None = None,
    schedule: Callable[[Array, Array], Array] = warm_up_and_decay,
    memory: Any = None,
    chunk: int = 100,
    describe: Callable[[M, float], dict[str, str]] | None = None,
    progress: bool = False,
    stop: Callable[[], bool] = lambda: False,
    outgrown: Callable[[M], bool] = lambda _: False,
    checkpoint: Checkpoint | None = None,
) -> tuple[M, Any, History]:
    """Minimise the expectation of a loss over the batches, by at most `steps` steps of `optim` or in about `seconds`.

    `loss(model, memory, key, *batch)` returns a value and the memory for the next step: whatever it wants to carry
    along besides the trained parameters. Updates are multiplied by `schedule(step, steps)`; where the clock decides,
    the number of steps is predicted from their pace, again and again.

    With a `score(model, memory)`, training decays and ends once it no longer rises, and the best model is returned,
    together with its memory.
    A progress bar shows what `describe(model, loss)` returns after every `chunk` steps.
    Training ends early once `stop()` is true, and after a quarter of the steps if the model is `outgrown` then: a
    larger one would use the rest better. A `checkpoint` is given all that training knows, now and then, and a run that
    finds such knowledge in it goes on from there, as if it had never stopped.
    """
    start, chunk = perf_counter(), min(chunk, steps)
    params, static = eqx.partition(model, trainable(model))
    packing = _Packing(params)
    packed = packing.pack(params)
    init, healthy = jax.jit(optim.init), jax.device_put(True)
    state, scale = (packed, init(packed), memory, healthy), 1.0
    structure = jax.tree.structure(state)
    run, watch = compiled(_run), _Watch(score)
    losses: list[np.ndarray] = []
    first, total, pace, asked, too_small = 0, steps, None, False, False
    unknown = np.full(chunk, np.nan)
    message, finite, good = "", True, packed  # the last known to have a finite loss

    def turn(start: int, end: int) -> tuple[Any, np.ndarray]:
        """The state after these steps, and their losses."""
        # Arrays, not Python numbers: those would be constants of the compiled loop.
        span, shorter = jax.device_put((np.asarray([start, end, total]), np.asarray(scale)))
        stacked = batches.take(start, chunk)
        leaves, values = run(state, params, static, loss, optim, schedule, key, span, shorter, stacked, unknown)
        return jax.tree.unflatten(structure, leaves), np.asarray(values)

    def now() -> M:
        return eqx.combine(packing.unpacked(state[0]), static)

    def known() -> tuple[Any, dict[str, Any]]:
        """Everything, as arrays and as what JSON can express."""
        arrays = {
            "state": state,
            "good": good,
            "losses": np.concatenate(losses),
            "kept": watch.kept or (now(), state[2]),
        }
        about = {"first": first, "total": total, "asked": asked, "scale": scale, "seconds": perf_counter() - start}
        return arrays, {**about, "scores": watch.scores, "ending": watch.ending, "kept": watch.kept is not None}

    if checkpoint is not None and (found := checkpoint.load({"state": state, "good": good, "kept": (model, memory)})):
        arrays, about = found
        state, good, losses = arrays["state"], arrays["good"], [arrays["losses"]]
        first, total, asked, scale = (about[name] for name in ("first", "total", "asked", "scale"))
        watch.scores, watch.ending = [(int(s), float(v)) for s, v in about["scores"]], about["ending"]
        watch.kept = arrays["kept"] if about["kept"] else None
        start -= about["seconds"]
    with tqdm(total=steps, initial=first, disable=not progress, unit="step") as bar:
        while first < total:
            if stop():
                message = f"Training was stopped at step {first} of {total}; the model is the best so far."
                break
            if not asked and first >= ASKED * total:
                asked, too_small = True, outgrown(now())
                if too_small:
                    break
            count = min(chunk, total - first)
            if seconds is not None:  # two turns of one step: the first takes the time of any compilation
                count = 1 if pace is None else min(count, 1 + int(TURN / pace))
            began = perf_counter()
            after, values = turn(first, first + count)
            losses.append(values[:count])
            first += count
            bar.update(count)
            good = state[0] if np.isfinite(values[0]) else good
            state, finite = after, bool(after[-1])
            if not finite:
                state, scale = (good, init(good), memory, healthy), scale * SMALLER
                if scale < SMALLER**RETREATS / 2 or np.isnan(losses[0][0]):
                    break
                continue
            if describe is not None and progress:
                bar.set_postfix(describe(now(), float(np.mean(losses[-1]))))
            took = (perf_counter() - began) / count
            if watch.due(first, total, seconds is not None):
                watch.look(now(), state[2], first)
                if watch.flat(first):
                    total = min(total, 1 + int(first / (1 - DECAY)))
            if seconds is not None and first > 1:
                pace = took if pace is None else 0.7 * pace + 0.3 * took
                left = seconds - (perf_counter() - start)
                total = min(total if watch.ending else steps, first + max(0, int(left / (pace * (1 + SCORE_SHARE)))))
            bar.total = total
            if checkpoint is not None:
                checkpoint.save(known, last=first >= total)
    if finite and watch.kept is None and losses and not np.isfinite(turn(first, first + 1)[1][0]):
        state, finite = (good, init(good), memory, healthy), False  # the last step led where there is no loss
    model, memory = watch.kept or (now(), state[2])
    history = np.concatenate([*losses, np.zeros(0)])
    history = history[np.isfinite(history)]
    if not finite:
        message = (
            f"The loss or its gradient was not finite, at last at step {first} of {total}; training "
            f"stopped and kept the last good parameters. Try a smaller learning rate, "
            f"or look for extreme values in the data."
        )
        warnings.warn(message, DivergedWarning, stacklevel=2)
    return model, memory, History(history, perf_counter() - start, watch.scores, message, too_small)


class _Watch:
    """Scores of the model on the way: which was the best, and do they still rise?"""

    def __init__(self, score: Callable | None):
        self.score, self.scores, self.ending = score, [], False
        self.kept, self.cost, self.last = None, 0.0, perf_counter()

    def due(self, step: int, total: int, timed: bool) -> bool:
        if self.score is None:
            return False
        return step >= total or not timed or perf_counter() - self.last > self.cost / SCORE_SHARE

    def look(self, model: Any, memory: Any, step: int) -> None:
        began = perf_counter()
        value = float(self.score(model, memory)) if self.score is not None else math.nan
        if math.isfinite(value):
            if value >= max((v for _, v in self.scores), default=-math.inf):
                self.kept = model, memory
            self.scores.append((step, value))
        self.last = perf_counter()
        # The first look takes the time of any compilation, which says nothing about the next.
        self.cost = self.last - began if len(self.scores) > 1 else self.cost

    def flat(self, step: int) -> bool:
        """Has there been no gain worth the name for long? Once is enough."""
        if not self.ending and step >= LEAST_STEPS:
            recent = [v for s, v in self.scores if s > (1 - PATIENCE) * step]
            before = [v for s, v in self.scores if s <= (1 - PATIENCE) * step]
            self.ending = bool(recent and before) and not max(recent) > max(before) + GAIN
            return self.ending
        return False


def _run(
    state: Any,
    params: Any,
    static: Any,
    loss: Callable,
    optim: optax.GradientTransformation,
    schedule: Callable,
    key: PRNGKeyArray,
    span: Array,
    shorter: Array,
    stacked: tuple[np.ndarray | Array, ...],
    values: np.ndarray | Array,
) -> tuple[list[Array], Array]:
    """The steps from span[0] up to span[1], of span[2] in all, one for each of the stacked batches (or all with one).

    State: the parameters, packed, the optimiser's state, the loss's memory, whether all was finite. It is returned as a
    list of its arrays. A gradient that is not finite shows in the next loss and, at the end, in the parameters.
    """
    first, last, steps = span
    packing = _Packing(params)

    def one_step(carried):
        i, values, (packed, opt_state, memory, _) = carried
        batch = [jax.lax.dynamic_index_in_dim(part, i, keepdims=False) for part in stacked]

        def value_of(packed):
            model = eqx.combine(packing.unpack(packed), static)
            return loss(model, memory, jax.random.fold_in(key, first + i), *batch)

        (value, new_memory), grad = jax.value_and_grad(value_of, has_aux=True)(packed)
        updates, new_opt_state = optim.update(grad, opt_state, packed)
        scale = shorter * schedule(first + i, steps)
        updates = jax.tree.map(lambda u: (scale * u).astype(u.dtype), updates)
        healthy = jnp.isfinite(value)
        values = values.at[i].set(jnp.where(healthy, value, jnp.nan).astype(values.dtype))
        return i + 1, values, (optax.apply_updates(packed, updates), new_opt_state, new_memory, healthy)

    def goes_on(carried):
        i, _, state = carried
        return state[-1] & (first + i < last)

    _, values, state = jax.lax.while_loop(goes_on, one_step, (jnp.zeros_like(first), jnp.asarray(values), state))
    healthy = state[-1] & jnp.isfinite(sum(jnp.sum(jnp.abs(part)) for part in state[0]))
    return jax.tree.leaves((*state[:-1], healthy)), values


class _Packing:
    """Large arrays as they are, and all the small ones in one vector: the optimiser is then a handful of operations.

    Packing and unpacking outside of compiled code is left to NumPy, whose operations need not be compiled first.
    """

    def __init__(self, params: Any):
        leaves, self.structure = jax.tree.flatten(params)
        self.large = [leaf.size >= LARGE for leaf in leaves]
        self.shapes = [leaf.shape for leaf, large in zip(leaves, self.large, strict=True) if not large]

    def pack(self, params: Any) -> list[Array]:
        pairs = list(zip(jax.tree.leaves(params), self.large, strict=True))
        small = [np.ravel(leaf) for leaf, large in pairs if not large]
        return [jax.device_put(np.concatenate(small)), *(leaf for leaf, large in pairs if large)]

    def unpack(self, packed: Sequence[Any]) -> Any:
        split = np.split if isinstance(packed[0], np.ndarray) else jnp.split
        parts = split(packed[0], np.cumsum([math.prod(shape) for shape in self.shapes])[:-1])
        small = iter([part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)])
        large = iter(packed[1:])
        return jax.tree.unflatten(self.structure, [next(large if is_large else small) for is_large in self.large])

    def unpacked(self, packed: list[Array]) -> Any:
        """The same, outside of compiled code."""
        return jax.tree.map(jax.device_put, self.unpack([np.asarray(part) for part in packed]))
