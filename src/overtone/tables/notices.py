"""Say in a line what a column was taken for, and how to change it, so that nothing is misread silently."""

import logging

import numpy as np
import polars as pl

from overtone.autopilot.names import LIKELIHOODS, part
from overtone.tables.calendar import MICROSECONDS_PER_DAY
from overtone.tables.columns import MAX_CATEGORIES, NUM_HASHES, Column
from overtone.tables.gaps import rows_left_out
from overtone.tables.numbers import PLAIN

log = logging.getLogger("overtone")
MAX_EXACT = 2**53  # from which on double precision does not tell whole numbers apart
MAX_LEVELS_SHOWN = 3


def column_notice(column: Column, series: pl.Series) -> str:
    """Return what a column of inputs was taken for, and how to change it."""
    values = column.encode(series)
    gaps = int(np.isnan(values).any(axis=1).sum())
    text = f"{len(column.levels)} categories ({_some(column.levels)})" if column.levels else "yes or no"
    text += f", each a random point of {NUM_HASHES} inputs" * column.hashed
    if column.kind in ("number", "time"):
        text = _time(column, series) if column.kind == "time" else _number(column, series, values[:, 0])
    return f"{column.name}: {text}" + f"; {gaps} missing" * bool(gaps)


def target_notice(column: Column, values: np.ndarray, likelihood: str) -> str:
    """Return what a target was taken for, and how to change it; `likelihood` is the one that a fit takes."""
    named = f"target {column.name}"
    if column.kind == "category":
        classes = sorted({str(value) for value in values if value is not None})
        change = "; --likelihood gaussian for numbers" * (not PLAIN.parse(pl.Series(classes)).null_count())
        return f"{named}: {len(classes)} classes ({_some(classes)}){change}"
    counts, known = likelihood != "auto" and part(LIKELIHOODS, likelihood).counts, values[~np.isnan(values)]
    text = f"{named}: {'counts' if counts else 'numbers'} {_range(known)}{_style(column)}"
    text += f", {likelihood.replace('-', ' ')}" * (likelihood != "auto")
    if not _are_few_and_whole(known):
        return text
    text += f"; --likelihood {'bernoulli' if len(np.unique(known)) == 2 else 'softmax'} for classes"
    return text + ", gaussian for other numbers" * counts


def _number(column: Column, series: pl.Series, values: np.ndarray) -> str:
    known = values[~np.isnan(values)]
    text = f"numbers {_range(known)}{_style(column)}"
    if np.any(np.abs(known) >= MAX_EXACT) and np.all(known == np.floor(known)):
        return text + ", of which the 16 leading digits count; --drop it if it is an id"
    if series.dtype == pl.String and series.str.contains(r"^\s*0\d+\s*$").any():
        return text + ", whose leading zeros do not count; --categorical for codes, such as zip codes"
    return text + "; --categorical for categories" * _are_few_and_whole(known)


def _time(column: Column, series: pl.Series) -> str:
    days = column.days(series)[1]
    first, last = (clock(day) for day in (np.nanmin(days), np.nanmax(days)))
    where = f" in {column.zone}" if column.zone else ""
    where += ", in the local time of its offsets" if column.format.endswith("%z") else ""
    text = f"dates{f' like {column.format}' * bool(column.format)} from {first} to {last}{where}"
    return f"{text} ({', '.join(('trend', *column.parts))})" + "; --no-calendar for the trend alone" * bool(
        column.parts
    )


def _are_few_and_whole(known: np.ndarray) -> bool:
    return len(np.unique(known)) <= MAX_CATEGORIES and bool(np.all(known == np.floor(known)))


def _range(known: np.ndarray) -> str:
    return f"{known.min():.15g} to {known.max():.15g}"


def clock(days: float) -> str:
    """Return days since 1970 as a date and, unless it is midnight, a time."""
    time = np.datetime64(round(days * MICROSECONDS_PER_DAY), "us").astype("datetime64[s]")
    return str(time).replace("T", " ").removesuffix(" 00:00:00")


def _style(column: Column) -> str:
    thousands = f", thousands as in 1{column.thousands}000" if column.thousands else ""
    return f" (decimals as in 1{column.decimal}5{thousands})" if thousands or column.decimal == "," else ""


def _some(levels) -> str:
    return ", ".join(map(str, levels[:MAX_LEVELS_SHOWN])) + ", ..." * (len(levels) > MAX_LEVELS_SHOWN)


def say_left_out(num: int, what: str) -> None:
    """Say in a line how many rows are left out, if there are any."""
    if num:
        log.info("%s", rows_left_out(num, what))
