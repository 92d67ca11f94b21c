"""Parse dates and times, and take from them what repeats: the time of day, the day of the week and of the year.

The day of the year is a point on a circle, of which 31 December and 1 January are neighbours.
"""

from collections.abc import Callable

import numpy as np
import polars as pl

from overtone.tables.read import TableError

DATE_FORMATS = ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y%m%d")
TIME_FORMATS = ("", " %H:%M", " %H:%M:%S", "T%H:%M", "T%H:%M:%S", " %H:%M:%S%.f", "T%H:%M:%S%.f", "T%H:%M:%S%.fZ")
NUM_SAMPLED_DATES = 200  # distinct values that each format is tried on
MIN_DATE_SHARE = 0.5  # of the distinct values, above which those that do not parse are an error rather than words
MICROSECONDS_PER_DAY = 86_400e6
DAYS_OF_YEAR = 365.2425  # on average
CALENDAR_PARTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {  # of days since 1970-01-01, a Thursday
    "time of day": lambda days: days % 1,
    "day of week": lambda days: np.floor(days + 3) % 7,
    "day of year": lambda days: _day_of_year(days),  # of older files
    "day of year, cosine": lambda days: np.cos(_angle_of_year(days)),
    "day of year, sine": lambda days: np.sin(_angle_of_year(days)),
}
CYCLES = {"time of day": 1, "day of week": 7, "day of year, cosine": 365, "day of year, sine": 365}  # in days
EVEN_STEPS = 0.5  # of the median step, which even steps reach but for 5 % of them; some rows may be missing


def infer_date_format(words: pl.Series) -> str:
    """Return the format that all words follow, or "" if most of them are not dates."""
    distinct = words.unique(maintain_order=True)
    sample = distinct.head(NUM_SAMPLED_DATES)
    formats = [date + time for date in DATE_FORMATS for time in TIME_FORMATS]
    best = min(formats, key=lambda date_format: parse_dates(sample, date_format).null_count())
    unparsed = distinct.filter(parse_dates(distinct, best).is_null())
    if unparsed.len() >= (1 - MIN_DATE_SHARE) * distinct.len():
        return ""
    if unparsed.len():
        odd = f"most look like {best}, but not {unparsed[0]!r}"
        raise TableError(f"column {words.name!r} has dates in different formats: {odd}.")
    if "%d/%m/" in best and not parse_dates(distinct, best.replace("%d/%m/", "%m/%d/")).null_count():
        raise TableError(
            f"column {words.name!r} has dates such as {distinct[0]!r}, in which day and month cannot be told apart; "
            f"write them as 2024-12-31."
        )
    return best


def parse_dates(words: pl.Series, date_format: str) -> pl.Series:
    """Return words as datetimes, with null where a word does not follow the format."""
    return words.str.to_datetime(date_format, strict=False, time_unit="us")


def days_since_1970(dates: pl.Series) -> np.ndarray:
    """Return dates or datetimes as fractional days since 1970-01-01, with NaN for null."""
    return dates.cast(pl.Datetime("us")).dt.epoch("us").cast(pl.Float64).to_numpy() / MICROSECONDS_PER_DAY


def varying_parts(days: np.ndarray) -> tuple[str, ...]:
    """Return the calendar parts in which the rows differ, and which repeat at least once over the range of dates.

    Even steps of a whole cycle or more tell nothing about it: monthly rows fall on any day of the week.
    """
    days = np.unique(days[np.isfinite(days)])
    if len(days) < 3:
        return ()
    short, usual = np.quantile(np.diff(days), [0.05, 0.5])
    step = usual if short >= EVEN_STEPS * usual else 0.0
    told = [name for name, cycle in CYCLES.items() if step < cycle <= (days[-1] - days[0]) / 2]
    return tuple(name for name in told if np.ptp(CALENDAR_PARTS[name](days)) > 0)


def _day_of_year(days: np.ndarray) -> np.ndarray:
    whole = np.where(np.isfinite(days), np.floor(days), 0).astype("datetime64[D]")
    return np.where(np.isfinite(days), (whole - whole.astype("datetime64[Y]")).astype(float) + days % 1, np.nan)


def _angle_of_year(days: np.ndarray) -> np.ndarray:
    return 2 * np.pi * _day_of_year(days) / DAYS_OF_YEAR
