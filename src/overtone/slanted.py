"""Waves of two inputs of a table together, which neither input shows alone: a front that moves along a road, say.

A spectrum is taken for each pair of inputs, of what waves of few cycles leave of the target.
"""

from itertools import combinations
from math import comb

import numpy as np
from scipy.optimize import minimize

from overtone.fine import left_by_waves
from overtone.scaling import unit_interval
from overtone.spectrum import MOST_EACH, ROWS, SURE

FEWEST_ROWS, MOST_INPUTS = 500, 30  # to look for such waves
SHARE, MOST_WAVES = 0.1, 3  # of what is left, in one wave, to be worth an input; of a table, at most
GRID, MOST_CYCLES = 128, 48  # places that each input is rounded to; cycles over its range, at most
SAME = 0.5  # cycles, by which waves of different targets differ too little to count twice


def slanted_waves(X: np.ndarray, Y: np.ndarray) -> tuple[tuple[float, ...], ...]:
    """Waves of targets Y (N, P), the strongest first: each by its cycles over the range of each column of X (N, D)."""
    if not 1 < X.shape[1] <= MOST_INPUTS:
        return ()
    keep = np.random.default_rng(0).permutation(len(X))[:ROWS]
    Z, Y = unit_interval(X)(X[keep]), np.asarray(Y[keep], float)
    found = [wave for y in Y.T for wave in _waves(Z[~np.isnan(y)], y[~np.isnan(y)])]
    kept: list[tuple[float, ...]] = []
    for _, cycles in sorted(found, reverse=True):
        if not any(np.allclose(cycles, other, rtol=0, atol=SAME) for other in kept):
            kept.append(cycles)
    return tuple(kept[:MOST_WAVES])


def _waves(Z: np.ndarray, y: np.ndarray) -> list[tuple[float, tuple[float, ...]]]:
    """The share of what is left, and the cycles, of the strongest wave of each pair of inputs that has any."""
    left = left_by_waves(Z, y - y.mean()) if len(y) >= FEWEST_ROWS and np.ptp(y) > 0 else np.zeros(0)
    if not np.any(left):
        return []
    found, dims = [], Z.shape[1]
    most = [min(MOST_CYCLES, (len(np.unique(z)) - 1) // 2) for z in Z.T]  # more would be the same waves again
    place = np.rint(GRID * Z).astype(int) % GRID
    first, second = np.fft.fftfreq(GRID, 1 / GRID)[:, None], np.fft.rfftfreq(GRID, 1 / GRID)
    slanted = (first != 0) & (second > 0) & (np.abs(first) + second > MOST_EACH)
    for i, j in combinations(range(dims), 2):
        allowed = slanted & (np.abs(first) <= most[i]) & (second <= most[j])
        sums = np.bincount(GRID * place[:, i] + place[:, j], left, GRID**2).reshape(GRID, GRID)
        power = np.where(allowed, np.abs(np.fft.rfft2(sums)) ** 2 / np.sum(left**2), 0)  # a mean of 1 without waves
        by_chance = np.log(comb(dims, 2) * max(1, allowed.sum()) / SURE)
        if np.max(power) > max(by_chance, SHARE * len(y) / 2):
            row, column = np.unravel_index(np.argmax(power), power.shape)
            share, pair = _sharpened(Z[:, [i, j]], left, np.array([first[row, 0], second[column]]))
            cycles = np.zeros(dims)
            cycles[[i, j]] = pair
            found.append((share, tuple(cycles.tolist())))
    return found


def _sharpened(Z: np.ndarray, left: np.ndarray, cycles: np.ndarray) -> tuple[float, np.ndarray]:
    """The share of a wave of two inputs, and its cycles, which need not be whole numbers."""

    def share(cycles: np.ndarray) -> float:
        return 2 * np.abs(left @ np.exp(2j * np.pi * Z @ cycles)) ** 2 / (len(left) * np.sum(left**2))

    near = cycles + 0.25 * np.array([[0, 0], [1, 0], [0, 1]])
    best = minimize(lambda tried: -share(tried), cycles, method="Nelder-Mead", options={"initial_simplex": near})
    return float(-best.fun), best.x
