"""Missing inputs: refused, filled or left out, in the same way for tables, frames and arrays."""

from typing import Any

import numpy as np

MOST_NAMES = 5


def refusal(counts: dict[str, int]) -> str:
    """The sentence that names columns with missing values, and how many each has."""
    named = [f"{name!r} ({num})" for name, num in counts.items() if num]
    return (
        f"there are missing values in {', '.join(named[:MOST_NAMES])}{' and more' if len(named) > MOST_NAMES else ''}; "
        f"leave such rows out or fill them: missing='drop' or 'mean' (--missing on the command line)."
    )


def settled(values: np.ndarray, missing: str, means) -> np.ndarray:
    """Inputs (N, D) whose gaps are filled with the means; or, to be dropped, rows with gaps that are NaN throughout."""
    gaps = np.isnan(values)
    if not gaps.any():
        return values
    if missing == "mean":
        return np.where(gaps, means, values)
    return np.where(gaps.any(axis=1, keepdims=True), np.nan, values)


def blank(values: Any, gaps: np.ndarray) -> np.ndarray:
    """Results (..., N, P) in double precision, NaN in rows with gaps."""
    return np.where(gaps[:, None], np.nan, np.asarray(values, np.float64))


def is_nothing(value: Any) -> bool:
    """None, NaN, and what pandas has for them."""
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value != value


def count(column: np.ndarray) -> int:
    """How many values of a column are missing."""
    if column.dtype == object:
        return sum(map(is_nothing, column))
    return int(np.isnan(column).sum()) if column.dtype.kind == "f" else 0
