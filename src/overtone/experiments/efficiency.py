"""Efficiency: seconds of a gradient step at equal numbers of inducing inputs, and the error after given seconds.

The paper says that a step takes about as long for frequencies as for points, and that inter-domain deep GPs need fewer
steps for a given accuracy. Steps are timed on made-up rows, several rounds of the same compiled program; errors after 5
to 80 seconds on the traffic table, each fit from its start.
"""

from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from overtone.experiments import summaries
from overtone.experiments.data import REAL_WORLD, load, random_split
from overtone.experiments.methods import DGP, METHODS, OURS, PAPER, QUICK_METHODS
from overtone.experiments.real_world import MAX_TEST_ROWS, TEST_SHARE, scored

STEPS, ROUNDS, BATCH, ROWS = 40, 5, 1024, 4096
MAX_FREQUENCIES = 1400  # of all inputs
INPUTS, INDUCING, BUDGETS, SEEDS = (1, 8, 27), (20, 50, 100), (5, 10, 20, 40, 80), 2
TIMED = PAPER, DGP, "DGP, equal variables"


def cases(quick: bool, seeds: int | None, folder: Path | None) -> list[dict]:
    if quick:
        return [{"part": "step", "method": PAPER, "inputs": 1, "inducing": 3, "seed": 0}]
    steps = [
        {"part": "step", "method": method, "inputs": inputs, "inducing": inducing, "seed": 0}
        for inputs in INPUTS
        for inducing in INDUCING
        if inputs * inducing <= MAX_FREQUENCIES
        for method in TIMED
    ]
    curves = [
        {"part": "curve", "method": method, "budget": budget, "seed": seed}
        for seed in range(seeds or SEEDS)
        for budget in BUDGETS
        for method in (PAPER, OURS, DGP, *QUICK_METHODS[1:])
    ]
    return steps + curves


def measure(case: dict, folder: Path | None) -> dict:
    if case["part"] == "step":
        return _step(case)
    X, y = load(folder, REAL_WORLD["traffic"])
    split = random_split(len(X), case["seed"], TEST_SHARE, MAX_TEST_ROWS)
    return scored(case["method"], X, y, split, case["seed"], max_time=float(case["budget"]), neighbours="no")


def _step(case: dict) -> dict:
    """Time a step of a two-layer model in the paper's mode: value, gradient and Adam, on batches of 1,024 rows."""
    import jax
    import optax

    import overtone as ot

    rng, inputs, num = np.random.default_rng(0), case["inputs"], case["inducing"]
    X = rng.random((200 if case.get("quick") else ROWS, inputs))
    y = np.sin(6 * X.sum(axis=1))
    frequencies = METHODS.get(case["method"], METHODS[DGP])["method"] == "id-dgp"
    points = min(2 * num + 1, len(X)) if case["method"] not in METHODS else num  # of one input, for one unit
    kernel: Any = ot.Matern32 if frequencies else ot.SquaredExponential
    features: Any = ot.Fourier(num) if frequencies else ot.InducingPoints(points)
    layers = [ot.Layer(kernel(lengthscale=0.2), features, inputs), ot.Layer(kernel(lengthscale=0.2), features)]
    model = ot.DeepGP(layers, ot.Gaussian(0.1)).initialised(X, y)
    optim, steps, seconds = optax.adam(0.01), 2 if case.get("quick") else STEPS if inputs < 20 else STEPS // 4, []
    for _ in range(1 + (1 if case.get("quick") else ROUNDS)):  # the first one compiles
        began = perf_counter()
        ot.fit(model, ot.Elbo(), (X, y), key=jax.random.key(0), optim=optim, steps=steps, batch_size=BATCH)
        seconds.append((perf_counter() - began) / (steps + 1))
    variables = [layer.features.num_features for layer in model.layers]
    figures = {"milliseconds": 1e3 * min(seconds[1:]), "median_milliseconds": 1e3 * float(np.median(seconds[1:]))}
    return {**figures, "inducing_variables": variables, "rows": len(X), "steps": steps}


def tables(records: list[dict]) -> str:
    steps, curves = (summaries.select(records, part=part) for part in ("step", "curve"))
    lines = ["Milliseconds of a step, two layers, batches of 1,024 rows, one core:\n"]
    lines.append("| inputs | frequencies or points | " + " | ".join(TIMED) + " |\n|---|---|" + "---:|" * len(TIMED))
    for (inputs, inducing), group in summaries.groups(steps, "inputs", "inducing").items():
        cells = [f"{summaries.mean(summaries.select(group, method=method), 'milliseconds'):.1f}" for method in TIMED]
        lines.append(f"| {inputs} | {inducing} | {' | '.join(cells)} |")
    lines += ["\nRMSE on traffic after so many seconds:\n", summaries.compact(curves, "budget", "method", "rmse")]
    return "\n".join([*lines, "\nAll figures:\n", summaries.table(curves, "method", "budget")])


def figure(records: list[dict], path: Path) -> None:
    fig, axes = summaries.axes(1, 2)
    for (method,), group in summaries.groups(summaries.select(records, part="curve"), "method").items():
        found = summaries.groups(group, "budget")
        for ax, by in zip(axes[0], ("seconds", "steps"), strict=True):
            x = [summaries.mean(each, by) for each in found.values()]
            ax.plot(x, [summaries.mean(each, "rmse") for each in found.values()], "o-", label=method,
                    color=summaries.colour(method))  # fmt: skip
            ax.set(xlabel=by, ylabel="RMSE", xscale="log")
    if axes[0, 0].lines:
        axes[0, 0].legend(fontsize=7)
    summaries.save(fig, path)
