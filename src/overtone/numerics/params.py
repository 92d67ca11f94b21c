"""Constraints as wrappers of leaves.

A model stores unconstrained arrays. `Positive` and `Fixed` say what an array means, and `unwrap`,
called once at each jitted entry point, replaces every wrapper by the plain array it stands for:
the mathematics below never sees a wrapper.

In a model that is not initialised yet, a Python number or an array of NumPy stands for a positive parameter to be
trained; `as_parameters` makes one of it. An array of JAX is trained without any constraint, `Fixed(value)` never.
"""

from abc import abstractmethod
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

T = TypeVar("T")


class AbstractWrapper(eqx.Module):
    """An array in disguise, which `unwrap` computes."""

    @abstractmethod
    def unwrap(self) -> Array: ...


class Positive(AbstractWrapper):
    """value = lower + exp(log): one optimiser step is a relative change, whatever the scale."""

    log: Array
    lower: float = eqx.field(static=True)

    def __init__(self, value: ArrayLike, lower: float = 0.0):
        value = np.asarray(value)
        if not np.all(value >= lower):
            raise ValueError(f"a positive parameter must be above {lower:g}; got {np.min(value):g}.")
        dtype = value.dtype if jnp.issubdtype(value.dtype, jnp.floating) else float
        self.log = jax.device_put(np.log(value - lower).astype(dtype))
        self.lower = lower

    def unwrap(self) -> Array:
        return self.lower + jnp.exp(self.log)


class Fixed(AbstractWrapper):
    """An array that is part of the model and is not trained."""

    value: Array

    def __init__(self, value: ArrayLike):
        self.value = jax.device_put(np.asarray(value))

    def unwrap(self) -> Array:
        return jax.lax.stop_gradient(self.value)


# A leaf of a module: a number or a wrapper while the module is stored, an array once it is unwrapped. An optional one
# may be missing until the model is initialised.
if TYPE_CHECKING:
    Param = OptionalParam = Any
else:
    Param = Array | AbstractWrapper | float | int
    OptionalParam = Param | None


def is_wrapper(leaf: Any) -> bool:
    """Return whether a leaf stands for an array."""
    return isinstance(leaf, AbstractWrapper)


def is_number(leaf: Any) -> bool:
    """Return whether a leaf is a Python number that still has to become a parameter."""
    return isinstance(leaf, Real) and not isinstance(leaf, bool)


def unwrap(tree: T) -> T:
    """Replace every wrapper in `tree` by its array; what is unwrapped already stays as it is."""
    return jax.tree.map(lambda x: x.unwrap() if is_wrapper(x) else x, tree, is_leaf=is_wrapper)


def as_parameters(tree: T, dtype: Any, shape: tuple[int, ...] = ()) -> T:
    """Make positive parameters of what stands for them, numbers with this shape, and give all arrays one precision."""

    def convert(leaf: Any) -> Any:
        if is_number(leaf):
            return Positive(np.full(shape, leaf, dtype))
        if isinstance(leaf, np.ndarray):
            return Positive(leaf.astype(dtype))
        return leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf

    return jax.tree.map(convert, tree)


def as_array(leaf: Any, dtype: Any) -> Any:
    """Return an array that is trained without any constraint; a wrapper keeps its own."""
    return as_parameters(leaf, dtype) if is_wrapper(leaf) else jax.device_put(np.asarray(leaf, dtype))


def trainable(tree: T) -> T:
    """Return a tree of booleans: True at the floating-point arrays that are not inside a `Fixed`."""

    def mark(leaf: Any) -> Any:
        if isinstance(leaf, Fixed):
            return jax.tree.map(lambda _: False, leaf)
        return jax.tree.map(eqx.is_inexact_array, leaf)

    return jax.tree.map(mark, tree, is_leaf=is_wrapper)
