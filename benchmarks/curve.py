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
from scipy.special import logsumexp, ndtr
from scipy.stats import norm

POINTS, BATCH, RATE, DRAWS = 128, 1024, 0.01, 32
LEVELS = 50, 80, 95
WINDOW, PATIENCE, LEAST_GAIN = 500, 6, 1e-3  # steps whose objectives are averaged; averages; nats per row


def case() -> tuple[dict, dict[str, np.ndarray]]:
    """Return the settings of this case, and its arrays."""
    settings = json.loads(sys.argv[1])
    with np.load(settings["arrays"]) as arrays:
        return settings, {name: arrays[name].astype(np.float32) for name in arrays.files}


def mixture_metrics(y: np.ndarray, log_weights: np.ndarray, means: np.ndarray, variances: np.ndarray) -> dict:
    """Return the figures of a mixture of Gaussians for each row, whose means and variances are (S, N)."""
    log_weights, y = np.asarray(log_weights, float)[:, None], y.astype(float)
    means, std = means.astype(float), np.sqrt(variances.astype(float))
    off = np.abs(np.sum(np.exp(log_weights) * ndtr((y - means) / std), axis=0) - 0.5)
    mean = np.sum(np.exp(log_weights) * means, axis=0)
    return {
        "log_density": float(np.mean(logsumexp(log_weights + norm.logpdf(y, means, std), axis=0))),
        "rmse": float(np.sqrt(np.mean((mean - y) ** 2))),
        "crps": float(np.mean(crps(y, np.exp(log_weights), means, std))),
        **{f"coverage_{level}": float(np.mean(off < level / 200)) for level in LEVELS},
    }


def crps(y: np.ndarray, weights: np.ndarray, means: np.ndarray, std: np.ndarray) -> np.ndarray:
    """Return E|Y - y| - E|Y - Y'|/2 of mixtures of Gaussians, for weights (S, 1) and the rest (S, N) or (N,)."""
    apart = sum(
        weight * np.sum(weights * mean_distance(mean - means, np.hypot(s, std)), axis=0)
        for weight, mean, s in zip(weights, means, std, strict=True)
    )
    return np.sum(weights * mean_distance(means - y, std), axis=0) - 0.5 * apart


def mean_distance(mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """Return E|Z| for Z ~ N(mean, std^2)."""
    return 2 * std * norm.pdf(mean / std) + mean * (2 * ndtr(mean / std) - 1)


def follow(seconds: list[float], step: Callable[[], float], evaluate: Callable[[], dict]) -> None:
    """Take steps, and print an evaluation after each of the given times."""
    step()  # takes the time of any compilation, which is not counted
    spent, steps = 0.0, 1
    for goal in seconds:
        while spent < goal:
            start = perf_counter()
            step()
            spent, steps = spent + perf_counter() - start, steps + 1
        print(json.dumps({"budget": goal, "seconds": spent, "steps": steps, **evaluate()}), flush=True)


def follow_to_the_end(seconds: float, step: Callable[[], float], evaluate: Callable[[], dict]) -> None:
    """Take steps until the objective no longer rises, or so many seconds are over, and print an evaluation.

    The objective of WINDOW steps is averaged. Training ends once PATIENCE averages in a row are not LEAST_GAIN above
    the best one before them.
    """
    step()
    start, best, since, values, steps = perf_counter(), -np.inf, 0, [], 1
    while since < PATIENCE and perf_counter() - start < seconds:
        values, steps = [*values, step()], steps + 1
        if len(values) == WINDOW:
            average, values = np.mean(values), []
            since = 0 if average > best + LEAST_GAIN else since + 1
            best = max(best, average)
    about = {"seconds": perf_counter() - start, "steps": steps, "converged": since >= PATIENCE}
    print(json.dumps({"budget": seconds, **about, **evaluate()}), flush=True)
