"""Fit simple models to the same training rows, to judge a deep GP by.

Each is a line f(z) = b + w z of the scaled inputs, or b alone. Numbers are N(f, s^2), with one s for all rows. Counts
are negative binomial: their mean is exp(f) times the exposure, and their variance mean + s mean^2. The f of classes are
logits. The parameters of a baseline are an array (P, 2 + D) with b, s and w of each output or class.

A series of numbers in time has one more, the seasonal naive: the value one season earlier, and the s by which seasons
differ in the last training rows.
"""

import warnings
from typing import Any

import numpy as np
from scipy.special import hyp2f1, log_softmax
from scipy.stats import nbinom, norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge

from overtone.numerics.shuffle import some_of

NUMBERS, COUNTS, CLASSES = (
    ("mean", "straight line"),
    ("constant rate", "Poisson regression"),
    ("class frequencies", "logistic regression"),
)
NAMES = (*NUMBERS, *COUNTS, *CLASSES)
MAX_CELLS, MIN_ROWS = 2_000_000, 1000  # rows times inputs times outputs that a fit takes, but at least so many rows
LEAST = 1e-6  # the least s, and the least rate
MAX_LOG_RATE = 50.0
SEASONS, MIN_PAIRS = (1.0, 7.0, 365.2425), 10  # in days; rows with one a season earlier, that tell how far these differ


