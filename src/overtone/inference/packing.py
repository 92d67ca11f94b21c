"""Parameters as a few arrays, for a training loop that is quick to compile."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

LARGE_SIZE = 65_536  # numbers: such an array is not packed with others


class Packing:
    """Large arrays as they are, and all the small ones in one vector: the optimiser is then a handful of operations.

    Only for optimisers that treat every number by itself; for others, `elementwise=False` leaves the tree as it is.
    Packing and unpacking outside of compiled code is left to NumPy, whose operations need not be compiled first.
    """

    def __init__(self, params: Any, elementwise: bool):
        leaves, self.structure = jax.tree.flatten(params)
        self.shapes, self.elementwise = tuple(leaf.shape for leaf in leaves), elementwise
        self.is_large = [math.prod(shape) >= LARGE_SIZE for shape in self.shapes]

    def __hash__(self):
        return hash((self.structure, self.shapes, self.elementwise))

    def __eq__(self, other):
        return isinstance(other, Packing) and vars(self) == vars(other)

    def pack(self, params: Any) -> Any:
        if not self.elementwise:
            return params
        pairs = list(zip(jax.tree.leaves(params), self.is_large, strict=True))
        xp: Any = jnp if any(isinstance(leaf, Tracer) for leaf, _ in pairs) else np
        small = xp.concatenate([xp.ravel(leaf) for leaf, large in pairs if not large])
        return [jax.device_put(small) if xp is np else small, *(leaf for leaf, large in pairs if large)]

    def unpack(self, packed: Any) -> Any:
        if not self.elementwise:
            return packed
        shapes = [shape for shape, large in zip(self.shapes, self.is_large, strict=True) if not large]
        split = np.split if isinstance(packed[0], np.ndarray) else jnp.split
        parts = split(packed[0], np.cumsum([math.prod(shape) for shape in shapes])[:-1])
        small, large = iter([part.reshape(s) for part, s in zip(parts, shapes, strict=True)]), iter(packed[1:])
        return jax.tree.unflatten(self.structure, [next(large if is_large else small) for is_large in self.is_large])

    def unpacked(self, packed: Any) -> Any:
        """Unpack outside of compiled code."""
        return jax.tree.map(jax.device_put, self.unpack(jax.tree.map(np.asarray, packed)))
