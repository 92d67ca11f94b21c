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


class Replaced(NamedTuple):
    """The rows that have unseen categories, and their inputs with known categories instead, in turn."""

    rows: np.ndarray  # which rows of all, (N,)
    inputs: np.ndarray  # of these R rows in each of T turns, (R, T, D)
    weights: np.ndarray  # of the turns, (R, T): the first ones of a row count alike, and the others not at all
    levels: np.ndarray  # how many categories are known, (R,); of several columns, the fewest

    def flat(self) -> np.ndarray:
        """Return the inputs of all turns, (R T, D)."""
        return self.inputs.reshape(-1, self.inputs.shape[-1])

    def of_turns(self, values: np.ndarray) -> np.ndarray:
        """Return results for the flat inputs as (R, T, P)."""
        return values.reshape(*self.weights.shape, -1)

    def drawn(self, values: np.ndarray, seed: int) -> np.ndarray:
        """Return draws (draws, R, P) from those for the flat inputs, each of a turn that all rows of a draw share."""
        share = np.random.default_rng(seed).random((len(values), 1))
        turns = (share * np.sum(self.weights > 0, axis=1)).astype(int)[:, :, None, None]
        return np.take_along_axis(values.reshape(len(values), *self.weights.shape, -1), turns, axis=2)[:, :, 0]

    def averaged(self, values: np.ndarray) -> np.ndarray:
        """Return the means (R, P) of results (R, T, P) over the turns of each row."""
        return np.sum(self.weights[..., None] * values, axis=1)


def replaced(model: Any, X: Any) -> Replaced | None:
    """Return the rows of X that have unseen categories, with known ones instead, or None if there are no such rows.

    A row has as many turns as known categories stand for its own, whatever other rows there are. A column with one
    known category says nothing about others, and is left as it is.
    """
    encoder = model.encoder_
    categories = [(where, points) for where, points in encoder.known_points() if len(points) > 1] if encoder else []
    if not categories:
        return None
    values, unseen = model.inputs(X), []
    for where, points in categories:
        fill = np.array(encoder.means[where])  # of gaps
        known = {point.tobytes() for point in (*points, fill)}
        unseen.append([row.tobytes() not in known for row in np.ascontiguousarray(values[:, where])])
    rows = np.any(unseen, axis=0) & ~np.isnan(values).any(axis=1)
    if not rows.any():
        return None
    flags = np.array(unseen).T[rows]
    chosen = [points[np.random.default_rng(0).permutation(len(points))[:MAX_LEVELS]] for _, points in categories]
    levels = np.array([len(points) for points in chosen])
    turns = np.arange(levels.max())
    inputs = np.repeat(values[rows, None], len(turns), axis=1)
    for (where, _), points, replace in zip(categories, chosen, flags.T, strict=True):
        inputs[replace, :, where] = points[turns % len(points)]
    num_turns = np.where(flags, levels, 0).max(axis=1, keepdims=True)
    return Replaced(rows, inputs, (turns < num_turns) / num_turns, np.where(flags, levels, MAX_LEVELS).min(axis=1))


def stretch(num: np.ndarray) -> np.ndarray:
    """Return how much wider new effects are spread than those of so many known categories about their mean."""
    return t.ppf(0.975, num - 1) / norm.ppf(0.975) * np.sqrt((num + 1) / (num - 1))


def widening(model: Any, X: Any) -> Widening:
    """Return how the distributions of the rows of X are to be widened, in the model's units."""
    found = None if model.model_.likelihood.counts else replaced(model, X)
    if found is None:
        return Widening()

    def moments(values: np.ndarray) -> tuple[np.ndarray, ...]:
        return model._over_rows(predictions.moments, values, np.zeros((len(values), 1), model.config_.dtype))

    means, stds = map(found.of_turns, moments(found.flat()))
    mean, std = moments(model.inputs(X)[found.rows])
    centre, within = found.averaged(means), found.averaged(stds**2)
    variance = within + found.averaged((means - centre[:, None]) ** 2) * stretch(found.levels)[:, None] ** 2
    parts = np.zeros((2, len(found.rows), mean.shape[1])), np.ones((len(found.rows), mean.shape[1]))
    (before, after), factor = parts
    before[found.rows], after[found.rows] = mean, centre
    factor[found.rows] = np.sqrt(np.maximum(within, np.minimum(variance, MAX_STD**2))) / std
    return Widening(before, after, factor)
