"""Let the driver talk to workers, each a process in an environment of its own.

A worker gets its case as JSON on the command line, prints one JSON line when it is ready, and then, for each number n
that it reads, runs n training steps and prints how long they took. This module needs nothing but the standard library
and NumPy, so that every environment can import it.
"""

import json
import sys
from time import perf_counter

import numpy as np

ROWS = 20_000


def case() -> dict:
    """Return the case of this worker."""
    return json.loads(sys.argv[1])


def data(num_inputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs in [0, 1] and a standardised target with rhythm and noise."""
    rng = np.random.default_rng(0)
    X = rng.random((ROWS, num_inputs)).astype(np.float32)
    y = np.sin(30 * X[:, 0] ** 2) + 0.3 * np.cos(5 * X.sum(axis=1)) + 0.1 * rng.standard_normal(ROWS)
    return X, ((y - y.mean()) / y.std()).astype(np.float32)


def serve(run) -> None:
    """Time the steps that the driver asks for: `run(n)` takes n of them, or as many as it returns.

    The first takes the time of any compilation.
    """
    start = perf_counter()
    run(1)
    print(json.dumps({"first_step": perf_counter() - start}), flush=True)
    for line in sys.stdin:
        num = int(line)
        start = perf_counter()
        taken = run(num) or num
        print(json.dumps({"seconds": (perf_counter() - start) / taken}), flush=True)
