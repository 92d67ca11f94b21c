"""Infer the meaning of one column of a table and turn its cells into numbers."""

import hashlib
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from overtone.tables.calendar import CALENDAR_PARTS, is_zone, utc_and_local_days, varying_parts
from overtone.tables.dates import infer_date_format, infer_number_format, parse_dates
from overtone.tables.errors import CellError, TableError
from overtone.tables.numbers import MISSING_WORDS, STYLES, NumberStyle, clean_words, find_style

MAX_CATEGORIES = 50  # with an input of zeros and ones each; more are hashed
MAX_HASHED_CATEGORIES = 20_000
MAX_CATEGORY_SHARE = 0.5  # of the rows: where most rows have a category of their own, it tells nothing about others
NUM_HASHES = 8  # inputs of a hashed category
BOOLEAN_WORDS = ({"true": True, "false": False}, {"yes": True, "no": False})
KINDS = ("number", "boolean", "time", "category")


@dataclass(frozen=True)
class ColumnHints:
    """Hold what a user says about the columns of a table.

    decimal: the sign before decimals. na: more words for missing values. date_format: that of dates, as in
    %d/%m/%Y, or "epoch seconds" or "epoch milliseconds". categorical: the columns whose cells are words, even if they
    look like numbers.
    """

    decimal: str = ""
    na: tuple[str, ...] = ()
    date_format: str = ""
    categorical: tuple[str, ...] = ()

    def __post_init__(self):
        if self.decimal not in ("", ".", ","):
            raise TableError(f"--decimal must be . or a comma; got {self.decimal!r}.")


NO_HINTS = ColumnHints()


@dataclass(frozen=True)
class Column:
    """Describe the meaning of one column.

    kind: "number", "boolean", "time" or "category".
    levels: the values of a category. Up to 50 are an input of zeros and ones each; of more, each is a random point,
        which is always the same.
    parts: the calendar parts of a time that are inputs besides its trend.
    format: the date format of a time that is stored as text or as whole numbers.
    decimal, thousands: the signs in numbers that are stored as text. na: more words for missing values.
    zone: the zone of a time whose clocks are known.
    """

    name: str
    kind: str
    levels: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    format: str = ""
    decimal: str = "."
    thousands: str = ""
    na: tuple[str, ...] = ()
    zone: str = ""

    def __post_init__(self):
        """Check what may come from a file."""
        words = (self.name, self.format, self.zone, *self.levels, *self.parts, *self.na)
        known = self.kind in KINDS and set(self.parts) <= set(CALENDAR_PARTS) and self._style in STYLES
        if not known or not all(isinstance(word, str) for word in words) or not is_zone(self.zone):
            raise TableError(f"the meaning of the column {self.name!r:.50} is not one that a column can have.")

    @property
    def _style(self) -> NumberStyle:
        return NumberStyle(self.decimal, self.thousands)

    @property
    def hashed(self) -> bool:
        """Return whether the column has more categories than are told apart by an input each."""
        return len(self.levels) > MAX_CATEGORIES

    @property
    def inputs(self) -> list[str]:
        """Return the names of the model inputs that the column provides."""
        if self.kind == "time":
            return [f"{self.name}: {part}" for part in ("trend", *self.parts)]
        if self.hashed:
            return [f"{self.name}: hash {i + 1}" for i in range(NUM_HASHES)]
        return [f"{self.name}={level}" for level in self.levels] if self.kind == "category" else [self.name]

    def encode(self, series: pl.Series) -> np.ndarray:
        """Return the inputs (N, number of inputs) of the cells of a series, with NaN for missing values."""
        if self.kind == "time":
            days, local = self.days(series)
            return np.column_stack([days, *(CALENDAR_PARTS[part](local) for part in self.parts)])
        if self.kind == "category":
            words = clean_words(series, MISSING_WORDS, self.na)
            if self.hashed:
                return hashed_points(words)
            return np.column_stack([(words == level).cast(pl.Float64).to_numpy() for level in self.levels])
        if not (series.dtype.is_numeric() or series.dtype == pl.Boolean):
            return self._parsed(clean_words(series, na=self.na)).cast(pl.Float64).to_numpy()[:, None]
        values = series.cast(pl.Float64).to_numpy()
        missing = pl.Series(self.na, dtype=pl.String).cast(pl.Float64, strict=False)
        return np.where(np.isin(values, missing.drop_nulls()), np.nan, values)[:, None]

    def days(self, series: pl.Series) -> list[np.ndarray]:
        """Return the days since 1970 of a time in UTC, and those that its clocks show."""
        if series.dtype in (pl.Date, pl.Datetime):
            return utc_and_local_days(series, self.zone, self.format.endswith("%z"))
        words = clean_words(series, na=self.na)
        column = replace(self, format=self.format or infer_date_format(words) or "%Y-%m-%d")
        offsets = column.format.endswith("%z")
        return utc_and_local_days(column._parsed(words), self.zone, offsets, words if offsets else None)

    def unseen(self, series: pl.Series) -> np.ndarray:
        """Return which cells (N,) hold a category that was not among the training rows."""
        words = clean_words(series, MISSING_WORDS, self.na)
        return np.array(~words.is_in(list(self.levels)).fill_null(True))

    def _parsed(self, words: pl.Series) -> pl.Series:
        """Return words as numbers or dates, or raise a TableError if one of them is something else."""
        if self.kind == "boolean":
            lower, values = words.str.to_lowercase(), BOOLEAN_WORDS[0] | BOOLEAN_WORDS[1]
            parsed, expected = lower.replace_strict(values, default=None, return_dtype=pl.Float64), "yes or no"
        elif self.kind == "time":
            parsed, expected = parse_dates(words, self.format), f"dates like {self.format}"
        else:
            parsed, expected = self._style.parse(words), "numbers"
        if len(bad := (parsed.is_null() & words.is_not_null()).arg_true()):
            raise CellError(f"column {words.name!r} holds {expected}, but", bad[0], f" has {words[bad[0]]!r}.")
        return parsed


