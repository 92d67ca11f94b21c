"""One to four layers of ID-DGP on two tables: the paper says that more than two do not help."""

from pathlib import Path

from overtone.experiments import summaries
from overtone.experiments.data import REAL_WORLD, load, random_split
from overtone.experiments.methods import OURS, PAPER
from overtone.experiments.real_world import MAX_TEST_ROWS, TEST_SHARE, scored

DATA, SEEDS, SECONDS = ("traffic", "parking"), 3, 60.0


def cases(quick: bool, seeds: int | None, folder: Path | None) -> list[dict]:
    if quick:
        return [{"data": "parking", "method": PAPER, "depth": 1, "seed": 0}]
    return [
        {"data": data, "method": method, "depth": depth, "seed": seed}
        for seed in range(seeds or SEEDS)
        for data in DATA
        for method in (PAPER, OURS)
        for depth in (1, 2, 3, 4)
    ]


def measure(case: dict, folder: Path | None) -> dict:
    X, y = load(folder, REAL_WORLD[case["data"]])
    split = random_split(len(X), case["seed"], TEST_SHARE, MAX_TEST_ROWS)
    tiny = {"n_inducing": 3, "max_steps": 2} if case.get("quick") else {"max_time": SECONDS}
    # What neighbours know would hide what layers do.
    return scored(case["method"], X, y, split, case["seed"], n_layers=case["depth"], neighbours="no", **tiny)


def tables(records: list[dict]) -> str:
    return summaries.table(records, "data", "method", "depth")


def figure(records: list[dict], path: Path) -> None:
    names = [data for (data,) in summaries.groups(records, "data")]
    fig, axes = summaries.axes(2, len(names))
    for column, data in zip(axes.T, names, strict=True):
        for (method,), group in summaries.groups(summaries.select(records, data=data), "method").items():
            for ax, name in zip(column, ("log_density", "rmse"), strict=True):
                found = summaries.groups(group, "depth")
                x, y = [key[0] for key in found], [summaries.mean(each, name) for each in found.values()]
                errors = [summaries.standard_error(each, name) for each in found.values()]
                ax.errorbar(x, y, errors, fmt="o-", capsize=3, color=summaries.colour(method), label=method)
                ax.set(xlabel="layers", ylabel=name.replace("_", " "), xticks=x)
        column[0].set_title(data)
        column[0].legend(fontsize=7)
    summaries.save(fig, path)
