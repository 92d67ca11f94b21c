"""Read the table that a model is trained on: which columns are used, what they are taken for, and which rows count."""

import argparse
import logging
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from overtone.app import loading
from overtone.numerics.shuffle import some_of
from overtone.tables.columns import Column, ColumnHints, infer_kind
from overtone.tables.convert import SAMPLE_ROWS, converted, is_large
from overtone.tables.delimited import TextOptions
from overtone.tables.encode import Encoder
from overtone.tables.errors import TableError, quoted_list
from overtone.tables.gaps import number_of
from overtone.tables.notices import column_notice, target_notice
from overtone.tables.read import located_errors, read_table
from overtone.tables.rows import Rows, complete_rows, read_targets
from overtone.tables.targets import check_digits, infer_target

log = logging.getLogger("overtone")
MAX_INPUTS, MAX_NOTICES = 1000, 50
# The arguments that decide how a table is read.
READING = (
    "target",
    "inputs",
    "drop",
    "categorical",
    "decimal",
    "na",
    "date_format",
    "exposure",
    "missing",
    "calendar",
    "likelihood",
)


@dataclass(frozen=True)
class TrainingTable:
    """Hold the rows of a table that have a target, as a frame, and those that are complete, as a model takes them.

    Of a table on the disk the frame is a sample, and targets that are classes are numbers of `labels`.
    """

    frame: pl.DataFrame
    encoder: Encoder
    rows: Rows
    targets: list[str]
    labels: tuple[str, ...] = ()

    @property
    def classes(self) -> bool:
        """Return whether the target holds classes."""
        return self.encoder.others[0].kind == "category"

    def notices(self, likelihood: str) -> list[str]:
        """Return a line for each target and each column: what it was taken for, and how to change it."""
        y = self.rows.y[some_of(len(self.rows), SAMPLE_ROWS)]
        y = np.array(self.labels)[y] if self.labels else y
        columns = self.encoder.columns[:MAX_NOTICES]
        lines = [
            target_notice(*pair, likelihood) for pair in zip(self.encoder.others, y.reshape(len(y), -1).T, strict=False)
        ]
        lines += [column_notice(column, self.frame[column.name]) for column in columns]
        more = len(self.encoder.columns) - len(columns)
        return [*lines, f"and {number_of(more, 'more column')}"] if more else lines


def read_training_table(arguments: argparse.Namespace) -> TrainingTable:
    """Return the table that the arguments of `fit` describe, or raise an error that names the file and the place.

    A large one stays on the disk, in a form that training can read at random.
    """
    options = TextOptions(arguments.delimiter, arguments.encoding)
    if arguments.convert or is_large(arguments.table):
        return _converted(arguments, options)
    frame = read_table(arguments.table, options)
    encoder, y, known = _understood(arguments, frame, options)
    frame = frame[known]
    with located_errors(arguments.table, options, known):
        rows = complete_rows(encoder, frame, y, arguments.exposure)
        if len(rows) < 2:
            raise TableError(f"{number_of(len(rows), 'complete row')}; a fit needs at least 2.")
    loading.say_left_out(len(y) - len(rows), "with missing inputs")
    return TrainingTable(frame, encoder, rows, _target_names(arguments, encoder))


def _converted(arguments: argparse.Namespace, options: TextOptions) -> TrainingTable:
    found = converted(
        arguments.table,
        options,
        lambda sample: _understood(arguments, sample, options)[0],
        {name: getattr(arguments, name) for name in READING},
        exposure=arguments.exposure,
        folder=arguments.convert,
        progress=not arguments.quiet,
    )
    keywords: Any = {"exposure": found.exposure} if found.exposure else {}
    rows = Rows(found.X, found.Y, keywords)  # pyright: ignore[reportArgumentType]
    log.info("%d rows, on the disk", len(rows))
    loading.say_left_out(found.left_out, "without a target or with missing inputs")
    return TrainingTable(
        found.sample, found.encoder, rows, _target_names(arguments, found.encoder), tuple(found.labels)
    )


def _target_names(arguments: argparse.Namespace, encoder: Encoder) -> list[str]:
    return [column.name for column in encoder.others if column.name != arguments.exposure]


