"""Six million flights on one machine, end to end: conversion, training, prediction, evaluation, report; and peers.

The command line does all of ours, each command in a process of its own, whose seconds and peak memory are kept. Then
GPyTorch's deep GP and SVGP train as long as ours, on the same rows in memory. Writes results/flights.jsonl, one line
for each part (those that are there are not run again), and results/flights.md.

    OVERTONE_DATA=FOLDER python -m benchmarks.flights [minutes]

OVERTONE_SCALE names the folder for the tables, which take two gigabytes.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np
import polars as pl

from benchmarks.lines import RESULTS, completed
from benchmarks.quality import THREADS
from benchmarks.scale import PART, home
from benchmarks.schedule import PEERS
from overtone.experiments.data import AIRLINE_INPUTS, load

ROWS, TEST_SHARE, MAX_TEST_ROWS = 6_000_000, 0.1, 20_000
JITTER = np.array([0, 1, 5, 5, 5, 0, 0, 0])  # of copies of a flight: a mile, and minutes
OURS = "convert", "fit", "predict", "evaluate", "report"
NAMES = {"convert": "conversion", "fit": "training", "predict": "prediction", "evaluate": "evaluation"}
COLUMNS = {
    "cores": "",
    "seconds": ",.0f",
    "megabytes": ",",
    "steps": ",",
    "log_density": ".3f",
    "rmse": ".2f",
    "coverage_95": ".1%",
}
METRICS = "log_density", "rmse", "crps", "coverage_95"


def make() -> Path:
    """Return the folder with the flights to train on, and others to test on, made if it is not there.

    A tenth of the complete flights of `airline_us_mixed` is kept for testing. The others are drawn with replacement,
    and copies of a flight differ by JITTER. So the size is that of the paper's table and the columns are real, while
    there is less to learn than from so many real flights.
    """
    folder = home() / "airline"
    if (folder / "test.parquet").exists():
        return folder
    (folder / "train").mkdir(parents=True, exist_ok=True)
    X, y = load(None, "airline_us_mixed")
    rng = np.random.default_rng(0)
    test, train = np.split(rng.permutation(len(X)), [round(TEST_SHARE * len(X))])
    for part in range(ROWS // PART):
        chosen = rng.choice(train, PART)
        write(folder / "train" / f"{part}.parquet", X[chosen] + JITTER * rng.uniform(-1, 1, (PART, 8)), y[chosen])
    write(folder / "test.parquet", X[test[:MAX_TEST_ROWS]], y[test[:MAX_TEST_ROWS]])
    return folder


def write(path: Path, X: np.ndarray, y: np.ndarray) -> None:
    """Write flights as a part of a table."""
    pl.DataFrame({**dict(zip(AIRLINE_INPUTS, X.T, strict=True)), "arr_delay": y}).write_parquet(path)


def watched(command: list) -> tuple[str, dict]:
    """Run a command, and return what it prints, and its seconds and peak memory."""
    with tempfile.TemporaryFile("w+") as output:
        began = perf_counter()
        process = subprocess.Popen(list(map(str, command)), stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        about = {"seconds": round(perf_counter() - began, 1), "megabytes": round(usage.ru_maxrss / 1024)}
        output.seek(0)
        text = output.read()
    if status:
        raise SystemExit(f"{command} failed:\n{text}")
    return text, about


def ours(part: str, minutes: int) -> dict:
    """Run one command of ours."""
    folder, command = make(), [sys.executable, "-m", "overtone.app.cli"]
    model, test = home() / "flights.safetensors", folder / "test.parquet"
    tables = ["--target", "arr_delay", "--convert", home() / "converted"]
    if part == "convert":
        return watched([sys.executable, "-m", "benchmarks.flights", "convert", folder / "train", *tables])[1]
    if part == "fit":
        settings = ["--budget", f"{minutes}m", "--validate", "0", "--quiet", "--out", model]
        text, about = watched([*command, "fit", folder / "train", *tables, *settings])
        steps, seconds = next(line for line in text.splitlines() if " steps, " in line).split(", ")[1:]
        return {**about, "steps": int(steps.split()[0].replace(",", "")), "training": float(seconds.split()[0])}
    if part == "predict":
        return watched([*command, "predict", model, test, "--out", home() / "predictions.parquet"])[1]
    if part == "report":
        return watched([*command, "report", model, test, "--out", home() / "report.html"])[1]
    text, about = watched([*command, "evaluate", model, test, "--json"])
    found = json.loads(text[text.index("{") :])
    return {**about, **{name: found[name] for name in METRICS}}


def peer(method: str, minutes: int) -> dict:
    """Train a peer on the same rows, standardised, and score it in the units of the target."""
    folder, path = make(), home() / "flights.npz"
    if not path.exists():
        train, test = (pl.read_parquet(each).to_numpy() for each in (folder / "train", folder / "test.parquet"))
        mean, std = train.mean(axis=0), train.std(axis=0)
        train, test = (((rows - mean) / std).astype(np.float32) for rows in (train, test))
        arrays = {"X": train[:, :-1], "y": train[:, -1], "X_test": test[:, :-1], "y_test": test[:, -1]}
        np.savez(path, **arrays, scale=std[-1:])
    told = json.dumps({"method": method, "seed": 0, "arrays": str(path), "seconds": [60 * minutes]})
    os.environ.update(dict.fromkeys(THREADS, str(len(os.sched_getaffinity(0)))))
    text, about = watched([PEERS, "-m", "benchmarks.gpytorch_curve", told])
    found, scale = json.loads(text.splitlines()[-1]), float(np.load(path)["scale"][0])
    found |= {"log_density": found["log_density"] - np.log(scale)}
    found |= {name: found[name] * scale for name in ("rmse", "crps")}
    return {**about, "steps": found["steps"], **{name: found[name] for name in METRICS}}


def measure(part: str, minutes: int) -> dict:
    """Measure one part, on as many cores as this process may use."""
    about = {"part": part, "minutes": minutes, "cores": len(os.sched_getaffinity(0))}
    return {**about, **(ours if part in OURS else peer)(part, minutes)}


def page(lines: list[dict]) -> str:
    """Return the figures as Markdown."""
    text = "| part | cores | seconds | peak memory, MB | steps | log density | RMSE, minutes | 95 % intervals cover |\n"
    text += "|---" + "|---:" * 7 + "|\n"
    for line in lines:
        cells = [format(line[name], form) if name in line else "" for name, form in COLUMNS.items()]
        text += f"| {NAMES.get(line['part'], line['part'])} | {' | '.join(cells)} |\n"
    return text


def convert(*arguments: str) -> None:
    """Convert a table, as `overtone fit` does first."""
    from overtone.app.cli import build_parser
    from overtone.tables.training import Reading, read_training_table

    read_training_table(Reading.of(build_parser().parse_args(["fit", *arguments, "--quiet"])))


def main(minutes: int = 10) -> None:
    """Measure each part that has no line yet."""
    parts = (*OURS, "gpytorch-dgp", "gpytorch-svgp")
    lines = completed(RESULTS / "flights.jsonl", [(p, minutes) for p in parts], ("part", "minutes"), measure)
    (RESULTS / "flights.md").write_text(page(lines))


if __name__ == "__main__":
    if sys.argv[1:2] == ["convert"]:
        convert(*sys.argv[2:])
    else:
        main(*map(int, sys.argv[1:]))
