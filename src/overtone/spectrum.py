"""How many frequencies does a target need along an input, and where should training start?

A series in one input is put on a regular grid and its spectrum taken there: irregular times would smear a strong wave
over all frequencies. Among several inputs, where neighbours along one differ in the others, Lomb and Scargle's
periodogram asks for each input alone whether waves of a frequency explain more than noise would.
"""

from math import comb
from typing import NamedTuple

import numpy as np
from scipy.signal import lombscargle

FEWEST, MOST_SERIES, MOST_EACH = 6, 1000, 8  # frequencies: at least, at most for a series, for each of several inputs
ROWS = 4000  # of a table, at most, that are looked at
TAIL = 1e-3  # share of the variance beyond the highest frequency that does not matter
SMOOTH, ABOVE = 5, 5.0  # a wave counts if the mean power of 5 neighbours is 5 times that of noise
UNEVEN = 1.5  # times as much noise in long waves where points are scattered at random
SURE = 1e-3  # chance that noise alone passes for a wave
LENGTHSCALES = 30  # tried between the distance of neighbours and the whole range
VARIANCES, NOISES = np.geomspace(0.1, 10, 7), np.geomspace(1e-8, 1, 33)  # tried, for a target of variance 1
FINE, FINE_ROWS, MOST_FINE_ROWS = 500, 2000, 10_000  # frequencies; rows to look for them, at least and at most
FINE_SHARE, LEFT_SHARE = 0.2, 0.1  # of what lines leave of a variance, or of what random waves do, to be worth them
RANDOM_WAVES, RANDOM_SCALES, PENALTY = 500, (2, 4, 8, 16), 1e-3
MOST_COLUMNS, MOST_CYCLES = 100, 400  # to look for fine structure in; of waves in all columns together
GRID = 2**14  # places that inputs are rounded to, to look for fine structure
ROOM = 1.15  # times the highest frequency: features should not end where the waves do


