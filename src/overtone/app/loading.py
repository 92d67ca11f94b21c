"""Load models, turn the rows of a table into what they take, and describe and score them."""

import argparse
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
import polars as pl

from overtone.estimators.ranges import counted, outside_sentence, unseen_sentence
from overtone.gp.likelihoods import FlexibleNoise
from overtone.tables.columns import Column, infer_kind
from overtone.tables.delimited import TextOptions
from overtone.tables.encode import Encoder
from overtone.tables.errors import CellError, TableError, quoted_list
from overtone.tables.read import place_of_row, read_table
from overtone.tables.targets import canonical_label, class_labels, numeric_target
from overtone.version import __version__

log = logging.getLogger("overtone")
LEVELS, MIN_ROWS, TOLERANCE = (50, 80, 95), 50, 0.05  # of intervals, in percent; rows to judge by; share of rows


@dataclass(frozen=True)
class Rows:
    """Hold inputs (N, D), targets (N,) or (N, P) and, for counts, their exposures (N,) as a keyword of estimators.

    numbers: the places (N,) of the rows in the table.
    """

    X: np.ndarray
    y: np.ndarray
    keywords: dict[str, np.ndarray]
    numbers: np.ndarray

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: np.ndarray) -> Self:
        keywords = {name: values[index] for name, values in self.keywords.items()}
        return type(self)(self.X[index], self.y[index], keywords, self.numbers[index])


@contextmanager
def located_errors(path: str, options: TextOptions, rows: Sequence[int] | np.ndarray | None = None) -> Iterator[None]:
    """Let errors about the rows of a frame, which are these of a table, name the table's file and line."""
    try:
        yield
    except TableError as error:
        text = error.located(lambda row: place_of_row(path, row if rows is None else int(rows[row]), options))
        raise TableError(f"{path}: {text}") from None


def load_model(path: str, missing: str | None = None) -> tuple[Any, Encoder]:
    """Load a model and the encoder of its inputs, which are numbers by name if it was fitted to a numeric frame.

    missing: what to do with missing values, instead of what the model says.
    """
    from overtone.sklearn import load  # imports JAX, for which a wrong argument of `fit` should not have to wait

    model: Any = load(path)
    if model.encoder_ is None and not hasattr(model, "feature_names_in_"):
        raise ValueError(f"{path}: this model was fitted to arrays without column names; use it from Python.")
    if model.exposed_ and model.exposure_ is None:
        raise ValueError(f"{path}: this model needs an exposure without a column name; use it from Python.")
    means = () if model.means_ is None else tuple(model.means_.tolist())
    columns = tuple(Column(name, "number") for name in model.input_names)
    encoder = model.encoder_ or Encoder(columns, model.config_.missing, means)
    if missing == "mean" and not encoder.means:
        raise ValueError(f"{path}: this model does not know the means of its inputs; use --missing drop.")
    encoder = replace(encoder, missing=missing or encoder.missing)
    replace(model.config_, missing=encoder.missing).validate()
    return model, encoder


def load_model_and_rows(arguments: argparse.Namespace) -> tuple[Any, Encoder, Rows]:
    """Load a model, its encoder, and the complete rows of a table that contains the target."""
    model, encoder = load_model(arguments.model, arguments.missing)
    options = TextOptions(arguments.delimiter, arguments.encoding)
    frame = read_table(arguments.table, options)
    names, classes = model.target_names, {canonical_label(label): label for label in getattr(model, "classes_", ())}
    with located_errors(arguments.table, options):
        if absent := [name for name in names if name not in frame.columns]:
            raise TableError(f"there is no column {quoted_list(absent)}, which the model predicts.")
        infer = partial(Column, kind="category") if classes else (lambda name: infer_kind(frame[name]))
        y, known = read_targets(frame, [encoder.other(name) or infer(name) for name in names])
    with located_errors(arguments.table, options, known):
        rows = complete_rows(encoder, frame[known], y, model.exposure_)
        if unknown := [word for word in rows.y if classes and canonical_label(word) not in classes]:
            raise TableError(f"the target {model.target_!r} has {unknown[0]!r}, a class that the model does not know.")
        if not len(rows):
            raise TableError("there is no complete row.")
        flags = encoder.unseen(frame[known])
        rows = replace(rows, numbers=known[rows.numbers])
    log_unknown(unseen_sentence(counted(flags), len(flags), encoder.categories))
    if classes:
        rows = replace(rows, y=np.array([classes[canonical_label(label)] for label in rows.y]))
    return model, encoder, rows


