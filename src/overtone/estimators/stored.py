"""What estimators need to know of rows that stay on the disk: views of them, and the ranges and means of columns."""

import mmap
from typing import Any, NamedTuple

import numpy as np

from overtone.storage.rows import RowView, StoredRows, pieces

LARGE_BYTES = 2**28  # of inputs that are mapped into memory and stay where they are


def views(*arrays: Any) -> tuple[RowView, ...] | None:
    """Return views of arrays whose first one is on the disk and large, or a view already; otherwise None."""
    first = arrays[0]
    if isinstance(first, np.memmap) and first.nbytes > LARGE_BYTES and first.ndim == 2:
        return tuple(RowView(_stored(each), each.dtype, _as_columns) for each in map(np.asanyarray, arrays))
    return arrays if isinstance(first, RowView) else None


def _stored(array: Any) -> Any:
    """Return the rows of the file that an array maps as a whole, or the array."""
    whole = isinstance(array, np.memmap) and isinstance(array.base, mmap.mmap) and array.flags.c_contiguous
    return StoredRows(array.filename, array) if whole and array.filename else array


def _as_columns(rows: np.ndarray) -> np.ndarray:
    return rows[:, None] if rows.ndim == 1 else rows


class Columns(NamedTuple):
    """What is known of columns (D,): the least and largest values, means, standard deviations, and how many values."""

    low: np.ndarray
    high: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    known: np.ndarray


def columns_of(rows: RowView) -> Columns:
    """Return what is known of the columns, in one pass; means and squares are merged as Chan et al. (1983) do."""
    low, high, mean, squares, known = np.inf, -np.inf, 0.0, 0.0, 0
    for piece in pieces(rows):
        there = ~np.isnan(piece)
        num = there.sum(axis=0)
        own_mean = np.sum(piece, axis=0, where=there) / np.maximum(num, 1)
        away, total = own_mean - mean, np.maximum(known + num, 1)
        squares += np.sum((piece - own_mean) ** 2, axis=0, where=there) + away**2 * known * num / total
        mean, known = mean + away * num / total, known + num
        low = np.minimum(low, np.min(piece, axis=0, where=there, initial=np.inf))
        high = np.maximum(high, np.max(piece, axis=0, where=there, initial=-np.inf))
    return Columns(*map(np.asarray, (low, high, mean, np.sqrt(squares / np.maximum(known, 1)), known)))


def range_of(X: RowView) -> np.ndarray:
    """Return the least and the largest values of inputs, which must be complete and finite."""
    columns = columns_of(X)
    if np.any(columns.known < len(X)) or not np.all(np.isfinite([columns.low, columns.high])):
        raise ValueError(
            "X is on the disk and has missing or infinite values; leave such rows out, or let `overtone fit` read the "
            "table."
        )
    return np.stack([columns.low, columns.high])


class PackedTargets:
    """Targets on the disk in the units of a model; or counts, with the logs of their exposures."""

    def __init__(self, model: Any, Y: RowView, exposure: RowView | None, counts: bool):
        self.model, self.Y, self.exposure, self.counts = model, Y, exposure, counts

    def __len__(self) -> int:
        return len(self.Y)

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        exposure = None if self.exposure is None else self.exposure[rows]
        return self.model._packed(self.Y[rows], exposure, self.counts)
