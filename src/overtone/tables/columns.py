"""Infer the meaning of one column of a table and turn its cells into numbers."""

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from overtone.tables.dates import CALENDAR_PARTS, days_since_1970, infer_date_format, parse_dates, varying_parts
from overtone.tables.read import TableError

MAX_CATEGORIES = 50
MISSING_WORDS = ("", "na", "n/a", "nan", "null", "?")
MISSING_NUMBERS = (*MISSING_WORDS, "none")  # among categories, "none" may well be one of them
BOOLEAN_WORDS = ({"true": True, "false": False}, {"yes": True, "no": False})


@dataclass(frozen=True)
class Column:
    """Describe the meaning of one column.

    kind: "number", "boolean", "time" or "category".
    levels: the values of a category, each of which becomes an input of zeros and ones.
    parts: the calendar parts of a time that are inputs besides its trend.
    format: the date format of a time that is stored as text.
    """

    name: str
    kind: str
    levels: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    format: str = ""

    @property
    def inputs(self) -> list[str]:
        """Return the names of the model inputs that the column provides."""
        if self.kind == "time":
            return [f"{self.name}: {part}" for part in ("trend", *self.parts)]
        return [f"{self.name}={level}" for level in self.levels] if self.kind == "category" else [self.name]

    def encode(self, series: pl.Series) -> np.ndarray:
        """Return the inputs (N, number of inputs) of the cells of a series, with NaN for missing values."""
        if self.kind == "category":
            words = clean_words(series, MISSING_WORDS)
            return np.column_stack([(words == level).cast(pl.Float64).to_numpy() for level in self.levels])
        is_date, is_time = series.dtype in (pl.Date, pl.Datetime), self.kind == "time"
        if is_date != is_time or not (is_date or series.dtype.is_numeric() or series.dtype == pl.Boolean):
            series = self._parsed(clean_words(series))
        if is_time:
            days = days_since_1970(series)
            return np.column_stack([days, *(CALENDAR_PARTS[part](days) for part in self.parts)])
        return series.cast(pl.Float64).to_numpy()[:, None]

    def _parsed(self, words: pl.Series) -> pl.Series:
        """Return words as numbers or dates, or raise a TableError if one of them is something else."""
        parsed, expected = words.cast(pl.Float64, strict=False), "numbers"
        if self.kind == "boolean":
            lower, values = words.str.to_lowercase(), BOOLEAN_WORDS[0] | BOOLEAN_WORDS[1]
            parsed, expected = lower.replace_strict(values, default=None, return_dtype=pl.Float64), "yes or no"
        if self.kind == "time":
            date_format = self.format or "%Y-%m-%d"
            parsed, expected = parse_dates(words, date_format), f"dates like {date_format}"
        if len(bad := (parsed.is_null() & words.is_not_null()).arg_true()):
            raise TableError(f"column {words.name!r} holds {expected}, but row {bad[0] + 1} has {words[bad[0]]!r}.")
        return parsed


def infer_column(series: pl.Series, calendar: bool) -> Column:
    """Return the meaning of a series; without `calendar`, a time provides its trend alone."""
    kind, date_format = infer_kind(series)
    if kind == "category":
        levels = clean_words(series, MISSING_WORDS).unique().drop_nulls().sort().to_list()
        if len(levels) > MAX_CATEGORIES:
            row = int((parse_numbers(series).is_null() & clean_words(series).is_not_null()).arg_true()[0])
            raise TableError(
                f"column {series.name!r} is text with {len(levels)} different values, but a category may have at most "
                f"{MAX_CATEGORIES}; leave it out or encode it as numbers (row {row + 1} has {series[row]!r})."
            )
        return Column(series.name, kind, levels=tuple(levels))
    column = Column(series.name, kind, format=date_format)
    return replace(column, parts=varying_parts(column.encode(series))) if kind == "time" and calendar else column


def infer_kind(series: pl.Series) -> tuple[str, str]:
    """Return the kind of a series and, for a time that is stored as text, its date format."""
    if series.dtype.is_numeric():
        return "number", ""
    if series.dtype == pl.Boolean:
        return "boolean", ""
    if series.dtype in (pl.Date, pl.Datetime):
        return "time", ""
    if series.dtype not in (pl.String, pl.Categorical, pl.Enum, pl.Null):
        raise TableError(f"column {series.name!r} holds {series.dtype}; only numbers, dates and text can be used.")
    words = clean_words(series).drop_nulls()
    if parse_numbers(series).drop_nulls().len() == words.len():
        return "number", ""
    if any(words.str.to_lowercase().is_in(list(values)).all() for values in BOOLEAN_WORDS):
        return "boolean", ""
    date_format = infer_date_format(words)
    return ("time" if date_format else "category"), date_format


def clean_words(series: pl.Series, missing: tuple[str, ...] = MISSING_NUMBERS) -> pl.Series:
    """Return a series as stripped text, with null for words that stand for a missing value."""
    words = series.cast(pl.String).str.strip_chars()
    return words.set(words.str.to_lowercase().is_in(missing), None)


def parse_numbers(series: pl.Series) -> pl.Series:
    """Return a series as floats, with null for missing values and for text that is not a number."""
    return clean_words(series).cast(pl.Float64, strict=False)
