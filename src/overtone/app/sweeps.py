"""Vary one thing in a typical row: a number, a category or a part of a date, on an axis that people can read.

One column of a table may be several inputs of a model, which vary together: a category is an input of zeros and ones
for each level, and a date is a trend and parts of the calendar.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from overtone.tables.calendar import CALENDAR_PARTS, CYCLES, MICROSECONDS_PER_DAY
from overtone.tables.columns import Column
from overtone.tables.errors import quoted_list

GRID_POINTS, SERIES_POINTS = 200, 600
MAX_LEVELS = 12  # of a category, and distinct values of a number, up to which those are shown rather than a grid
WEEK = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True)
class Sweep:
    """Hold inputs (n, D) in which one thing varies, and its values (n,) on an axis.

    column, name: the column of the table, and what of it varies. inputs: the positions of the inputs that vary.
    axis: "number", "date" (days since 1970), "hours", "year" (days of one) or "levels", which have `labels`.
    """

    column: str
    name: str
    inputs: tuple[int, ...]
    rows: np.ndarray
    values: np.ndarray
    axis: str = "number"
    labels: tuple[str, ...] = ()


def table_columns(model: Any) -> list[tuple[Column, list[int]]]:
    """Return the columns of the table that a model takes, each with the positions of its inputs."""
    columns = model.encoder_.columns if model.encoder_ else [Column(name, "number") for name in model.input_names]
    ends = np.cumsum([len(column.inputs) for column in columns]).tolist()
    return [(column, list(range(end - len(column.inputs), end))) for column, end in zip(columns, ends, strict=True)]


def trend_column(model: Any) -> tuple[Column, list[int]] | None:
    """Return the first date or else, if all others are categories, the one number: along it, rows are a series."""
    columns = [pair for pair in table_columns(model) if pair[0].kind != "category"]
    dates = [pair for pair in columns if pair[0].kind == "time"]
    return dates[0] if dates else columns[0] if len(columns) == 1 and columns[0][0].kind == "number" else None


def level_names(column: Column, values: np.ndarray) -> np.ndarray:
    """Return the words (N,) that the inputs of a category stand for, or "another" if training did not see them."""
    points = column.encode(pl.Series(column.name, column.levels, dtype=pl.String))
    names = {point.tobytes(): level for point, level in zip(points, column.levels, strict=True)}
    return np.array([names.get(point.tobytes(), "another") for point in np.ascontiguousarray(values)], object)


def trained_range(model: Any) -> np.ndarray:
    """Return the smallest and the largest value (2, D) of each input in training."""
    return model.x_scaling_.shift + model.x_scaling_.scale * model.range_


def sweeps(model: Any, X: np.ndarray) -> list[Sweep]:
    """Return what can be varied: each column of the table, and each part of a date."""
    return [sweep for column, inputs in table_columns(model) for sweep in _of_column(model, X, column, inputs)]


def find_sweep(model: Any, X: np.ndarray, which: int | str) -> Sweep:
    """Return the sweep of an input, by its position or name, or of a column of the table, by its name."""
    found, names = sweeps(model, X), model.input_names
    for sweep in found:
        if which in (sweep.column, sweep.name, *sweep.inputs, *(names[i] for i in sweep.inputs)):
            return sweep
    raise ValueError(f"there is no input {which!r}; the model has {quoted_list([sweep.name for sweep in found], 20)}.")


def rows_between(column: Column, X: np.ndarray) -> np.ndarray:
    """Return inputs of a series at its own rows, which are in order, and between them."""
    if column.format.endswith("%z"):
        return X  # local clocks are known at the rows alone
    x = np.union1d(X[:, 0], np.linspace(X[0, 0], X[-1, 0], SERIES_POINTS))
    if column.kind == "number":
        return x[:, None]
    moments = pl.Series(column.name, np.round(x * MICROSECONDS_PER_DAY).astype(np.int64))
    return column.encode(moments.cast(pl.Datetime("us", "UTC" if column.zone else None)))


def _of_column(model: Any, X: np.ndarray, column: Column, inputs: list[int]) -> list[Sweep]:
    if column.kind == "time":
        return _of_time(model, X, column, inputs)
    if column.kind == "category":
        words, counts = np.unique(level_names(column, X[:, inputs]), return_counts=True)
        labels = tuple(word for word in words[np.argsort(-counts, kind="stable")] if word in column.levels)
        labels = (labels or column.levels)[:MAX_LEVELS]
        points = column.encode(pl.Series(column.name, labels, dtype=pl.String))
        return [_sweep(X, column.name, column.name, inputs, points, axis="levels", labels=labels)]
    if column.kind == "boolean":
        points = np.array([[0.0], [1.0]])
        return [_sweep(X, column.name, column.name, inputs, points, axis="levels", labels=("no", "yes"))]
    points = _grid(X[:, inputs[0]])
    return [_sweep(X, column.name, column.name, inputs, points[:, None], points)]


def _of_time(model: Any, X: np.ndarray, column: Column, inputs: list[int]) -> list[Sweep]:
    low, high = trained_range(model)
    found = []
    for name, i in zip(("trend", *column.parts), inputs, strict=True):
        title = f"{column.name}: {name.split(',')[0]}"
        if name == "trend":
            points = _grid(X[:, i])
            found.append(_sweep(X, column.name, title, [i], points[:, None], points, axis="date"))
        elif name == "time of day":
            points = np.linspace(low[i], high[i], GRID_POINTS)
            found.append(_sweep(X, column.name, title, [i], points[:, None], 24 * points, axis="hours"))
        elif name == "day of week":
            points = np.arange(low[i], high[i] + 0.5)
            labels = tuple(WEEK[int(point)] for point in points)
            found.append(_sweep(X, column.name, title, [i], points[:, None], axis="levels", labels=labels))
        elif not any(sweep.axis == "year" for sweep in found):  # its cosine and sine vary together
            parts = [part for part in column.parts if part.startswith("day of year")]
            days = np.linspace(0, CYCLES["day of year, sine"], GRID_POINTS, endpoint=False)
            points = np.column_stack([CALENDAR_PARTS[part](days) for part in parts])
            positions = [inputs[1 + column.parts.index(part)] for part in parts]
            found.append(_sweep(X, column.name, title, positions, points, days, axis="year"))
    return found


def _sweep(X: np.ndarray, column: str, name: str, inputs: list[int], points: np.ndarray, values=None, **axis) -> Sweep:
    """Return a sweep of a typical row: the one nearest to the means of the inputs, so that it is one that there is."""
    spread = X.std(axis=0) + 1e-300
    typical = X[np.argmin(np.mean(np.abs(X - X.mean(axis=0)) / spread, axis=1))]
    rows = np.repeat(typical[None], len(points), axis=0)
    rows[:, inputs] = points
    return Sweep(column, name, tuple(inputs), rows, np.arange(len(points)) if values is None else values, **axis)


def _grid(values: np.ndarray) -> np.ndarray:
    """Return the distinct values if they are few, and otherwise a grid over their range."""
    distinct = np.unique(values)
    return distinct if len(distinct) <= MAX_LEVELS else np.linspace(distinct[0], distinct[-1], GRID_POINTS)
