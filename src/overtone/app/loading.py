"""Load models, turn the rows of a table into what they take, and describe and score them."""

import argparse
import logging
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from overtone.estimators.ranges import counted, unseen_sentence
from overtone.gp.likelihoods import FlexibleNoise
from overtone.tables.columns import Column, infer_kind
from overtone.tables.delimited import TextOptions
from overtone.tables.encode import Encoder
from overtone.tables.errors import TableError, quoted_list
from overtone.tables.notices import say_left_out
from overtone.tables.read import evenly_spaced, located_errors
from overtone.tables.rows import Rows, complete_rows, read_targets
from overtone.tables.targets import NUM_DIGITS, canonical_label, labels_by_spelling
from overtone.version import __version__

log = logging.getLogger("overtone")
ALL_ROWS, JUDGED_ROWS = 2**62, 500_000  # to judge predictions by, at least, where there are more than twice as many
LEVELS, MIN_ROWS, TOLERANCE = (50, 80, 95), 50, 0.05  # of intervals, in percent; rows to judge by; share of rows


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


def load_model_and_rows(arguments: argparse.Namespace, most: int = ALL_ROWS) -> tuple[Any, Encoder, Rows]:
    """Load a model, its encoder, and the complete rows of a table that contains the target.

    Of a table with more than twice as many rows as `most`, evenly spaced ones are taken.
    """
    model, encoder = load_model(arguments.model, arguments.missing)
    options = TextOptions(arguments.delimiter, arguments.encoding)
    frame, numbers = evenly_spaced(arguments.table, options, most)
    if numbers.step > 1:
        log.info("%d evenly spaced rows of %d are taken", len(frame), numbers.stop)
    names, classes = model.target_names, labels_by_spelling(getattr(model, "classes_", ()))
    with located_errors(arguments.table, options, numbers):
        if absent := [name for name in names if name not in frame.columns]:
            raise TableError(f"there is no column {quoted_list(absent)}, which the model predicts.")
        infer = partial(Column, kind="category") if classes else (lambda name: infer_kind(frame[name]))
        y, known = read_targets(frame, [encoder.other(name) or infer(name) for name in names])
        say_left_out(len(frame) - len(known), "without a target")
    with located_errors(arguments.table, options, np.asarray(numbers)[known]):
        rows = complete_rows(encoder, frame[known], y, model.exposure_)
        say_left_out(len(known) - len(rows), "with missing inputs")
        if classes:
            labels = [classes.get(word, classes.get(canonical_label(word))) for word in rows.y]
            if None in labels:
                word = rows.y[labels.index(None)]
                raise TableError(f"the target {model.target_!r} has {word!r}, a class that the model does not know.")
            rows = replace(rows, y=np.array(labels))
        if not len(rows):
            raise TableError("there is no complete row.")
        flags = encoder.unseen(frame[known])
        rows = replace(rows, numbers=np.asarray(numbers)[known[rows.numbers]])
    log_unknown(unseen_sentence(counted(flags), len(flags), encoder.categories))
    return model, encoder, rows


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
    classes = f" ({', '.join(map(label_text, model.classes_))})" if hasattr(model, "classes_") else ""
    return {
        "target": target + classes,
        "inputs": ", ".join(inputs) + (f"; exposure: {model.exposure_}" if model.exposure_ else ""),
        "model": f"{plan.method}, {kind}",
        "kernel, likelihood": f"{kernel}, {likelihood}",
        "training": f"{len(history.loss)} steps, {history.seconds:.0f} s. {history.message}",
        "Overtone": __version__,
    }


def label_text(label: Any) -> str:
    """Return the label of a class as it is written everywhere: 1 for 1.0, and all other words as they are."""
    return f"{label:.{NUM_DIGITS}g}" if isinstance(label, float | np.floating) else str(label)


def log_unknown(sentence: str) -> None:
    """Say in a line what the training rows do not tell, if there is anything."""
    if sentence:
        log.warning("%s", sentence)
