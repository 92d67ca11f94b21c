"""Measure the peak memory of a fit on 1,000,000 rows of 8 inputs in single precision, in a process of its own.

The model has two layers of eight units, additive in the inputs, and is trained by Adam.

    python -m benchmarks.memory
"""

import json
import resource
import subprocess
import sys
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def megabytes() -> float:
    """Return the peak memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def child() -> None:
    """Fit, and print the peaks before and after."""
    import numpy as np

    from overtone.sklearn import DeepGPRegressor

    imported = megabytes()
    rng = np.random.default_rng(0)
    X = np.empty((1_000_000, 8), np.float32)
    for column in X.T:
        column[:] = rng.random(len(X), np.float32)
    y = np.sin(6 * X[:, 0]) + 0.1 * rng.standard_normal(len(X), np.float32)
    before = megabytes()
    settings = {"n_inducing": 50, "n_projections": 8, "hidden_width": 8, "output": "adam", "batch_size": 1024}
    DeepGPRegressor(**settings, n_layers=2, max_steps=100).fit(X, y)
    size = (X.nbytes + y.nbytes) / 2**20
    print(json.dumps({"imported": imported, "data": size, "before_fit": before, "peak": megabytes()}))


def main() -> None:
    """Run the fit in a new process, and keep what it prints."""
    output = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory", "child"], capture_output=True, text=True, check=True
    )
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "memory.jsonl").write_text(output.stdout.splitlines()[-1] + "\n")
    print(output.stdout)


if __name__ == "__main__":
    child() if sys.argv[1:] == ["child"] else main()
