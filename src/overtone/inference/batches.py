"""Which rows a step of training sees.

A seeded permutation of the rows is a function of a row's number alone, and nothing is kept of it. So the batch of a
step depends on the seed and the step, a run that resumes at any step sees the same batches, and there may be more rows
than fit into memory.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from overtone.inference.devices import own_part
from overtone.inference.objective import Rows
from overtone.numerics.shuffle import shuffled, some_of


def random_rows(rows: Rows, most: int, seed: int = 0) -> Rows:
    """Return arrays of at most so many random rows, in order."""
    chosen = some_of(len(rows.X), most, seed)
    return Rows(rows.X[chosen], rows.y[chosen])


class Batches:
    """Minibatches without replacement: one permutation of the rows after the other.

    A batch size of all the rows or more gives the whole data every time, in order. What is likely to be asked for next
    is read while the last batches are trained on. Of several processes, each reads its part of every batch.
    """

    def __init__(self, *arrays: Any, batch_size: int, seed: int):
        self.arrays, self.seed, self.num_data = arrays, seed, len(arrays[0])
        self.batch_size = min(batch_size, self.num_data)
        self.part = own_part(self.batch_size)
        self.next: tuple[tuple[int, int], Future] | None = None
        self.reader = ThreadPoolExecutor(1)

    def take(self, first: int, num: int) -> tuple[np.ndarray, ...]:
        """Return the batches of steps first, ..., first + num - 1, stacked along a new axis, or one for them all."""
        if self.batch_size == self.num_data:
            return tuple(np.asarray(a[self.part])[None] for a in self.arrays)
        if self.next is not None and self.next[0] == (first, num):
            return self.next[1].result()
        return self.read(first, num)

    def expect(self, first: int, num: int) -> None:
        """Begin to read the batches of these steps."""
        if self.batch_size < self.num_data:
            self.next = (first, num), self.reader.submit(self.read, first, num)

    def read(self, first: int, num: int) -> tuple[np.ndarray, ...]:
        position = np.arange(first * self.batch_size, (first + num) * self.batch_size)
        epoch, index = np.divmod(position, self.num_data)
        rows = np.empty_like(position)
        for e in range(epoch[0], epoch[-1] + 1):
            rows[epoch == e] = shuffled(index[epoch == e], self.num_data, self.seed, e)
        rows = rows.reshape(num, self.batch_size)[:, self.part]
        return tuple(a[rows.ravel()].reshape(*rows.shape, *a.shape[1:]) for a in self.arrays)