def encode_inputs(encoder: Encoder, frame: pl.DataFrame, exposure: str | None) -> tuple[np.ndarray, dict]:
    """Return inputs, with NaN in rows to be dropped, and the column of exposures, if there is one, as a keyword."""
    X = encoder.encode(frame)
    if exposure is None:
        return X, {}
    if exposure not in frame.columns:
        raise TableError(f"there is no column {exposure!r}, the exposure that the model was fitted with.")
    values = (encoder.other(exposure) or Column(exposure, "number")).encode(frame[exposure])[:, 0]
    gaps = np.isnan(values)
    if gaps.any() and encoder.missing != "drop":
        raise TableError(f"the exposure {exposure!r} is missing in {gaps.sum()} rows; drop them: --missing drop.")
    if len(bad := np.flatnonzero((values <= 0) | np.isinf(values))):
        raise CellError(f"the exposure {exposure!r} must be positive;", bad[0], f" has {values[bad[0]]:g}.")
    return np.where(gaps[:, None], np.nan, X), {"exposure": np.where(gaps, 1.0, values)}


def read_targets(frame: pl.DataFrame, columns: Sequence[Column]) -> tuple[np.ndarray, np.ndarray]:
    """Return the targets of the rows that have any, labels or numbers (N,) or (N, P), and which rows these are."""
    if columns[0].kind == "category":
        y = class_labels(frame[columns[0].name], columns[0].na)
        has_target = np.array([label is not None for label in y])
    else:
        y = np.column_stack([numeric_target(frame[column.name], column) for column in columns])
        has_target = np.array(~np.isnan(y).all(axis=1))
        y = y if len(columns) > 1 else y[:, 0]
    if not has_target.all():
        log.info("%d rows without a target are left out", np.sum(~has_target))
    return y[has_target], np.flatnonzero(has_target)


def complete_rows(encoder: Encoder, frame: pl.DataFrame, y: np.ndarray, exposure: str | None) -> Rows:
    """Return the rows that are not to be dropped."""
    X, keywords = encode_inputs(encoder, frame, exposure)
    complete = np.array(~np.isnan(X).any(axis=1))
    if not complete.all():
        log.info("%d rows with missing inputs are left out", np.sum(~complete))
    return Rows(X, y, keywords, np.arange(len(y)))[complete]


def coverage_warnings(metrics: dict[str, float]) -> list[str]:
    """Return in words where intervals are too narrow or too wide, if there are rows enough to tell."""
    texts, rows = [], metrics["rows"]
    for level in LEVELS if rows >= MIN_ROWS and "coverage_50" in metrics else ():
        share = metrics[f"coverage_{level}"]
        if abs(share - level / 100) > TOLERANCE + 0.5 / rows**0.5:
            fault = "narrow: the model is too sure" if share < level / 100 else "wide: the model is not sure enough"
            texts.append(f"{share:.0%} of the values lie inside the {level}% intervals, which are too {fault}.")
    return texts


def describe(model: Any, inputs: list[str], target: str) -> dict[str, str]:
    """Return what a model is and how it was trained, by topic."""
    plan, history = model.plan_, model.history_
    layers, variables = len(model.model_.layers), "inducing points" if plan.features == "points" else "frequencies"
    kind, kernel, likelihood = f"{layers} layers, {plan.num_inducing} {variables}", plan.kernel, plan.likelihood
    if plan.is_exact(model.model_):
        kind, kernel, likelihood = "one layer, an exact GP", f"{plan.exact_kernel} and straight lines", "gaussian"
    if isinstance(model.model_.likelihood, FlexibleNoise) and likelihood == "gaussian":
        likelihood = "gaussian, with noise that varies"
    classes = f" ({', '.join(map(str, model.classes_))})" if hasattr(model, "classes_") else ""
    return {
        "target": target + classes,
        "inputs": ", ".join(inputs),
        "model": f"{plan.method}, {kind}",
        "kernel, likelihood": f"{kernel}, {likelihood}",
        "training": f"{len(history.loss)} steps, {history.seconds:.0f} s. {history.message}",
        "Overtone": __version__,
    }


def score(model: Any, rows: Rows) -> dict[str, dict[str, float]]:
    """Return the metrics of the predictions of each target by its name, and say how many rows are extrapolated."""
    log_unknown(outside_sentence(counted(model.is_outside(rows.X)), len(rows), model.input_names))
    if len(model.target_names) > 1:
        return dict(zip(model.target_names, model.evaluate_outputs(rows.X, rows.y, **rows.keywords), strict=True))
    return {model.target_names[0]: model.evaluate(rows.X, rows.y, **rows.keywords)}


def log_unknown(sentence: str) -> None:
    """Say in a line what the training rows do not tell, if there is anything."""
    if sentence:
        log.warning("%s", sentence)


def print_scores(scores: dict[str, dict[str, float]]) -> None:
    """Print the metrics, one column for each target."""
    print(f"    {'':20}" + "".join(f"{target:>15}" for target in scores))
    for metric in next(iter(scores.values())):
        cells = "".join(f"{metrics[metric]:>15.6g}" for metrics in scores.values())
        print(f"    {metric.replace('_', ' '):20}{cells}")
    for target, metrics in scores.items():
        for text in coverage_warnings(metrics):
            print(f"    {target}: {text}" if len(scores) > 1 else f"    {text}")
