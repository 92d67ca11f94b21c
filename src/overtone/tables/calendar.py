"""Take from dates what goes on and what repeats: a trend, the time of day, the day of the week and of the year.

The day of the year is a point on a circle, of which 31 December and 1 January are neighbours. Where a zone or an offset
is known, what repeats is local time, as clocks show it, and the trend is that of UTC.
"""

from collections.abc import Callable

import numpy as np
import polars as pl

from overtone.tables.dates import parse_offsets

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


def utc_and_local_days(dates: pl.Series, zone: str, offsets: bool, words: pl.Series | None = None) -> list[np.ndarray]:
    """Return days since 1970-01-01 in UTC, and those that local clocks show; the same where no zone is known.

    zone: the zone of the column, to which dates with another one are converted, and in which those without one are.
    offsets: whether the column has offsets instead, and its clocks are those that are written. Where `dates` were
        parsed from `words`, these end in the offsets.
    """
    utc = local = dates.cast(pl.Datetime("us", getattr(dates.dtype, "time_zone", None)))
    if words is not None:
        utc = local - parse_offsets(words)
        if zone:
            utc = utc.dt.replace_time_zone("UTC")
    if getattr(utc.dtype, "time_zone", None):
        utc = utc.dt.convert_time_zone(zone) if zone else utc
        local = utc.dt.replace_time_zone(None)
        utc = utc if zone or offsets else local
    elif zone:
        utc = local.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
    return [series.dt.epoch("us").cast(pl.Float64).to_numpy() / MICROSECONDS_PER_DAY for series in (utc, local)]


def is_zone(name: str) -> bool:
    """Return whether this is the name of a time zone, or empty."""
    try:
        pl.Series([], dtype=pl.Datetime("us", name or None))
    except pl.exceptions.PolarsError:
        return False
    return True


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
