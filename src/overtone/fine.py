"""Which inputs of a table have fine structure, with far more waves than a table has frequencies?

A column can tell days or groups of rows apart. Its share of many cycles is taken of what simple models leave of the
target: straight lines and few cycles, or waves of several inputs together, behind which it may be hidden.
"""

import numpy as np

from overtone.scaling import unit_interval
from overtone.spectrum import MOST_EACH, ROWS, TAIL

FINE, FINE_ROWS, MOST_FINE_ROWS = 500, 2000, 10_000  # frequencies; rows to look for them, at least and at most
FINE_SHARE, LEFT_SHARE = 0.2, 0.1  # of what lines leave of a variance, or of what random waves do, to be worth them
RANDOM_WAVES, RANDOM_SCALES, PENALTY = 500, (2, 4, 8, 16), 1e-3
MOST_COLUMNS, MOST_CYCLES = 100, 400  # of a table, at most; of waves in all columns together
GRID = 2**14  # places that inputs are rounded to


def fine_inputs(X: np.ndarray, Y: np.ndarray) -> tuple[int, ...]:
    """The columns of X (N, D) along which targets Y (N, P) have structure far beyond the frequencies of a table."""
    if not 1 < X.shape[1] <= MOST_COLUMNS:
        return ()
    keep = np.random.default_rng(0).permutation(len(X))[:MOST_FINE_ROWS]
    X, Y = np.asarray(X[keep], float), np.asarray(Y[keep], float)
    X = unit_interval(X)(X)
    return tuple(sorted({j for y in Y.T for j in _fine_inputs(X[~np.isnan(y)], y[~np.isnan(y)])}))


def _fine_inputs(X: np.ndarray, y: np.ndarray) -> list[int]:
    if len(y) < FINE_ROWS or np.ptp(y) == 0:
        return []
    y = y - y.mean()
    left, some, of_some = left_by_waves(X, y), X[:ROWS], y[:ROWS]
    lines = np.linalg.qr(np.column_stack([np.ones(len(some)), some - 0.5]))[0]
    return [
        j
        for j in range(X.shape[1])
        if fine_share(X[:, j], left) > LEFT_SHARE
        or fine_share(some[:, j], left_by_lines(lines, some[:, j], of_some)) > FINE_SHARE
    ]


def fine_share(x: np.ndarray, left: np.ndarray) -> float:
    """Of the variance that is left, the share in waves of many cycles along a column, beyond what noise has there.

    The column has values from 0 to 1.
    """
    most = min(FINE, len(np.unique(x)) // 2)
    if most < 4 * MOST_EACH or not np.any(left):
        return 0.0
    place = np.rint(GRID * x).astype(int) % GRID
    power = np.abs(np.fft.rfft(np.bincount(place, left, GRID))[MOST_EACH + 1 : most + 1]) ** 2 / np.sum(left**2)
    return float(np.sum(power - 1) * 2 / len(x))  # without waves, power has a mean of 1


def left_by_lines(lines: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """What straight lines in all columns (an orthonormal basis), and waves of few cycles in one, leave of y."""
    waves, left = (part - lines @ (lines.T @ part) for part in (_few_cycles(x, MOST_EACH), y))
    return _unless_tiny(left - waves @ np.linalg.lstsq(waves, left)[0], y)


def left_by_waves(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """What waves of few cycles in each column, and random ones in two or three together, leave of y.

    They are fitted to one half of the rows, with a penalty, and taken from the other one: nothing is overfitted.
    """
    rng, dims = np.random.default_rng(0), X.shape[1]
    weight = rng.standard_normal((dims, RANDOM_WAVES)) * rng.choice(RANDOM_SCALES, RANDOM_WAVES)
    weight *= rng.random(weight.shape) < 2.5 / dims
    random = np.cos((X - 0.5) @ weight + 2 * np.pi * rng.random(RANDOM_WAVES))
    cycles = [_few_cycles(x, min(MOST_EACH, MOST_CYCLES // dims)) for x in X.T]
    waves = np.column_stack([np.ones(len(X)), X - 0.5, random, *cycles])
    left, first = np.empty(len(y)), np.arange(len(y)) % 2 == 0
    for half in (first, ~first):
        given = waves[half]
        penalised = given.T @ given + PENALTY * len(given) * np.eye(waves.shape[1])
        left[~half] = y[~half] - waves[~half] @ np.linalg.solve(penalised, given.T @ y[half])
    return _unless_tiny(left, y)


def _few_cycles(x: np.ndarray, most: int) -> np.ndarray:
    """Waves over the range of x, fewer of them where it has few values."""
    phase = 2 * np.pi * np.arange(1, min(most, len(np.unique(x)) // 2) + 1) * x[:, None]
    return np.column_stack([np.cos(phase), np.sin(phase)])


def _unless_tiny(left: np.ndarray, y: np.ndarray) -> np.ndarray:
    return left if np.sum(left**2) > TAIL * np.sum((y - y.mean()) ** 2) else np.zeros_like(left)
