"""Widen predictions of numbers where a category is unseen, by what the known categories differ.

If the effects of categories are draws from one normal distribution, that of a new one is known from those of L others,
with mean m and standard deviation s: it follows Student's t with L - 1 degrees of freedom, about m, with the scale
s sqrt(1 + 1 / L). So a row is predicted as if it had each of the known categories in turn, and the distribution that
the model has for it is shifted to the mean of those, and scaled until its variance is the mean of theirs plus s^2
(1 + 1 / L), times the square by which t is wider than a normal distribution at 95 %.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm, t

from overtone.inference import predictions

MAX_LEVELS = 20  # of a category, chosen at random, that stand for all of them
MAX_STD = 2.0  # in standard deviations of the target, beyond which differences of a few categories widen nothing


class Widening(NamedTuple):
    """Shift and scale distributions: from the mean `before` to the mean `after`, by a factor of their widths."""

    before: Any = 0.0
    after: Any = 0.0
    factor: Any = 1.0

    def widened(self, values: np.ndarray) -> np.ndarray:
        """Return means, quantiles or draws (..., N, P) of the widened distributions."""
        return self.after + self.factor * (values - self.before)

    def narrowed(self, y: np.ndarray) -> np.ndarray:
        """Return the targets that have the same place in the distributions before."""
        return self.before + (y - self.after) / self.factor


def replaced_inputs(model: Any, X: Any) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """Return which rows of X have unseen categories, their inputs with known ones in turn, and how many of those."""
    values, encoder = model.inputs(X), model.encoder_
    categories = encoder.known_points() if encoder else []
    unseen = np.zeros((len(values), len(categories)), bool)
    for j, (where, points) in enumerate(categories):
        fill = np.array(encoder.means[where])  # of gaps
        known = {point.tobytes() for point in (*points, fill)}
        unseen[:, j] = [row.tobytes() not in known for row in np.ascontiguousarray(values[:, where])]
    rows = unseen.any(axis=1) & ~np.isnan(values).any(axis=1)
    levels = np.array([min(MAX_LEVELS, len(points)) for _, points in categories])
    orders = [np.random.default_rng(0).permutation(len(points)) for _, points in categories]
    turns = []
    for turn in range(levels[unseen[rows].any(axis=0)].max() if rows.any() else 0):
        turns.append(values[rows])
        for (where, points), flags, num, order in zip(categories, unseen[rows].T, levels, orders, strict=True):
            turns[-1][flags, where] = points[order[turn % num]]
    return rows, turns, np.where(unseen[rows], levels, MAX_LEVELS).min(axis=1, initial=MAX_LEVELS)


def widening(model: Any, X: Any) -> Widening:
    """Return how the distributions of the rows of X are to be widened, in the model's units."""
    if model.encoder_ is None or model.model_.likelihood.counts:
        return Widening()
    rows, turns, num = replaced_inputs(model, X)
    if not turns or num.min() < 2:
        return Widening()

    def moments(values: np.ndarray) -> tuple[np.ndarray, ...]:
        return model._over_rows(predictions.moments, values, np.zeros((len(values), 1), model.config_.dtype))

    means, stds = (np.array(part) for part in zip(*map(moments, turns), strict=True))
    mean, std = moments(model.inputs(X)[rows])
    within, heavier = np.mean(stds**2, axis=0), (t.ppf(0.975, num - 1) / norm.ppf(0.975)) ** 2
    variance = within + np.var(means, axis=0) * (heavier * (num + 1) / (num - 1))[:, None]
    parts = np.zeros((2, len(rows), mean.shape[1])), np.ones((len(rows), mean.shape[1]))
    (before, after), factor = parts
    before[rows], after[rows] = mean, np.mean(means, axis=0)
    factor[rows] = np.sqrt(np.maximum(within, np.minimum(variance, MAX_STD**2))) / std
    return Widening(before, after, factor)
