"""Peak memory of a fit on 1,000,000 rows of 8 inputs in single precision, in a process of its own.

Two layers, additive in the inputs, by Adam.

python -m benchmarks.memory
"""

import json
import resource
import subprocess
import sys
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def child() -> None:
    import numpy as np

    from overtone.sklearn import DeepGPRegressor

    imported = megabytes()
    rng = np.random.default_rng(0)
    X = np.empty((1_000_000, 8), np.float32)
    for column in X.T:
        column[:] = rng.random(len(X), np.float32)
    y = np.sin(6 * X[:, 0]) + 0.1 * rng.standard_normal(len(X), np.float32)
    before = megabytes()
    DeepGPRegressor(n_inducing=50, n_projections=8, output="adam", max_steps=100, batch_size=1024).fit(X, y)
    size = (X.nbytes + y.nbytes) / 2**20
    print(json.dumps({"imported": imported, "data": size, "before_fit": before, "peak": megabytes()}))


def main() -> None:
    output = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory", "child"], capture_output=True, text=True, check=True
    )
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "memory.jsonl").write_text(output.stdout.splitlines()[-1] + "\n")
    print(output.stdout)


if __name__ == "__main__":
    child() if sys.argv[1:] == ["child"] else main()
