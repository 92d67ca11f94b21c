"""Constraints as wrappers of leaves.

A model stores unconstrained arrays. `Positive` and `Fixed` say what an array means, and `unwrap`,
called once at each jitted entry point, replaces every wrapper by the plain array it stands for:
the mathematics below never sees a wrapper.
"""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

T = TypeVar("T")


class AbstractWrapper(eqx.Module):
    """Stands for an array; `unwrap` computes it."""

    @abstractmethod
    def unwrap(self) -> Array: ...


class Positive(AbstractWrapper):
    """value = lower + exp(log): one optimiser step is a relative change, whatever the scale."""

    log: Array
    lower: float = eqx.field(static=True)

    def __init__(self, value: ArrayLike, lower: float = 0.0):
        self.log = jax.device_put(np.log(np.asarray(value) - lower).astype(np.asarray(value).dtype))
        self.lower = lower

    def unwrap(self) -> Array:
        return self.lower + jnp.exp(self.log)


class Fixed(AbstractWrapper):
    """An array that is part of the model and is not trained."""

    value: Array

    def __init__(self, value: ArrayLike):
        self.value = jax.device_put(value)

    def unwrap(self) -> Array:
        return jax.lax.stop_gradient(self.value)


# A leaf of a module: a wrapper while the module is stored, an array once it is unwrapped.
if TYPE_CHECKING:
    Param = Any
else:
    Param = Array | AbstractWrapper


def _is_wrapper(leaf: Any) -> bool:
    return isinstance(leaf, AbstractWrapper)


def unwrap(tree: T) -> T:
    """Replace every wrapper in `tree` by its array; what is unwrapped already stays as it is."""
    return jax.tree.map(lambda x: x.unwrap() if _is_wrapper(x) else x, tree, is_leaf=_is_wrapper)


def trainable(tree: T) -> T:
    """A tree of booleans: True at the floating-point arrays that are not inside a `Fixed`."""

    def mark(leaf: Any) -> Any:
        if isinstance(leaf, Fixed):
            return jax.tree.map(lambda _: False, leaf)
        return jax.tree.map(eqx.is_inexact_array, leaf)

    return jax.tree.map(mark, tree, is_leaf=_is_wrapper)
