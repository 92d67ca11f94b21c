"""The multi-step function: the paper's Figure 3, and its appendix with three layers.

Plateaus of different heights are one global pattern with abrupt changes of regime. A shallow GP must smooth the
edges; a deep one can move its hidden layer quickly at the edges and stay put in between.

`overtone demo` or `python -m overtone.app.demo [FOLDER]` prints a table, and writes the table and the pictures.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from overtone.app import plots
from overtone.sklearn import DeepGPRegressor

HEIGHTS = np.array([0.0, 1.0, -0.5, 0.6, -1.0])
NOISE = 0.05
STEPS = 5000
FOLDER = Path("overtone-demo")  # which git ignores; `make demo-record` writes the committed results/demo

# Label, estimator's parameters. M frequencies are 2M + 1 sinusoids and, in Overtone's own features, 4 values and
# slopes at the ends: 45 inducing variables for M = 20. So points come in both numbers.
RUNS = {
    "ID-DGP, 2 layers, 20 frequencies": {"method": "id-dgp", "n_layers": 2},
    "DGP, 2 layers, 20 points": {"method": "dgp"},
    "VFF, 1 layer, 20 frequencies": {"method": "vff"},
    "DGP, 2 layers, 45 points": {"method": "dgp", "n_inducing": 45},
    "SVGP, 1 layer, 45 points": {"method": "svgp", "n_inducing": 45},
    "ID-DGP, 3 layers, 20 frequencies": {"method": "id-dgp", "n_layers": 3},
    "DGP, 3 layers, 20 points": {"method": "dgp", "n_layers": 3},
    "ID-DGP, 2 layers, paper's features": {"method": "id-dgp", "preset": "paper"},
    "VFF, 1 layer, paper's features": {"method": "vff", "preset": "paper"},
    "ID-DGP, 2 layers, paper's features, Adam only": {
        "method": "id-dgp",
        "n_layers": 2,
        "preset": "paper",
        "output": "adam",
    },
}
PICTURES = {
    "multi_step.png": list(RUNS)[:3],
    "multi_step_three_layers.png": list(RUNS)[5:7],
    "multi_step_paper.png": list(RUNS)[7:9],
}


def multi_step(seed: int, num: int) -> tuple[np.ndarray, np.ndarray]:
    """`num` noisy points (X, y) of a function with five plateaus on [0, 1]."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0, 1, num))
    plateau = np.minimum((x * len(HEIGHTS)).astype(int), len(HEIGHTS) - 1)
    return x[:, None], HEIGHTS[plateau] + NOISE * rng.standard_normal(num)


def run(label: str, X, y, X_test, y_test, *, seed: int, steps: int) -> tuple[DeepGPRegressor, dict]:
    """Fit one method and measure it; densities are in nats per point."""
    model = DeepGPRegressor(**{"n_inducing": 20, **RUNS[label]}, max_steps=steps, random_state=seed, verbose=True)
    start = perf_counter()
    model.fit(X, y)
    seconds = perf_counter() - start
    error = model.predict(X_test) - y_test
    return model, {
        "model": label,
        "elbo": model.elbo(X, y) / len(X),
        "log_density": float(model.log_predictive_density(X_test, y_test).mean()),
        "rmse": float(np.sqrt(np.mean(error**2))),
        "seconds": seconds,
        "outside": max(model.outside_fraction(X)),
        "residual": max(model.residual_fraction(X)),
    }


def picture(models: dict[str, DeepGPRegressor], X, y) -> Figure:
    """One column for each model: the prediction above, its hidden layers, last to first, below."""
    depth = max(len(model.model_.layers) for model in models.values())
    fig, axes = plt.subplots(
        depth, len(models), figsize=(4.2 * len(models), 0.6 + 2.1 * depth), sharex=True, squeeze=False,
        height_ratios=[1.4] + [1.0] * (depth - 1), layout="constrained",
    )  # fmt: skip
    for column, (label, model) in zip(axes.T, models.items(), strict=True):
        plots.prediction(model, X, y, column[0])
        column[0].set_title(label, fontsize=10)
        column[0].set_ylim(-1.7, 1.7)
        hidden = len(model.model_.layers) - 1
        for row, ax in enumerate(column[1:]):
            if row < hidden:
                plots.layer(model, X, hidden - 1 - row, ax)
                ax.set_ylabel(f"layer {hidden - row}", fontsize=8)
            else:
                ax.axis("off")
    return fig


def table(rows: list[dict]) -> str:
    """The measurements as a Markdown table."""
    head = "| model | ELBO / N | test log density | RMSE | seconds |\n|---|---|---|---|---|"
    lines = [
        f"| {r['model']} | {r['elbo']:.2f} | {r['log_density']:.2f} | {r['rmse']:.3f} | {r['seconds']:.0f} |"
        for r in rows
    ]
    truth = -0.5 * np.log(2 * np.pi * NOISE**2) - 0.5
    return "\n".join([head, *lines, f"| *the function itself* | | *{truth:.2f}* | *{NOISE:.3f}* | |"])


def main(folder: Path, *, seed: int = 0, steps: int = STEPS, labels: Sequence[str] = tuple(RUNS)) -> list[dict]:
    """Fit the models, print the table, write table and pictures to the folder."""
    matplotlib.use("Agg")  # pictures go to files: no screen is needed
    folder.mkdir(parents=True, exist_ok=True)
    X, y = multi_step(seed, 400)
    X_test, y_test = multi_step(seed + 1000, 2000)
    models, rows = {}, []
    for label in labels:
        print(label, flush=True)
        models[label], row = run(label, X, y, X_test, y_test, seed=seed, steps=steps)
        rows.append(row)
        print(f"    test log density {row['log_density']:.2f}, RMSE {row['rmse']:.3f}", flush=True)
    names = [name for name, shown in PICTURES.items() if set(shown) <= set(labels)]
    for name in names:
        fig = picture({label: models[label] for label in PICTURES[name]}, X, y)
        fig.savefig(folder / name, dpi=110)
        plt.close(fig)
    (folder / "multi_step.json").write_text(json.dumps(rows, indent=1) + "\n")
    (folder / "multi_step.md").write_text(table(rows) + "\n")
    print("\n" + table(rows))
    print("\nWritten:", *(str(folder / name) for name in [*names, "multi_step.md", "multi_step.json"]))
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Fit the multi-step function with all methods.")
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()
    main(arguments.folder, seed=arguments.seed, steps=arguments.steps)
