"""Rows are shared among the devices of this machine; models are on all of them.

A program runs where its arguments are, and the compiler adds what devices have to tell each other. So nothing else
knows how many devices there are: with one, arrays stay as they are.
"""

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def shared(arrays: Any, axis: int = 0) -> Any:
    """Return arrays whose rows, along an axis, are split evenly among devices or, if they cannot be, are on each."""
    devices = jax.local_devices()
    if len(devices) == 1:
        return arrays
    fair = all(array.shape[axis] % len(devices) == 0 for array in jax.tree.leaves(arrays))
    return jax.device_put(arrays, _sharding(*[None] * axis, "rows") if fair else _sharding())


def everywhere(tree: Any) -> Any:
    """Return a tree of arrays, and of other things, whose arrays are on all devices."""
    if len(jax.local_devices()) == 1:
        return tree
    arrays, others = eqx.partition(tree, eqx.is_array)
    return eqx.combine(jax.device_put(arrays, _sharding()), others)


def anywhere(tree: Any) -> Any:
    """Return a tree whose arrays are free to go where they are needed."""
    if len(jax.local_devices()) == 1:
        return tree
    return jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf)) if isinstance(leaf, jax.Array) else leaf, tree)


def _sharding(*axes: str | None) -> NamedSharding:
    return NamedSharding(Mesh(np.array(jax.local_devices()), ("rows",)), PartitionSpec(*axes))
