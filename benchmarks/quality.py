"""Measure test log density, CRPS, RMSE and coverage, ours and the peers', on the same splits.

Every case is a process of its own on one core, and as many run side by side as there are cores. Writes JSON lines to
results/comparison.jsonl. A run that was stopped goes on with the cases that have no line; delete a case's line to
measure it anew. `--list` shows what is left to measure, with core-minutes; `--again` measures anew what has only a line
of an earlier release. `benchmarks/schedule.py` says what is measured.

    OVERTONE_DATA=folder python -m benchmarks.quality [--list] [--cores 0,1] [--methods a,b] [--tables a,b] [--seeds 0]

Peers that train by the clock are looked at when their time is over. Ours are told how much time they have, from the
call to the fitted model, with whatever programs earlier fits left in the compilation cache.
"""

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path
from time import perf_counter, sleep
from typing import NamedTuple

import numpy as np

from benchmarks.lines import RESULTS
from benchmarks.schedule import WORKERS, Case, cases, costs
from benchmarks.tables import load, num_repeated, split

PATH = RESULTS / "comparison.jsonl"
MOST_SECONDS = 3600  # after which a process is ended
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"), "1")


class Running(NamedTuple):
    """A case that a process on a core is working on."""

    case: Case
    about: dict
    core: int
    process: subprocess.Popen
    log: Path
    began: float


def arrays(case: Case, folder: Path) -> tuple[Path, dict]:
    """Return a file with both parts of a split, all columns standardised by the training rows, and what it holds."""
    path = folder / f"{case.table}-{case.seed}.npz"
    note = path.with_suffix(".json")
    if not path.exists():
        X, y = load(case.table)
        train, test = split(case.table, X, case.seed)
        columns = np.column_stack([X, y])
        mean, std = columns[train].mean(axis=0), columns[train].std(axis=0)
        columns = (columns - mean) / np.where(np.ptp(columns[train], axis=0) > 0, std, 1)
        parts = {"X": columns[train, :-1], "y": columns[train, -1]}
        np.savez(path, **parts, X_test=columns[test, :-1], y_test=columns[test, -1])
        about = {"rows": len(train), "inputs": X.shape[1], "test_rows": len(test), "values": len(np.unique(y[train]))}
        about |= {"repeated": num_repeated(X[train], X[test]), "scale": float(std[-1])}
        note.write_text(json.dumps(about))
    return path, json.loads(note.read_text())


def start(case: Case, core: int, folder: Path) -> Running:
    """Start the process of a case on one core."""
    python, worker = WORKERS[case.method]
    path, about = arrays(case, folder)
    told = json.dumps({**case.key, "arrays": str(path), "seconds": [case.seconds]})
    command, log = (
        ["taskset", "--cpu-list", str(core), python, "-m", f"benchmarks.{worker}", told],
        folder / f"{core}.log",
    )
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **THREADS})
    return Running(case, about, core, process, log, perf_counter())


def finish(running: Running, path: Path) -> None:
    """Keep what a process printed, or why it failed."""
    lines = running.log.read_text().splitlines()
    points = [json.loads(line) for line in lines if line.startswith("{")]
    if running.process.returncode or not points:
        points = [{"failed": " ".join(lines[-1:])[:200] or f"exit {running.process.returncode}"}]
    about = {**running.about, "process_seconds": round(perf_counter() - running.began, 1)}
    with path.open("a") as file:
        file.write("".join(json.dumps({**running.case.key, **about, **point}) + "\n" for point in points))
    print(*running.case.key.values(), points[-1], flush=True)


def missing(path: Path, again: bool) -> list[Case]:
    """Return the cases that have no line."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {(line["table"], line["seed"], line["method"]) for line in lines if not (again and "release" in line)}
    return [case for case in cases() if tuple(case.key.values()) not in done]


def measure(left: list[Case], free: list[int], path: Path) -> None:
    """Measure cases, one on each core at a time."""
    running: list[Running] = []
    with tempfile.TemporaryDirectory() as name:
        while left or running:
            while left and free:
                running.append(start(left.pop(0), free.pop(), Path(name)))
            for each in list(running):
                if each.process.poll() is not None:
                    running.remove(each)
                    free.append(each.core)
                    finish(each, path)
                elif perf_counter() - each.began > MOST_SECONDS:
                    each.process.kill()
            sleep(0.2)


def main() -> None:
    """Measure the cases that are left, or list them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cores", default=",".join(map(str, sorted(os.sched_getaffinity(0)))))
    for name in ("methods", "tables", "seeds"):
        parser.add_argument(f"--{name}", help="names or numbers with commas between them; all without it")
    parser.add_argument("--list", action="store_true", help="show what is left to measure, and measure nothing")
    parser.add_argument("--again", action="store_true", help="measure anew what an earlier release measured")
    parser.add_argument("--out", type=Path, default=PATH, help="the file of JSON lines")
    chosen = parser.parse_args()
    left = missing(chosen.out, chosen.again)
    for name, of in (("methods", "method"), ("tables", "table"), ("seeds", "seed")):
        if wanted := getattr(chosen, name):
            left = [case for case in left if str(getattr(case, of)) in wanted.split(",")]
    if chosen.list:
        print(costs(left), end="")
    else:
        measure(left, list(map(int, chosen.cores.split(","))), chosen.out)


if __name__ == "__main__":
    main()
