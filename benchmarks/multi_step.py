"""Measure how far the default comes from a shallow fit to the true function, the multi-step one, with ten seeds.

Writes one JSON line for each seed to results/multi_step.jsonl; a run that was stopped goes on where it was. The clock
counts all of `fit`, with compiled programs in the cache.

    python -m benchmarks.multi_step [seconds]
"""

import sys
from time import perf_counter

import numpy as np

from benchmarks.lines import resumed
from overtone.experiments.data import HEIGHTS, NOISE, multi_step
from overtone.sklearn import DeepGPRegressor

SEEDS, ROWS, WARM_UP = 10, 400, 600  # steps enough for the shapes of the programs to be those of a long fit


def compared(seed: int, seconds: float) -> dict:
    """Return the test log densities of the true function, a shallow model and the default, for one seed."""
    (X, y), (X_test, y_test) = multi_step(seed, ROWS), multi_step(1000 + seed, 1000)
    true = HEIGHTS[np.minimum((X_test[:, 0] * len(HEIGHTS)).astype(int), len(HEIGHTS) - 1)]
    result = {"seed": seed, "truth": _log_normal(y_test - true, NOISE)}
    for name, method in (("shallow", "vff"), ("default", "id-dgp")):
        DeepGPRegressor(method, max_steps=WARM_UP, random_state=seed).fit(X, y)  # compiles what is not in the cache
        start = perf_counter()
        model = DeepGPRegressor(method, max_time=seconds, random_state=seed).fit(X, y)
        result[f"{name}_seconds"] = perf_counter() - start
        result[name] = float(np.mean(model.log_predictive_density(X_test, y_test)))
    return {**result, "share": (result["default"] - result["shallow"]) / (result["truth"] - result["shallow"])}


def _log_normal(miss: np.ndarray, std: float) -> float:
    """Return the mean log density of normal errors."""
    return float(np.mean(-0.5 * np.log(2 * np.pi * std**2) - 0.5 * (miss / std) ** 2))


def main(seconds: float) -> None:
    """Compare both for all seeds, and print how many come nearly all of the way."""
    shares = [line["share"] for line in resumed("multi_step", SEEDS, lambda seed: compared(seed, seconds))]
    print(f"{sum(share >= 0.9 for share in shares)} of {len(shares)} seeds come 90 % of the way; {np.round(shares, 2)}")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)
