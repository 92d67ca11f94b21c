"""Rows outside the range of the training inputs, where predictions are extrapolated.

A row is outside if one of its inputs is, by more than a small share of the range: the largest value of another sample
from the same source lies a hair outside more often than not.
"""

import warnings

import numpy as np

TOLERANCE = 0.05  # of the range of an input
TRAINED = np.array([[0.0], [1.0]])  # scaled inputs


class OutsideRangeWarning(UserWarning):
    """Some rows lie outside the range of the training inputs."""


def count_outside(Z: np.ndarray, known: np.ndarray = TRAINED) -> np.ndarray:
    """Return how many rows of scaled inputs (N, D) lie outside a range (2, D), then how many by each input.

    A constant column has no range, and 1/2 of its unit takes its place.
    """
    outside = (Z < known[0] - TOLERANCE) | (Z > known[1] + TOLERANCE)
    return np.concatenate([[np.sum(outside.any(axis=1))], np.sum(outside, axis=0)])


def sentence(counts: np.ndarray, num_rows: int, names: list[str]) -> str:
    """Return what `count_outside` found in words, or nothing if all rows are inside."""
    if not counts[0]:
        return ""
    worst = names[int(np.argmax(counts[1:]))]
    others = int(np.sum(counts[1:] > 0)) - 1
    where = f"{worst!r} and {others} other inputs" if others > 1 else f"{worst!r}" + " and another input" * others
    return (
        f"{counts[0]} of {num_rows} rows lie outside the range of the training inputs (by {where}); predictions there "
        f"are extrapolated."
    )


def warn_of_rows_outside(counts: np.ndarray, num_rows: int, names: list[str]) -> None:
    """Warn whoever called the estimator if rows lie outside."""
    if text := sentence(counts, num_rows, names):
        warnings.warn(text, OutsideRangeWarning, stacklevel=4)
