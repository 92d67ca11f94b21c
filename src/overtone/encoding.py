"""Columns of a table -> the numbers that a model sees.

What each column means is decided once, from the training rows, and kept with the model: numbers; yes or no; dates and
times, which become a trend and, where the rows tell them apart, the time of day, the day of the week and the day of the
year; a few words, each of which becomes a column of zeros and ones. Later tables are matched by name, in any order.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
import polars as pl

from overtone.gaps import is_nothing, refusal, settled
from overtone.tables import TableError, some

MOST_CATEGORIES = 50
CLASSES = ("bernoulli", "softmax")
NOTHING = ("", "na", "n/a", "nan", "null", "?")  # text that stands for a missing value
NO_NUMBER = (*NOTHING, "none")  # but among words, "none" may well mean something
TRUTH = ({"true": True, "false": False}, {"yes": True, "no": False})
DATE_FORMATS = ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y%m%d")
TIME_FORMATS = ("", " %H:%M", " %H:%M:%S", "T%H:%M", "T%H:%M:%S", " %H:%M:%S%.f", "T%H:%M:%S%.f", "T%H:%M:%S%.fZ")
LOOKED_AT = 200  # different values, to find the format of dates
MOSTLY = 0.5  # share of a column that must look like dates for the rest to be called an error
DAY = 86_400.0  # seconds
PARTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {  # of days since 1970-01-01, a Thursday
    "time of day": lambda days: days % 1,
    "day of week": lambda days: np.floor(days + 3) % 7,
    "day of year": lambda days: _day_of_year(days),
}


@dataclass(frozen=True)
class Column:
    """What one column of the table means. kind: "number", "boolean", "time" or "category"."""

    name: str
    kind: str
    levels: tuple[str, ...] = ()  # of a category
    parts: tuple[str, ...] = ()  # of a time, besides its trend
    format: str = ""  # of a time that is written as text

    @property
    def inputs(self) -> list[str]:
        """The names of the model's inputs that come from it."""
        if self.kind == "time":
            return [f"{self.name}: {part}" for part in ("trend", *self.parts)]
        return [f"{self.name}={level}" for level in self.levels] if self.kind == "category" else [self.name]


@dataclass(frozen=True)
class Encoder:
    """The columns that a model takes, and what it does about missing values.

    missing: "error"; "drop" leaves such rows out; "mean" puts the mean of the training rows there, for each input.
    """

    columns: tuple[Column, ...]
    missing: str = "error"
    means: tuple[float, ...] = ()

    @classmethod
    def fit(cls, frame: pl.DataFrame, *, missing: str = "error", calendar: bool = True) -> Self:
        """Decide what the columns of a frame mean; without `calendar`, times become a trend alone."""
        found = [_column(series, calendar) for series in frame]
        encoder = cls(tuple(found), missing)
        values = encoder._values(frame)
        empty = [name for name, v in zip(encoder.inputs, values.T, strict=True) if np.all(np.isnan(v))]
        if empty:
            raise TableError(f"there is no value at all in {some(empty)}; leave such columns out.")
        return replace(encoder, means=tuple(float(m) for m in np.nanmean(values, axis=0)))

    @property
    def inputs(self) -> list[str]:
        return [name for column in self.columns for name in column.inputs]

    def encode(self, frame: pl.DataFrame) -> np.ndarray:
        """The inputs (N, D) of a frame's rows; a row that is to be dropped is NaN throughout."""
        absent = [column.name for column in self.columns if column.name not in frame.columns]
        if absent:
            raise TableError(f"the model needs columns that the table does not have: {some(absent)}.")
        values = self._values(frame)
        for name, value in zip(self.inputs, values.T, strict=True):
            if len(bad := np.flatnonzero(np.isinf(value))):
                raise TableError(f"column {name!r} has an infinite value in row {bad[0] + 1}.")
        if self.missing == "error" and np.isnan(values).any():
            raise TableError(
                refusal({c.name: np.isnan(_encoded(c, frame[c.name])).any(axis=1).sum() for c in self.columns})
            )
        return settled(values, self.missing, self.means)

    def typed(self, frame: pl.DataFrame, *others: str) -> pl.DataFrame:
        """The frame with those of the model's columns, and others, as numbers that are numbers written as text."""
        numbers = [*(c.name for c in self.columns if c.kind == "number"), *others]
        text = [name for name in numbers if frame[name].dtype == pl.String]
        return frame.with_columns([_numbers(frame[name]) for name in text])

    def _values(self, frame: pl.DataFrame) -> np.ndarray:
        return np.column_stack([_encoded(column, frame[column.name]) for column in self.columns])

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, about: dict[str, Any]) -> Self:
        columns = [{**c, "levels": tuple(c["levels"]), "parts": tuple(c["parts"])} for c in about["columns"]]
        return cls(tuple(Column(**c) for c in columns), about["missing"], tuple(about["means"]))


