"""The rows of a table as models take them: inputs, targets and exposures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import polars as pl

from overtone.tables.columns import Column
from overtone.tables.encode import Encoder
from overtone.tables.errors import CellError, TableError
from overtone.tables.gaps import number_of
from overtone.tables.targets import class_labels, numeric_target


@dataclass(frozen=True)
class Rows:
    """Hold inputs (N, D), targets (N,) or (N, P) and, for counts, their exposures (N,) as a keyword of estimators.

    They are arrays, or views of rows on the disk. numbers: the places (N,) of rows in memory in their table.
    """

    X: Any
    y: Any
    keywords: dict[str, Any]
    numbers: Any = None

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: np.ndarray) -> Self:
        return self.mapped(lambda rows: rows[index])

    def mapped(self, change: Callable[[Any], Any]) -> Self:
        """Return the rows with all parts changed alike."""
        numbers = None if self.numbers is None else change(self.numbers)
        return type(self)(
            change(self.X), change(self.y), {name: change(v) for name, v in self.keywords.items()}, numbers
        )


def encode_inputs(encoder: Encoder, frame: pl.DataFrame, exposure: str | None) -> tuple[np.ndarray, dict]:
    """Return inputs, with NaN in rows to be dropped, and the column of exposures, if there is one, as a keyword."""
    X = encoder.encode(frame)
    if exposure is None:
        return X, {}
    if exposure not in frame.columns:
        raise TableError(f"there is no column {exposure!r}, the exposure that the model was fitted with.")
    values = (encoder.other(exposure) or Column(exposure, "number")).encode(frame[exposure])[:, 0]
    gaps = np.isnan(values)
    if gaps.any() and encoder.missing != "drop":
        rows = number_of(gaps.sum(), "row")
        raise TableError(f"the exposure {exposure!r} is missing in {rows}; drop them: --missing drop.")
    if len(bad := np.flatnonzero((values <= 0) | np.isinf(values))):
        raise CellError(f"the exposure {exposure!r} must be positive;", bad[0], f" has {values[bad[0]]:g}.")
    return np.where(gaps[:, None], np.nan, X), {"exposure": np.where(gaps, 1.0, values)}


def read_targets(frame: pl.DataFrame, columns: Sequence[Column], whole: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Return the targets of the rows that have any, labels or numbers (N,) or (N, P), and which rows these are.

    Of a whole table, some rows must have one; of a part, perhaps none.
    """
    if columns[0].kind == "category":
        y = class_labels(frame[columns[0].name], columns[0].na, whole)
        has_target = np.array([label is not None for label in y])
    else:
        y = np.column_stack([numeric_target(frame[column.name], column, whole) for column in columns])
        has_target = np.array(~np.isnan(y).all(axis=1))
        y = y if len(columns) > 1 else y[:, 0]
    return y[has_target], np.flatnonzero(has_target)


def complete_rows(encoder: Encoder, frame: pl.DataFrame, y: np.ndarray, exposure: str | None) -> Rows:
    """Return the rows that are not to be dropped."""
    X, keywords = encode_inputs(encoder, frame, exposure)
    complete = np.array(~np.isnan(X).any(axis=1))
    return Rows(X, y, keywords, np.arange(len(y)))[complete]
