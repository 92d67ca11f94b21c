"""The command line: a table in; a model, predictions, figures out.

Exit codes: 0, all is well; 2, the arguments, a table or a file cannot be used, and one sentence on standard error says
why; 130, interrupted before there was anything to save. Heavy imports wait until they are needed: --help is quick.
"""

import argparse
import json
import logging
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from overtone import __version__
from overtone.config import Config

log = logging.getLogger("overtone")
# Flags whose names say more to a newcomer than those of Config.
FLAGS = {
    "n_layers": "layers",
    "n_inducing": "frequencies",
    "max_steps": "steps",
    "max_time": "budget",
    "random_state": "seed",
}
UNITS = {"s": 1, "m": 60, "h": 3600}
BOUNDS = (0.025, 0.975)  # of the columns lower and upper


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parser().parse_args(arguments)
    logging.basicConfig(format="%(message)s", level=logging.DEBUG if chosen.verbose else logging.INFO)
    for name in ("jax", "matplotlib"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        return chosen.run(chosen) or 0
    except (ValueError, OSError) as error:  # what users can do something about; anything else is a defect of ours
        print(f"overtone: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("overtone: interrupted; nothing was written.", file=sys.stderr)
        return 130


def fit(chosen: argparse.Namespace) -> None:
    import numpy as np
    import polars as pl

    from overtone.encoding import Encoder, target_of
    from overtone.tables import TableError, read_table, some

    if chosen.resume and not chosen.checkpoint:
        raise ValueError("--resume needs --checkpoint FOLDER, where the training to resume has left its checkpoint.")
    if chosen.checkpoint and not chosen.resume and any(Path(chosen.checkpoint).glob("*.checkpoint")):
        raise ValueError(f"{chosen.checkpoint}: there is a checkpoint already; add --resume, or choose another folder.")
    if not Path(chosen.out).absolute().parent.is_dir():
        raise ValueError(f"{chosen.out}: there is no such folder to write to.")
    if not 0 <= chosen.validate < 1:
        raise ValueError(f"--validate must be a share of the rows, from 0 to below 1; got {chosen.validate}.")
    settings = {f.name: getattr(chosen, f.name) for f in fields(Config)}
    Config(**settings).validate()
    frame = read_table(chosen.table)
    inputs = chosen.inputs.split(",") if chosen.inputs else [name for name in frame.columns if name != chosen.target]
    absent = [name for name in (chosen.target, *inputs) if name not in frame.columns]
    if absent or not inputs:
        there = some(frame.columns, 20)
        raise TableError(f"{chosen.table}: there is no column {some(absent) or 'to predict from'}, but {there}.")
    try:
        y = target_of(frame[chosen.target])
        frame, y = frame.filter(pl.Series(~np.isnan(y))), y[~np.isnan(y)]
        encoder = Encoder.fit(frame.select(inputs), missing=chosen.missing, calendar=chosen.calendar)
        X = encoder.encode(frame)
    except TableError as error:
        raise TableError(f"{chosen.table}: {error}") from None
    kept = ~np.isnan(X).any(axis=1)
    X, y = X[kept], y[kept]
    if len(y) < 2:
        raise TableError(f"{chosen.table}: {len(y)} complete rows; a fit needs at least 2.")
    log.info("%d rows, target %s, inputs: %s", len(y), chosen.target, some(encoder.inputs, 20))
    order = np.random.default_rng(chosen.random_state).permutation(len(y))
    held_out, rows = np.split(order, [round(chosen.validate * len(y)) if len(y) >= 20 else 0])

    from overtone.sklearn import DeepGPRegressor

    model, stopped = DeepGPRegressor(**settings, verbose=not chosen.quiet), _Stop()
    with stopped:
        model.fit(X[np.sort(rows)], y[np.sort(rows)], checkpoint=chosen.checkpoint, stop=stopped)
    model.encoder_, model.target_ = encoder, chosen.target
    model.save(chosen.out)
    if model.history_.message:
        log.info("%s", model.history_.message)
    print(f"{len(rows)} rows, {len(model.history_.loss)} steps, {model.history_.seconds:.0f} s")
    if len(held_out):
        print("\nOn the held-out rows:")
        _print_table(model.evaluate(X[held_out], y[held_out]))
    shares = ", ".join(f"{share:.2g}" for share in model.residual_fraction(X[rows[:2000]]))
    print(f"\nResidual fraction of each layer (near 0, the frequencies are enough): {shares}")
    print(f"Written: {chosen.out}")


def predict(chosen: argparse.Namespace) -> None:
    import numpy as np
    import polars as pl

    from overtone.sklearn import DeepGPRegressor
    from overtone.tables import TableError, TableWriter, read_chunks

    model = DeepGPRegressor.load(chosen.model)
    encoder = _encoder(model, chosen.model)
    levels = [_number("--quantiles", text) for text in chosen.quantiles.split(",")] if chosen.quantiles else []
    writer = TableWriter(chosen.out)
    total = 0
    with writer:
        for number, chunk in enumerate(read_chunks(chosen.table)):
            try:
                X = encoder.encode(chunk)
            except TableError as error:
                raise TableError(f"{chosen.table}, from row {total + 1} on: {error}") from None
            kept = ~np.isnan(X).any(axis=1)
            columns = {name: np.full(len(X), np.nan) for name in ("mean", "std", "lower", "upper")}
            columns |= {f"quantile_{level:g}": np.full(len(X), np.nan) for level in levels}
            columns |= {f"sample_{i + 1}": np.full(len(X), np.nan) for i in range(chosen.samples)}
            if kept.any():
                mean, std = model.predict(X[kept], return_std=True)
                values = [mean, std, *model.predict_quantiles(X[kept], [*BOUNDS, *levels])]
                if chosen.samples:
                    values += list(model.sample_y(X[kept], chosen.samples, random_state=number).T)
                for name, value in zip(columns, values, strict=True):
                    columns[name][kept] = value
            writer.add(chunk.with_columns([pl.Series(n, v).fill_nan(None) for n, v in columns.items()]))
            total += len(X)
    print(f"{total} rows\nWritten: {chosen.out}")


def evaluate(chosen: argparse.Namespace) -> None:
    model, _, X, y = _model_and_rows(chosen)
    found = model.evaluate(X, y)
    if chosen.json:
        print(json.dumps(found))
    else:
        _print_table(found)


def report(chosen: argparse.Namespace) -> None:
    if not Path(chosen.out).absolute().parent.is_dir():
        raise ValueError(f"{chosen.out}: there is no such folder to write to.")
    model, encoder, X, y = _model_and_rows(chosen)
    from overtone.io import replace_file
    from overtone.report import report as make

    times = [encoder.inputs.index(column.inputs[0]) for column in encoder.columns if column.kind == "time"]
    page = make(model, X, y, names=encoder.inputs, target=str(model.target_), time=times[0] if times else None)
    replace_file(chosen.out, page.encode())
    print(f"Written: {chosen.out}")


def _model_and_rows(chosen: argparse.Namespace):
    """A model, what it makes of tables, and the complete rows of one that has the target too."""
    import numpy as np

    from overtone.encoding import target_of
    from overtone.sklearn import DeepGPRegressor
    from overtone.tables import TableError, read_table

    model, frame = DeepGPRegressor.load(chosen.model), read_table(chosen.table)
    encoder = _encoder(model, chosen.model)
    if (name := model.target_) is None:
        raise ValueError(f"{chosen.model}: this model does not know the name of its target; use it from Python.")
    if name not in frame.columns:
        raise TableError(f"{chosen.table}: there is no column {name!r}, which the model predicts.")
    try:
        X, y = encoder.encode(frame), target_of(frame[name])
    except TableError as error:
        raise TableError(f"{chosen.table}: {error}") from None
    kept = ~np.isnan(X).any(axis=1) & ~np.isnan(y)
    if not kept.any():
        raise TableError(f"{chosen.table}: there is no complete row.")
    return model, encoder, X[kept], y[kept]


def info(chosen: argparse.Namespace) -> None:
    from overtone.sklearn import DeepGPRegressor

    model = DeepGPRegressor.load(chosen.model)
    config, history = model.config_, model.history_
    variables = "frequencies" if config.fourier else "points"
    print(f"{chosen.model}: {config.method}, {len(model.model_.layers)} layers, {config.n_inducing} {variables}")
    print(f"target: {model.target_}\ninputs: {', '.join(_encoder(model, chosen.model).inputs)}")
    print(f"trained for {len(history.loss)} steps, {history.seconds:.0f} s. {history.message}")
    for field in fields(Config):
        print(f"    {field.name}: {getattr(config, field.name)}")


def demo(chosen: argparse.Namespace) -> None:
    from overtone.demo import main as run_demo

    run_demo(Path(chosen.out))


class _Stop:
    """Ctrl-C once: training stops and the model is saved. Twice: the program stops."""

    def __init__(self):
        self.asked = False

    def __call__(self) -> bool:
        return self.asked

    def __enter__(self):
        self.before = signal.signal(signal.SIGINT, self._ask)
        return self

    def _ask(self, *_):
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        print("\novertone: stopping; the best model so far will be saved. Ctrl-C again to give up.", file=sys.stderr)

    def __exit__(self, *_):
        signal.signal(signal.SIGINT, self.before)


def _encoder(model, path: str):
    """What the model makes of a table: as it was told, or numbers by the names of its inputs."""
    from overtone.encoding import Column, Encoder

    names = list(map(str, getattr(model, "feature_names_in_", [])))
    if model.encoder_ is None and not names:
        raise ValueError(f"{path}: this model was fitted to arrays without names of columns; use it from Python.")
    return model.encoder_ or Encoder(tuple(Column(name, "number") for name in names))


def _print_table(values: dict[str, float]) -> None:
    for name, value in values.items():
        print(f"    {name.replace('_', ' '):20} {value:.6g}")


def _number(flag: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{flag} must be numbers separated by commas; got {text!r}.") from None


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if not found or not float(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write 90s, 5m or 1h")
    return float(found[1]) * UNITS[found[2] or "s"]


def _whole_or_auto(text: str) -> int | str:
    return int(text) if text.lstrip("-").isdigit() else text


def _interval(text: str) -> tuple[float, ...]:
    return tuple(_number("--interval", part) for part in text.split(","))


TYPES = {
    "max_time": _seconds,
    "interval": _interval,
    "learning_rate": float,
    "n_layers": _whole_or_auto,
    "n_inducing": _whole_or_auto,
}


def _explained() -> dict[str, str]:
    """What the docstring of Config says about each of its fields."""
    text = (Config.__doc__ or "") + "\n    :"
    parts = re.findall(r"\n    ([a-z_][a-z_, ]*): (.*?)(?=\n    [a-z_:])", text, re.DOTALL)
    return {name: " ".join(about.split()) for names, about in parts for name in names.split(", ")}


def _add_config(parser: argparse.ArgumentParser) -> None:
    explained, group = _explained(), parser.add_argument_group("model and training")
    for field in fields(Config):
        default: Any = field.default
        kind = TYPES.get(field.name) or (str if isinstance(default, str) else int)
        flag = "--" + FLAGS.get(field.name, field.name).replace("_", "-")
        about = explained[field.name].replace("%", "%%")
        group.add_argument(flag, dest=field.name, type=kind, default=default, help=f"{about} (default: {default})")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="overtone",
        description="Predictions with honest uncertainty for data with rhythm and changes of regime, by deep Gaussian "
        "processes in the frequency domain.",
        epilog="Start with: overtone fit train.csv --target y --budget 2m; then: overtone predict model.safetensors "
        "new.csv --out predictions.csv",
    )
    parser.add_argument("--version", action="version", version=f"overtone {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    table_help = "CSV (also .csv.gz) or Parquet, one file or a folder of parts"

    def command(run, text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(run.__name__, help=text, description=text)
        made.set_defaults(run=run)
        made.add_argument("--verbose", action="store_true", help="say more")
        return made

    of_fit = command(fit, "Fit a model to a table and save it.")
    of_fit.add_argument("table", help=table_help)
    of_fit.add_argument("--target", required=True, help="the column to predict")
    of_fit.add_argument("--inputs", help="columns to predict from, separated by commas (default: all others)")
    of_fit.add_argument("--out", default="model.safetensors", help="where to save the model (default: %(default)s)")
    of_fit.add_argument("--validate", type=float, default=0.1, help="share of the rows to test on (default: 0.1)")
    of_fit.add_argument(
        "--missing", default="error", choices=["error", "drop", "mean"], help="rows with missing inputs"
    )
    of_fit.add_argument("--no-calendar", dest="calendar", action="store_false", help="take dates as a trend alone")
    of_fit.add_argument("--checkpoint", metavar="FOLDER", help="keep what training knows, every few seconds")
    of_fit.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    of_fit.add_argument("--quiet", action="store_true", help="no progress bar")
    _add_config(of_fit)

    of_predict = command(predict, "Predict the target for the rows of a table: mean, std, lower, upper (95 %%).")
    of_predict.add_argument("model", help="a file that `overtone fit` wrote")
    of_predict.add_argument("table", help=table_help)
    of_predict.add_argument("--out", required=True, help="a .csv or .parquet file to write")
    of_predict.add_argument("--quantiles", help="levels such as 0.05,0.5,0.95, a column each")
    of_predict.add_argument("--samples", type=int, default=0, help="draws of the target, a column each")

    of_evaluate = command(evaluate, "Compare predictions with a table that has the target.")
    of_evaluate.add_argument("model", help="a file that `overtone fit` wrote")
    of_evaluate.add_argument("table", help=table_help)
    of_evaluate.add_argument("--json", action="store_true", help="print JSON")

    of_report = command(report, "One page about a model and a table that has the target, to read in a browser.")
    of_report.add_argument("model", help="a file that `overtone fit` wrote")
    of_report.add_argument("table", help=table_help)
    of_report.add_argument("--out", default="report.html", help="the page to write (default: %(default)s)")

    of_info = command(info, "What a model file holds.")
    of_info.add_argument("model")
    of_demo = command(demo, "Fit the multi-step function with all methods.")
    of_demo.add_argument("--out", default="results/demo", help="a folder for the pictures (default: %(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
