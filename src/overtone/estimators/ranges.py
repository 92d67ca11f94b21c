"""Rows outside the range of the training inputs, where predictions are extrapolated, and with categories unknown to it.

A row is outside if one of its inputs is, by more than a small share of the range: the largest value of another sample
from the same source lies a hair outside more often than not.
"""

import warnings

import numpy as np

TOLERANCE = 0.05  # of the range of an input


class OutsideRangeWarning(UserWarning):
    """Some rows lie outside the range of the training inputs."""


class UnseenCategoryWarning(UserWarning):
    """Some rows have categories that no training row has."""


def is_outside(Z: np.ndarray) -> np.ndarray:
    """Return which scaled inputs (N, D) lie outside [0, 1], the training range.

    A constant column has no range, and 1/2 of its unit takes its place.
    """
    return (Z < -TOLERANCE) | (Z > 1 + TOLERANCE)


def counted(flags: np.ndarray) -> np.ndarray:
    """Return how many rows of flags (N, D) have any, then how many have each."""
    return np.concatenate([[np.sum(flags.any(axis=1))], np.sum(flags, axis=0)])


def outside_sentence(counts: np.ndarray, num_rows: int, names: list[str]) -> str:
    """Return in words how many rows are outside the training range, or nothing if all rows are inside."""
    if not counts[0]:
        return ""
    where = _where(counts[1:], names, "input")
    return (
        f"{counts[0]} of {num_rows} rows lie outside the range of the training inputs (by {where}); predictions there "
        f"are extrapolated."
    )


def unseen_sentence(counts: np.ndarray, num_rows: int, names: list[str]) -> str:
    """Return in words how many rows have categories that no training row has, or nothing if there are none."""
    if not counts[0]:
        return ""
    where = _where(counts[1:], names, "column")
    return f"{counts[0]} of {num_rows} rows have categories that no training row has (in {where}); trust them less."


def _where(counts: np.ndarray, names: list[str], noun: str) -> str:
    worst, others = names[int(np.argmax(counts))], int(np.sum(counts > 0)) - 1
    return f"{worst!r} and {others} other {noun}s" if others > 1 else f"{worst!r}" + f" and another {noun}" * others


def warn_if(text: str, category: type[Warning]) -> None:
    """Warn whoever called the estimator, if there is anything to say."""
    if text:
        warnings.warn(text, category, stacklevel=4)
