"""Rows outside the range of the training inputs, where predictions are extrapolated, or with unseen categories.

A row is outside if one of its inputs is, by more than a small share of the range: the largest value of another sample
from the same source lies a hair outside more often than not.
"""

import warnings

import numpy as np

from overtone.tables.gaps import number_of

TOLERANCE = 0.05  # of the range of an input
TRAINED = np.array([[0.0], [1.0]])  # scaled inputs


class OutsideRangeWarning(UserWarning):
    """Some rows lie outside the range of the training inputs."""


class UnseenCategoryWarning(UserWarning):
    """Some rows have categories that no training row has."""


def is_outside(Z: np.ndarray, known: np.ndarray = TRAINED) -> np.ndarray:
    """Return which scaled inputs (N, D) lie outside a range (2, D).

    A constant column has no range, and 1/2 of its unit takes its place.
    """
    low, high = known.astype(Z.dtype)  # with the same rounding
    return (Z < low - TOLERANCE) | (Z > high + TOLERANCE)


def counted(flags: np.ndarray) -> np.ndarray:
    """Return how many rows of flags (N, D) have any, then how many have each."""
    return np.concatenate([[np.sum(flags.any(axis=1))], np.sum(flags, axis=0)])


def outside_sentence(counts: np.ndarray, num_rows: int, names: list[str]) -> str:
    """Return in words how many rows are outside the training range, or nothing if all rows are inside."""
    where, verb = _where(counts[1:], names, "input"), "lies" if counts[0] == 1 else "lie"
    text = f"{verb} outside the range of the training inputs (by {where}); predictions there are extrapolated."
    return f"{counts[0]} of {number_of(num_rows, 'row')} {text}" if counts[0] else ""


def unseen_sentence(counts: np.ndarray, num_rows: int, names: list[str]) -> str:
    """Return in words how many rows have categories that no training row has, or nothing if there are none."""
    where, verb = _where(counts[1:], names, "column"), "has" if counts[0] == 1 else "have"
    text = f"{verb} categories that no training row has (in {where}); trust {'it' if counts[0] == 1 else 'them'} less."
    return f"{counts[0]} of {number_of(num_rows, 'row')} {text}" if counts[0] else ""


def _where(counts: np.ndarray, names: list[str], noun: str) -> str:
    worst, others = names[int(np.argmax(counts))] if names else "", int(np.sum(counts > 0)) - 1
    return f"{worst!r} and {others} other {noun}s" if others > 1 else f"{worst!r}" + f" and another {noun}" * others


def warn_of_rows_outside(flags: np.ndarray, names: list[str]) -> None:
    """Warn whoever called the estimator if rows lie outside."""
    if text := outside_sentence(counted(flags), len(flags), names):
        warnings.warn(text, OutsideRangeWarning, stacklevel=4)


def warn_of_unseen(flags: np.ndarray, names: list[str]) -> None:
    """Warn whoever called the estimator if rows have categories that no training row has."""
    if text := unseen_sentence(counted(flags), len(flags), names):
        warnings.warn(text, UnseenCategoryWarning, stacklevel=4)
