"""Fit Overtone for the quality benchmark, once for each budget of seconds, with default settings but for its name's.

Where neighbours are asked, the same fit is looked at without them, too. A short fit before fills the compilation cache,
so that neither compilation nor tracing is counted.
"""

import json
import warnings
from time import perf_counter

from benchmarks.curve import LEVELS, case
from overtone.estimators.ranges import OutsideRangeWarning
from overtone.numerics.compiling import forget_programs
from overtone.sklearn import DeepGPRegressor
from overtone.version import __version__

CHOSEN = {
    "overtone": {},
    "overtone-gaussian": {"likelihood": "gaussian"},
    "overtone-last": {"held_out": "last"},  # for splits in time
}
METRICS = "log_density", "rmse", "crps", *(f"coverage_{level}" for level in LEVELS)


def metrics(model: DeepGPRegressor, arrays: dict) -> dict:
    """Return the figures of a fitted model for the test rows."""
    with warnings.catch_warnings(action="ignore", category=OutsideRangeWarning):
        every = model.evaluate(arrays["X_test"], arrays["y_test"])
    return {name: every[name] for name in METRICS}


def main() -> None:
    """Fit for each budget, and print the figures with neighbours and without."""
    settings, arrays = case()
    chosen = {"random_state": settings["seed"], **CHOSEN[settings["method"]]}
    for _ in range(2):  # the first may have time for one layer only
        DeepGPRegressor(max_time=3, **chosen).fit(arrays["X"], arrays["y"])
    for budget in settings["seconds"]:
        forget_programs()
        model, start = DeepGPRegressor(max_time=budget, **chosen), perf_counter()
        model.fit(arrays["X"], arrays["y"])
        point = {"budget": budget, "seconds": perf_counter() - start, "steps": len(model.history_.loss)}
        point |= {"version": __version__, "layers": len(model.model_.layers), **metrics(model, arrays)}
        point["reason"] = model.plan_.reasons.get("neighbours", "")
        if model.neighbours_:
            model.neighbours_ = ()
            point["without_neighbours"] = metrics(model, arrays)
        print(json.dumps(point), flush=True)


if __name__ == "__main__":
    main()
