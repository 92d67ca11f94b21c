"""Fit a model to a table, save it and score it on held-out rows."""

import argparse
import logging
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from overtone.app.rows import Rows, encode_inputs, print_scores, read_targets, score
from overtone.autopilot.config import Config
from overtone.tables.encode import Encoder
from overtone.tables.read import TableError, quoted_list, read_table
from overtone.tables.targets import holds_classes

log = logging.getLogger("overtone")
MAX_INPUTS = 1000
MIN_ROWS_TO_SPLIT = 20
DIAGNOSED_ROWS = 2000


def fit(arguments: argparse.Namespace) -> None:
    """Fit a model to a table, save it and print its scores on held-out rows."""
    _check_arguments(arguments)
    settings = {f.name: getattr(arguments, f.name) for f in fields(Config)}
    Config(**settings).validate()
    frame = read_table(arguments.table)
    try:
        targets, inputs = _choose_columns(arguments, frame.columns)
        classes = _holds_classes(arguments, frame, targets)
        encoder, rows = _complete_rows(arguments, frame, inputs, *read_targets(frame, targets, classes))
    except TableError as error:
        raise TableError(f"{arguments.table}: {error}") from None
    log.info("%d rows, target %s, inputs: %s", len(rows), ", ".join(targets), quoted_list(encoder.inputs, 20))
    training, held_out = _split(arguments, encoder, rows)

    from overtone.sklearn import DeepGPClassifier, DeepGPRegressor  # imports JAX, for which errors above do not wait

    model: Any = (DeepGPClassifier if classes else DeepGPRegressor)(**settings, verbose=not arguments.quiet)
    with _stop_on_interrupt() as stop:
        model.fit(training.X, training.y, **training.keywords, checkpoint=arguments.checkpoint, stop=stop)
    model.encoder_, model.exposure_ = encoder, arguments.exposure
    model.target_ = targets if len(targets) > 1 else targets[0]
    model.save(arguments.out)
    if model.history_.message:
        log.info("%s", model.history_.message)
    print(f"{len(training)} rows, {len(model.history_.loss)} steps, {model.history_.seconds:.0f} s")
    if classes:
        held_out = held_out[np.isin(held_out.y, model.classes_)]  # a rare class may occur in held-out rows alone
    if len(held_out):
        print("\nOn the held-out rows:")
        print_scores(score(model, held_out))
    shares = ", ".join(f"{share:.2g}" for share in model.residual_fraction(training.X[:DIAGNOSED_ROWS]))
    print(f"\nResidual fraction of each layer (near 0, there are enough frequencies): {shares}")
    print(f"Written: {arguments.out}")


def _check_arguments(arguments: argparse.Namespace) -> None:
    if arguments.resume and not arguments.checkpoint:
        raise ValueError("--resume needs --checkpoint FOLDER, the folder with the checkpoint to resume from.")
    if arguments.checkpoint and not arguments.resume and any(Path(arguments.checkpoint).glob("*.checkpoint")):
        raise ValueError(f"{arguments.checkpoint}: a checkpoint exists already; add --resume or use another folder.")
    if not Path(arguments.out).absolute().parent.is_dir():
        raise ValueError(f"{arguments.out}: there is no such folder to write to.")
    if not 0 <= arguments.validate < 1:
        raise ValueError(f"--validate must be a share of the rows, at least 0 and below 1; got {arguments.validate}.")


def _choose_columns(arguments: argparse.Namespace, columns: list[str]) -> tuple[list[str], list[str]]:
    """Return the names of the targets and of the columns to predict from."""
    targets = [arguments.target] if arguments.target in columns else arguments.target.split(",")
    others = [*targets, *filter(None, [arguments.exposure])]
    inputs = arguments.inputs.split(",") if arguments.inputs else [name for name in columns if name not in others]
    if (absent := [name for name in (*others, *inputs) if name not in columns]) or not inputs:
        needed = quoted_list(absent) or "to predict from"
        raise TableError(f"there is no column {needed}; the table has {quoted_list(columns, 20)}.")
    if len(inputs) > MAX_INPUTS:
        raise TableError(
            f"{len(inputs)} columns to predict from, but a model takes at most {MAX_INPUTS}; choose some with --inputs."
        )
    if duplicates := [name for i, name in enumerate(targets) if name in targets[:i]]:
        raise ValueError(f"--target names {quoted_list(duplicates)} more than once.")
    return targets, inputs


def _holds_classes(arguments: argparse.Namespace, frame: pl.DataFrame, targets: list[str]) -> bool:
    classes = [name for name in targets if holds_classes(frame[name], arguments.likelihood)]
    if classes and len(targets) > 1:
        raise TableError(f"the target {classes[0]!r} holds classes, which can only be predicted one at a time.")
    if classes and arguments.exposure:
        raise TableError(f"an exposure belongs to counts, but the target {arguments.target!r} holds classes.")
    return bool(classes)


def _complete_rows(arguments, frame: pl.DataFrame, inputs: list[str], y, has_target) -> tuple[Encoder, Rows]:
    """Return an encoder of the inputs and the rows that can be trained on."""
    if not has_target.all():
        log.info("%d rows without a target are left out", np.sum(~has_target))
    frame = frame.filter(pl.Series(has_target))
    encoder = Encoder.fit(frame.select(inputs), missing=arguments.missing, calendar=arguments.calendar)
    X, exposure = encode_inputs(encoder, frame, arguments.exposure)
    complete = ~np.asarray(np.isnan(X).any(axis=1))
    if not complete.all():
        log.info("%d rows with missing inputs are left out", np.sum(~complete))
    if complete.sum() < 2:
        raise TableError(f"{complete.sum()} complete rows; a fit needs at least 2.")
    return encoder, Rows(X, y[has_target], exposure)[complete]


def _split(arguments: argparse.Namespace, encoder: Encoder, rows: Rows) -> tuple[Rows, Rows]:
    """Return the rows to train on and the rows to test on: the last ones in time if asked to, or random ones."""
    if arguments.held_out == "last":
        if times := encoder.time_inputs:
            rows = rows[np.argsort(rows.X[:, times[0]], kind="stable")]
        order = np.arange(len(rows))[::-1]
    else:
        order = np.random.default_rng(arguments.random_state).permutation(len(rows))
    num_held_out = round(arguments.validate * len(rows)) if len(rows) >= MIN_ROWS_TO_SPLIT else 0
    held_out, training = np.split(order, [num_held_out])
    return rows[np.sort(training)], rows[held_out]


@contextmanager
def _stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether Ctrl-C was pressed; pressed a second time, it ends the program."""
    requested = False

    def handle(*_):
        nonlocal requested
        if requested:
            raise KeyboardInterrupt
        requested = True
        print("\novertone: stopping; the best model so far will be saved. Ctrl-C again aborts.", file=sys.stderr)

    previous_handler = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: requested
    finally:
        signal.signal(signal.SIGINT, previous_handler)
