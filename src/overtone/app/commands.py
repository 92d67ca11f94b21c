"""Run the commands of the command line."""

import argparse
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from overtone.app import loading
from overtone.app.judging import judge_rows, print_judgements
from overtone.autopilot.config import Config
from overtone.estimators.ranges import counted, outside_sentence, unseen_sentence
from overtone.numerics.shuffle import shuffled, some_of
from overtone.storage.rows import RowView, without
from overtone.tables.convert import SAMPLE_ROWS
from overtone.tables.delimited import TextOptions
from overtone.tables.encode import Encoder
from overtone.tables.errors import TableError, quoted_list
from overtone.tables.gaps import number_of
from overtone.tables.read import located_errors, place_of_row, read_chunks, table_writer
from overtone.tables.rows import Rows, encode_inputs
from overtone.tables.training import Reading, TrainingTable, read_training_table

log = logging.getLogger("overtone")
MIN_ROWS_TO_SPLIT, MAX_TEST_ROWS = 20, 100_000  # to hold some out; that are held out of those on the disk
DIAGNOSED_ROWS = 10_000
CLUSTERS = "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE"  # how many processes SLURM or Open MPI has started
BESIDE_THE_FIT = 0.25, 12.0  # of a budget, for start-up, scores and files: this share, and at most so many seconds


def fit(arguments: argparse.Namespace) -> None:
    """Fit a model to a table, save it and print its scores on held-out rows."""
    _check_arguments(arguments)
    settings = {f.name: getattr(arguments, f.name) for f in fields(Config)}
    Config(**settings).validate()
    if arguments.max_time:
        settings["max_time"] -= min(BESIDE_THE_FIT[0] * arguments.max_time, BESIDE_THE_FIT[1])
    table = _read_in_turn(arguments)
    classes, (training, held_out) = table.classes, _split(arguments, table.encoder, table.rows)

    with _stop_on_interrupt() as stop:
        from overtone.estimators.counts import likelihood_of  # imports JAX, while errors above do not wait
        from overtone.estimators.tables import named
        from overtone.inference.processes import agreed, is_first
        from overtone.sklearn import DeepGPClassifier, DeepGPRegressor

        if stop():
            raise KeyboardInterrupt
        seen = table.rows.y[some_of(len(table.rows), SAMPLE_ROWS)]
        likelihood = "auto" if classes else likelihood_of(Config(**settings), seen, bool(training.keywords))
        for line in table.notices(likelihood):
            log.info("%s", line)
        model: Any = (DeepGPClassifier if classes else DeepGPRegressor)(**settings, verbose=not arguments.quiet)
        watched = {"checkpoint": arguments.checkpoint, "log": arguments.log, "stop": stop}
        model.fit(training.X, training.y, **training.keywords, **watched)
    if not (first := is_first()):  # which saves the model
        agreed(first)
        return
    if table.labels:  # a rare class may occur in held-out rows alone
        held_out = replace(held_out, y=np.array(table.labels)[held_out.y[:, 0]])
    named(model, table).save(arguments.out)
    if model.history_.message:
        log.info("%s", model.history_.message)
    steps = number_of(len(model.history_.loss), "step")
    print(f"{number_of(len(training), 'row')}, {steps}, {model.history_.seconds:.0f} s")
    if classes:
        held_out = held_out[np.isin(held_out.y, model.classes_)]
    if len(held_out):
        print("\nOn the held-out rows:")
        print_judgements(judge_rows(model, held_out))
        inside = model.learns_outside or not model.count_outside(held_out.X)[0]
        if model.plan_.output != "adam" and inside:
            model.update(held_out.X, held_out.y, **held_out.keywords).save(arguments.out)
            print("\nThen the model took these rows in, too.")
    some = training.X[some_of(len(training), DIAGNOSED_ROWS)]
    shares = ", ".join(f"{share:.2g}" for share in model.residual_fraction(some))
    print(f"\nResidual fraction of each layer (near 0, there are enough frequencies): {shares}")
    print(f"Written: {arguments.out}")
    agreed(first)


def _read_in_turn(arguments: argparse.Namespace) -> TrainingTable:
    """Return the training table; of several processes, the first one reads and, if need be, converts it first."""
    if not arguments.coordinator and all(int(os.environ.get(name) or 1) < 2 for name in CLUSTERS):
        if arguments.num_processes or arguments.process_id:
            raise ValueError(
                "--num-processes and --process-id need --coordinator HOST:PORT, where the first one listens."
            )
        return read_training_table(Reading.of(arguments))
    from overtone.inference import processes

    processes.connect(arguments.coordinator, arguments.num_processes, arguments.process_id)
    if processes.is_first():
        table = read_training_table(Reading.of(arguments))
        processes.agreed(True)
        return table
    processes.agreed(True)
    arguments.quiet = True
    logging.getLogger("overtone").setLevel(logging.WARNING)
    return read_training_table(Reading.of(arguments))


