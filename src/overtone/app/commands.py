"""Run the commands of the command line; `fit` is in `app.fitting`."""

import argparse
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from overtone.app.fitting import fit
from overtone.app.rows import encode_inputs, load_model, load_model_and_rows, print_scores, score, target_names
from overtone.autopilot.config import Config
from overtone.tables.read import TableError, TableWriter, quoted_list, read_chunks

__all__ = ["demo", "evaluate", "fit", "info", "predict", "report"]
INTERVAL_LEVELS = (0.025, 0.975)  # of the columns lower and upper


def predict(arguments: argparse.Namespace) -> None:
    """Write a table with columns of predictions added."""
    model, encoder = load_model(arguments.model)
    levels = _quantile_levels(arguments.quantiles) if arguments.quantiles else []
    num_rows = 0
    with TableWriter(arguments.out) as writer:
        for seed, chunk in enumerate(read_chunks(arguments.table)):
            try:
                X, exposure = encode_inputs(encoder, chunk, model.exposure_)
            except TableError as error:
                raise TableError(f"{arguments.table}, from row {num_rows + 1} on: {error}") from None
            gaps = pl.Series(np.asarray(np.isnan(X).any(axis=1)))
            keywords = {} if exposure is None else {"exposure": exposure}
            predictions = _prediction_columns(model, np.nan_to_num(X), levels, arguments.samples, seed, keywords)
            if taken := [name for name in predictions if name in chunk.columns]:
                raise TableError(
                    f"{arguments.table}: {quoted_list(taken)} would be replaced by predictions; rename it."
                )
            if arguments.out.endswith(".parquet"):
                chunk = encoder.with_parsed_numbers(chunk, *filter(None, [model.exposure_]))
            columns = [pl.Series(name, values).set(gaps, None) for name, values in predictions.items()]
            writer.add(chunk.with_columns(columns))
            num_rows += len(X)
    print(f"{num_rows} rows\nWritten: {arguments.out}")


def _quantile_levels(text: str) -> list[float]:
    try:
        return [float(level) for level in text.split(",")]
    except ValueError:
        raise ValueError(f"--quantiles must be numbers separated by commas; got {text!r}.") from None


def _prediction_columns(model: Any, X, levels: list[float], num_samples: int, seed: int, exposure: dict) -> dict:
    """Return the columns that `predict` adds, by name."""
    if hasattr(model, "classes_"):
        if levels:
            raise ValueError("--quantiles are for numbers, but this model predicts classes.")
        labels = model.classes_.astype(str) if model.classes_.dtype.kind in "OU" else model.classes_
        probabilities = model.predict_proba(X)
        columns = {"prediction": labels[np.argmax(probabilities, axis=1)]}
        columns |= {f"probability_{name}": probabilities[:, i] for i, name in enumerate(model.classes_)}
    else:
        names = ["mean", "std", "lower", "upper", *(f"quantile_{level:g}" for level in levels)]
        quantiles = model.predict_quantiles(X, [*INTERVAL_LEVELS, *levels], **exposure)
        columns = dict(zip(names, [*model.predict(X, return_std=True, **exposure), *quantiles], strict=True))
    if num_samples:
        draws = np.moveaxis(model.sample_y(X, num_samples, random_state=seed, **exposure), -1, 0)
        columns |= {f"sample_{i + 1}": draw for i, draw in enumerate(draws)}
    if not isinstance(targets := model.target_, list):
        return columns
    prefixes = [f"{target}_" for target in targets] if len(targets) > 1 else [""]
    return {f"{prefix}{name}": values[:, i] for i, prefix in enumerate(prefixes) for name, values in columns.items()}


def evaluate(arguments: argparse.Namespace) -> None:
    """Print how well a model predicts the target of a table."""
    model, _, rows = load_model_and_rows(arguments.model, arguments.table)
    scores = score(model, rows)
    if arguments.json:
        print(json.dumps(scores))
    else:
        print_scores(scores)


def report(arguments: argparse.Namespace) -> None:
    """Write a page about a model and its predictions of a table."""
    if not Path(arguments.out).absolute().parent.is_dir():
        raise ValueError(f"{arguments.out}: there is no such folder to write to.")
    model, encoder, rows = load_model_and_rows(arguments.model, arguments.table)
    from overtone.app.report import render_report
    from overtone.storage.files import replace_file

    target, time = ", ".join(target_names(model)), next(iter(encoder.time_inputs), None)
    page = render_report(model, rows.X, rows.y, names=encoder.inputs, target=target, time=time, **rows.keywords)
    replace_file(arguments.out, page.encode())
    print(f"Written: {arguments.out}")


def info(arguments: argparse.Namespace) -> None:
    """Print what a model predicts, how it was trained, and what was decided from the data."""
    model, encoder = load_model(arguments.model, for_tables=False)
    plan, history = model.plan_, model.history_
    variables = "points" if model.plan_.features == "points" else "frequencies"
    print(f"{arguments.model}: {plan.method}, {len(model.model_.layers)} layers, {plan.num_inducing} {variables}")
    classes = f" ({', '.join(map(str, model.classes_))})" if hasattr(model, "classes_") else ""
    print(f"target: {', '.join(target_names(model))}{classes}\ninputs: {', '.join(encoder.inputs)}")
    print(f"trained for {len(history.loss)} steps, {history.seconds:.0f} s. {history.message}")
    for field in fields(Config):
        print(f"    {field.name}: {getattr(model.config_, field.name)}")
    if plan.reasons:
        print("Decided from the data:")
    for decision, reason in plan.reasons.items():
        print(f"    {decision}: {reason}")


def demo(arguments: argparse.Namespace) -> None:
    """Fit the multi-step function with all methods, and write a table and figures."""
    from overtone.app.demo import main as run_demo

    run_demo(Path(arguments.out))
