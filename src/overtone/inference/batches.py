"""Arrays -> minibatches, without JAX."""

import numpy as np


class Batches:
    """Minibatches without replacement: one seeded permutation of the rows after the other.

    The batch of a step is a function of the seed and the step alone, so a run that resumes at any step
    sees the same batches. A batch size of all the rows or more gives the whole data every time, in order.
    """

    def __init__(self, *arrays: np.ndarray, batch_size: int, seed: int):
        self.arrays = arrays
        self.num_data = len(arrays[0])
        self.batch_size = min(batch_size, self.num_data)
        self.seed = seed

    def take(self, first: int, num: int) -> tuple[np.ndarray, ...]:
        """The batches of steps first, ..., first + num - 1, stacked along a new leading axis, or one for them all."""
        if self.batch_size == self.num_data:
            return tuple(a[None] for a in self.arrays)
        position = np.arange(first * self.batch_size, (first + num) * self.batch_size)
        epoch, index = np.divmod(position, self.num_data)
        rows = np.empty_like(position)
        for e in range(epoch[0], epoch[-1] + 1):
            order = np.random.default_rng([self.seed, e]).permutation(self.num_data)
            rows[epoch == e] = order[index[epoch == e]]
        return tuple(a[rows].reshape(num, self.batch_size, *a.shape[1:]) for a in self.arrays)
