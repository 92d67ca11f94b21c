"""Fit Overtone for the quality benchmark, once for each budget of seconds, with default settings but for the method.

A short fit before fills the compilation cache, so that neither compilation nor tracing is counted.
"""

import json
from time import perf_counter

import numpy as np

from benchmarks.curve import case
from overtone.numerics.compiling import forget_programs
from overtone.sklearn import DeepGPRegressor

MAX_TEST_ROWS = 20_000  # of power_household:last every eleventh is tested

if __name__ == "__main__":
    settings, arrays = case()
    _, _, method = settings["method"].partition("-")
    chosen = {"held_out": "last"} if method == "last" else {"method": method} if method else {}
    for _ in range(2):  # the first may have time for one layer only
        DeepGPRegressor(max_time=3, random_state=settings["seed"], **chosen).fit(arrays["X"], arrays["y"])
    for budget in settings["seconds"]:
        forget_programs()
        model, start = DeepGPRegressor(max_time=budget, random_state=settings["seed"], **chosen), perf_counter()
        model.fit(arrays["X"], arrays["y"])
        seconds = perf_counter() - start
        every = 1 + len(arrays["y_test"]) // MAX_TEST_ROWS
        X, y = arrays["X_test"][::every], arrays["y_test"][::every]
        low, high = model.predict_quantiles(X, [0.025, 0.975])
        point = {
            "budget": budget,
            "seconds": seconds,
            "steps": len(model.history_.loss),
            "log_density": float(np.mean(model.log_predictive_density(X, y))),
            "rmse": float(np.sqrt(np.mean((model.predict(X) - y) ** 2))),
            "coverage": float(np.mean((y > low) & (y < high))),
        }
        print(json.dumps(point), flush=True)
