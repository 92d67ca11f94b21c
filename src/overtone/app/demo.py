"""The multi-step function: the paper's Figure 3, and its appendix with three layers.

Plateaus of different heights are one global pattern with abrupt changes of regime. A shallow GP must smooth the
edges; a deep one can move its hidden layer quickly at the edges and stay put in between.

`overtone demo` or `python -m overtone.app.demo [FOLDER]` prints a table, and writes the table and the pictures.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from overtone.app import plots
from overtone.experiments.data import NOISE, multi_step
from overtone.sklearn import DeepGPRegressor

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
    "ID-DGP, 2 layers, paper's features": {"method": "id-dgp", "features": "fourier"},
    "VFF, 1 layer, paper's features": {"method": "vff", "features": "fourier"},
    "ID-DGP, 2 layers, paper's features, Adam only": {"method": "id-dgp", "preset": "paper"},
}
PICTURES = {
    "multi_step.png": list(RUNS)[:3],
    "multi_step_three_layers.png": list(RUNS)[5:7],
    "multi_step_paper.png": list(RUNS)[7:9],
}


def picture(models: dict[str, DeepGPRegressor], X, y) -> Figure:
    """Return one column for each model: the prediction above, its hidden layers, last to first, below."""
    depth = max(len(model.model_.layers) for model in models.values())
    size = (4.2 * len(models), 0.6 + 2.1 * depth)
    fig, axes = plt.subplots(depth, len(models), figsize=size, sharex=True, squeeze=False, layout="constrained")
    for column, (label, model) in zip(axes.T, models.items(), strict=True):
        plots.prediction(model, X, y, column[0]).set(title=label, ylim=(-1.7, 1.7))
        num_hidden = len(model.model_.layers) - 1
        for i, ax in zip(reversed(range(num_hidden)), column[1:], strict=False):
            plots.layer(model, X, i, ax).set(ylabel=f"layer {i + 1}")
        for ax in column[1 + num_hidden :]:
            ax.axis("off")
    return fig


def table(rows: list[dict]) -> str:
    """Return the measurements as a Markdown table."""
    head = "| model | ELBO / N | test log density | RMSE | seconds |\n|---|---|---|---|---|"
    line = "| {model} | {elbo:.2f} | {log_density:.2f} | {rmse:.3f} | {seconds:.0f} |"
    truth = -0.5 * np.log(2 * np.pi * NOISE**2) - 0.5
    last = f"| *the function itself* | | *{truth:.2f}* | *{NOISE:.3f}* | |"
    return "\n".join([head, *(line.format(**row) for row in rows), last])


def main(folder: Path, *, steps: int = 5000, labels: Sequence[str] = tuple(RUNS)) -> list[dict]:
    """Fit the models, print the table, write table and pictures to the folder; densities are in nats per point."""
    matplotlib.use("Agg")  # pictures go to files: no screen is needed
    folder.mkdir(parents=True, exist_ok=True)
    X, y = multi_step(0, 400)
    test = multi_step(1000, 2000)
    models, rows = {}, []
    for label in labels:
        print(label, flush=True)
        model = DeepGPRegressor(**{"n_inducing": 20, **RUNS[label]}, max_steps=steps, verbose=True).fit(X, y)
        scores, models[label] = model.evaluate(*test), model
        measured = {name: scores[name] for name in ("log_density", "rmse")}
        rows.append({"model": label, "elbo": model.elbo(X, y) / len(X), **measured, "seconds": model.history_.seconds})
        print(f"    test log density {scores['log_density']:.2f}, RMSE {scores['rmse']:.3f}", flush=True)
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
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
