"""Parse the command line and run a command.

Exit codes: 0 for success; 2 if the arguments, a table or a file cannot be used, with one sentence on standard error
that says why; 130 if interrupted before there is anything to save; 141 if nobody reads the output to its end, as with
`| head -1`. The commands are imported only when one of them runs, so that --help is quick.
"""

import argparse
import json
import logging
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from overtone.autopilot.config import Config
from overtone.version import __version__

# Flags that say more to a newcomer than the names of the settings do.
FLAGS = {
    "n_layers": "layers",
    "n_inducing": "frequencies",
    "max_steps": "steps",
    "max_time": "budget",
    "random_state": "seed",
}
MAIN_SETTINGS = ("max_time", "held_out")
SECONDS_PER_UNIT = {"s": 1, "m": 60, "h": 3600}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name and return the exit code."""
    arguments = build_parser().parse_args(argv)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that unfinished files are removed on the way out
    logging.basicConfig(format="%(message)s")
    logging.getLogger("overtone").setLevel(logging.DEBUG if arguments.verbose else logging.INFO)
    try:
        _check_output(arguments)
        from overtone.app import commands
        from overtone.estimators.ranges import OutsideRangeWarning

        with warnings.catch_warnings(action="ignore", category=OutsideRangeWarning):  # commands say it once
            warnings.filterwarnings("ignore", "X does not have valid feature names")  # columns are found by name
            getattr(commands, arguments.command)(arguments)
        print(end="", flush=True)  # if there is an output
    except BrokenPipeError:
        for stream in filter(None, (sys.stdout, sys.stderr)):  # which Python flushes at the end
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return 141
    except (ValueError, OSError) as error:  # which users can fix; any other exception is a bug and keeps its traceback
        text = re.sub(r"^\[Errno \d+\] ", "", " ".join(str(error).split()))
        print(f"overtone: error: {text}", file=sys.stderr)
        return _ended(2)
    except KeyboardInterrupt:
        print("overtone: interrupted; nothing was written.", file=sys.stderr)
        return _ended(130)
    return _ended(0)


def _check_output(arguments: argparse.Namespace) -> None:
    """Raise an error now, rather than after a long fit, where the output cannot be written or replaces an input."""
    out = Path(getattr(arguments, "out", ""))
    if not out.absolute().parent.is_dir():
        raise ValueError(f"{out}: there is no such folder to write to.")
    if arguments.command in ("fit", "report", "update") and out.exists():
        if out.is_dir() and arguments.out:
            raise ValueError(f"{out}: this is a folder; name a file to write with --out.")
        inputs = ("table", "model") if arguments.command == "report" else ("table",)
        if any(Path(path).exists() and out.samefile(path) for path in (getattr(arguments, name) for name in inputs)):
            raise ValueError(f"{out}: --out would replace what is read; name another file.")


def _ended(code: int) -> int:
    """Return the exit code; one of several processes ends here."""
    if "overtone.inference.processes" in sys.modules:
        sys.modules["overtone.inference.processes"].leave(code)
    return code


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if not match or not float(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration; write 90s, 5m or 1h")
    return float(match[1]) * SECONDS_PER_UNIT[match[2] or "s"]


def _levels(text: str) -> Any:
    """Return levels separated by commas, and any other text as it is, for `predict` to refuse."""
    try:
        return [float(level) for level in text.split(",")]
    except ValueError:
        return text


def _delimiter(text: str) -> str:
    return {"tab": "\t", "\\t": "\t"}.get(text, text)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _numbers(text: str) -> Any:
    """Return numbers separated by commas, and any other text as it is, for `Config.validate` to accept or refuse."""
    try:
        return tuple(json.loads(f"[{text}]"))
    except ValueError:
        return text


def _number(text: str) -> Any:
    numbers = _numbers(text)
    return numbers[0] if len(numbers) == 1 else text


TYPES = {"max_time": _seconds, "fine_inputs": _numbers, "interval": _numbers, "random_state": int}


def _setting_descriptions() -> dict[str, str]:
    """Return what the docstring of Config says about each of its fields."""
    text = (Config.__doc__ or "") + "\n    :"
    entries = re.findall(r"\n    ([a-z_][a-z_, ]*): (.*?)(?=\n    [a-z_:])", text, re.DOTALL)
    return {name: " ".join(description.split()) for names, description in entries for name in names.split(", ")}


def _add_settings(add: Callable, names: Sequence[str]) -> None:
    descriptions, defaults = _setting_descriptions(), {field.name: field.default for field in fields(Config)}
    for name in names:
        flag, kind = "--" + FLAGS.get(name, name).replace("_", "-"), TYPES.get(name, _number)
        text = f"{descriptions[name].replace('%', '%%')} (default: {defaults[name]})"
        add(flag, dest=name, type=kind, default=defaults[name], help=text)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="overtone",
        description="Make predictions with calibrated uncertainty for data with rhythm and changes of regime, using "
        "deep Gaussian processes in the frequency domain.",
        epilog="Start with: overtone fit train.csv --target y --budget 2m; then: overtone predict model.safetensors "
        "new.csv --out predictions.csv",
    )
    parser.add_argument("--version", action="version", version=f"overtone {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    groups: dict[str, Callable] = {}

    def add_command(
        name: str, description: str, model: bool = True, table: bool = True, **about: Any
    ) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=description, description=description, **about)
        more = command.add_argument_group("more options").add_argument
        more("--verbose", action="store_true", help="print more details")
        if model:
            command.add_argument("model", help="a file written by `overtone fit`")
        if table:
            help_text = "CSV (also .csv.gz), .tsv, Excel's .xlsx or Parquet, one file or a folder of parts"
            command.add_argument("table", help=help_text)
            more("--delimiter", type=_delimiter, default="", help="the sign between cells (default: found in the file)")
            more("--encoding", default="", help="of text, such as latin-1 (default: found in the file)")
        if model and table:
            more("--missing", help="what to do with missing values, instead of what the model does")
        groups[name] = more
        return command

    usage = "overtone fit TABLE --target COLUMN [options]"
    fit = add_command("fit", "Fit a model to a table and save it.", model=False, usage=usage)
    add, more = fit.add_argument, groups["fit"]
    add("--target", required=True, help="the column to predict, or several, separated by commas")
    add("--inputs", help="columns to predict from, separated by commas (default: all others)")
    _add_settings(add, MAIN_SETTINGS)
    add("--out", default="model.safetensors", help="where to save the model (default: %(default)s)")
    more("--drop", metavar="COLS", help="columns to leave out, separated by commas")
    more("--categorical", metavar="COLS", help="columns of categories, even if they look like numbers or dates")
    more("--decimal", default="", help="the sign before decimals, . or a comma (default: found in each column)")
    more("--na", type=_words, default=(), metavar="WORDS", help="more words for missing values, separated by commas")
    more("--date-format", default="", help="as in %%d/%%m/%%Y, or 'epoch seconds' (default: found in each column)")
    _add_settings(more, ["missing"])
    more("--exposure", metavar="COL", help="for counts, the column with the time or area over which they were counted")
    more("--validate", type=float, default=0.1, help="share of the rows held out for testing (default: 0.1)")
    more("--no-calendar", dest="calendar", action="store_false", help="use dates as a trend alone")
    more("--checkpoint", metavar="FOLDER", help="save the state of training every few seconds")
    more("--resume", action="store_true", help="resume from the checkpoint")
    more("--log", metavar="FILE", help="append what happens in training, as JSON lines")
    more("--convert", metavar="FOLDER", help="train from the disk: convert the table there, once (default: large ones)")
    more("--quiet", action="store_true", help="show no progress bar")
    more("--coordinator", metavar="HOST:PORT", help="of several processes, where the first one listens")
    more("--num-processes", type=int, metavar="K", help="how many processes there are (SLURM and Open MPI tell)")
    more("--process-id", type=int, metavar="I", help="which of them this is, from 0")
    shown = (*MAIN_SETTINGS, "missing")
    expert = fit.add_argument_group("expert options").add_argument
    _add_settings(expert, [field.name for field in fields(Config) if field.name not in shown])
    predict = add_command(
        "predict",
        "Predict the rows of a table: mean, std and 95 percent interval of each target, and what training did not see.",
    )
    add = predict.add_argument
    add("--out", required=True, help="the .csv or .parquet file to write")
    add("--quantiles", type=_levels, default=[], help="levels such as 0.05,0.5,0.95, each of which becomes a column")
    add("--samples", type=int, default=0, help="number of draws of the target, each of which becomes a column")
    evaluate = add_command("evaluate", "Compare predictions with a table that contains the target.")
    evaluate.add_argument("--json", action="store_true", help="print JSON")
    update = add_command("update", "Let a model take in new rows, without those that it was fitted to.")
    update.add_argument("--out", default="", help="where to save the model (default: over the one that is given)")
    report = add_command("report", "Write a page for the browser about a model and a table that contains the target.")
    report.add_argument("--out", default="report.html", help="the page to write (default: %(default)s)")
    add_command("info", "Describe a model file.", table=False)
    demo = add_command("demo", "Fit the multi-step function with all methods.", model=False, table=False)
    demo.add_argument("--out", default="overtone-demo", help="the folder for the figures (default: %(default)s)")
    reproduce = add_command("reproduce", "Run an experiment of the paper, or list them.", model=False, table=False)
    add = reproduce.add_argument
    add("experiment", nargs="?", metavar="NAME", help="the experiment to run; without one, they are listed")
    add("--quick", action="store_true", help="try it with tiny settings, and with records in a folder of their own")
    add("--seeds", type=int, metavar="K", help="how many seeds to run (default: as many as the committed records have)")
    add("--data", metavar="DIR", help="the folder with the data sets (default: what OVERTONE_DATA names)")
    add("--records", metavar="FOLDER", help="the folder of records and figures (default: results/paper)")
    add("--page", action="store_true", help="run nothing: draw figures and the tables of docs/paper.md from records")
    return parser


if __name__ == "__main__":
    sys.exit(main())
