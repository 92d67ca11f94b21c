"""Measure test log density, RMSE and coverage over wall-clock, ours and the peers', on the same splits.

Every run is a process of its own on one core, and as many run side by side as there are cores. Writes one JSON line for
each point of a curve. A run that was stopped goes on with the cases that are not complete; delete a case's lines from
results/quality.jsonl to measure it anew.

    OVERTONE_DATA=folder python -m benchmarks.quality [--cores 0,1] [--methods a,b] [--tables a,b] [--seeds 0,1,2]

Peers train on and are looked at after given seconds. Ours are told how much time they have, so each point is a fit
of its own, from the call to the fitted model, with whatever programs earlier fits left in the compilation cache.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from time import sleep

import numpy as np

from benchmarks.tables import NAMES, TIME_ORDERED, load, split

RESULTS = Path(__file__).parent / "results" / "quality.jsonl"
OURS, PEERS = sys.executable, ".venv-bench/bin/python"
SECONDS, BUDGETS = [10, 20, 30, 60, 90, 120], [30, 120]
FAMILY = ("overtone-dgp", "overtone-vff", "overtone-svgp")  # id-dgp is the default
METHODS = {
    "overtone": (OURS, "overtone_curve", BUDGETS),
    "overtone-last": (OURS, "overtone_curve", BUDGETS),  # held_out="last", for splits in time
    "gpytorch-dgp": (PEERS, "gpytorch_curve", SECONDS),
    "gpytorch-dspp": (PEERS, "gpytorch_curve", SECONDS),
    "gpytorch-svgp": (PEERS, "gpytorch_curve", SECONDS),
    "gpflux-dgp": (PEERS, "gpflux_curve", SECONDS),
    "boosting": (OURS, "boosting_curve", [0]),
    **dict.fromkeys(FAMILY, (OURS, "overtone_curve", BUDGETS)),
}


def arrays(name: str, seed: int, folder: str) -> str:
    """Return the path of a file with both parts of a split, all columns standardised by the training rows."""
    path = Path(folder) / f"{name}-{seed}.npz"
    if not path.exists():
        X, y = load(name)
        train, test = split(name, len(X), seed)
        columns = np.column_stack([X, y])
        mean, std = columns[train].mean(axis=0), columns[train].std(axis=0)
        columns = (columns - mean) / np.where(std > 0, std, 1)
        parts = {"X": columns[train, :-1], "y": columns[train, -1]}
        np.savez(path, **parts, X_test=columns[test, :-1], y_test=columns[test, -1])
    return str(path)


def sensible(case: dict) -> bool:
    """Return whether a case makes sense.

    A split in time has no seed; one method is for such splits alone, and the paper's others for the rest.
    """
    if case["table"] in NAMES:
        return case["method"] != "overtone-last"
    return case["seed"] == 0 and case["method"] not in FAMILY


def complete(case: dict) -> bool:
    """Return whether all points of a case were measured."""
    lines = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    of_case = [line for line in lines if all(line.get(key) == value for key, value in case.items())]
    return len(of_case) >= len(METHODS[case["method"]][2])


def start(case: dict, core: int, folder: str) -> subprocess.Popen:
    """Start the process of a case on one core."""
    python, worker, seconds = METHODS[case["method"]]
    told = {**case, "arrays": arrays(case["table"], case["seed"], folder), "seconds": seconds}
    command = ["taskset", "--cpu-list", str(core), python, "-m", f"benchmarks.{worker}", json.dumps(told)]
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"}
    with log(folder, core).open("w") as output:
        return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **threads})


def log(folder: str, core: int) -> Path:
    """Return where the process on a core writes what it prints."""
    return Path(folder) / f"{core}.log"


def finish(case: dict, returned: int, lines: list[str]) -> None:
    """Keep the points that a process printed, or why it failed."""
    points = [json.loads(line) for line in lines if line.startswith("{")]
    if returned:
        points = [{"failed": " ".join(lines[-1:])[:200] or f"exit {returned}"}]
    with RESULTS.open("a") as file:
        file.write("".join(json.dumps({**case, **point}) + "\n" for point in points))
    print(case["table"], case["seed"], case["method"], points[-1], flush=True)


def main() -> None:
    """Measure the cases that are not complete, one on each core at a time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cores", default=",".join(map(str, sorted(os.sched_getaffinity(0)))))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--tables", default=",".join((*NAMES, *TIME_ORDERED)))
    parser.add_argument("--seeds", default="0,1,2")
    chosen = parser.parse_args()
    seeds, methods, tables = map(int, chosen.seeds.split(",")), chosen.methods.split(","), chosen.tables.split(",")
    cases = [{"table": t, "seed": s, "method": m} for s, m, t in product(seeds, methods, tables)]
    cases = [case for case in cases if sensible(case) and not complete(case)]
    free, running = list(map(int, chosen.cores.split(","))), []
    with tempfile.TemporaryDirectory() as folder:
        while cases or running:
            while cases and free:
                case, core = cases.pop(0), free.pop()
                running.append((case, core, start(case, core, folder)))
            for entry in [entry for entry in running if entry[2].poll() is not None]:
                running.remove(entry)
                free.append(entry[1])
                finish(entry[0], entry[2].returncode, log(folder, entry[1]).read_text().splitlines())
            sleep(0.2)


if __name__ == "__main__":
    main()
