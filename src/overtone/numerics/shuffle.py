"""Permutations of any number of rows, of which nothing is kept: where a row goes is a function of its number."""

from math import isqrt

import numpy as np

ROUNDS = 6
MULTIPLIERS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)  # of SplitMix64 (Steele et al. 2014)


def shuffled(index: np.ndarray, num: int, *seed: int) -> np.ndarray:
    """Return where a seeded permutation of 0, ..., num - 1 sends these numbers.

    It is a Feistel network: a number is a pair of digits (a, b) to a base whose square is at least `num`, and a round
    is (a, b) -> (b, a + F(b)), which can be undone whatever F is. What leaves the range is sent on until it is back.
    """
    base = np.uint64(isqrt(num - 1) + 1)
    keys = np.random.default_rng(seed).integers(2**63, size=ROUNDS, dtype=np.uint64)
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


def some_of(num: int, most: int, *seed: int) -> slice | np.ndarray:
    """Return at most so many random ones of 0, ..., num - 1, in order; all of them as a slice."""
    return np.sort(shuffled(np.arange(most), num, *seed)) if num > most else slice(None)