def _understood(
    arguments: argparse.Namespace, frame: pl.DataFrame, options: TextOptions
) -> tuple[Encoder, np.ndarray, np.ndarray]:
    """Return what the columns of a frame mean, the targets of its rows that have any, and which rows these are."""
    with located_errors(arguments.table, options):
        targets, inputs, hints = _choose_columns(arguments, frame.columns)
        others = _other_columns(arguments, frame, targets, hints)
        y, known = read_targets(frame, others[: len(targets)])
        loading.say_left_out(len(frame) - len(known), "without a target")
        if arguments.likelihood == "auto" and not arguments.exposure and others[0].kind == "number":
            for name, values in zip(targets, y.reshape(len(y), -1).T, strict=True):
                check_digits(name, values)
    with located_errors(arguments.table, options, known):
        chosen = frame[known].select(inputs)
        encoder = Encoder.fit(chosen, missing=arguments.missing, calendar=arguments.calendar, hints=hints)
        if hints.date_format and all(column.format != hints.date_format for column in encoder.columns):
            raise TableError(
                f"no column has dates like --date-format {hints.date_format}; correct it, or leave it out."
            )
    return replace(encoder, others=others), y, known


def _names(text: str | None, columns: list[str]) -> list[str]:
    """Return names that are separated by commas, or the one of a column with commas in its name."""
    return [text] if text in columns else text.split(",") if text else []


def _choose_columns(arguments: argparse.Namespace, columns: list[str]) -> tuple[list[str], list[str], ColumnHints]:
    """Return the names of the targets and of the columns to predict from, and what the arguments say about them."""
    targets, chosen, dropped, categorical = (
        _names(getattr(arguments, option), columns) for option in ("target", "inputs", "drop", "categorical")
    )
    exposure = [arguments.exposure] if arguments.exposure else []
    if not targets:
        raise TableError(f"--target names no column; the table has {quoted_list(columns, 20)}.")
    inputs = chosen or [name for name in columns if name not in (*targets, *exposure)]
    if absent := [name for name in (*targets, *exposure, *inputs, *dropped) if name not in columns]:
        raise TableError(f"there is no column {quoted_list(absent)}; the table has {quoted_list(columns, 20)}.")
    for option, names in (("target", targets), ("inputs", chosen)):
        if duplicates := [name for i, name in enumerate(names) if name in names[:i]]:
            raise TableError(f"--{option} names {quoted_list(duplicates)} more than once.")
    if both := [name for name in targets if name in (*chosen, *exposure, *dropped)]:
        raise TableError(f"the target {both[0]!r} cannot be an input, an exposure or left out as well; name it once.")
    if not (inputs := [name for name in inputs if name not in dropped]):
        raise TableError(f"there is no column to predict from; the table has {quoted_list(columns, 20)}.")
    if len(inputs) > MAX_INPUTS:
        limit = f"a model takes at most {MAX_INPUTS}; choose some with --inputs"
        raise TableError(f"{len(inputs)} columns to predict from, but {limit}.")
    if odd := [name for name in categorical if name not in inputs]:
        raise TableError(f"--categorical names {quoted_list(odd)}, which is not among the inputs.")
    hints = ColumnHints(arguments.decimal, arguments.na, arguments.date_format, tuple(categorical))
    return targets, inputs, hints


def _other_columns(
    arguments: argparse.Namespace, frame: pl.DataFrame, targets: list[str], hints: ColumnHints
) -> tuple[Column, ...]:
    """Return how the targets are to be read and, after them, the exposure, if there is one."""
    columns = [infer_target(frame[name], arguments.likelihood, hints) for name in targets]
    classes = [column.name for column in columns if column.kind == "category"]
    if classes and len(targets) > 1:
        raise TableError(f"the target {classes[0]!r} holds classes, which can only be predicted one at a time.")
    if arguments.exposure and classes:
        raise TableError(f"an exposure belongs to counts, but the target {classes[0]!r} holds classes.")
    if arguments.exposure:
        columns.append(infer_kind(frame[arguments.exposure], hints))
        if columns[-1].kind != "number":
            raise TableError(f"the exposure {arguments.exposure!r} is a {columns[-1].kind}; it must be numbers.")
    return tuple(columns)
