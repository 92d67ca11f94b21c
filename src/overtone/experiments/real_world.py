"""Six tables with global structure: Figure 5, test log-likelihood, and its companion, standardised RMSE.

The paper's comparison has 50 inducing inputs for every method: frequencies, which are 101 variables for each input, or
points. All fits have the same time, the paper's methods and ours, so that it is one of equal wall-clock as well; and a
conventional deep GP has as many points as ID-DGP has variables for one unit, up to 400. A tenth of the rows is held out
at random, of which at most 20,000 are scored. `overtone.experiments.data` says what the inputs are.
"""

from pathlib import Path
from typing import Any

from overtone.experiments import summaries
from overtone.experiments.data import REAL_WORLD, load, random_split
from overtone.experiments.methods import (
    DGP,
    FEATURES,
    OURS,
    PAPER,
    QUICK_METHODS,
    SVGP,
    VFF,
    fitted,
    measured,
    standardised,
)

PATIENCE = {"appliances": 400.0}  # of the paper's ID-DGP: 27 x 27 full covariances take half a second for a step
SECONDS, SEEDS, TEST_SHARE, MAX_TEST_ROWS = 60.0, 5, 0.1, 20_000
FEWER_SEEDS = {"power": 3, "airline": 3}
MAX_POINTS = 400  # of the deep GP with as many variables as ID-DGP
EQUAL_VARIABLES = "DGP, 2 layers, RBF, equal variables"
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    PAPER: (PAPER, {}),
    "ID-DGP, paper, rate 1e-3": (PAPER, {"learning_rate": 1e-3}),
    FEATURES: (FEATURES, {"n_inducing": 50}),
    OURS: (OURS, {}),
    "DGP, 4 layers, RBF": (DGP, {"n_layers": 4}),
    "DGP, 4 layers, RBF, rate 1e-3": (DGP, {"n_layers": 4, "learning_rate": 1e-3}),
    "DGP, 4 layers, Matern": (DGP, {"n_layers": 4, "kernel": "matern32"}),
    "DGP, 2 layers, RBF": (DGP, {}),
    "DGP, 2 layers, RBF, rate 1e-3": (DGP, {"learning_rate": 1e-3}),
    "DGP, 2 layers, Matern": (DGP, {"kernel": "matern32"}),
    EQUAL_VARIABLES: (DGP, {}),
    VFF: (VFF, {}),
    SVGP: (SVGP, {}),
}


def cases(quick: bool, seeds: int | None, folder: Path | None) -> list[dict]:
    if quick:
        return [{"data": "parking", "method": method, "seed": 0} for method in QUICK_METHODS]
    return [
        {"data": data, "method": method, "seed": seed}
        for seed in range(seeds or SEEDS)
        for data in REAL_WORLD
        if seed < (seeds or FEWER_SEEDS.get(data, SEEDS))
        for method in RUNS
    ]


def measure(case: dict, folder: Path | None) -> dict:
    method, settings = RUNS[case["method"]]
    X, y = load(folder, REAL_WORLD[case["data"]])
    if case["method"] == EQUAL_VARIABLES:
        settings = {"n_inducing": min(101 * X.shape[1], MAX_POINTS)}
    seconds = PATIENCE.get(case["data"], SECONDS) if method == PAPER else SECONDS
    settings = {**settings, **({"n_inducing": 3, "max_steps": 2} if case.get("quick") else {"max_time": seconds})}
    return scored(method, X, y, random_split(len(X), case["seed"], TEST_SHARE, MAX_TEST_ROWS), case["seed"], **settings)


def scored(method: str, X: Any, y: Any, split: tuple[Any, Any], seed: int, **settings: Any) -> dict:
    """Return the record of one method on training and test rows."""
    train, test = split
    y = standardised(y, train)
    model = fitted(method, X[train], y[train], seed, **settings)
    return {**measured(model, X[test], y[test]), "rows": len(train), "inputs": X.shape[1]}


def winners(records: list[dict], name: str, sign: int, *methods: str) -> dict[str, str]:
    """Return, for each table that has records of all, the best method of those that start with one of the names."""
    best = {}
    for (data,), group in summaries.groups(records, "data").items():
        if not all(any(each["method"].startswith(method) for each in group) for method in methods):
            continue
        chosen = [each for each in group if each["method"].startswith(methods or ("",))]
        means = {key[0]: sign * summaries.mean(each, name) for key, each in summaries.groups(chosen, "method").items()}
        best[data] = max(means, key=means.__getitem__)
    return best


def tables(records: list[dict]) -> str:
    parts = ["Test log density, in nats per row of a standardised target:\n"]
    parts += [summaries.compact(records, "data", "method", "log_density"), "\nStandardised RMSE:\n"]
    parts.append(summaries.compact(records, "data", "method", "rmse"))
    for (data,), group in summaries.groups(records, "data").items():
        about = f"{group[0]['rows']:,} training rows, {group[0]['inputs']} inputs"
        parts += [f"\n<details><summary>{data}: {about}</summary>\n", summaries.table(group, "method"), "\n</details>"]
    return "\n".join(parts)


def figure(records: list[dict], path: Path) -> None:
    summaries.save_bars(records, path, (3.4, 3.2))
