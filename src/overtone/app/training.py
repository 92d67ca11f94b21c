"""Read the table that a model is trained on: which columns are used, what they are taken for, and which rows count."""

import argparse
from dataclasses import dataclass, replace

import polars as pl

from overtone.app import loading
from overtone.app.loading import Rows
from overtone.tables.columns import Column, ColumnHints, infer_kind
from overtone.tables.delimited import TextOptions
from overtone.tables.encode import Encoder
from overtone.tables.errors import TableError, quoted_list
from overtone.tables.gaps import number_of
from overtone.tables.notices import column_notice, target_notice
from overtone.tables.read import read_table
from overtone.tables.targets import check_digits, infer_target

MAX_INPUTS, MAX_NOTICES = 1000, 50


@dataclass(frozen=True)
class TrainingTable:
    """Hold the rows of a table that have a target, as a frame, and those that are complete, as a model takes them."""

    frame: pl.DataFrame
    encoder: Encoder
    rows: Rows
    targets: list[str]

    @property
    def classes(self) -> bool:
        """Return whether the target holds classes."""
        return self.encoder.others[0].kind == "category"

    def notices(self, likelihood: str) -> list[str]:
        """Return a line for each target and each column: what it was taken for, and how to change it."""
        values = self.rows.y.reshape(len(self.rows), -1).T
        columns = self.encoder.columns[:MAX_NOTICES]
        lines = [target_notice(*pair, likelihood) for pair in zip(self.encoder.others, values, strict=False)]
        lines += [column_notice(column, self.frame[column.name]) for column in columns]
        more = len(self.encoder.columns) - len(columns)
        return [*lines, f"and {number_of(more, 'more column')}"] if more else lines


def read_training_table(arguments: argparse.Namespace) -> TrainingTable:
    """Return the table that the arguments of `fit` describe, or raise an error that names the file and the place."""
    options = TextOptions(arguments.delimiter, arguments.encoding)
    frame = read_table(arguments.table, options)
    with loading.located_errors(arguments.table, options):
        targets, inputs, hints = _choose_columns(arguments, frame.columns)
        others = _other_columns(arguments, frame, targets, hints)
        y, known = loading.read_targets(frame, others[: len(targets)])
        if arguments.likelihood == "auto" and not arguments.exposure and others[0].kind == "number":
            for name, values in zip(targets, y.reshape(len(y), -1).T, strict=True):
                check_digits(name, values)
    frame = frame[known]
    with loading.located_errors(arguments.table, options, known):
        encoder = Encoder.fit(frame.select(inputs), missing=arguments.missing, calendar=arguments.calendar, hints=hints)
        encoder = replace(encoder, others=others)
        rows = loading.complete_rows(encoder, frame, y, arguments.exposure)
        if len(rows) < 2:
            raise TableError(f"{number_of(len(rows), 'complete row')}; a fit needs at least 2.")
    return TrainingTable(frame, encoder, rows, targets)


def _names(text: str | None, columns: list[str]) -> list[str]:
    """Return names that are separated by commas, or the one of a column with commas in its name."""
    return [text] if text in columns else text.split(",") if text else []


def _choose_columns(arguments: argparse.Namespace, columns: list[str]) -> tuple[list[str], list[str], ColumnHints]:
    """Return the names of the targets and of the columns to predict from, and what the arguments say about them."""
    targets, chosen, dropped, categorical = (
        _names(getattr(arguments, option), columns) for option in ("target", "inputs", "drop", "categorical")
    )
    exposure = [arguments.exposure] if arguments.exposure else []
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
