"""Which rows a step of training sees.

A seeded permutation of the rows is a function of a row's number alone, and nothing is kept of it. So the batch of a
step depends on the seed and the step, a run that resumes at any step sees the same batches, and there may be more rows
than fit into memory.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from math import isqrt
from typing import Any

import numpy as np

from overtone.inference.objective import Rows

ROUNDS = 6
MULTIPLIERS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)  # of SplitMix64 (Steele et al. 2014)


def shuffled(index: np.ndarray, num: int, *seed: int) -> np.ndarray:
    """Return where a seeded permutation of 0, ..., num - 1 sends these numbers.

    It is a Feistel network: a number is a pair of digits (a, b) to a base whose square is at least `num`, and a round
    is (a, b) -> (b, a + F(b)), which can be undone whatever F is. What leaves the range is sent on until it is back.
    """
    base, keys = (
        np.uint64(isqrt(num - 1) + 1),
        np.random.default_rng(seed).integers(2**63, size=ROUNDS, dtype=np.uint64),
    )
    found = np.asarray(index, np.uint64)
    due = np.ones(found.shape, bool)
    while due.any():
        a, b = np.divmod(found[due], base)
        for key in keys:
            a, b = b, (a + _hashed(b + key) % base) % base
        found[due] = a * base + b
        due = found >= num
    return found.astype(np.int64)


def _hashed(x: np.ndarray) -> np.ndarray:
    for shift, multiplier in zip((30, 27), MULTIPLIERS, strict=True):
        x = (x ^ (x >> np.uint64(shift))) * multiplier
    return x ^ (x >> np.uint64(31))


def random_rows(rows: Rows, most: int, seed: int = 0) -> Rows:
    """Return arrays of at most so many random rows, in order."""
    num = len(rows.X)
    if num <= most:
        return Rows(rows.X[:], rows.y[:])
    chosen = np.sort(shuffled(np.arange(most), num, seed))
    return Rows(rows.X[chosen], rows.y[chosen])


class Batches:
    """Minibatches without replacement: one permutation of the rows after the other.

    A batch size of all the rows or more gives the whole data every time, in order. What is likely to be asked for next
    is read while the last batches are trained on.
    """

    def __init__(self, *arrays: Any, batch_size: int, seed: int):
        self.arrays, self.seed, self.num_data = arrays, seed, len(arrays[0])
        self.batch_size = min(batch_size, self.num_data)
        self.next: tuple[tuple[int, int], Future] | None = None
        self.reader = ThreadPoolExecutor(1)

    def take(self, first: int, num: int) -> tuple[np.ndarray, ...]:
        """Return the batches of steps first, ..., first + num - 1, stacked along a new axis, or one for them all."""
        if self.batch_size == self.num_data:
            return tuple(np.asarray(a)[None] for a in self.arrays)
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
        return tuple(a[rows].reshape(num, self.batch_size, *a.shape[1:]) for a in self.arrays)
