"""Handle missing inputs in the same way for tables, frames and arrays: refuse them, fill them in or drop their rows."""

from typing import Any

import numpy as np

MAX_COLUMNS_NAMED = 5


def number_of(num: Any, noun: str) -> str:
    """Return a number of things in words: 1 row, 2 rows."""
    return f"{num} {noun if num == 1 else f'{noun}s'}"


def rows_left_out(num: Any, which: str) -> str:
    """Return in words that rows are left out."""
    return f"{number_of(num, 'row')} {which} {'is' if num == 1 else 'are'} left out"


def missing_values_message(counts: dict[str, int]) -> str:
    """Return an error message that names the columns with missing values and counts the values that each lacks."""
    incomplete = [f"{name!r} ({count})" for name, count in counts.items() if count]
    more = " and more" if len(incomplete) > MAX_COLUMNS_NAMED else ""
    return (
        f"there are missing values in {', '.join(incomplete[:MAX_COLUMNS_NAMED])}{more}; drop the rows or fill in the "
        f"values: missing='drop' or 'mean' (--missing on the command line)."
    )


def filled(values: np.ndarray, missing: str, means) -> np.ndarray:
    """Return inputs (N, D) with gaps filled by the means, or, with missing="drop", incomplete rows set to NaN."""
    gaps = np.isnan(values)
    if not gaps.any():
        return values
    if missing == "mean":
        return np.where(gaps, means, values)
    return np.where(gaps.any(axis=1, keepdims=True), np.nan, values)


def with_missing_rows(values: Any, gaps: np.ndarray) -> np.ndarray:
    """Return results (..., N, P) in double precision, with NaN in the rows marked in `gaps`."""
    return np.where(gaps[:, None], np.nan, np.asarray(values, np.float64))


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN or one of the pandas counterparts."""
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value != value


def missing_cells(column: np.ndarray) -> np.ndarray:
    """Return which values (N,) of a column are missing."""
    if column.dtype == object:
        return np.array([is_missing(value) for value in column], bool)
    return np.isnan(column) if column.dtype.kind == "f" else np.zeros(len(column), bool)
