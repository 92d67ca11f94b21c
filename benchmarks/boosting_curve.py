"""Fit scikit-learn's HistGradientBoostingRegressor with its default settings, for its RMSE alone."""

import json
from time import perf_counter

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from benchmarks.curve import case

if __name__ == "__main__":
    settings, arrays = case()
    start = perf_counter()
    model = HistGradientBoostingRegressor(random_state=settings["seed"]).fit(arrays["X"], arrays["y"])
    seconds, rmse = perf_counter() - start, np.sqrt(np.mean((model.predict(arrays["X_test"]) - arrays["y_test"]) ** 2))
    print(json.dumps({"seconds": seconds, "rmse": float(rmse)}))
