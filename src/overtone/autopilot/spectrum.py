"""How many frequencies a target needs along an input, and where training should start.

A series in one input is put on a regular grid and its spectrum taken there: irregular times would smear a strong wave
over all frequencies. Among several inputs, where neighbours along one differ in the others, Lomb and Scargle's
periodogram asks for each input alone whether waves of a frequency explain more than noise would.
"""

import warnings
from math import comb
from typing import NamedTuple

import numpy as np
from scipy.signal import lombscargle

from overtone.autopilot.policies import FREQUENCIES, SPECTRUM, START


def frequencies(X: np.ndarray, Y: np.ndarray) -> int:
    """Return the number of frequencies on the range of each column of X (N, D) that targets Y (N, P) ask for."""
    least = SPECTRUM.min_frequencies
    if X.shape[1] == 1:
        highest = max(highest_of_series(X[:, 0], y) for y in Y.T)
        most = min(SPECTRUM.max_frequencies_series, max(2 * least, len(X) // 3))
        return int(np.clip(SPECTRUM.headroom * highest + least, 2 * least, most))
    rows = np.random.default_rng(0).permutation(len(X))[: SPECTRUM.sample_rows]
    highest = max(highest_of_input(x, y) for x in X[rows].T for y in Y[rows].T)
    return int(np.clip(SPECTRUM.headroom * highest, least, SPECTRUM.max_frequencies_table))


def highest_of_series(x: np.ndarray, y: np.ndarray) -> int:
    """Return the highest frequency, in cycles over the range of x, at which y stands out of its noise."""
    power, noise = _power(x, y), SPECTRUM.uneven_noise * noise_of_series(x, y)
    if len(power) < SPECTRUM.smoothing:
        return 0
    smooth = np.convolve(power, np.full(SPECTRUM.smoothing, 1 / SPECTRUM.smoothing), "same")
    tail = np.cumsum(power[::-1])[::-1]
    stands_out = (smooth > SPECTRUM.signal_to_noise * noise) & (tail > SPECTRUM.negligible_tail * tail[0])
    return int(np.max(np.nonzero(stands_out)[0], initial=0))


def matern_density(w: np.ndarray, lengthscale: float, order: int) -> np.ndarray:
    """Return the spectral density of a Matern of variance 1 and smoothness nu = order + 1/2, in double precision."""
    rate = (2 * order + 1) ** 0.5 / lengthscale
    return 2 * 4**order / comb(2 * order, order) / rate * (1 + (w / rate) ** 2) ** -(order + 1)


class TooFewFrequenciesWarning(UserWarning):
    """The model cannot follow the waves of its target."""


class Start(NamedTuple):
    """Where a shallow model of a series should start, and the bound that it has there, in nats per row."""

    bound: float
    lengthscale: float  # in ranges of x
    variance: float
    noise: float


def start_of_series(x: np.ndarray, Y: np.ndarray, order: int, num: int, band_limited: bool = False) -> Start | None:
    """Return the Matern and the noise that explain the spectra of targets Y (N, P) best, with so many frequencies.

    They maximise the collapsed bound in Whittle's approximation: power is exponential about the spectral density, there
    is noise alone beyond the last frequency, and the variance that the kernel has there is paid for, unless the
    process is band-limited.
    """
    rows = min(len(np.unique(x[~np.isnan(y)])) for y in Y.T)
    if rows < 2 * SPECTRUM.smoothing:
        return None
    num = min(num, rows // 3)  # beyond, the straight lines between points have changed the noise
    power = np.mean([_power(x, y)[1 : num + 1] for y in Y.T], axis=0)
    floor = np.mean([noise_of_series(x, y) for y in Y.T])
    w, beyond = 2 * np.pi * np.arange(1, num + 1), 2 * np.pi * (num + 0.5) * np.geomspace(1, 1000, 200)
    variances, noises = np.geomspace(*START.variances), np.geomspace(*START.noises)
    variance, noise, best = variances[:, None], noises, None
    for lengthscale in np.geomspace(1 / rows, 1, START.lengthscales):
        missing = (
            (not band_limited) * variance * np.trapezoid(matern_density(beyond, lengthscale, order), beyond) / np.pi
        )
        density = rows * variance[..., None] * matern_density(w, lengthscale, order) + noise[:, None]
        inside = np.sum(np.log(density) + power / density, axis=-1)
        outside = (rows / 2 - num) * (np.log(noise) + floor / noise)
        bound = -0.5 * np.log(2 * np.pi) - (inside + outside + rows * missing / (2 * noise)) / rows
        i, j = np.unravel_index(np.argmax(bound), bound.shape)
        if best is None or bound[i, j] > best.bound:
            best = Start(float(bound[i, j]), float(lengthscale), float(variances[i]), float(noises[j]))
    return best


def start_noise(x: np.ndarray, Y: np.ndarray, start: Start | None, cycles: float) -> float:
    """Return the noise variance that a series starts from, whose features carry so many cycles over the range.

    It is at least what rows of the same x differ by, and waves that no feature carries are noise to the model: without
    enough of it, the first steps lead where there is no finite loss.
    """
    least = max(max(noise_of_repeats(x, y), min(START.noise, variance_beyond(x, y, cycles))) for y in Y.T)
    if start:
        return max(start.noise, least)
    between = max(noise_of_series(x, y) for y in Y.T)
    return max(least, min(START.noise, between) or START.noise, START.least_noise)


def variance_beyond(x: np.ndarray, y: np.ndarray, cycles: float) -> float:
    """Return the variance of y, without a line, in waves of more cycles over the range of x than these."""
    power = _power(x, y)
    return float(2 * np.sum(power[int(cycles) + 1 :]) / max(len(np.unique(x[~np.isnan(y)])), 1))


def warn_if_far_too_few(num: int, wanted: int) -> None:
    """Warn if there are many times fewer frequencies than the spectrum asks for."""
    if FREQUENCIES.far_too_few * num < wanted:
        warnings.warn(
            f"n_inducing={num} frequencies are far too few for this series, whose waves ask for about {wanted}; use "
            f"n_inducing='auto', or more of them.",
            TooFewFrequenciesWarning,
            stacklevel=8,
        )


def _power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the power of y without its line at 0, 1, 2, ... cycles over x; noise has its variance everywhere."""
    x, y = _sorted(x, y)
    if len(x) < 2 * SPECTRUM.smoothing:
        return np.zeros(0)
    grid = np.linspace(x[0], x[-1], len(x))
    even, window = np.interp(grid, x, y), np.hanning(len(x))
    power = np.abs(np.fft.rfft(window * _without_line(grid, even))) ** 2
    return power / np.sum(window**2)


def noise_of_series(x: np.ndarray, y: np.ndarray) -> float:
    """Return the variance of y about the straight line between its neighbours, as far as it is noise of y itself."""
    x, y = _sorted(x, y)
    if len(x) < 3:
        return 0.0
    share = (x[1:-1] - x[:-2]) / (x[2:] - x[:-2])
    miss = y[1:-1] - (1 - share) * y[:-2] - share * y[2:]
    return float(np.mean(miss**2 / (1 + share**2 + (1 - share) ** 2)))


def noise_of_repeats(x: np.ndarray, y: np.ndarray) -> float:
    """Return the variance of y about its mean among rows of the same x: noise, whatever the function is."""
    x, y = x[~np.isnan(y)], y[~np.isnan(y)]
    _, group, counts = np.unique(x, return_inverse=True, return_counts=True)
    left = y - (np.bincount(group, y) / counts)[group]
    return float(left @ left / max(1, len(y) - len(counts)))


def _sorted(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct values of x where y is known, in order, and the mean of y at each."""
    x, y = x[~np.isnan(y)], y[~np.isnan(y)]
    x, group = np.unique(x, return_inverse=True)
    return np.asarray(x, float), np.bincount(group, y) / np.bincount(group)


def _without_line(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return what a straight line leaves of y."""
    away = (x - x[0]) - np.mean(x - x[0])  # exact also for values that lie close together, far from zero
    return y - y.mean() - away * (away @ y) / (away @ away)


def highest_of_input(x: np.ndarray, y: np.ndarray) -> int:
    """Return the highest frequency of one of several inputs; a column with few distinct values has few of them."""
    x, y = x[~np.isnan(y)], y[~np.isnan(y)]
    most = min(SPECTRUM.max_frequencies_table, len(np.unique(x)) // 2)
    if most < 1 or np.ptp(y) == 0:
        return 0
    x = (x - x.min()) / np.ptp(x)
    left = _without_line(x, y)
    if np.max(np.abs(left)) < 1e-9 * np.ptp(y):
        return 0
    power = np.atleast_1d(lombscargle(x, left, 2 * np.pi * np.arange(1, most + 1), normalize=True, floating_mean=True))
    # Without a wave, N power / 2 has an exponential distribution of mean 1.
    return int(np.max(1 + np.nonzero(len(x) / 2 * power > np.log(most / SPECTRUM.chance))[0], initial=0))
