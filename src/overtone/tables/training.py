"""Read the table that a model is trained on: which columns are used, what they are taken for, and which rows count."""

import logging
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import polars as pl

from overtone.numerics.shuffle import some_of
from overtone.tables.columns import Column, ColumnHints, infer_kind
from overtone.tables.convert import SAMPLE_ROWS, converted, is_large
from overtone.tables.delimited import TextOptions
from overtone.tables.encode import Encoder
from overtone.tables.errors import TableError, quoted_list
from overtone.tables.gaps import number_of
from overtone.tables.notices import column_notice, say_left_out, target_notice
from overtone.tables.read import located_errors, read_table
from overtone.tables.rows import Rows, complete_rows, read_targets
from overtone.tables.targets import check_digits, infer_target

log = logging.getLogger("overtone")
MAX_INPUTS, MAX_NOTICES = 1000, 50
BESIDES = "table", "delimiter", "encoding", "convert", "quiet"  # fields that do not decide what columns mean


@dataclass(frozen=True)
class Reading:
    """Hold what a user says about a table to train on, as the options of `overtone fit` of the same names explain.

    target, inputs, drop and categorical are names with commas between them, or one that has commas itself.
    """

    table: str
    target: str
    inputs: str | None = None
    drop: str | None = None
    categorical: str | None = None
    decimal: str = ""
    na: tuple[str, ...] = ()
    date_format: str = ""
    exposure: str | None = None
    missing: str = "error"
    calendar: bool = True
    likelihood: str = "auto"
    delimiter: str = ""
    encoding: str = ""
    convert: str | None = None
    quiet: bool = False

    @classmethod
    def of(cls, arguments: Any) -> "Reading":
        """Return what the arguments of the command line say."""
        return cls(**{field.name: getattr(arguments, field.name) for field in fields(cls)})

    @property
    def wanted(self) -> dict[str, Any]:
        """Return what decides what the columns of the table mean."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name not in BESIDES}


@dataclass(frozen=True)
class TrainingTable:
    """Hold the rows of a table that have a target, as a frame, and those that are complete, as a model takes them.

    Of a table on the disk the frame is a sample, and targets that are classes are numbers of `labels`.
    """

    frame: pl.DataFrame
    encoder: Encoder
    rows: Rows
    targets: list[str]
    exposure: str | None
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


def read_training_table(reading: Reading) -> TrainingTable:
    """Return the table that is described, or raise an error that names the file and the place.

    A large one stays on the disk, in a form that training can read at random.
    """
    options = TextOptions(reading.delimiter, reading.encoding)
    if reading.convert or is_large(reading.table):
        return _converted(reading, options)
    frame = read_table(reading.table, options)
    encoder, y, known = _understood(reading, frame, options)
    frame = frame[known]
    with located_errors(reading.table, options, known):
        rows = complete_rows(encoder, frame, y, reading.exposure)
        if len(rows) < 2:
            raise TableError(f"{number_of(len(rows), 'complete row')}; a fit needs at least 2.")
    say_left_out(len(y) - len(rows), "with missing inputs")
    return TrainingTable(frame, encoder, rows, _target_names(reading, encoder), reading.exposure)


def _converted(reading: Reading, options: TextOptions) -> TrainingTable:
    found = converted(
        reading.table,
        options,
        lambda sample: _understood(reading, sample, options)[0],
        reading.wanted,
        exposure=reading.exposure,
        folder=reading.convert,
        progress=not reading.quiet,
    )
    keywords: Any = {"exposure": found.exposure} if found.exposure else {}
    rows = Rows(found.X, found.Y, keywords)  # pyright: ignore[reportArgumentType]
    log.info("%d rows, on the disk", len(rows))
    say_left_out(found.left_out, "without a target or with missing inputs")
    names = _target_names(reading, found.encoder)
    return TrainingTable(found.sample, found.encoder, rows, names, reading.exposure, tuple(found.labels))


def _target_names(reading: Reading, encoder: Encoder) -> list[str]:
    return [column.name for column in encoder.others if column.name != reading.exposure]


def _understood(reading: Reading, frame: pl.DataFrame, options: TextOptions) -> tuple[Encoder, np.ndarray, np.ndarray]:
    """Return what the columns of a frame mean, the targets of its rows that have any, and which rows these are."""
    with located_errors(reading.table, options):
        targets, inputs, hints = _choose_columns(reading, frame.columns)
        others = _other_columns(reading, frame, targets, hints)
        y, known = read_targets(frame, others[: len(targets)])
        say_left_out(len(frame) - len(known), "without a target")
        if reading.likelihood == "auto" and not reading.exposure and others[0].kind == "number":
            for name, values in zip(targets, y.reshape(len(y), -1).T, strict=True):
                check_digits(name, values)
    with located_errors(reading.table, options, known):
        chosen = frame[known].select(inputs)
        encoder = Encoder.fit(chosen, missing=reading.missing, calendar=reading.calendar, hints=hints)
        if hints.date_format and all(column.format != hints.date_format for column in encoder.columns):
            raise TableError(
                f"no column has dates like --date-format {hints.date_format}; correct it, or leave it out."
            )
    return replace(encoder, others=others), y, known


def _names(text: str | None, columns: list[str]) -> list[str]:
    """Return names that are separated by commas, or the one of a column with commas in its name."""
    return [text] if text in columns else text.split(",") if text else []


def _choose_columns(reading: Reading, columns: list[str]) -> tuple[list[str], list[str], ColumnHints]:
    """Return the names of the targets and of the columns to predict from, and what the user says about them."""
    targets, chosen, dropped, categorical = (
        _names(getattr(reading, option), columns) for option in ("target", "inputs", "drop", "categorical")
    )
    exposure = [reading.exposure] if reading.exposure else []
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
    hints = ColumnHints(reading.decimal, reading.na, reading.date_format, tuple(categorical))
    return targets, inputs, hints


def _other_columns(reading: Reading, frame: pl.DataFrame, targets: list[str], hints: ColumnHints) -> tuple[Column, ...]:
    """Return how the targets are to be read and, after them, the exposure, if there is one."""
    columns = [infer_target(frame[name], reading.likelihood, hints) for name in targets]
    classes = [column.name for column in columns if column.kind == "category"]
    if classes and len(targets) > 1:
        raise TableError(f"the target {classes[0]!r} holds classes, which can only be predicted one at a time.")
    if reading.exposure and classes:
        raise TableError(f"an exposure belongs to counts, but the target {classes[0]!r} holds classes.")
    if reading.exposure:
        columns.append(infer_kind(frame[reading.exposure], hints))
        if columns[-1].kind != "number":
            raise TableError(f"the exposure {reading.exposure!r} is a {columns[-1].kind}; it must be numbers.")
    return tuple(columns)
