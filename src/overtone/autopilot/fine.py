"""Which inputs of a table have fine structure: far more waves than a table has frequencies.

A column can tell days or groups of rows apart. Its share of many cycles is taken of what simple models leave of the
target: straight lines and few cycles, or waves of several inputs together, behind which it may be hidden.
"""

import numpy as np

from overtone.autopilot.policies import FINE, SPECTRUM
from overtone.gp.maps import unit_interval


def fine_inputs(X: np.ndarray, Y: np.ndarray) -> tuple[int, ...]:
    """Return the columns of X (N, D) along which targets Y (N, P) have structure beyond the frequencies of a table."""
    if not 1 < X.shape[1] <= FINE.max_columns:
        return ()
    rows = np.random.default_rng(0).permutation(len(X))[: FINE.sample_rows]
    X, Y = np.asarray(X[rows], float), np.asarray(Y[rows], float)
    X = unit_interval(X)(X)
    found = {j for y in Y.T for j in _fine_inputs(X[~np.isnan(y)], y[~np.isnan(y)])}
    return tuple(sorted(found)) if len(found) <= FINE.max_inputs else ()


def _fine_inputs(X: np.ndarray, y: np.ndarray) -> list[int]:
    if len(y) < FINE.min_rows or np.ptp(y) == 0:
        return []
    y = y - y.mean()
    left, X_sample, y_sample = left_by_waves(X, y), X[: SPECTRUM.sample_rows], y[: SPECTRUM.sample_rows]
    lines = np.linalg.qr(np.column_stack([np.ones(len(X_sample)), X_sample - 0.5]))[0]
    return [
        j
        for j in range(X.shape[1])
        if fine_share(X[:, j], left) > FINE.share_of_waves
        or fine_share(X_sample[:, j], left_by_lines(lines, X_sample[:, j], y_sample)) > FINE.share_of_lines
    ]


def fine_share(x: np.ndarray, left: np.ndarray) -> float:
    """Return the share of the variance left in waves of many cycles along a column, beyond what noise has there.

    The column has values from 0 to 1.
    """
    most, few = min(FINE.frequencies, len(np.unique(x)) // 2), SPECTRUM.max_frequencies_table
    if most < 4 * few or not np.any(left):
        return 0.0
    position = np.rint(FINE.grid * x).astype(int) % FINE.grid
    power = np.abs(np.fft.rfft(np.bincount(position, left, FINE.grid))[few + 1 : most + 1]) ** 2 / np.sum(left**2)
    return float(np.sum(power - 1) * 2 / len(x))  # without waves, power has a mean of 1


def left_by_lines(lines: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return what straight lines in all columns (an orthonormal basis), and waves of few cycles in one, leave of y."""
    waves, left = (part - lines @ (lines.T @ part) for part in (_few_cycles(x, SPECTRUM.max_frequencies_table), y))
    return _unless_tiny(left - waves @ np.linalg.lstsq(waves, left)[0], y)


def left_by_waves(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return what waves of few cycles in each column, and random ones in two or three together, leave of y.

    They are fitted to one half of the rows, with a penalty, and taken from the other one: nothing is overfitted.
    """
    rng, dims = np.random.default_rng(0), X.shape[1]
    num = FINE.random_waves
    weight = rng.standard_normal((dims, num)) * rng.choice(FINE.random_scales, num)
    weight *= rng.random(weight.shape) < 2.5 / dims
    random = np.cos((X - 0.5) @ weight + 2 * np.pi * rng.random(num))
    cycles = [_few_cycles(x, min(SPECTRUM.max_frequencies_table, FINE.max_cycles // dims)) for x in X.T]
    waves = np.column_stack([np.ones(len(X)), X - 0.5, random, *cycles])
    left, first = np.empty(len(y)), np.arange(len(y)) % 2 == 0
    for half in (first, ~first):
        given = waves[half]
        penalised = given.T @ given + FINE.penalty * len(given) * np.eye(waves.shape[1])
        left[~half] = y[~half] - waves[~half] @ np.linalg.solve(penalised, given.T @ y[half])
    return _unless_tiny(left, y)


def _few_cycles(x: np.ndarray, most: int) -> np.ndarray:
    """Return waves over the range of x, fewer of them where it has few values."""
    phase = 2 * np.pi * np.arange(1, min(most, len(np.unique(x)) // 2) + 1) * x[:, None]
    return np.column_stack([np.cos(phase), np.sin(phase)])


def _unless_tiny(left: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return what is left, or zeros if that is next to nothing."""
    return left if np.sum(left**2) > SPECTRUM.negligible_tail * np.sum((y - y.mean()) ** 2) else np.zeros_like(left)
