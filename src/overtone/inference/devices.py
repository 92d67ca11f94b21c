"""Rows are shared among devices; models are on all of them.

A program runs where its arguments are, and the compiler adds what devices have to tell each other. So nothing else
knows how many devices there are: with one, arrays stay as they are. Batches of training are shared among the devices of
all processes (see `overtone.inference.processes`), and everything else among those of this machine.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from overtone.gp.model import PartKey


def shared(arrays: Any, axis: int = 0) -> Any:
    """Return arrays whose rows, along an axis, are split evenly among local devices or, if they cannot be, on each."""
    devices = jax.local_devices()
    if len(devices) == 1:
        return arrays
    fair = all(array.shape[axis] % len(devices) == 0 for array in jax.tree.leaves(arrays))
    return jax.device_put(arrays, _sharding(devices, *[None] * axis, "rows") if fair else _sharding(devices))


def own_part(num: int) -> slice:
    """Return which rows of a batch this process reads: its even part or, if there is none, all of them."""
    processes = jax.process_count()
    if processes == 1 or num % jax.device_count():
        return slice(None)
    first = jax.process_index() * num // processes
    return slice(first, first + num // processes)


def shared_batches(arrays: Any, num: int) -> Any:
    """Return batches of `num` rows, along axis 1, split among the devices of all processes; each gives its own part."""
    if jax.process_count() == 1:
        return shared(arrays, axis=1)
    axes = () if own_part(num) == slice(None) else (None, "rows")
    return jax.tree.map(
        lambda part: jax.make_array_from_process_local_data(_sharding(jax.devices(), *axes), part), arrays
    )


def mean_over_parts(compute: Callable, num: int) -> Callable:
    """Return a function as one whose batch of `num` rows all processes share: compute(model, state, key, batch).

    It computes a tree of means over rows. Each process finds what its own part says, and they tell each other all of it
    at once. The compiler would make a message of each array, and small messages take as long as large ones.
    """
    if jax.process_count() == 1 or own_part(num) == slice(None):
        return compute

    def of_all(model, state, key, batch):
        arrays, others = eqx.partition((model, state), eqx.is_array)

        def of_part(arrays, key, batch):
            part_key = PartKey(key, len(batch[0]) * jax.lax.axis_index("rows"), num)
            found = compute(*eqx.combine(arrays, others), part_key, batch)
            numbers, rest = eqx.partition(found, eqx.is_inexact_array)
            flat, unflatten = ravel_pytree(numbers)
            return eqx.combine(unflatten(jax.lax.pmean(flat, "rows")), rest)

        everybody, by_rows = PartitionSpec(), PartitionSpec("rows")
        specs = {"in_specs": (everybody, everybody, by_rows), "out_specs": everybody}
        return jax.shard_map(of_part, mesh=_mesh(jax.devices()), **specs, check_vma=False)(arrays, key, batch)

    return of_all


def everywhere(tree: Any) -> Any:
    """Return a tree of arrays, and of other things, whose arrays are on all devices of all processes."""
    if jax.device_count() == 1:
        return tree
    arrays, others = eqx.partition(tree, eqx.is_array)
    if jax.process_count() == 1:
        return eqx.combine(jax.device_put(arrays, _sharding(jax.devices())), others)
    return eqx.combine(jax.tree.map(_on_all_processes, arrays), others)


def _on_all_processes(array: Any) -> Any:
    """Return an array that all processes have as one that all their devices share."""
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(_on_all_processes(jax.random.key_data(array)))
    if isinstance(array, jax.Array) and not array.is_fully_addressable:
        return array
    return jax.make_array_from_process_local_data(_sharding(jax.devices()), np.asarray(array))


def kept_everywhere(tree: Any) -> Any:
    """Return a tree of arrays that a program keeps on all devices of all processes."""
    if jax.process_count() == 1:
        return tree
    return jax.lax.with_sharding_constraint(tree, _sharding(jax.devices()))


def anywhere(tree: Any) -> Any:
    """Return a tree whose arrays are free to go where they are needed."""
    if jax.device_count() == 1:
        return tree
    return jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf)) if isinstance(leaf, jax.Array) else leaf, tree)


def _sharding(devices: list, *axes: str | None) -> NamedSharding:
    return NamedSharding(_mesh(devices), PartitionSpec(*axes))


def _mesh(devices: list) -> Mesh:
    return Mesh(np.array(devices), ("rows",))