def frequencies(X: np.ndarray, Y: np.ndarray) -> int:
    """The number of frequencies on the range of each column of X (N, D) that targets Y (N, P) ask for."""
    if X.shape[1] == 1:
        found = max(highest_of_series(X[:, 0], y) for y in Y.T)
        return int(np.clip(ROOM * found + FEWEST, 2 * FEWEST, min(MOST_SERIES, max(2 * FEWEST, len(X) // 3))))
    keep = np.random.default_rng(0).permutation(len(X))[:ROWS]
    found = max(highest_of_input(x, y) for x in X[keep].T for y in Y[keep].T)
    return int(np.clip(ROOM * found, FEWEST, MOST_EACH))


def highest_of_series(x: np.ndarray, y: np.ndarray) -> int:
    """The highest frequency, in cycles over the range of x, at which y stands out of its noise."""
    power, noise = _power(x, y), UNEVEN * noise_of_series(x, y)
    if len(power) < SMOOTH:
        return 0
    smooth = np.convolve(power, np.full(SMOOTH, 1 / SMOOTH), "same")
    tail = np.cumsum(power[::-1])[::-1]
    return int(np.max(np.nonzero((smooth > ABOVE * noise) & (tail > TAIL * tail[0]))[0], initial=0))


def matern_density(w: np.ndarray, lengthscale: float, order: int) -> np.ndarray:
    """The spectral density of a Matern of variance 1 and smoothness nu = order + 1/2, in double precision."""
    rate = (2 * order + 1) ** 0.5 / lengthscale
    return 2 * 4**order / comb(2 * order, order) / rate * (1 + (w / rate) ** 2) ** -(order + 1)


class Start(NamedTuple):
    """Where a shallow model of a series should start, and the bound that it has there, in nats per row."""

    bound: float
    lengthscale: float  # in ranges of x
    variance: float
    noise: float


def start_of_series(x: np.ndarray, Y: np.ndarray, order: int, num: int, band_limited: bool = False) -> Start | None:
    """The Matern and the noise that explain the spectra of targets Y (N, P) best, with so many frequencies.

    By the collapsed bound in Whittle's approximation: power is exponential about the model's spectral density, there is
    noise alone beyond the last frequency, and the variance that the kernel has there is paid for, unless the process is
    band-limited.
    """
    rows = min(len(np.unique(x[~np.isnan(y)])) for y in Y.T)
    if rows < 2 * SMOOTH:
        return None
    num = min(num, rows // 3)  # beyond, the straight lines between points have changed the noise
    power = np.mean([_power(x, y)[1 : num + 1] for y in Y.T], axis=0)
    floor = np.mean([noise_of_series(x, y) for y in Y.T])
    w, beyond = 2 * np.pi * np.arange(1, num + 1), 2 * np.pi * (num + 0.5) * np.geomspace(1, 1000, 200)
    variance, noise = VARIANCES[:, None], NOISES
    best = None
    for lengthscale in np.geomspace(1 / rows, 1, LENGTHSCALES):
        missing = (
            (not band_limited) * variance * np.trapezoid(matern_density(beyond, lengthscale, order), beyond) / np.pi
        )
        density = rows * variance[..., None] * matern_density(w, lengthscale, order) + noise[:, None]
        inside = np.sum(np.log(density) + power / density, axis=-1)
        outside = (rows / 2 - num) * (np.log(noise) + floor / noise)
        bound = -0.5 * np.log(2 * np.pi) - (inside + outside + rows * missing / (2 * noise)) / rows
        i, j = np.unravel_index(np.argmax(bound), bound.shape)
        if best is None or bound[i, j] > best.bound:
            best = Start(float(bound[i, j]), float(lengthscale), float(VARIANCES[i]), float(NOISES[j]))
    return best


def _power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of y without its straight line, at 0, 1, 2, ... cycles over the range of x; noise has its variance everywhere."""
    x, y = _sorted(x, y)
    if len(x) < 2 * SMOOTH:
        return np.zeros(0)
    grid = np.linspace(x[0], x[-1], len(x))
    even, window = np.interp(grid, x, y), np.hanning(len(x))
    power = np.abs(np.fft.rfft(window * _without_line(grid, even))) ** 2
    return power / np.sum(window**2)


def noise_of_series(x: np.ndarray, y: np.ndarray) -> float:
    """The variance of y about the straight line between its neighbours, as far as it is noise of y itself."""
    x, y = _sorted(x, y)
    if len(x) < 3:
        return 0.0
    share = (x[1:-1] - x[:-2]) / (x[2:] - x[:-2])
    miss = y[1:-1] - (1 - share) * y[:-2] - share * y[2:]
    return float(np.mean(miss**2 / (1 + share**2 + (1 - share) ** 2)))


def _sorted(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct values of x where y is known, in order, and the mean of y at each."""
    x, y = x[~np.isnan(y)], y[~np.isnan(y)]
    x, place = np.unique(x, return_inverse=True)
    return np.asarray(x, float), np.bincount(place, y) / np.bincount(place)


def _without_line(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """What a straight line leaves of y."""
    away = (x - x[0]) - np.mean(x - x[0])  # exact also for values that lie close together, far from zero
    return y - y.mean() - away * (away @ y) / (away @ away)


def highest_of_input(x: np.ndarray, y: np.ndarray) -> int:
    """The same for one of several inputs; a column with few distinct values has few frequencies."""
    x, y = x[~np.isnan(y)], y[~np.isnan(y)]
    most = min(MOST_EACH, len(np.unique(x)) // 2)
    if most < 1 or np.ptp(y) == 0:
        return 0
    x = (x - x.min()) / np.ptp(x)
    left = _without_line(x, y)
    if np.max(np.abs(left)) < 1e-9 * np.ptp(y):
        return 0
    power = np.atleast_1d(lombscargle(x, left, 2 * np.pi * np.arange(1, most + 1), normalize=True, floating_mean=True))
    # Without a wave, N power / 2 has an exponential distribution of mean 1.
    return int(np.max(1 + np.nonzero(len(x) / 2 * power > np.log(most / SURE))[0], initial=0))


def fine_inputs(X: np.ndarray, Y: np.ndarray) -> tuple[int, ...]:
    """The columns of X (N, D) along which targets Y (N, P) have structure far beyond the frequencies of a table."""
    if not 1 < X.shape[1] <= MOST_COLUMNS:
        return ()
    keep = np.random.default_rng(0).permutation(len(X))[:MOST_FINE_ROWS]
    X, Y = np.asarray(X[keep], float), np.asarray(Y[keep], float)
    X = (X - X.min(axis=0, initial=np.inf)) / np.where(np.ptp(X, axis=0) > 0, np.ptp(X, axis=0), 1)
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
