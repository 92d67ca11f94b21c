"""Read the target of a table, either as numbers or as class labels."""

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import polars as pl

from overtone.autopilot.names import LIKELIHOODS, part
from overtone.tables.columns import BOOLEAN_WORDS, MAX_CATEGORIES, NO_HINTS, Column, ColumnHints, infer_kind
from overtone.tables.dates import infer_date_format
from overtone.tables.errors import CellError, TableError
from overtone.tables.numbers import MISSING_WORDS, clean_words

DIGITS = range(10)
NUM_DIGITS = 15  # of a label that is a number: 0.1 + 0.2 and 0.3 are one class


def infer_target(series: pl.Series, likelihood: str, hints: ColumnHints = NO_HINTS) -> Column:
    """Return how a target is to be read; classes are a category, by the likelihood or, with "auto", by the values."""
    classes = Column(series.name, "category", na=hints.na)
    if likelihood != "auto" and part(LIKELIHOODS, likelihood).classes:
        return classes
    column = infer_kind(series, hints)
    if likelihood == "auto":
        return classes if column.kind in ("category", "boolean") else column
    if column.kind not in ("number", "boolean"):
        text = f"is a {column.kind}; likelihood {likelihood!r} is for numbers; use 'auto' (in Python, DeepGPClassifier)"
        raise TableError(f"target {series.name!r} {text}.")
    return column


def class_labels(series: pl.Series, na: tuple[str, ...] = (), whole: bool = True) -> np.ndarray:
    """Return the labels of a target as words, with None for missing values.

    Of a part of a table, there may be none, and only the whole tells whether Yes and yes are one label: `spellings`.
    """
    series = series.round_sig_figs(NUM_DIGITS) if series.dtype.is_float() else series
    words = clean_words(series, MISSING_WORDS, na)
    distinct = words.drop_nulls().unique(maintain_order=True)
    if whole and not distinct.len():
        raise TableError(f"the target {series.name!r} has no values.")
    if series.dtype == pl.String and infer_date_format(words):
        raise TableError(f"the target {series.name!r} is a time, but only numbers and classes can be predicted.")
    return (words.replace_strict(spellings(series.name, distinct.to_list())) if whole else words).to_numpy()


def spellings(name: str, distinct: list[str]) -> dict[str, str]:
    """Return the one spelling of each label of a target: 1 for 1.0, and small letters if all of them are yes or no."""
    if len(distinct) > MAX_CATEGORIES:
        found = f"{len(distinct)} different values, such as {distinct[0]!r}"
        raise TableError(f"the target {name!r} has {found}; there may be at most {MAX_CATEGORIES} classes.")
    truth = any({word.lower() for word in distinct} <= set(values) for values in BOOLEAN_WORDS)
    return {word: word.lower() if truth else re.sub(r"^([+-]?\d+)\.0+$", r"\1", word) for word in distinct}


def canonical_label(label: Any) -> str:
    """Return one spelling of a label that can be written in several ways, such as yes and Yes, or 1 and 1.0."""
    word = str(label).strip()
    try:
        return f"{float(word):.{NUM_DIGITS}g}"
    except ValueError:
        return word.lower() if any(word.lower() in values for values in BOOLEAN_WORDS) else word


def labels_by_spelling(labels: Iterable[Any]) -> dict[str, Any]:
    """Return labels by their own spelling and by the one that they share with others, such as 1 with 1.0 or 01."""
    return {canonical_label(label): label for label in labels} | {str(label): label for label in labels}


def numeric_target(series: pl.Series, column: Column | None = None, whole: bool = True) -> np.ndarray:
    """Return the numbers of a target, with NaN for missing values, as a column says or, without one, as inferred.

    A part of a table may have none.
    """
    column = column or infer_kind(series)
    if column.kind not in ("number", "boolean"):
        raise TableError(
            f"the target {series.name!r} is a {column.kind}, but only numbers and classes can be predicted."
        )
    values = column.encode(series)[:, 0]
    if len(bad := np.flatnonzero(np.isinf(values))):
        raise CellError(f"the target {series.name!r} has an infinite value in", bad[0], ".")
    if whole and np.all(np.isnan(values)):
        raise TableError(f"the target {series.name!r} has no values.")
    return values


def check_digits(name: str, values: np.ndarray) -> None:
    """Ask what a target is whose values are digits, zero among them: they may be counts as well as classes."""
    found = np.unique(values[~np.isnan(values)]).tolist()
    if len(found) > 2 and found[0] == 0 and set(found) <= set(DIGITS):
        raise TableError(
            f"the target {name!r} has the whole numbers 0 to {found[-1]:g}, which may be counts or classes; say "
            f"--likelihood negative-binomial for counts, softmax for classes, or gaussian for other numbers."
        )
