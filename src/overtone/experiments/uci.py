"""Nine tables without global structure (appendix): the claim is parity. Standard splits, 20 inducing inputs."""

from pathlib import Path

import numpy as np

from overtone.experiments import summaries
from overtone.experiments.data import load, uci_split
from overtone.experiments.methods import DGP, FEATURES, OURS, PAPER, SVGP, VFF
from overtone.experiments.real_world import scored

NAMES = "boston", "concrete", "energy", "kin8nm", "naval", "powerplant", "protein", "wine_red", "yacht"
METHODS = PAPER, FEATURES, OURS, DGP, VFF, SVGP
SPLITS, INDUCING, SECONDS = 5, 20, 20.0


def cases(quick: bool, seeds: int | None, folder: Path | None) -> list[dict]:
    names, methods = (NAMES[-1:], METHODS[-1:]) if quick else (NAMES, METHODS)
    splits = range(1 if quick else seeds or SPLITS)
    return [{"data": data, "method": method, "seed": split} for split in splits for data in names for method in methods]


def measure(case: dict, folder: Path | None) -> dict:
    X, y = load(folder, f"uci_{case['data']}")
    test = uci_split(folder, case["data"], case["seed"])
    train = np.setdiff1d(np.arange(len(X)), test)
    # Ours chooses its number itself, as its users would have it.
    settings = {"n_inducing": None if case["method"] == OURS else INDUCING, "max_time": SECONDS}
    settings = {"n_inducing": 3, "max_steps": 2} if case.get("quick") else settings
    return scored(case["method"], X, y, (train, test), case["seed"], **settings)


def tables(records: list[dict]) -> str:
    parts = ["Test log density, in nats per row of a standardised target:\n"]
    parts += [summaries.compact(records, "method", "data", "log_density"), "\nStandardised RMSE:\n"]
    parts += [summaries.compact(records, "method", "data", "rmse"), "\nCRPS:\n"]
    parts += [summaries.compact(records, "method", "data", "crps"), "\nShare inside 95 % intervals:\n"]
    return "\n".join([*parts, summaries.compact(records, "method", "data", "coverage_95")])


def figure(records: list[dict], path: Path) -> None:
    summaries.save_bars(records, path, (2.6, 2.4))
