"""Rows that are read when somebody asks for them: of a file that may be larger than memory, scaled on the way.

They are indexed like arrays, by slices and by arrays of row numbers, and give arrays. So training, which looks at a few
rows at a time, takes them in place of arrays.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

PIECE_ROWS = 1024  # that are mapped at a time
PASS_ROWS = 50_000  # of a pass through all rows


class StoredRows:
    """The rows of a .npy file, or of another file that is mapped as a whole.

    The file is mapped anew for each piece that is read: otherwise all pages that were ever read would count as memory
    of this process.
    """

    def __init__(self, path: Path | str, mapped: Any = None):
        self.path = path
        mapped = np.load(path, mmap_mode="r", allow_pickle=False) if mapped is None else mapped
        self.shape, self.dtype, self.offset = mapped.shape, mapped.dtype, mapped.offset

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: slice | np.ndarray) -> np.ndarray:
        rows = _numbers(index, len(self))
        read = np.empty((len(rows), *self.shape[1:]), self.dtype)
        for first in range(0, len(rows), PIECE_ROWS):
            piece = slice(first, first + PIECE_ROWS)
            read[piece] = np.memmap(self.path, self.dtype, "r", self.offset, self.shape)[rows[piece]]
        return read


def _numbers(index: slice | np.ndarray, num: int) -> np.ndarray:
    return np.arange(*index.indices(num)) if isinstance(index, slice) else np.asarray(index)


class RowView:
    """Rows of an array or of a file, (N, D), changed as they are read, and without some of them."""

    def __init__(
        self,
        source: Any,
        dtype: Any = np.float64,
        change: Callable[[np.ndarray], np.ndarray] = lambda rows: rows,
        left_out: np.ndarray | None = None,
    ):
        self.source, self.dtype, self.change = source, np.dtype(dtype), change
        self.left_out = np.zeros(0, int) if left_out is None else np.sort(left_out)

    def __len__(self) -> int:
        return len(self.source) - len(self.left_out)

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self), *self[:1].shape[1:]

    def __getitem__(self, index: slice | np.ndarray) -> np.ndarray:
        rows = _numbers(index, len(self))
        before = np.searchsorted(self.left_out - np.arange(len(self.left_out)), rows, side="right")
        return self.change(self.source[rows + before]).astype(self.dtype, copy=False)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self[:].astype(dtype or self.dtype, copy=False)

    def changed(self, change: Callable[[np.ndarray], np.ndarray], dtype: Any) -> "RowView":
        """Return a view of the same rows, changed once more."""
        return RowView(self, dtype, change)


def without(rows: Any, left_out: np.ndarray) -> Any:
    """Return an array or a view without the rows of these numbers."""
    return RowView(rows, rows.dtype, left_out=left_out) if isinstance(rows, RowView) else np.delete(rows, left_out, 0)


def pieces(rows: Any) -> Iterator[np.ndarray]:
    """Yield all rows of an array or a view, some at a time."""
    yield from (rows[first : first + PASS_ROWS] for first in range(0, len(rows), PASS_ROWS))
