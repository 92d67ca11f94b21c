"""Read the target of a table, either as numbers or as class labels."""

from typing import Any

import numpy as np
import polars as pl

from overtone.autopilot.names import LIKELIHOODS, part
from overtone.tables.columns import BOOLEAN_WORDS, MISSING_WORDS, Column, clean_words, infer_column, infer_kind
from overtone.tables.read import TableError


def holds_classes(series: pl.Series, likelihood: str) -> bool:
    """Return whether a target holds classes, according to the likelihood or, with "auto", to its values."""
    if likelihood != "auto" and part(LIKELIHOODS, likelihood).classes:
        return True
    kind = infer_kind(series)[0] if series.null_count() < series.len() else "number"
    if likelihood != "auto" and kind not in ("number", "boolean"):
        raise TableError(f"target {series.name!r} is a {kind}; likelihood {likelihood!r} is for numbers; use 'auto'.")
    return likelihood == "auto" and kind in ("category", "boolean")


def class_labels(series: pl.Series) -> np.ndarray:
    """Return the labels of a target as words, with None for missing values."""
    if series.dtype == pl.String and infer_column(series, calendar=False).kind == "time":
        raise TableError(f"the target {series.name!r} is a time, but only numbers and classes can be predicted.")
    words = clean_words(series, MISSING_WORDS)
    labels = (words.str.to_lowercase() if infer_kind(series)[0] == "boolean" else words).to_numpy()
    if all(label is None for label in labels):
        raise TableError(f"the target {series.name!r} has no values.")
    return labels


def canonical_label(label: Any) -> str:
    """Return one spelling of a label that can be written in several ways, such as yes and Yes, or 1 and 1.0."""
    word = str(label).strip()
    try:
        return f"{float(word):.15g}"
    except ValueError:
        return word.lower() if any(word.lower() in values for values in BOOLEAN_WORDS) else word


def numeric_target(series: pl.Series) -> np.ndarray:
    """Return the numbers of a target, with NaN for missing values."""
    kind = infer_column(series, calendar=False).kind
    if kind not in ("number", "boolean"):
        raise TableError(f"the target {series.name!r} is a {kind}, but only numbers and classes can be predicted.")
    values = Column(series.name, kind).encode(series)[:, 0]
    if len(bad := np.flatnonzero(np.isinf(values))):
        raise TableError(f"the target {series.name!r} has an infinite value in row {bad[0] + 1}.")
    if np.all(np.isnan(values)):
        raise TableError(f"the target {series.name!r} has no values.")
    return values