def _check_arguments(arguments: argparse.Namespace) -> None:
    if arguments.resume and not arguments.checkpoint:
        raise ValueError("--resume needs --checkpoint FOLDER, the folder with the checkpoint to resume from.")
    if arguments.checkpoint and not arguments.resume and any(Path(arguments.checkpoint).glob("*.checkpoint")):
        raise ValueError(f"{arguments.checkpoint}: a checkpoint exists already; add --resume or use another folder.")
    if not 0 <= arguments.validate < 1:
        raise ValueError(f"--validate must be a share of the rows, at least 0 and below 1; got {arguments.validate}.")


def _split(arguments: argparse.Namespace, encoder: Encoder, rows: Rows) -> tuple[Rows, Rows]:
    """Return the rows to train on and the rows to test on: the last ones in time if asked to, or random ones.

    Rows on the disk are in time if the table is, and not too many of them are tested on.
    """
    stored = isinstance(rows.X, RowView)
    num = round(arguments.validate * len(rows)) if len(rows) >= MIN_ROWS_TO_SPLIT else 0
    num = min(num, MAX_TEST_ROWS) if stored else num
    if arguments.held_out == "last":
        if (times := encoder.time_inputs) and not stored:
            rows = rows[np.argsort(rows.X[:, times[0]], kind="stable")]
        held_out = np.arange(len(rows) - num, len(rows))
    else:
        held_out = np.sort(shuffled(np.arange(num), len(rows), arguments.random_state))
    return rows.mapped(lambda part: without(part, held_out)), rows[held_out]


