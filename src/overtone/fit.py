"""The training loop: any model, any loss, any optimiser. It knows nothing of Gaussian processes.

Many steps run in one jitted scan. The last parameters with a finite loss and gradient are carried
along, so that a run that diverges ends with a usable model and a sentence that says what happened.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from time import perf_counter
from typing import Any, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PRNGKeyArray
from tqdm.auto import tqdm

from overtone.params import trainable

M = TypeVar("M")


@runtime_checkable
class BatchSource(Protocol):
    """Whatever gives the stacked batches of some steps, like `overtone.data.Batches`."""

    def take(self, first: int, num: int) -> tuple[np.ndarray, ...]: ...


class DivergedWarning(UserWarning):
    """Training met a non-finite loss and stopped early."""


@dataclass(frozen=True)
class History:
    """What happened: the loss of each step, the time it took, and why it stopped early, if it did."""

    loss: np.ndarray
    seconds: float
    message: str = ""


def fit(
    model: M,
    loss: Callable[..., Array],
    batches: BatchSource,
    *,
    key: PRNGKeyArray,
    optim: optax.GradientTransformation,
    steps: int,
    chunk: int = 100,
    describe: Callable[[M, float], dict[str, str]] | None = None,
    progress: bool = False,
) -> tuple[M, History]:
    """Minimise the expectation of `loss(model, key, *batch)` over the batches, by `steps` steps of `optim`.

    A progress bar shows what `describe(model, loss)` returns after every `chunk` steps.
    """
    start, chunk = perf_counter(), min(chunk, steps)
    params, static = eqx.partition(model, trainable(model))
    flat, unravel = ravel_pytree(params)
    state = (flat, flat, optim.init(flat), jnp.asarray(True))
    losses: list[np.ndarray] = []
    compiled_run = _compiled()
    with tqdm(total=steps, disable=not progress, unit="step") as bar:
        for first in range(0, steps, chunk):
            stacked = batches.take(first, chunk)
            # Arrays, not Python numbers: those would be constants of the compiled loop.
            span = jnp.asarray([first, steps])
            state, values = compiled_run(state, params, static, loss, optim, key, span, stacked)
            losses.append(np.asarray(values)[: steps - first])
            bar.update(len(losses[-1]))
            finite = bool(state[3])
            if describe is not None and progress and finite:
                recent = float(np.mean(losses[-1]))
                bar.set_postfix(describe(eqx.combine(unravel(state[0]), static), recent))
            if not finite:
                break
    loss_history, message = np.concatenate(losses), ""
    model = eqx.combine(unravel(state[1]), static)
    if not bool(state[3]):
        loss_history = loss_history[np.isfinite(loss_history).cumprod().astype(bool)]
        message = (
            f"The loss or its gradient was not finite at step {len(loss_history) + 1} of {steps}; training "
            f"stopped and kept the parameters of the last good step. Try a smaller learning rate, "
            f"or look for extreme values in the data."
        )
        warnings.warn(message, DivergedWarning, stacklevel=2)
    return model, History(loss_history, perf_counter() - start, message)


@lru_cache(maxsize=1)
def _compiled() -> Callable:
    """The loop, compiled with settings that measured better for it on a CPU, where this version of JAX knows them.

    XLA's older code generator for fused elementwise loops: steps of small models take two thirds of the time, and
    compilation three quarters.
    """
    options = {"xla_cpu_use_fusion_emitters": False} if jax.default_backend() == "cpu" else {}
    try:
        jax.jit(lambda x: x, compiler_options=options)(0.0)
    except jax.errors.JaxRuntimeError:
        options = {}
    jit: Callable = eqx.filter_jit
    return jit(_run, compiler_options=options)


def _run(
    state: Any,
    params: Any,
    static: Any,
    loss: Callable,
    optim: optax.GradientTransformation,
    key: PRNGKeyArray,
    span: Array,
    stacked: tuple[np.ndarray | Array, ...],
) -> tuple[Any, Array]:
    """One scan over the stacked batches.

    State: the next parameters, the last good ones, the optimiser's state, whether all was finite. Parameters
    are one flat vector here: the optimiser is then a handful of operations, and quick to compile.
    """
    first, steps = span
    _, unravel = ravel_pytree(params)

    def one_step(state, numbered_batch):
        flat, good, opt_state, finite = state
        step, batch = numbered_batch
        value, grad = jax.value_and_grad(
            lambda flat: loss(eqx.combine(unravel(flat), static), jax.random.fold_in(key, step), *batch)
        )(flat)
        updates, new_opt_state = optim.update(grad, opt_state, flat)
        healthy = finite & jnp.isfinite(value) & jnp.isfinite(jnp.sum(jnp.abs(grad)))
        moves, over = healthy & (step < steps), step >= steps
        new = (optax.apply_updates(flat, updates), flat, new_opt_state)
        kept = jax.tree.map(lambda a, b: jnp.where(moves, a, b), new, (flat, good, opt_state))
        return (*kept, healthy | (over & finite)), jnp.where(healthy, value, jnp.nan)

    numbers = first + jnp.arange(stacked[0].shape[0])
    return jax.lax.scan(one_step, state, (numbers, stacked))
