"""The training loop: any model, any loss, any optimiser. It knows nothing of Gaussian processes.

Many steps run in one jitted scan. The last parameters with a finite loss and gradient are carried
along, so that a run that diverges ends with a usable model and a sentence that says what happened.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from time import perf_counter
from typing import Any, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PRNGKeyArray
from tqdm.auto import tqdm

from overtone.params import trainable

M = TypeVar("M")
LARGE = 65_536  # numbers: such an array is not packed with others


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
    memory: Any = None,
    chunk: int = 100,
    describe: Callable[[M, float], dict[str, str]] | None = None,
    progress: bool = False,
) -> tuple[M, History]:
    """Minimise the expectation of a loss over the batches, by `steps` steps of `optim`.

    `loss(model, memory, key, *batch)` returns a value and the memory for the next step: whatever it wants to carry
    along besides the trained parameters.

    A progress bar shows what `describe(model, loss)` returns after every `chunk` steps.
    """
    start, chunk = perf_counter(), min(chunk, steps)
    params, static = eqx.partition(model, trainable(model))
    packing = _Packing(params)
    packed = packing.pack(params)
    state = (packed, packed, jax.jit(optim.init)(packed), memory, jax.device_put(True))
    losses: list[np.ndarray] = []
    compiled_run = _compiled()
    with tqdm(total=steps, disable=not progress, unit="step") as bar:
        for first in range(0, steps, chunk):
            stacked = batches.take(first, chunk)
            # Arrays, not Python numbers: those would be constants of the compiled loop.
            span = jax.device_put(np.asarray([first, steps]))
            state, values = compiled_run(state, params, static, loss, optim, key, span, stacked)
            losses.append(np.asarray(values)[: steps - first])
            bar.update(len(losses[-1]))
            finite = bool(state[-1])
            if describe is not None and progress and finite:
                recent = float(np.mean(losses[-1]))
                bar.set_postfix(describe(eqx.combine(packing.unpacked(state[0]), static), recent))
            if not finite:
                break
    loss_history, message = np.concatenate(losses), ""
    model = eqx.combine(packing.unpacked(state[1]), static)
    if not bool(state[-1]):
        loss_history = loss_history[np.isfinite(loss_history).cumprod().astype(bool)]
        message = (
            f"The loss or its gradient was not finite at step {len(loss_history) + 1} of {steps}; training "
            f"stopped and kept the parameters of the last good step. Try a smaller learning rate, "
            f"or look for extreme values in the data."
        )
        warnings.warn(message, DivergedWarning, stacklevel=2)
    return model, History(loss_history, perf_counter() - start, message)


# Settings that measured better on a CPU: XLA's older code generator for fused elementwise loops (steps of small models
# take two thirds of the time, and compilation three quarters), and its library for matrix products alone, not for sums.
COMPILER_OPTIONS = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_DOT",
}


@lru_cache(maxsize=1)
def _compiled() -> Callable:
    """The loop, compiled with those of the settings that this version of JAX knows."""
    jit: Callable = eqx.filter_jit
    on_cpu = jax.default_backend() == "cpu"
    return jit(_run, compiler_options={k: v for k, v in COMPILER_OPTIONS.items() if on_cpu and _known(k, v)})


def _known(option: str, value: Any) -> bool:
    try:
        jax.jit(lambda x: x, compiler_options={option: value})(0.0)
    except jax.errors.JaxRuntimeError:
        return False
    return True


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

    State: the next parameters, packed, the last good ones, the optimiser's state, the loss's memory, whether all was
    finite.
    """
    first, steps = span
    packing = _Packing(params)

    def one_step(state, numbered_batch):
        packed, good, opt_state, memory, finite = state
        step, batch = numbered_batch

        def value_of(packed):
            model = eqx.combine(packing.unpack(packed), static)
            return loss(model, memory, jax.random.fold_in(key, step), *batch)

        (value, new_memory), grad = jax.value_and_grad(value_of, has_aux=True)(packed)
        updates, new_opt_state = optim.update(grad, opt_state, packed)
        healthy = finite & jnp.isfinite(value) & jnp.isfinite(sum(jnp.sum(jnp.abs(g)) for g in grad))
        moves, over = healthy & (step < steps), step >= steps
        new = (optax.apply_updates(packed, updates), packed, new_opt_state, new_memory)
        kept = jax.tree.map(lambda a, b: jnp.where(moves, a, b), new, (packed, good, opt_state, memory))
        return (*kept, healthy | (over & finite)), jnp.where(healthy, value, jnp.nan)

    numbers = first + jnp.arange(stacked[0].shape[0])
    return jax.lax.scan(one_step, state, (numbers, stacked))


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
