"""How long `overtone fit --budget` takes from call to return, with an empty compilation cache and with a filled one.

Each run is a new process; of each table, the second run has the programs that the first one compiled. Writes
results/budgets.jsonl, one line for each run; those that are there are not run again.

    OVERTONE_DATA=FOLDER python -m benchmarks.budgets [seconds]
"""

import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from time import perf_counter

import polars as pl

from benchmarks.lines import RESULTS, completed
from benchmarks.tables import load

TABLES, SECONDS = ("uci_concrete", "uci_energy", "uci_kin8nm", "parking_birmingham"), 30
CACHES = "empty", "filled"


def measure(table: str, cache: str, budget: int, folder: Path) -> dict:
    """Fit a table by the command line, and return how long that took, and what it reached."""
    path, (X, y) = folder / f"{table}.csv", load(table)
    pl.DataFrame({**{f"x{j}": column for j, column in enumerate(X.T)}, "y": y}).write_csv(path)
    command = [sys.executable, "-m", "overtone.app.cli", "fit", path, "--target", "y", "--quiet"]
    command += ["--budget", f"{budget}s", "--out", folder / "model.safetensors"]
    programs = folder / table

    def fit() -> str:
        kept = {**os.environ, "OVERTONE_CACHE": str(programs)}
        return subprocess.run(list(map(str, command)), env=kept, capture_output=True, text=True, check=True).stdout

    if cache == "filled" and not programs.exists():  # a run that was stopped between the two goes on
        fit()
    began = perf_counter()
    printed = fit()
    seconds = perf_counter() - began
    densities = next(line.split() for line in printed.splitlines() if line.strip().startswith("log density"))
    about = {"table": table, "cache": cache, "budget": budget, "cores": len(os.sched_getaffinity(0))}
    return {**about, "seconds": round(seconds, 1), "log_density": float(densities[2]), "rows": len(y)}


def page(lines: list[dict]) -> str:
    """Return the figures as Markdown."""
    text = "| table | rows | cores | compilation cache | budget, s | from call to return, s | over the budget |\n"
    text += "|---|---:|---:|---|---:|---:|---:|\n"
    for line in lines:
        cells = line["table"], f"{line['rows']:,}", line["cores"], line["cache"], line["budget"], line["seconds"]
        text += f"| {' | '.join(map(str, cells))} | {line['seconds'] / line['budget']:.2f} |\n"
    return text


def main(budget: int = SECONDS) -> None:
    """Measure each run that has no line yet."""
    with tempfile.TemporaryDirectory() as folder:
        cases = [(table, cache, budget) for table in TABLES for cache in CACHES]
        path, names = RESULTS / "budgets.jsonl", ("table", "cache", "budget")
        completed(path, cases, names, partial(measure, folder=Path(folder)))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
