"""Tables larger than memory: peak memory and pace on the disk and in memory, by the number of rows, and processes.

    python -m benchmarks.scale make       # writes tables of 1, 5 and 20 million rows of 8 inputs below OVERTONE_SCALE
    python -m benchmarks.scale            # measures what benchmarks/results/scale.jsonl does not have yet
    python -m benchmarks.scale airline    # writes 6,000,000 flights, from the real tables in OVERTONE_DATA

Each measurement is a process of its own. The pace is that of steps 200 to 700 of the usual deep model, so that neither
compilation nor the passes before and after count. The tables are parts of a million rows, in Parquet.
"""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.lines import RESULTS, completed

ROWS, PART = (1_000_000, 5_000_000, 20_000_000), 1_000_000
FIRST_STEPS, LAST_STEPS, ROUNDS = 200, 700, 3
AIRLINE_ROWS, AIRLINE_TEST = 6_000_000, 0.1
AIRLINE_INPUTS = "age", "distance", "air_time", "dep_time", "arr_time", "day_of_week", "day_of_month", "month"


def home() -> Path:
    """Return the folder of the tables that this script makes."""
    return Path(os.environ.get("OVERTONE_SCALE", "overtone-scale"))


def make(num: int) -> Path:
    """Return the folder of a table of so many random rows, made if it is not there."""
    import polars as pl

    folder = home() / f"{num // PART}M"
    folder.mkdir(parents=True, exist_ok=True)
    for part in range(num // PART):
        path, rng = folder / f"{part:02}.parquet", np.random.default_rng(part)
        if not path.exists():
            X = rng.random((PART, 8))
            y = np.sin(6 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.standard_normal(PART)
            columns = {f"x{j + 1}": column for j, column in enumerate(X.T)}
            pl.DataFrame({**columns, "y": y}).write_parquet(path)
    return folder


def child(command: str, *arguments: str) -> dict:
    """Run a part of this script in a new process and return what it says."""
    run = [sys.executable, "-m", "benchmarks.scale", command, *arguments]
    return json.loads(subprocess.run(run, capture_output=True, text=True, check=True).stdout.splitlines()[-1])


def megabytes() -> float:
    """Return the peak memory of this process."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def fitted(where: str, num: str) -> None:
    """Fit a table, on the disk or in memory, and print seconds and memory."""
    import polars as pl

    from overtone.app.cli import build_parser
    from overtone.app.training import read_training_table
    from overtone.sklearn import DeepGPRegressor

    began, folder = time.perf_counter(), make(int(num))
    if where == "disk":
        arguments = ["fit", str(folder), "--target", "y", "--quiet", "--convert", str(home() / "converted")]
        rows = read_training_table(build_parser().parse_args(arguments)).rows
        X, y = rows.X, rows.y
    else:
        frame = pl.concat([pl.read_parquet(part) for part in sorted(folder.iterdir())])
        X, y = frame.drop("y").to_numpy(), frame["y"].to_numpy()
    read = time.perf_counter() - began
    times = []
    for steps in (FIRST_STEPS, FIRST_STEPS, LAST_STEPS):
        began = time.perf_counter()
        DeepGPRegressor(max_steps=steps, neighbours="no").fit(X, y)
        times.append(time.perf_counter() - began)
    pace = (LAST_STEPS - FIRST_STEPS) / (times[2] - times[1])
    print(json.dumps({"read_seconds": round(read, 1), "steps_per_second": round(pace, 2), "megabytes": megabytes()}))


def used(command: str, num: str) -> None:
    """Predict or evaluate a table with a small model, and print seconds and memory."""
    from overtone.app.cli import main
    from overtone.sklearn import DeepGPRegressor

    path, folder = home() / "model.safetensors", make(int(num))
    if not path.exists():
        import polars as pl

        frame = pl.read_parquet(folder / "00.parquet")[:5000]
        DeepGPRegressor(max_steps=300, n_layers=1).fit(frame.drop("y"), frame["y"]).save(path)
    began = time.perf_counter()
    out = ["--out", str(home() / "predictions.parquet")] if command == "predict" else []
    main([command, str(path), str(folder), *out])
    print(json.dumps({"seconds": round(time.perf_counter() - began, 1), "megabytes": megabytes()}))


def measure(what: str, where: str, num: int, number: int) -> dict:
    about = {"what": what, "where": where, "rows": num, "round": number}
    return {**about, **(child("fitted", where, str(num)) if what == "fit" else child("used", what, str(num)))}


def airline() -> Path:
    """Return the folder with 6,000,000 flights to train on, and others to test on.

    A tenth of the complete flights of `airline_us_mixed` is kept for testing. The others are drawn with replacement,
    and the copies of a flight differ: its times by up to five minutes, its distance by up to a mile. So the size is
    that of the paper's table and the columns are real, while there is less to learn than from so many real flights.
    """
    import polars as pl

    from overtone.experiments.data import load

    folder = home() / "airline"
    if (folder / "test.parquet").exists():
        return folder
    (folder / "train").mkdir(parents=True, exist_ok=True)
    X, y = load(None, "airline_us_mixed")
    rng = np.random.default_rng(0)
    order = rng.permutation(len(X))
    test, train = np.split(order, [round(AIRLINE_TEST * len(X))])

    def write(path: Path, X: np.ndarray, y: np.ndarray) -> None:
        columns = dict(zip(AIRLINE_INPUTS, X.T, strict=True))
        pl.DataFrame({**columns, "arr_delay": y}).write_parquet(path)

    jitter = np.array([0, 1, 5, 5, 5, 0, 0, 0])
    for part in range(AIRLINE_ROWS // PART):
        chosen = rng.choice(train, PART)
        write(folder / "train" / f"{part}.parquet", X[chosen] + jitter * rng.uniform(-1, 1, (PART, 8)), y[chosen])
    write(folder / "test.parquet", X[test], y[test])
    return folder


def main() -> None:
    """Measure each case that has no line yet."""
    cases = [("fit", where, num, 0) for num in ROWS for where in ("disk", "memory")]
    cases += [("fit", where, ROWS[0], number) for number in range(1, ROUNDS) for where in ("disk", "memory")]
    cases += [(what, "disk", num, 0) for what in ("predict", "evaluate") for num in ROWS[:2]]
    completed(RESULTS / "scale.jsonl", cases, ("what", "where", "rows", "round"), measure)


if __name__ == "__main__":
    command, *arguments = sys.argv[1:] or [""]
    if command == "make":
        print(*map(make, ROWS))
    elif command == "airline":
        print(airline())
    elif command in ("fitted", "used"):
        {"fitted": fitted, "used": used}[command](*arguments)
    else:
        main()
