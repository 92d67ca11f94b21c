"""Neighbours and fine structure, one thing at a time: the default with and without each, on the same rows.

Every fit has the same number of seconds, and is scored on the test rows with its neighbours and without them. Writes
one JSON line for each fit to results/neighbours.jsonl (those that are there are not fitted again), and a table to
results/neighbours.md.

    OVERTONE_DATA=FOLDER python -m benchmarks.neighbours [seconds]
"""

import sys
import warnings
from itertools import product
from time import perf_counter

import numpy as np

from benchmarks import tables
from benchmarks.lines import RESULTS, completed
from overtone.estimators.ranges import OutsideRangeWarning
from overtone.sklearn import DeepGPRegressor

PATH, SECONDS = RESULTS / "neighbours.jsonl", 30
NAMES = tuple(name for name in tables.NAMES if name not in ("multi_step", "audio_subband", "co2_mauna_loa_weekly"))
METRICS = "log_density", "rmse", "crps", "coverage_95"


def measure(name: str, fine: str, seconds: int, seed: int = 0) -> dict:
    X, y = tables.load(name)
    train, test = tables.split(name, X, seed)
    shift, scale = y[train].mean(), y[train].std()
    y = (y - shift) / scale
    model = DeepGPRegressor(max_time=seconds, fine_inputs="auto" if fine == "fine structure" else ())
    began = perf_counter()
    model.fit(X[train], y[train])
    about = {"table": name, "fine": fine, "budget": seconds, "fitted": perf_counter() - began}
    about["fine_inputs"] = list(model.plan_.fine_inputs)
    about["why"] = model.plan_.reasons.get("neighbours", "")
    began = perf_counter()
    with_neighbours = scored(model, X[test], y[test])
    about["scored"] = perf_counter() - began
    model.neighbours_ = ()
    return {**about, "with": with_neighbours, "without": scored(model, X[test], y[test])}


def scored(model: DeepGPRegressor, X: np.ndarray, y: np.ndarray) -> dict:
    with warnings.catch_warnings(action="ignore", category=OutsideRangeWarning):
        metrics = model.evaluate(X, y)
    return {name: metrics[name] for name in METRICS}


def page(lines: list[dict]) -> str:
    text = "| table | fine structure: inputs | global: log density | RMSE | covers "
    text += "| with neighbours: log density | RMSE | covers |\n"
    text += "|---|---" + "|---:" * 6 + "|\n"
    for line in sorted(lines, key=lambda line: (NAMES.index(line["table"]), line["fine"])):
        fine = f"of {len(line['fine_inputs'])}" if line["fine_inputs"] else "none"
        both = (line["without"], line["with"])
        cells = (f"{m['log_density']:.3f} | {m['rmse']:.3f} | {m['coverage_95']:.1%}" for m in both)
        text += f"| {line['table']} | {fine} | {' | '.join(cells)} |\n"
    return text


def main(seconds: int = SECONDS) -> None:
    variants = product(("fine structure", "no fine structure"), NAMES)  # the defaults first
    cases = [(name, fine, seconds) for fine, name in variants]
    lines = completed(PATH, cases, ("table", "fine", "budget"), measure)
    (RESULTS / "neighbours.md").write_text(page(lines))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
