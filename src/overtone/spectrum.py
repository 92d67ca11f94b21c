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
