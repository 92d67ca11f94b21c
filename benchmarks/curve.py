"""Train a peer by the clock for the quality benchmark, and look at the test rows after given seconds.

This module needs NumPy and SciPy only, so that every environment can import it. A case is one JSON argument, with the
path of the arrays; each result is one JSON line. The clock counts training alone: neither imports, nor the first step,
which may compile something, nor evaluation.
"""

import json
import sys
from collections.abc import Callable
from time import perf_counter

import numpy as np
from scipy.special import logsumexp
from scipy.stats import norm

POINTS, BATCH, RATE, DRAWS = 128, 1024, 0.01, 32


def case() -> tuple[dict, dict[str, np.ndarray]]:
    """Return the settings of this case, and its arrays."""
    settings = json.loads(sys.argv[1])
    with np.load(settings["arrays"]) as arrays:
        return settings, {name: arrays[name].astype(np.float32) for name in arrays.files}


def mixture_metrics(y: np.ndarray, log_weights: np.ndarray, means: np.ndarray, variances: np.ndarray) -> dict:
    """Return the figures of a mixture of Gaussians for each row, whose means and variances are (S, N)."""
    log_weights, std = np.asarray(log_weights, float)[:, None], np.sqrt(variances.astype(float))
    below = np.sum(np.exp(log_weights) * norm.cdf(y, means, std), axis=0)
    mean = np.sum(np.exp(log_weights) * means, axis=0)
    return {
        "log_density": float(np.mean(logsumexp(log_weights + norm.logpdf(y, means, std), axis=0))),
        "rmse": float(np.sqrt(np.mean((mean - y) ** 2))),
        "coverage": float(np.mean((below > 0.025) & (below < 0.975))),
    }


def follow(seconds: list[float], step: Callable[[], None], evaluate: Callable[[], dict]) -> None:
    """Take steps, and print an evaluation after each of the given times."""
    step()  # takes the time of any compilation, which is not counted
    spent, steps = 0.0, 1
    for goal in seconds:
        while spent < goal:
            start = perf_counter()
            step()
            spent, steps = spent + perf_counter() - start, steps + 1
        print(json.dumps({"seconds": spent, "steps": steps, **evaluate()}), flush=True)