@contextmanager
def _stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether Ctrl-C was pressed; pressed a second time, it ends the program."""
    requests = []

    def handle(*_):
        if requests:
            raise KeyboardInterrupt
        requests.append(True)
        print("\novertone: stopping; the best model so far will be saved. Ctrl-C again aborts.", file=sys.stderr)

    previous_handler = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: bool(requests)
    finally:
        signal.signal(signal.SIGINT, previous_handler)


def predict(arguments: argparse.Namespace) -> None:
    """Write a table with columns of predictions added."""
    if not all(isinstance(level, float) and 0 < level < 1 for level in arguments.quantiles):
        raise ValueError(f"--quantiles must be between 0 and 1, such as 0.05,0.5,0.95; got {arguments.quantiles}.")
    if arguments.samples < 0:
        raise ValueError(f"--samples must be a whole number of at least 0; got {arguments.samples}.")
    model, encoder = loading.load_model(arguments.model, arguments.missing)
    options, num_rows = TextOptions(arguments.delimiter, arguments.encoding), 0
    num_outside, num_unseen = (np.zeros(1 + num, int) for num in (model.n_features_in_, len(encoder.categories)))
    with table_writer(arguments.out) as write:
        for seed, chunk in enumerate(read_chunks(arguments.table, options)):
            with located_errors(arguments.table, options, range(num_rows, num_rows + len(chunk))):
                X, exposure = encode_inputs(encoder, chunk, model.exposure_)
            gaps, X = np.array(np.isnan(X).any(axis=1)), np.nan_to_num(X)
            outside, unseen = (flags & ~gaps[:, None] for flags in (model.is_outside(X), encoder.unseen(chunk)))
            columns = _prediction_columns(model, X, arguments, seed, exposure)
            columns["outside"] = outside.any(axis=1) | unseen.any(axis=1)
            if taken := [name for name in columns if name in chunk.columns]:
                raise TableError(f"{arguments.table}: {quoted_list(taken)} would be replaced; rename it.")
            if arguments.out.endswith(".parquet"):
                chunk = encoder.with_parsed_numbers(chunk, model.exposure_)
            added = [pl.Series(name, values).set(pl.Series(gaps), None) for name, values in columns.items()]
            write(chunk.with_columns(added))
            num_rows, num_outside = num_rows + len(X), num_outside + counted(outside)
            num_unseen = num_unseen + counted(unseen)
    loading.log_unknown(outside_sentence(num_outside, num_rows, model.input_names))
    loading.log_unknown(unseen_sentence(num_unseen, num_rows, encoder.categories))
    print(f"{number_of(num_rows, 'row')}\nWritten: {arguments.out}")


def _prediction_columns(model: Any, X, arguments: argparse.Namespace, seed: int, exposure: dict) -> dict:
    """Return the columns that `predict` adds, by name."""
    levels = arguments.quantiles
    if hasattr(model, "classes_"):
        if levels:
            raise ValueError("--quantiles are for numbers, but this model predicts classes.")
        labels = model.classes_.astype(str) if model.classes_.dtype.kind in "OU" else model.classes_
        probabilities = model.predict_proba(X)
        columns = {"prediction": labels[np.argmax(probabilities, axis=1)]}
        names = [f"probability_{loading.label_text(label)}" for label in model.classes_]
        columns |= dict(zip(names, probabilities.T, strict=True))
    else:
        names = ["mean", "std", "lower", "upper", *(f"quantile_{level:g}" for level in levels)]
        quantiles = model.predict_quantiles(X, [0.025, 0.975, *levels], **exposure)
        columns = dict(zip(names, [*model.predict(X, return_std=True, **exposure), *quantiles], strict=True))
    if arguments.samples:
        draws = np.moveaxis(model.sample_y(X, arguments.samples, random_state=seed, **exposure), -1, 0)
        columns |= {f"sample_{i + 1}": draw for i, draw in enumerate(draws)}
    prefixes = [f"{target}_" for target in model.target_names] if len(model.target_names) > 1 else [""]
    columns = {name: values.reshape(len(X), -1) for name, values in columns.items()}
    return {f"{prefix}{name}": values[:, i] for i, prefix in enumerate(prefixes) for name, values in columns.items()}


def evaluate(arguments: argparse.Namespace) -> None:
    """Print how well a model predicts the target of a table."""
    model, _, rows = loading.load_model_and_rows(arguments, loading.JUDGED_ROWS)
    judgements = judge_rows(model, rows)
    if arguments.json:
        found = {target: each.as_json() for target, each in judgements.items()}
        print(json.dumps(found if len(found) > 1 else found.popitem()[1]))
    else:
        print_judgements(judgements)


def update(arguments: argparse.Namespace) -> None:
    """Let a model take in the rows of a table, and save it."""
    model, _, rows = loading.load_model_and_rows(arguments)
    out = arguments.out or arguments.model
    model.update(rows.X, rows.y, **rows.keywords).save(out)
    print(f"{number_of(len(rows), 'new row')}\nWritten: {out}")


def report(arguments: argparse.Namespace) -> None:
    """Write a page about a model and its predictions of a table."""
    model, _, rows = loading.load_model_and_rows(arguments, loading.JUDGED_ROWS)
    from overtone.app.report import render_report
    from overtone.storage.files import replace_file

    def place(row: int) -> str:
        return place_of_row(arguments.table, int(rows.numbers[row]), options)

    options, name = TextOptions(arguments.delimiter, arguments.encoding), Path(arguments.table).name
    page = render_report(model, rows.X, rows.y, table_name=name, place=place, **rows.keywords)
    replace_file(arguments.out, page.encode())
    print(f"Written: {arguments.out}")


def info(arguments: argparse.Namespace) -> None:
    """Print what a model predicts, how it was trained, and what was decided from the data."""
    from overtone.sklearn import load

    model: Any = load(arguments.model)
    settings = {field.name: getattr(model.config_, field.name) for field in fields(Config)}
    about = loading.describe(model, model.input_names, ", ".join(model.target_names))
    for title, entries in (("About", about), ("Settings", settings), ("Decided from the data", model.plan_.reasons)):
        print(f"{title}:", *(f"    {name}: {value}" for name, value in entries.items()), sep="\n")


def demo(arguments: argparse.Namespace) -> None:
    """Fit the multi-step function with all methods, and write a table and figures."""
    from overtone.app.demo import main as run_demo

    run_demo(Path(arguments.out))


def reproduce(arguments: argparse.Namespace) -> None:
    """Run an experiment of the paper, show its records, or list all experiments."""
    from overtone.experiments import running

    quick = running.QUICK_RECORDS if arguments.quick else running.RECORDS
    folder = Path(arguments.records) if arguments.records else quick
    if arguments.page:
        from overtone.experiments.page import draw, write_page

        draw(folder, arguments.experiment)
        print(f"Written: {write_page(folder)}")
    elif arguments.experiment is None:
        print(running.listing())
    else:
        if arguments.seeds is not None and arguments.seeds < 1:
            raise ValueError(f"--seeds must be at least 1; got {arguments.seeds}.")
        data = Path(arguments.data) if arguments.data else None
        settings = {"quick": arguments.quick, "seeds": arguments.seeds, "data": data, "folder": folder}
        measured = running.run(arguments.experiment, **settings)
        print(f"{measured} new records in {folder / arguments.experiment}.jsonl")
