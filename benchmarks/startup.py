"""Measure how long a user waits for a fit of one step, with an empty compilation cache and with a filled one.

The model has two layers of eight units, additive in eight inputs, with 50 frequencies, and is trained by Adam. The fit
decides, holds rows out and scores them, as all fits do; each run is a new process.

    python -m benchmarks.startup
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

RESULTS = Path(__file__).parent / "results"


def child() -> None:
    """Import the library, fit with one step, and print how long both took."""
    start = perf_counter()
    import numpy as np

    from overtone.sklearn import DeepGPRegressor

    imported = perf_counter()
    rng = np.random.default_rng(0)
    X = rng.random((1900, 8))
    settings = {"n_inducing": 50, "n_projections": 8, "hidden_width": 8, "output": "adam", "batch_size": 1024}
    DeepGPRegressor(**settings, n_layers=2, max_steps=1).fit(X, np.sin(6 * X[:, 0]))
    print(json.dumps({"import": imported - start, "first_step": perf_counter() - imported}))


def main() -> None:
    """Run three pairs of new processes, each with a cache of its own, and keep what they print."""
    RESULTS.mkdir(exist_ok=True)
    lines = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            for run in ("empty cache", "filled cache"):
                output = subprocess.run(
                    [sys.executable, "-m", "benchmarks.startup", "child"],
                    env={**os.environ, "OVERTONE_CACHE": folder},
                    capture_output=True,
                    text=True,
                    check=True,
                )
                lines.append({"run": run, **json.loads(output.stdout.splitlines()[-1])})
                print(lines[-1], flush=True)
    (RESULTS / "startup.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    child() if sys.argv[1:] == ["child"] else main()
