"""The command line: a table in; a model, predictions, figures out.

Exit codes: 0, all is well; 2, the arguments, a table or a file cannot be used, and one sentence on standard error says
why; 130, interrupted before there was anything to save. Heavy imports wait until they are needed: --help is quick.
"""

import argparse
import logging
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from overtone import __version__
from overtone.commands import demo, evaluate, fit, info, predict, report
from overtone.config import Config

# Flags whose names say more to a newcomer than those of Config.
FLAGS = {
    "n_layers": "layers",
    "n_inducing": "frequencies",
    "max_steps": "steps",
    "max_time": "budget",
    "random_state": "seed",
}
UNITS = {"s": 1, "m": 60, "h": 3600}


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


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if not found or not float(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write 90s, 5m or 1h")
    return float(found[1]) * UNITS[found[2] or "s"]


def _whole_or_auto(text: str) -> int | str:
    return int(text) if text.lstrip("-").isdigit() else text


def _listed(one: Callable[[str], Any]) -> Callable[[str], Any]:
    """What stands between commas; or the text as it is: "auto", or something that `Config.validate` refuses."""

    def parse(text: str) -> Any:
        try:
            return tuple(one(part) for part in text.split(",") if part)
        except ValueError:
            return text

    return parse


def _together(kind: type) -> Callable[[str], tuple]:
    """Numbers of one kind for several inputs, such as 10:8:0."""
    return lambda text: tuple(map(kind, text.split(":")))


TYPES = {
    "fine_inputs": _listed(int),
    "waves": _listed(_together(float)),
    "pairs": _listed(_together(int)),
    "max_time": _seconds,
    "interval": _listed(float),
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
    of_fit.add_argument("--target", required=True, help="the column to predict, or several, separated by commas")
    of_fit.add_argument("--inputs", help="columns to predict from, separated by commas (default: all others)")
    of_fit.add_argument("--exposure", metavar="COL", help="of counts, the time or area in which they were counted")
    of_fit.add_argument("--out", default="model.safetensors", help="where to save the model (default: %(default)s)")
    of_fit.add_argument("--validate", type=float, default=0.1, help="share of the rows to test on (default: 0.1)")
    of_fit.add_argument("--no-calendar", dest="calendar", action="store_false", help="take dates as a trend alone")
    of_fit.add_argument("--checkpoint", metavar="FOLDER", help="keep what training knows, every few seconds")
    of_fit.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    of_fit.add_argument("--quiet", action="store_true", help="no progress bar")
    _add_config(of_fit)

    of_predict = command(
        predict, "Predict the target for the rows of a table: mean, std, lower, upper (95 %%), of each target."
    )
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
    of_demo.add_argument("--out", default="overtone-demo", help="a folder for the pictures (default: %(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