def infer_column(series: pl.Series, calendar: bool = True, hints: ColumnHints = NO_HINTS) -> Column:
    """Return the meaning of a series; without `calendar`, a time provides its trend alone."""
    column = infer_kind(series, hints)
    if column.kind == "category":
        words = clean_words(series, MISSING_WORDS, hints.na).drop_nulls()
        levels = words.unique().sort().to_list()
        if len(levels) > MAX_CATEGORIES and len(levels) > min(MAX_HASHED_CATEGORIES, MAX_CATEGORY_SHARE * words.len()):
            raise TableError(
                f"column {series.name!r} is text with {len(levels)} different values in {words.len()} rows, such as "
                f"{words[0]!r}; leave it out (--drop) or encode it as numbers."
            )
        return replace(column, levels=tuple(levels))
    has_parts = column.kind == "time" and calendar
    return replace(column, parts=varying_parts(column.days(series)[1])) if has_parts else column


def infer_kind(series: pl.Series, hints: ColumnHints = NO_HINTS) -> Column:
    """Return the kind of a series, and how its cells are written."""
    dtype, column = series.dtype, Column(series.name, "number", na=hints.na)
    if dtype in (pl.Date, pl.Datetime):
        return replace(column, kind="time", zone=getattr(dtype, "time_zone", None) or "")
    if not (dtype.is_numeric() or dtype in (pl.Boolean, pl.String, pl.Categorical, pl.Enum, pl.Null)):
        raise TableError(f"column {series.name!r} holds {dtype}; only numbers, dates and text can be used.")
    if series.name in hints.categorical or dtype in (pl.Categorical, pl.Enum):
        return replace(column, kind="category")
    if dtype == pl.Boolean:
        return replace(column, kind="boolean")
    if dtype.is_numeric() and not dtype.is_integer():
        return column
    words = clean_words(series, na=hints.na)
    if not (there := words.drop_nulls()).len():
        return column
    if hints.date_format and not parse_dates(there, hints.date_format).null_count():
        return replace(column, kind="time", format=hints.date_format)
    if style := find_style(words, hints.decimal):
        date_format = infer_number_format(series.name, words)
        column = replace(column, kind="time" if date_format else "number", format=date_format)
        return replace(column, decimal=style.decimal, thousands=style.thousands)
    if any(there.str.to_lowercase().is_in(list(values)).all() for values in BOOLEAN_WORDS):
        return replace(column, kind="boolean")
    date_format = infer_date_format(words)
    return replace(column, kind="time" if date_format else "category", format=date_format)


def hashed_points(words: pl.Series) -> np.ndarray:
    """Return for each word a point (N, 8) in the unit cube that depends on nothing else, with NaN for null."""
    distinct, positions = np.unique(words.fill_null("").to_numpy().astype(object), return_inverse=True)
    digests = [hashlib.blake2b(word.encode(), digest_size=2 * NUM_HASHES).digest() for word in distinct]
    points = np.array([np.frombuffer(digest, ">u2") for digest in digests]) / (2**16 - 1)
    return np.where(words.is_null().to_numpy()[:, None], np.nan, points[positions])
