"""Fit random tables, of the kinds that break things: there should be no exception, and nothing that is not finite.

Writes one JSON line for each table to results/random_tables.jsonl; tables that are there are not fitted again. Several
processes may share the work: each takes its part of the numbers.

    python -m benchmarks.random_tables [tables [part parts]]
"""

import json
import sys
import traceback
from time import perf_counter

import numpy as np

from benchmarks.lines import RESULTS
from overtone.numerics.compiling import forget_programs
from overtone.sklearn import DeepGPRegressor

STEPS, PATH = 30, RESULTS / "random_tables.jsonl"


def table(seed: int) -> tuple[np.ndarray, np.ndarray, dict]:
    """Make 1 to 20 inputs of 20 to 20,000 rows, and a target.

    Columns may be constant, duplicated, heavy-tailed or discrete, and have any scale.
    """
    rng = np.random.default_rng(seed)
    rows, inputs = int(np.exp(rng.uniform(np.log(20), np.log(20_000)))), int(rng.integers(1, 21))
    X = rng.standard_normal((rows, inputs))
    for j in range(inputs):
        kind = rng.choice(["normal", "constant", "duplicate", "heavy", "discrete"], p=[0.5, 0.1, 0.1, 0.2, 0.1])
        if kind == "constant":
            X[:, j] = rng.standard_normal()
        elif kind == "duplicate":
            X[:, j] = X[:, rng.integers(j + 1)]
        elif kind == "heavy":
            X[:, j] = rng.standard_cauchy(rows)
        elif kind == "discrete":
            X[:, j] = rng.integers(3, size=rows)
    target = rng.choice(["smooth", "noise", "steps", "constant", "heavy"], p=[0.4, 0.2, 0.2, 0.05, 0.15])
    first = np.clip(X[:, 0], -3, 3)
    y = {
        "smooth": np.sin(3 * first) + 0.1 * rng.standard_normal(rows),
        "noise": rng.standard_normal(rows),
        "steps": np.sign(first) + 0.05 * rng.standard_normal(rows),
        "constant": np.full(rows, rng.standard_normal()),
        "heavy": rng.standard_t(1.5, size=rows),
    }[target]
    outliers = rng.random() < 0.3
    if outliers:
        y[rng.integers(rows, size=max(1, rows // 200))] += 1e3 * rng.standard_normal()
    X = X * 10.0 ** rng.uniform(-9, 9, size=inputs) + 10.0 ** rng.uniform(-9, 9) * rng.standard_normal(inputs)
    y = y * 10.0 ** rng.uniform(-9, 9)
    return X, y, {"rows": rows, "inputs": inputs, "target": str(target), "outliers": bool(outliers)}


def check(seed: int) -> dict:
    """Return whether all predictions of a fit are finite, or the exception."""
    X, y, about = table(seed)
    start = perf_counter()
    try:
        model = DeepGPRegressor(max_steps=STEPS, random_state=seed).fit(X, y)
        rows = X[:: 1 + len(X) // 200]
        results = [*model.predict(rows, return_std=True), model.predict_quantiles(rows, [0.05, 0.95])]
        results.append(model.log_predictive_density(rows, y[:: 1 + len(X) // 200]))
        finite = all(np.all(np.isfinite(result)) for result in results)
        outcome = "finite" if finite else "not finite"
    except Exception:
        outcome = traceback.format_exc().strip().splitlines()[-1][:300]
    forget_programs()
    return {"table": seed, **about, "outcome": outcome, "seconds": perf_counter() - start}


def lines() -> list[dict]:
    """Return what was measured so far."""
    return [json.loads(line) for line in PATH.read_text().splitlines()] if PATH.exists() else []


def main(num: int = 200, part: int = 0, parts: int = 1) -> None:
    """Check a part of the tables."""
    done = {line["table"] for line in lines()}
    for seed in [seed for seed in range(num) if seed not in done and seed % parts == part]:
        result = check(seed)
        with PATH.open("a") as file:
            file.write(json.dumps(result) + "\n")
        print(result, flush=True)
    outcomes = [line["outcome"] for line in lines()]
    print(f"{outcomes.count('finite')} of {len(outcomes)} fits are finite throughout.")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
