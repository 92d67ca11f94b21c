"""Measure how many rows a second are predicted, and how long neighbours take to be fitted and asked.

The model is the default for eight inputs, two layers, after a short training; rates are the best of three calls, and
those of GPyTorch's deep GP and LightGBM stand beside them. GPs of neighbours are fitted to made-up scores of 50,000 and
1,000,000 rows. Writes results/prediction.jsonl.

    python -m benchmarks.prediction
"""

import json
import resource
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks.lines import RESULTS
from benchmarks.schedule import PEERS
from overtone.inference.neighbours import fit_neighbours, said_by_neighbours, search_of, with_rows
from overtone.sklearn import DeepGPRegressor

ROWS, TRAINED = 16_384, 8_000
GOALS = {"mean": 20_000, "mean and standard deviation": 20_000, "log density": 10_000, "quantiles": 10_000}
GOALS["evaluate"] = 10_000


def best(compute: Callable, times: int = 3) -> float:
    """Return the seconds of the quickest of some calls, after one that compiles."""
    seconds = []
    for _ in range(times + 1):
        began = perf_counter()
        compute()
        seconds.append(perf_counter() - began)
    return min(seconds[1:])


def rates(model: DeepGPRegressor, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Return rows per second of each kind of prediction."""
    calls = {
        "mean": lambda: model.predict(X),
        "mean and standard deviation": lambda: model.predict(X, return_std=True),
        "log density": lambda: model.log_predictive_density(X, y),
        "quantiles": lambda: model.predict_quantiles(X, [0.025, 0.5, 0.975]),
        "evaluate": lambda: model.evaluate(X, y),
    }
    return {name: len(X) / best(call) for name, call in calls.items()}


def of_predictions() -> list[dict]:
    rng = np.random.default_rng(0)
    X = rng.random((TRAINED + ROWS, 8))
    y = np.sin(6 * X[:, 0] * X[:, 1]) + X[:, 2] + 0.2 * rng.standard_normal(len(X))
    train = X[:TRAINED], y[:TRAINED]
    model = DeepGPRegressor(max_steps=200).fit(*train)
    X, y, lines = X[TRAINED:], y[TRAINED:], []
    model.neighbours_ = ()
    lines += [{"what": name, "rows_per_second": rate} for name, rate in rates(model, X, y).items()]
    Z = model._inputs(X)[0]
    model.neighbours_ = (
        with_rows(fit_neighbours(Z[:5000], rng.standard_normal(5000)), Z, rng.standard_normal(len(Z))),
    )
    lines += of_peers(*train, X)
    lines += [
        {"what": f"{name}, with neighbours", "rows_per_second": rate} for name, rate in rates(model, X, y).items()
    ]
    return lines


def of_peers(X: np.ndarray, y: np.ndarray, X_new: np.ndarray) -> list[dict]:
    """Return the rates of GPyTorch's deep GP and of LightGBM, in the environment of the peers."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npz"
        np.savez(path, X=X, y=y, X_new=X_new)
        command = [PEERS, "-m", "benchmarks.prediction_peers", str(path)]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def of_neighbours(num: int) -> dict:
    """Return how long the GP of so many rows' scores takes, and the most memory that the process has had."""
    rng = np.random.default_rng(0)
    X = rng.random((num, 8)).astype("float32")
    scores, asked = np.sin(20 * X[:, 0]) + rng.standard_normal(num), rng.random((20_000, 8))
    began = perf_counter()
    process = fit_neighbours(X, scores)
    fitted = perf_counter() - began
    began = perf_counter()
    search_of(process)
    found = {"neighbours": num, "fit": fitted, "search": perf_counter() - began}
    found["rows_per_second"] = len(asked) / best(lambda: said_by_neighbours(process, asked))
    return {**found, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def page(lines: list[dict]) -> str:
    text = "| prediction, 8 inputs, two layers | rows per second | aimed at |\n|---|---:|---:|\n"
    for line in lines:
        if "what" in line:
            text += f"| {line['what']} | {line['rows_per_second']:,.0f} | {GOALS.get(line['what'], '')} |\n"
    text += "\n| rows with scores, 8 inputs | fit, s | tree, s | asked, rows per second | peak memory, MB |\n"
    text += "|---" + "|---:" * 4 + "|\n"
    for line in lines:
        if "neighbours" in line:
            times = f"{line['fit']:.1f} | {line['search']:.1f} | {line['rows_per_second']:,.0f}"
            text += f"| {line['neighbours']:,} | {times} | {line['peak_mb']:,.0f} |\n"
    return text


def main() -> None:
    lines = [*of_predictions(), of_neighbours(50_000), of_neighbours(1_000_000)]
    (RESULTS / "prediction.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    print(page(lines))


if __name__ == "__main__":
    main()
