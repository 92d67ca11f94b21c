"""Encode the columns of a table as the numbers that a model is trained on.

The meaning of each column is inferred once, from the training rows, and stored with the model. Numbers stay as they
are. Yes or no becomes 1 or 0. Dates become a trend and, where the rows differ in them, the time of day, the day of the
week and the day of the year, as a point on a circle. Text with few distinct values becomes a column of zeros and ones
for each value; of more values, each becomes a point of its own. The columns of later tables are matched by name, in any
order.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import polars as pl

from overtone.tables.columns import NO_HINTS, Column, ColumnHints, infer_column
from overtone.tables.errors import CellError, ColumnErrors, TableError, quoted_list
from overtone.tables.gaps import filled, is_missing, missing_values_message


@dataclass(frozen=True)
class Encoder:
    """Encode the columns that a model uses, and handle their missing values.

    missing: "error" refuses missing values, "drop" leaves out their rows, and "mean" replaces them by `means`.
    means: the mean of each input over the training rows.
    others: the columns that are no inputs, as they were read at training: the targets and the exposure.
    """

    columns: tuple[Column, ...]
    missing: str = "error"
    means: tuple[float, ...] = ()
    others: tuple[Column, ...] = ()

    @classmethod
    def fit(
        cls, frame: pl.DataFrame, *, missing: str = "error", calendar: bool = True, hints: ColumnHints = NO_HINTS
    ) -> Self:
        """Infer the meaning of a frame's columns; without `calendar`, dates become a trend alone."""
        columns, errors = [], []
        for series in frame:
            try:
                columns.append(infer_column(series, calendar, hints))
            except TableError as error:
                errors.append(error)
        if errors:
            raise ColumnErrors(errors)
        encoder = cls(tuple(columns), missing)
        values = encoder._values(frame)
        if empty := [name for name, v in zip(encoder.inputs, values.T, strict=True) if np.all(np.isnan(v))]:
            raise TableError(f"there are no values in {quoted_list(empty)}; leave out columns without values.")
        means = np.nansum(values / np.sum(~np.isnan(values), axis=0), axis=0)  # a sum first could overflow
        return replace(encoder, means=tuple(float(m) for m in means))

    @property
    def inputs(self) -> list[str]:
        """Return the names of the model inputs."""
        return [name for column in self.columns for name in column.inputs]

    @property
    def time_inputs(self) -> list[int]:
        """Return the positions of the inputs that are the trend of a date or time."""
        return [self.inputs.index(column.inputs[0]) for column in self.columns if column.kind == "time"]

    def encode(self, frame: pl.DataFrame) -> np.ndarray:
        """Return the inputs (N, D) of a frame's rows; rows to be dropped are NaN throughout."""
        if absent := [column.name for column in self.columns if column.name not in frame.columns]:
            raise TableError(f"the model needs columns that the table does not have: {quoted_list(absent)}.")
        values = self._values(frame)
        for name, value in zip(self.inputs, values.T, strict=True):
            if len(bad := np.flatnonzero(np.isinf(value))):
                raise CellError(f"column {name!r} has an infinite value in", bad[0], ".")
        if self.missing == "error" and np.isnan(values).any():
            counts = {c.name: np.isnan(c.encode(frame[c.name])).any(axis=1).sum() for c in self.columns}
            raise TableError(missing_values_message(counts))
        return filled(values, self.missing, self.means)

    @property
    def categories(self) -> list[str]:
        """Return the names of the columns of categories."""
        return [column.name for column in self.columns if column.kind == "category"]

    def known_points(self) -> list[tuple[slice, np.ndarray]]:
        """Return for each column of categories where its inputs are, and the known points (points, inputs) there."""
        found, first = [], 0
        for column in self.columns:
            where = slice(first, first + len(column.inputs))
            if column.kind == "category":
                found.append((where, column.encode(pl.Series(column.name, column.levels, pl.String))))
            first = where.stop
        return found

    def unseen(self, frame: pl.DataFrame) -> np.ndarray:
        """Return which rows of a frame have a category that no training row has, for each such column: (N, columns)."""
        flags = [column.unseen(frame[column.name]) for column in self.columns if column.kind == "category"]
        return np.array(flags, bool).reshape(len(flags), len(frame)).T

    def other(self, name: str) -> Column | None:
        """Return how the target or the exposure of this name was read at training; older files do not know."""
        return next((column for column in self.others if column.name == name), None)

    def with_parsed_numbers(self, frame: pl.DataFrame, exposure: str | None = None) -> pl.DataFrame:
        """Return the frame with the text of numeric inputs, and of the exposure, parsed as numbers."""
        read = (*self.columns, *(column for column in self.others if column.name == exposure))
        texts = [column for column in read if column.kind == "number" and frame[column.name].dtype == pl.String]
        parsed = {column.name: column.encode(frame[column.name])[:, 0] for column in texts}
        return frame.with_columns([pl.Series(name, values, nan_to_null=True) for name, values in parsed.items()])

    def _values(self, frame: pl.DataFrame) -> np.ndarray:
        return np.column_stack([column.encode(frame[column.name]) for column in self.columns])

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """Return the encoder that `dataclasses.asdict` took apart, with tuples for lists."""
        old = {"zone": "UTC"}  # in which files without this field have their times
        columns = {
            name: tuple(Column(**(old if each["kind"] == "time" else {}) | each) for each in fields.get(name, ()))
            for name in ("columns", "others")
        }
        encoder = cls(**{**fields, **columns})
        if len(encoder.means) not in (0, len(encoder.inputs)) or not all(isinstance(m, float) for m in encoder.means):
            raise TableError(f"the means of the inputs are not {len(encoder.inputs)} numbers.")
        return encoder


def as_frame(X: Any) -> pl.DataFrame:
    """Return a pandas or polars frame as a polars frame."""
    if isinstance(X, pl.DataFrame):
        return X
    return pl.DataFrame({str(name): _as_series(str(name), np.asarray(X[name])) for name in X.columns})


def _as_series(name: str, values: np.ndarray) -> pl.Series:
    if values.dtype.kind != "O":
        return pl.Series(name, values)
    cells = [None if is_missing(v) else v for v in values]
    try:
        return pl.Series(name, cells)
    except (TypeError, pl.exceptions.PolarsError):
        return pl.Series(name, [None if v is None else str(v) for v in cells], dtype=pl.String)