def _column(series: pl.Series, calendar: bool) -> Column:
    kind, form = _kind(series)
    if kind == "category":
        levels = _words(series, NOTHING).unique().drop_nulls().sort().to_list()
        if len(levels) > MOST_CATEGORIES:
            numbers = _numbers(series)
            at = int((numbers.is_null() & _words(series).is_not_null()).arg_true()[0])
            raise TableError(
                f"column {series.name!r} is text with {len(levels)} different values, more than the {MOST_CATEGORIES} "
                f"that can be told apart; leave it out, or encode it as numbers (row {at + 1} has {series[at]!r})."
            )
        return Column(series.name, kind, levels=tuple(levels))
    if kind == "time" and calendar:
        return Column(series.name, kind, parts=_calendar(_days(series, form)), format=form)
    return Column(series.name, kind, format=form)


def _kind(series: pl.Series) -> tuple[str, str]:
    """Of a column of a file or frame, and the format of its dates."""
    if series.dtype.is_numeric():
        return "number", ""
    if series.dtype == pl.Boolean:
        return "boolean", ""
    if series.dtype in (pl.Date, pl.Datetime):
        return "time", ""
    if series.dtype not in (pl.String, pl.Categorical, pl.Enum, pl.Null):
        raise TableError(f"column {series.name!r} holds {series.dtype}; only numbers, dates and text can be used.")
    words = _words(series).drop_nulls()
    if _numbers(series).drop_nulls().len() == words.len():
        return "number", ""
    if any(words.str.to_lowercase().is_in(list(truth)).all() for truth in TRUTH):
        return "boolean", ""
    form = _date_format(words)
    return ("time", form) if form else ("category", "")


def _words(series: pl.Series, nothing: tuple[str, ...] = NO_NUMBER) -> pl.Series:
    """Text without what stands for nothing."""
    words = series.cast(pl.String).str.strip_chars()
    return words.set(words.str.to_lowercase().is_in(nothing), None)


def _numbers(series: pl.Series) -> pl.Series:
    return _words(series).cast(pl.Float64, strict=False)


def _date_format(words: pl.Series) -> str:
    """The format that all words follow; none if most are no dates at all."""
    distinct = words.unique(maintain_order=True)
    some_words = distinct.head(LOOKED_AT)
    formats = [date + time for date in DATE_FORMATS for time in TIME_FORMATS]
    best = max(formats, key=lambda form: some_words.len() - _parsed(some_words, form).null_count())
    odd = distinct.filter(_parsed(distinct, best).is_null())
    if odd.len() >= (1 - MOSTLY) * distinct.len():
        return ""
    if odd.len():
        raise TableError(
            f"column {words.name!r} has dates in different formats: most are like {best}, but not {odd[0]!r}."
        )
    if "%d/%m/" in best and not _parsed(distinct, best.replace("%d/%m/", "%m/%d/")).null_count():
        raise TableError(
            f"column {words.name!r} has dates such as {distinct[0]!r}, where day and month cannot be told apart; "
            f"write them as 2024-12-31."
        )
    return best


def _parsed(words: pl.Series, form: str) -> pl.Series:
    return words.str.to_datetime(form, strict=False, time_unit="us")


def _days(series: pl.Series, form: str) -> np.ndarray:
    """Days since 1970 as floats."""
    if series.dtype not in (pl.Date, pl.Datetime):
        words = _words(series)
        series = _parsed(words, form or f"{DATE_FORMATS[0]}{TIME_FORMATS[0]}")
        _refuse(words, series, f"dates like {form}")
    return series.cast(pl.Datetime("us")).dt.epoch("us").cast(pl.Float64).to_numpy() / (1e6 * DAY)


def _refuse(words: pl.Series, parsed: pl.Series, what: str) -> None:
    """An error if a value is there and could not be parsed."""
    if len(bad := (parsed.is_null() & words.is_not_null()).arg_true()):
        raise TableError(f"column {words.name!r} is one of {what}, but row {bad[0] + 1} has {words[bad[0]]!r}.")


def _calendar(days: np.ndarray) -> tuple[str, ...]:
    """Which parts of a time do the rows tell apart, and repeat?"""
    days = np.unique(days[np.isfinite(days)])
    if len(days) < 3:
        return ()
    span, times = days[-1] - days[0], np.unique(days % 1)
    kept = {
        "time of day": len(times) > 1 and span >= 2,
        "day of week": len(np.unique(PARTS["day of week"](days))) > 1 and span >= 14,
        "day of year": span >= 2 * 365,
    }
    return tuple(name for name, keep in kept.items() if keep)


