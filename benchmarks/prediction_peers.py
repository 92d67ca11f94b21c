"""Measure how many rows a second GPyTorch's deep GP and LightGBM predict, for `benchmarks.prediction`.

It runs in the environment of the peers; its one argument is the path of an array file with rows to train on and rows to
predict. The deep GP takes a few steps only: the time of a prediction does not depend on them. Prints one JSON line for
each model; its rate is the best of three calls.
"""

import json
import sys
from time import perf_counter

import gpytorch
import lightgbm
import numpy as np
import torch

from benchmarks.gpytorch_curve import Deep

CHUNK_ROWS, ROUNDS = 1024, 100


def rate(predict, num_rows: int) -> float:
    seconds = []
    for _ in range(4):
        began = perf_counter()
        predict()
        seconds.append(perf_counter() - began)
    return num_rows / min(seconds[1:])


def main() -> None:
    with np.load(sys.argv[1]) as arrays:
        X, y, X_new = (arrays[name].astype(np.float32) for name in ("X", "y", "X_new"))
    deep, chunks = Deep(X).eval(), torch.from_numpy(X_new).split(CHUNK_ROWS)

    def of_deep() -> None:
        with torch.no_grad(), gpytorch.settings.fast_pred_var():
            for chunk in chunks:
                deep.mixture(chunk)

    trees = lightgbm.LGBMRegressor(n_estimators=ROUNDS, num_leaves=127, verbose=-1).fit(X, y)
    print(json.dumps({"what": "GPyTorch's deep GP, mean and variance", "rows_per_second": rate(of_deep, len(X_new))}))
    print(json.dumps({"what": "LightGBM, mean", "rows_per_second": rate(lambda: trees.predict(X_new), len(X_new))}))


if __name__ == "__main__":
    main()
