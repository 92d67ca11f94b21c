"""Tables larger than memory: peak memory and pace on the disk and in memory, by the number of rows, and processes.

    python -m benchmarks.scale make       # writes tables of 1, 5 and 20 million rows of 8 inputs below OVERTONE_SCALE
    python -m benchmarks.scale            # measures what benchmarks/results/scale.jsonl does not have yet

Each measurement is a process of its own. The pace is that of steps 200 to 1,200 of the usual deep model, so that
neither compilation nor the passes before and after count. The tables are parts of a million rows, in Parquet.
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
FIRST_STEPS, LAST_STEPS, ROUNDS, PORT = 200, 1200, 3, 29711


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
    from overtone.sklearn import DeepGPRegressor
    from overtone.tables.training import Reading, read_training_table

    began, folder = time.perf_counter(), make(int(num))
    if where == "disk":
        arguments = ["fit", str(folder), "--target", "y", "--quiet", "--convert", str(home() / "converted")]
        rows = read_training_table(Reading.of(build_parser().parse_args(arguments))).rows
        X, y = rows.X, rows.y
    else:
        frame = pl.concat([pl.read_parquet(part) for part in sorted(folder.iterdir())])
        X, y = frame.drop("y").to_numpy(), frame["y"].to_numpy()
    read = time.perf_counter() - began
    log = home() / f"{os.getpid()}.jsonl"
    DeepGPRegressor(max_steps=LAST_STEPS, neighbours="no").fit(X, y, log=log)
    print(json.dumps({"read_seconds": round(read, 1), "steps_per_second": pace(log), "megabytes": megabytes()}))


def pace(log: Path) -> float:
    """Return the steps per second of a log of training, without the first ones."""
    lines = [line for line in map(json.loads, log.read_text().splitlines()) if line["step"] >= FIRST_STEPS]
    log.unlink()
    return round((lines[-1]["step"] - lines[0]["step"]) / (lines[-1]["seconds"] - lines[0]["seconds"]), 2)


def several(num: str) -> None:
    """Fit a table in so many processes with a core and a thread each, and print the pace."""
    folder, log = make(ROWS[0]), home() / f"{os.getpid()}.jsonl"
    settings = {"target": "y", "convert": home() / "converted", "steps": LAST_STEPS, "batch-size": 2048, "log": log}
    settings |= {"neighbours": "no", "out": home() / "together.safetensors"}
    command = ["-m", "overtone.app.cli", "fit", folder, "--quiet", *(f"--{k}={v}" for k, v in settings.items())]
    processes = []
    for index in range(int(num)):
        own = [f"--coordinator=127.0.0.1:{PORT}", f"--num-processes={num}", f"--process-id={index}"]
        run = ["taskset", "-c", str(index), sys.executable, *map(str, command), *(own if num != "1" else [])]
        processes.append(subprocess.Popen(run, stdout=subprocess.DEVNULL))
    assert all(process.wait() == 0 for process in processes)
    print(json.dumps({"steps_per_second": pace(log)}))


def measure(what: str, where: str, num: int, number: int) -> dict:
    about = {"what": what, "where": where, "rows": num, "round": number}
    return {**about, **(child("fitted", where, str(num)) if what == "fit" else child("several", where))}


def main() -> None:
    """Measure each case that has no line yet."""
    cases = [("fit", where, num, 0) for num in ROWS for where in ("disk", "memory")]
    cases += [("fit", where, ROWS[0], number) for number in range(1, ROUNDS) for where in ("disk", "memory")]
    cases += [("processes", num, ROWS[0], number) for number in range(ROUNDS - 1) for num in ("1", "2")]
    lines = completed(RESULTS / "scale.jsonl", cases, ("what", "where", "rows", "round"), measure)
    (RESULTS / "scale.md").write_text(table(lines))


def table(lines: list[dict]) -> str:
    """Return the figures as Markdown: medians over rounds."""

    def median(name: str, **chosen: object) -> str:
        found = [line[name] for line in lines if chosen.items() <= line.items()]
        return f"{np.median(found):,.{0 if np.median(found) > 99 else 1}f}" if found else ""

    rows = [
        "| rows | on the disk: steps per second | MB | in memory: steps per second | MB |",
        "|---:|---:|---:|---:|---:|",
    ]
    for num in ROWS:
        cells = [
            median(name, what="fit", where=where, rows=num)
            for where in ("disk", "memory")
            for name in ("steps_per_second", "megabytes")
        ]
        rows.append(f"| {num:,} | {' | '.join(cells)} |")
    one, two = (median("steps_per_second", what="processes", where=num) for num in ("1", "2"))
    return "\n".join([*rows, "", f"Batches of 2,048 rows: {one} steps per second in one process with one core and"
                      f" one thread, {two} in two such processes.", ""])  # fmt: skip


if __name__ == "__main__":
    command, *arguments = sys.argv[1:] or [""]
    if command == "make":
        print(*map(make, ROWS))
    elif command:
        {"fitted": fitted, "several": several}[command](*arguments)
    else:
        main()