def fit_baselines(likelihood: Any, X: np.ndarray, Y: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """Return the parameters of each baseline by its name, for scaled inputs X (N, D) and targets as a model has them.

    Of many rows, random ones are enough.
    """
    outputs = len(np.unique(Y)) if likelihood.classes else Y.shape[1]
    most = max(MIN_ROWS, MAX_CELLS // (X.shape[1] * outputs))
    rows = np.arange(len(X))[some_of(len(X), most, seed)]
    if likelihood.classes:
        rows = np.union1d(rows, np.unique(Y, return_index=True)[1])  # with a row of each class at least
    Z, Y = X[rows].astype(np.float64), Y[rows].astype(np.float64)
    shift, scale = Z.mean(axis=0), np.where(np.ptp(Z, axis=0) > 0, Z.std(axis=0), 1.0)
    names, fit = (CLASSES, _fit_classes) if likelihood.classes else (NUMBERS, _fit_numbers)
    names, fit = (COUNTS, _fit_counts) if likelihood.counts else (names, fit)
    found = {}
    for name, inputs in zip(names, (0 * Z, (Z - shift) / scale), strict=True):  # without inputs, b alone remains
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):  # a baseline may be a little off
            base, spread, weights = fit(inputs, Y)
        weights = weights / scale
        found[name] = np.column_stack([base - weights @ shift, spread, weights])
    return found


def _fit_numbers(Z: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fit ridge regression to each output; s counts the degrees of freedom that the line takes."""
    bases, spreads, lines = [], [], []
    for y in Y.T:
        inputs, y = Z[~np.isnan(y)], y[~np.isnan(y)]
        line = Ridge().fit(inputs, y)
        centred = inputs - inputs.mean(axis=0)
        gram = centred.T @ centred
        freedom = len(y) - 1 - np.trace(np.linalg.solve(gram + np.eye(len(gram)), gram))
        bases.append(line.intercept_)
        spreads.append(max(LEAST, np.sqrt(np.sum((y - line.predict(inputs)) ** 2) / max(freedom, 1.0))))
        lines.append(line.coef_)
    return np.array(bases), np.array(spreads), np.array(lines)


def _fit_counts(Z: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fit Poisson regression to each output; s is what the counts vary by beyond that."""
    bases, spreads, lines = [], [], []
    for y, log_exposure in zip(*np.split(Y.T, 2), strict=True):
        inputs, exposure, y = Z[~np.isnan(y)], np.exp(log_exposure[~np.isnan(y)]), y[~np.isnan(y)]
        line = PoissonRegressor(alpha=1 / len(y), solver="newton-cholesky")
        mean = exposure * line.fit(inputs, y / exposure + LEAST, sample_weight=exposure).predict(inputs)
        bases.append(line.intercept_)
        spreads.append(max(LEAST, np.sum((y - mean) ** 2 - mean) / np.sum(mean**2)))
        lines.append(line.coef_)
    return np.array(bases), np.array(spreads), np.array(lines)


def _fit_classes(Z: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fit logistic regression; there is no s."""
    line = LogisticRegression().fit(Z, Y[:, 0])
    base, weights = line.intercept_, line.coef_
    if len(base) == 1:  # of the second of two classes
        base, weights = np.append(0.0, base), np.vstack([0 * weights, weights])
    return base, np.zeros(len(base)), weights


def seasonal_naive(days: np.ndarray, Y: np.ndarray, later: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the values (N, P) one season before moments (N,), or the fewest seasons after which there is a row, and s.

    days, Y: the last training rows (n,) and (n, P), in order. The season is the one of day, week and year after which
    they differ least. Without one, or for a moment less than a season after the first row, the answer is None.
    """
    found, step = [], np.median(np.diff(days)) if len(days) > 1 else np.inf
    for season in SEASONS:
        repeated = days - season >= days[0] - step / 2
        differences = Y[repeated] - Y[_nearest(days, days[repeated] - season)]
        if step < season and np.all(np.sum(~np.isnan(differences), axis=0) >= MIN_PAIRS):
            spread = np.sqrt(np.nanmean(differences**2, axis=0))
            found.append((np.sum(np.log(np.maximum(spread, LEAST))), season, np.maximum(spread, LEAST)))
    if not found:
        return None
    _, season, spread = min(found, key=lambda each: each[0])
    earlier = later - season * np.maximum(1, np.ceil((later - days[-1] - step / 2) / season))
    values = Y[_nearest(days, earlier)]
    return (values, spread) if np.all(earlier >= days[0] - step / 2) and not np.isnan(values).any() else None


def _nearest(days: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """Return the position of the nearest of days, which are in order, for each moment."""
    after = np.clip(np.searchsorted(days, moments), 1, len(days) - 1)
    return after - (moments - days[after - 1] < days[after] - moments)


def log_probabilities(parameters: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """Return the log probability (N, C) of each class by a baseline."""
    return log_softmax(_values(parameters, Z), axis=1)


def scores(parameters: np.ndarray, Z: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the mean, log p(y), P(Y < y) and the continuous ranked probability score for each row and output.

    Y are numbers (N, P), or counts with the logs of their exposures (N, 2 P).
    """
    f, spread = _values(parameters, Z), parameters[:, 1]
    if Y.shape[1] == len(spread):
        return normal_scores(f, spread, Y)
    y, log_exposure = np.split(Y, 2, axis=1)
    mean, size = np.exp(np.minimum(f + log_exposure, MAX_LOG_RATE)), 1 / spread
    share = size / (size + mean)
    density = nbinom.logpmf(y, size, share)
    below = nbinom.cdf(y, size, share) - 0.5 * np.exp(density)
    return mean, density, below, _negative_binomial_crps(y, size, share, mean)


def normal_scores(mean: np.ndarray, std: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the same for predictions N(mean, std^2)."""
    return mean, norm.logpdf(Y, mean, std), norm.cdf(Y, mean, std), _normal_crps(Y, mean, std)


def _values(parameters: np.ndarray, Z: np.ndarray) -> np.ndarray:
    return parameters[:, 0] + Z.astype(np.float64) @ parameters[:, 2:].T


def _normal_crps(y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    z = (y - mean) / std
    return std * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - np.pi**-0.5)


def _negative_binomial_crps(y: np.ndarray, size: np.ndarray, share: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Return the closed form of Wei and Held (2014), and the normal one where that overflows: with large means.

    E|Y - y| - E|Y - Y'| / 2 = y (2 F(y) - 1) - mean (2 F'(y - 1) - 1 + 2F1(r + 1, 1/2; 2; -4 (1 - p) / p^2) / p), where
    F' is the distribution function for the size r + 1.
    """
    with np.errstate(all="ignore"):
        half_distance = hyp2f1(size + 1, 0.5, 2, -4 * (1 - share) / share**2) / share
        value = y * (2 * nbinom.cdf(y, size, share) - 1)
        value = value - mean * (2 * nbinom.cdf(y - 1, size + 1, share) - 1 + half_distance)
    return np.where(np.isfinite(value), value, _normal_crps(y, mean, np.sqrt(mean / share)))
