"""Parse dates and times as people write them: a column has one format, found from its cells or given by the user."""

import re

import numpy as np
import polars as pl

from overtone.tables.errors import CellError, TableError

# A year of two digits comes first, since %Y takes 12 for the year 12.
DATE_FORMATS = ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%y", "%d.%m.%Y", "%d/%m/%y", "%m/%d/%y", "%d/%m/%Y", "%m/%d/%Y")
DATE_FORMATS += ("%d-%m-%Y", "%m-%d-%Y", "%Y%m%d", "%Y-%m", "%Y/%m", "%b %d, %Y", "%B %d, %Y", "%d-%b-%y", "%d-%b-%Y")
DATE_FORMATS += ("%d %b %Y", "%d %B %Y", "%b %Y", "%B %Y", "%b-%y")
OFFSET = r"\s*(Z|UTC|[+-]\d\d:?\d\d)$"  # what %z stands for
CLOCK = rf"([T ]+)\d{{1,2}}:\d\d(:\d\d)?([.]\d+)?(\s*)([AaPp][Mm])?({OFFSET})?$"
EPOCHS = {"epoch seconds": 1e6, "epoch milliseconds": 1e3}  # formats of numbers, in microseconds
EPOCH_RANGE = (631_152_000, 4_102_444_800)  # seconds, of the years 1990 to 2100
DATE_NAME = r"(?i)date|time|epoch|unix|stamp|(^|_)(ts|dt|at|when|day)$"
MIN_DAY_NUMBERS = 5  # distinct numbers such as 19580329, each of which is a date by chance in one of 27 cases
MIN_YEAR = 1000
NUM_SAMPLED_DATES = 200  # distinct values that each format is tried on
MIN_DATE_SHARE = 0.5  # of the distinct values, above which those that do not parse are an error rather than words


def infer_date_format(words: pl.Series) -> str:
    """Return the format that all words follow, or "" if most of them are not dates."""
    distinct = words.drop_nulls().unique(maintain_order=True)
    sample = distinct.head(NUM_SAMPLED_DATES)
    if not (formats := _likely_formats(sample.to_list())):
        return ""
    best = min(formats, key=lambda date_format: parse_dates(sample, date_format).null_count())
    num_unread = parse_dates(distinct, best).null_count()
    if num_unread >= (1 - MIN_DATE_SHARE) * distinct.len():
        return ""
    if num_unread:
        row = int((parse_dates(words, best).is_null() & words.is_not_null()).arg_true()[0])
        before = f"column {words.name!r} has dates in different formats: most look like {best}, but"
        raise CellError(before, row, f" has {words[row]!r}.")
    swapped = re.sub("%d([/-])%m", r"%m\1%d", best)
    if swapped != best and not parse_dates(distinct, swapped).null_count():
        raise TableError(
            f"column {words.name!r} has dates such as {distinct[0]!r}, in which day and month cannot be told apart; "
            f"write them as 2024-12-31, or say --date-format {best} or {swapped}."
        )
    return best


def _likely_formats(words: list[str]) -> list[str]:
    """Return the formats of dates with such a time of day as the most usual words have, if these have digits."""
    shapes = [re.sub("[A-Za-z]+", "a", re.sub(r"\d+", "9", word)) for word in words]
    usual = words[shapes.index(max(shapes, key=shapes.count))] if words else ""
    if not re.search(r"\d", usual):
        return []
    if not (clock := re.search(CLOCK, usual)):
        return list(DATE_FORMATS)
    mark, seconds, _, space, half, offset, _ = clock.groups()
    hours = mark + ("%I:%M" if half else "%H:%M") + (":%S" if seconds else "")
    end = (f"{space}%p" if half else "") + ("%z" if offset else "")
    return [date + hours + fraction + end for date in DATE_FORMATS for fraction in ("", "%.f")[: 2 if seconds else 1]]


def infer_number_format(name: str, words: pl.Series) -> str:
    """Return the date format of a column of whole numbers, or "" unless it is plain that they are dates.

    Days such as 19580329 are: all cells are dates, and there are several of them or the column's name says so. Seconds
    or milliseconds since 1970 are: the name says so, and all cells are in the years 1990 to 2100.
    """
    distinct = words.drop_nulls().unique()
    named = re.search(DATE_NAME, name) is not None
    if distinct.len() >= (1 if named else MIN_DAY_NUMBERS) and distinct.str.contains(r"^(18|19|20)\d{6}$").all():
        return "" if parse_dates(distinct, "%Y%m%d").null_count() else "%Y%m%d"
    low, high = EPOCH_RANGE
    for date_format, unit in EPOCHS.items() if named and distinct.len() else ():
        seconds = distinct.cast(pl.Float64, strict=False) * (unit / 1e6)
        if seconds.is_between(low, high).fill_null(False).all():
            return date_format
    return ""


def parse_dates(words: pl.Series, date_format: str) -> pl.Series:
    """Return words as datetimes of the clock that they show, with null where a word does not follow the format."""
    if date_format in EPOCHS:
        microseconds = words.cast(pl.Float64, strict=False) * EPOCHS[date_format]
        return microseconds.cast(pl.Int64, strict=False).cast(pl.Datetime("us"))
    if date_format.startswith("%Y%m%d"):
        words = words.set(~words.str.contains(r"^\d{8}"), None)
    if date_format.endswith("%z"):
        words = words.set(~words.str.contains(OFFSET), None).str.replace(OFFSET, "")
    if "%d" not in date_format and "%j" not in date_format:  # the first day of a month, or of a year
        words, date_format = words + " 1", date_format.removesuffix("%z") + " %d"
        if not re.search("%[mbB]", date_format):
            words, date_format = words + " 1", date_format + " %m"
    dates = words.str.to_datetime(date_format.removesuffix("%z"), strict=False, time_unit="us")
    return dates.set(dates.dt.year() < MIN_YEAR, None)


def parse_offsets(words: pl.Series) -> pl.Series:
    """Return the offsets from UTC at the end of words, as durations."""
    offset = words.str.extract(OFFSET).str.replace("Z|UTC", "+00:00").str.replace(":", "")
    sign = pl.Series(np.where(offset.str.starts_with("-").fill_null(False), -1, 1))
    minutes = offset.str.slice(1, 2).cast(pl.Int64) * 60 + offset.str.slice(3, 2).cast(pl.Int64)
    return (sign * minutes * 60_000_000).cast(pl.Duration("us"))
