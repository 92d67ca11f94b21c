"""Rows that are read when somebody asks for them: of a file that may be larger than memory, scaled on the way.

They are indexed like arrays, by slices and by arrays of row numbers, and give arrays. So training, which looks at a few
rows at a time, takes them in place of arrays.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

PASS_ROWS = 50_000  # of a pass through all rows


class StoredRows:
    """The rows of a .npy file, or of another file that is mapped into memory as a whole.

    Rows are read one by one from where they are: mapping the file would count all pages around them as memory of this
    process, and take eight times as long.
    """

    def __init__(self, path: Path | str, mapped: Any = None):
        self.path = path
        mapped = np.load(path, mmap_mode="r", allow_pickle=False) if mapped is None else mapped
        self.shape, self.dtype, self.offset = mapped.shape, mapped.dtype, mapped.offset
        self.row_bytes = mapped.dtype.itemsize * int(np.prod(mapped.shape[1:]))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: slice | np.ndarray) -> np.ndarray:
        rows, size = _numbers(index, len(self)), self.row_bytes
        shape, places = (len(rows), *self.shape[1:]), self.offset + size * rows
        if len(rows) and np.array_equal(rows, np.arange(rows[0], rows[0] + len(rows))):
            return np.fromfile(self.path, self.dtype, int(np.prod(shape)), offset=int(places[0])).reshape(shape)
        file = os.open(self.path, os.O_RDONLY)
        try:
            read = b"".join([os.pread(file, size, place) for place in places.tolist()])
        finally:
            os.close(file)
        return np.frombuffer(read, self.dtype).reshape(shape)


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