def _day_of_year(days: np.ndarray) -> np.ndarray:
    whole = np.where(np.isfinite(days), np.floor(days), 0).astype("datetime64[D]")
    return np.where(np.isfinite(days), (whole - whole.astype("datetime64[Y]")).astype(float) + days % 1, np.nan)


def _encoded(column: Column, series: pl.Series) -> np.ndarray:
    """The inputs (N, ...) of one column; NaN where the value is missing."""
    if column.kind == "time":
        days = _days(series, column.format)
        return np.column_stack([days, *(PARTS[part](days) for part in column.parts)])
    if column.kind == "category":
        words = _words(series, NOTHING)
        found = np.column_stack([(words == level).to_numpy() for level in column.levels]).astype(float)
        return np.where(words.is_null().to_numpy()[:, None], np.nan, found)
    if column.kind == "boolean" and not series.dtype.is_numeric() and series.dtype != pl.Boolean:
        words = _words(series).str.to_lowercase()
        series = words.replace_strict(TRUTH[0] | TRUTH[1], default=None, return_dtype=pl.Float64)
        _refuse(words, series, "yes or no")
    elif column.kind == "number" and not series.dtype.is_numeric() and series.dtype != pl.Boolean:
        words, series = _words(series), _numbers(series)
        _refuse(words, series, "numbers")
    return series.cast(pl.Float64).to_numpy()[:, None]


def is_label(series: pl.Series, likelihood: str) -> bool:
    """Does a target hold classes? By the likelihood, or by itself."""
    kind = _kind(series)[0] if series.null_count() < series.len() else "number"
    if likelihood in CLASSES:
        return True
    if likelihood == "auto":
        return kind in ("category", "boolean")
    if kind not in ("number", "boolean"):
        raise TableError(
            f"the target {series.name!r} is a {kind}, and likelihood {likelihood!r} is for numbers; leave it to 'auto'."
        )
    return False


def labels_of(series: pl.Series) -> np.ndarray:
    """The classes to predict, as words; None where they are missing."""
    column = _column(series, calendar=False) if series.dtype == pl.String else None
    if column and column.kind == "time":
        raise TableError(f"the target {series.name!r} is a time, and only numbers and classes can be predicted.")
    words = _words(series, NOTHING)
    labels = (words.str.to_lowercase() if _kind(series)[0] == "boolean" else words).to_numpy()
    if all(label is None for label in labels):
        raise TableError(f"the target {series.name!r} has no value at all.")
    return labels


def same_label(label: Any) -> str:
    """One way to write a class that has several: yes and Yes, 1 and 1.0."""
    word = str(label).strip()
    if word.lower() in ("true", "false", "yes", "no"):
        return word.lower()
    try:
        number = float(word)
    except ValueError:
        return word
    return str(int(number)) if number.is_integer() else str(number)


def numbers_of(series: pl.Series) -> np.ndarray:
    """A column of numbers; NaN where they are missing."""
    return _encoded(Column(series.name, "number"), series)[:, 0]


def target_of(series: pl.Series) -> np.ndarray:
    """The numbers to predict; NaN where they are missing."""
    kind = _column(series, calendar=False).kind
    if kind not in ("number", "boolean"):
        raise TableError(f"the target {series.name!r} is a {kind}, and only numbers and classes can be predicted.")
    values = _encoded(Column(series.name, kind), series)[:, 0]
    if len(bad := np.flatnonzero(np.isinf(values))):
        raise TableError(f"the target {series.name!r} has an infinite value in row {bad[0] + 1}.")
    if np.all(np.isnan(values)):
        raise TableError(f"the target {series.name!r} has no value at all.")
    return values


def as_frame(X: Any) -> pl.DataFrame | None:
    """A polars frame of a pandas or polars one; None for anything else."""
    if isinstance(X, pl.DataFrame):
        return X
    if not (hasattr(X, "columns") and hasattr(X, "__getitem__")):
        return None
    return pl.DataFrame({str(name): _series(str(name), np.asarray(X[name])) for name in X.columns})


def _series(name: str, values: np.ndarray) -> pl.Series:
    if values.dtype.kind != "O":
        return pl.Series(name, values)
    plain: Sequence[Any] = [None if is_nothing(v) else v for v in values]
    try:
        return pl.Series(name, plain)
    except (TypeError, pl.exceptions.PolarsError):
        return pl.Series(name, [None if v is None else str(v) for v in plain], dtype=pl.String)
