"""The multi-step function: Figure 3, and the appendix with three layers.

The paper says that ID-DGP alone finds the plateaus, and that its hidden layer gathers inputs in clusters and is not
monotone, while that of the conventional deep GP roughly is. Both are measured: `monotonicity` is the share of the
hidden mean's movement that goes its main way (1 for a monotone function, 0 for one that comes back to where it began),
and `clusters` the number of groups of hidden values that are left after gaps of more than a twentieth of their range.
"""

from pathlib import Path
from typing import Any

import numpy as np

from overtone.experiments import summaries
from overtone.experiments.data import HEIGHTS, NOISE, multi_step
from overtone.experiments.methods import DGP, FEATURES, OURS, PAPER, SVGP, VFF, fitted, measured, standardised

ROWS, TEST_ROWS, SEEDS, STEPS, GRID = 400, 2000, 10, 5000, 200

# Method, further settings. The last rows ask why the paper's mode does worse than the paper says: is it the training
# (five times as long), the interval (tight), or that points are trained by our inference as well?
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "ID-DGP, paper, 2 layers": (PAPER, {}),
    "ID-DGP, paper, 2 layers, rate 1e-3": (PAPER, {"learning_rate": 1e-3}),
    "ID-DGP, paper, 3 layers": (PAPER, {"n_layers": 3}),
    "ID-DGP, features, 2 layers": (FEATURES, {}),
    "ID-DGP, features, 3 layers": (FEATURES, {"n_layers": 3}),
    "ID-DGP, ours, 2 layers": (OURS, {"n_layers": 2}),
    "ID-DGP, ours, 3 layers": (OURS, {"n_layers": 3}),
    "DGP, 2 layers": (DGP, {}),
    "DGP, 2 layers, rate 1e-3": (DGP, {"learning_rate": 1e-3}),
    "DGP, 3 layers": (DGP, {"n_layers": 3}),
    "DGP, 2 layers, 41 points": (DGP, {"n_inducing": 41}),
    "VFF": (VFF, {}),
    "SVGP": (SVGP, {}),
    "SVGP, 41 points": (SVGP, {"n_inducing": 41}),
    "ID-DGP, paper, 2 layers, 25,000 steps": (PAPER, {"max_steps": 25_000}),
    "DGP, 2 layers, 25,000 steps": (DGP, {"max_steps": 25_000}),
    "ID-DGP, paper, 2 layers, on [-0.5, 1.5]": (PAPER, {"interval": (-0.5, 1.5)}),
    "DGP, 2 layers, our inference": (DGP, {"preset": "default"}),
}
SHOWN = "ID-DGP, paper, 2 layers", "ID-DGP, ours, 2 layers", "DGP, 2 layers", "VFF"
SHOWN_DEEPER = "ID-DGP, paper, 3 layers", "ID-DGP, ours, 3 layers", "DGP, 3 layers"


def cases(quick: bool, seeds: int | None, folder: Path | None) -> list[dict]:
    names = ["ID-DGP, paper, 2 layers", "SVGP"] if quick else list(RUNS)
    return [{"method": name, "seed": seed} for seed in range(1 if quick else seeds or SEEDS) for name in names]


def measure(case: dict, folder: Path | None) -> dict:
    quick, seed = case.get("quick", False), case["seed"]
    X, y = multi_step(seed, 60 if quick else ROWS)
    X_test, y_test = multi_step(1000 + seed, TEST_ROWS)
    both = standardised(np.concatenate([y, y_test]), np.arange(len(y)))
    method, settings = RUNS[case["method"]]
    common: dict[str, Any] = {"n_inducing": 20, "max_steps": STEPS}
    tiny = {"n_inducing": 3, "max_steps": 2} if quick else {}
    model = fitted(method, X, both[: len(y)], seed, **{**common, **settings, **tiny})
    record = {**measured(model, X_test, both[len(y) :]), "rows": len(y), **_hidden(model, X)}
    return {**record, "curves": _curves(model)} if seed == 0 else record


def _hidden(model: Any, X: np.ndarray) -> dict[str, list[float]]:
    """Return the monotonicity and the number of clusters of each hidden layer's mean."""
    means = [mean[:, 0] for mean, _ in model.layer_marginals(X)[:-1]]
    return {"monotonicity": [monotonicity(h) for h in means], "clusters": [clusters(h) for h in means]}


def monotonicity(values: np.ndarray) -> float:
    """Return |last - first| over the length of the way from one to the other, of values along an input."""
    way = np.sum(np.abs(np.diff(values)))
    return float(np.abs(values[-1] - values[0]) / way) if way else 1.0


def clusters(values: np.ndarray) -> int:
    """Return how many groups of values are left after gaps of more than a twentieth of their range."""
    ordered = np.sort(values)
    return int(1 + np.sum(np.diff(ordered) > 0.05 * (ordered[-1] - ordered[0])))


def _curves(model: Any) -> dict[str, Any]:
    """Return the prediction and the hidden layers on a grid."""
    grid = np.linspace(0, 1, GRID)[:, None]
    mean, std = model.predict(grid, return_std=True)
    layers = [(m[:, 0], s[:, 0]) for m, s in model.layer_marginals(grid)[:-1]]
    return {"prediction": _rounded(mean, std), "hidden": [_rounded(*each) for each in layers]}


def _rounded(*curves: np.ndarray) -> list[list[float]]:
    return [np.round(np.asarray(curve, float), 4).tolist() for curve in curves]


def tables(records: list[dict]) -> str:
    hidden = [
        "| method | layer 1: monotonicity | clusters | layer 2: monotonicity | clusters |",
        "|---|---:|---:|---:|---:|",
    ]
    for (method,), group in summaries.groups(records, "method").items():
        cells = []
        for layer in range(2):
            for name in ("monotonicity", "clusters"):
                found = [each[name][layer] for each in group if len(each[name]) > layer]
                cells.append(f"{np.mean(found):.2f}" if found else "")
        hidden += [f"| {method} | {' | '.join(cells)} |"] if any(cells) else []
    truth = -0.5 * np.log(2 * np.pi * NOISE**2) - 0.5 + np.log(np.std(np.repeat(HEIGHTS, 80)))
    last = f"The function itself has a log density of about {truth:.2f}."
    return f"{summaries.table(records, 'method')}\n\n{last}\n\n" + "\n".join(hidden)


def figure(records: list[dict], path: Path) -> None:
    shown = [name for name in (*SHOWN, *SHOWN_DEEPER) if any(each["method"] == name for each in records)]
    fig, axes = summaries.axes(3, len(shown), (3.0, 1.9), sharex=True)
    grid = np.linspace(0, 1, GRID)
    for column, name in zip(axes.T, shown, strict=True):
        curves = summaries.select(records, method=name, seed=0)[0]["curves"]
        column[0].set_title(name, fontsize=9)
        for ax, (mean, std) in zip(column, [curves["prediction"], *curves["hidden"][::-1]], strict=False):
            summaries.draw_band(ax, grid.tolist(), mean, std, name)
        for ax in column[1 + len(curves["hidden"]) :]:
            ax.axis("off")
    summaries.save(fig, path)
