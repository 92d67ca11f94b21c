"""Sub-band speech: Figure 4, error over the number of inducing variables, and Figure 1, posteriors with 20 of them.

The first 352, 3,526 and 35,267 samples, 40 % held out at random, standardised for each subset. The paper says that on
the largest, inter-domain features need less than half of the inducing variables for an error near zero. The exact GP
with the same kernel, in state-space form, is the ceiling of shallow models.
"""

from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from overtone.experiments import summaries
from overtone.experiments.data import load, random_split
from overtone.experiments.methods import (
    DGP,
    FEATURES,
    OURS,
    PAPER,
    QUICK_METHODS,
    SVGP,
    VFF,
    fitted,
    gaussian_scores,
    measured,
    standardised,
)

EXACT, SLOW = "exact GP", ", rate 1e-3"
SECONDS = {352: 10.0, 3526: 15.0, 35267: 45.0}  # of each fit
SEEDS = {352: 10, 3526: 10, 35267: 3}
INDUCING = 5, 10, 20, 50, 100, 200
TEST_SHARE, SHOWN_INDUCING, SHOWN_ROWS, GRID = 0.4, 20, 3526, 400
METHODS = PAPER, FEATURES, OURS, DGP, VFF, SVGP
ERRORS = 0.5, 0.2, 0.1  # standardised RMSE, to ask how many inducing variables it takes


def cases(quick: bool, seeds: int | None, folder: Path | None) -> list[dict]:
    if quick:
        found = [{"method": m, "size": 352, "inducing": 3, "seed": 0} for m in QUICK_METHODS]
        return [*found, {"method": EXACT, "size": 352, "inducing": None, "seed": 0}]
    found = []
    for seed in range(seeds or max(SEEDS.values())):
        for size in (size for size in SECONDS if seed < (seeds or SEEDS[size])):
            found.append({"method": EXACT, "size": size, "inducing": None, "seed": seed})
            methods = *METHODS, *((PAPER + SLOW, DGP + SLOW) if size == SHOWN_ROWS and seed < 3 else ())
            found += [{"method": m, "size": size, "inducing": k, "seed": seed} for k in INDUCING for m in methods]
    return found


def measure(case: dict, folder: Path | None) -> dict:
    quick, seed = case.get("quick", False), case["seed"]
    X, y = (part[: case["size"]] for part in load(folder, "audio_subband"))
    train, test = random_split(len(X), seed, TEST_SHARE)
    y = standardised(y, train)
    if case["method"] == EXACT:
        return _exact(X[:, 0], y, train, test)
    method, rate = case["method"].removesuffix(SLOW), 1e-3 if case["method"].endswith(SLOW) else None
    settings: dict[str, Any] = {"max_steps": 2} if quick else {"max_time": SECONDS[case["size"]]}
    settings |= {"n_inducing": case["inducing"], "learning_rate": rate}
    # Neighbours would know what no inducing variable does.
    model = fitted(method, X[train], y[train], seed, **settings, neighbours="no")
    record = {**measured(model, X[test], y[test]), "rows": len(train)}
    shown = seed == 0 and case["size"] == SHOWN_ROWS and case["inducing"] == SHOWN_INDUCING
    return {**record, "curve": _curve(model, X, y)} if shown else record


def _exact(t: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray) -> dict:
    from overtone.experiments.kalman import fit_matern32

    began = perf_counter()
    found = fit_matern32(t, y, np.isin(np.arange(len(t)), train))
    seconds = round(perf_counter() - began, 2)
    scores = gaussian_scores(y[test], found.mean[test], found.std[test])
    return {**scores, "seconds": seconds, "steps": None, "rows": len(train), "test_rows": len(test)}


def _curve(model: Any, X: np.ndarray, y: np.ndarray) -> list[list[float]]:
    rows = np.unique(np.linspace(0, len(X) - 1, GRID).astype(int))
    mean, std = model.predict(X[rows], return_std=True)
    return [np.round(np.asarray(part, float), 4).tolist() for part in (X[rows, 0], y[rows], mean, std)]


def needed(records: list[dict], method: str, size: int, error: float) -> float:
    """Return how many inducing inputs a method needs for this RMSE, between the numbers tried; infinity if more."""
    points = [
        (k, summaries.mean(summaries.select(records, method=method, size=size, inducing=k), "rmse")) for k in INDUCING
    ]
    points = [(k, rmse) for k, rmse in points if np.isfinite(rmse)]
    for i, (k, rmse) in enumerate(points):
        if rmse <= error:
            if i == 0:
                return float(k)
            before, worse = points[i - 1]
            share = (worse - error) / max(worse - rmse, 1e-12)
            return float(np.exp(np.log(before) + share * np.log(k / before)))
    return float("inf")


def tables(records: list[dict]) -> str:
    parts = []
    for (size,), group in summaries.groups(sorted(records, key=lambda each: each["size"]), "size").items():
        parts.append(f"**{size:,} samples.** RMSE by the number of frequencies or points:\n")
        parts += [summaries.compact(group, "inducing", "method", "rmse"), "\nLog density:\n"]
        parts += [summaries.compact(group, "inducing", "method", "log_density", 2), ""]
        head = "| RMSE of at most | " + " | ".join(METHODS) + " |\n|---|" + "---:|" * len(METHODS)
        parts += [
            "Frequencies or points needed (interpolated; M frequencies are 2M + 1 variables, ours 2M + 5):\n",
            head,
        ]
        for error in ERRORS:
            counts = (needed(records, method, size, error) for method in METHODS)
            cells = [f"{count:.0f}" if np.isfinite(count) else "more than 200" for count in counts]
            parts.append(f"| {error} | {' | '.join(cells)} |")
        parts.append("")
    shown = [each for each in records if each["inducing"] in (SHOWN_INDUCING, None)]
    return "\n".join([*parts, "All figures with 20 frequencies or points:\n", summaries.table(shown, "size", "method")])


def figure(records: list[dict], path: Path) -> None:
    sizes = sorted({each["size"] for each in records})
    fig, axes = summaries.axes(4, max(len(sizes), 4))
    for column, size in zip(axes.T, sizes, strict=False):
        group = [each for each in records if each["size"] == size]
        for method in METHODS:
            found = summaries.groups(summaries.select(group, method=method), "inducing")
            for ax, name, by in (
                (column[0], "rmse", None),
                (column[1], "log_density", None),
                (column[2], "rmse", "seconds"),
            ):
                x = [k if by is None else summaries.mean(each, by) for (k,), each in found.items()]
                ax.plot(x, [summaries.mean(each, name) for each in found.values()], "o-", ms=3, label=method,
                        color=summaries.colour(method))  # fmt: skip
        exact = summaries.select(group, method=EXACT)
        for ax, name in ((column[0], "rmse"), (column[1], "log_density"), (column[2], "rmse")):
            ax.axhline(summaries.mean(exact, name), color="black", lw=0.8, ls=":", label="exact GP")
        column[0].set(title=f"{size:,} samples", xscale="log", ylabel="RMSE", xlabel="frequencies or points")
        column[1].set(xscale="log", ylabel="log density", xlabel="frequencies or points")
        column[2].set(ylabel="RMSE", xlabel="seconds")
    axes[0, 0].legend(fontsize=6)
    curves = {
        each["method"]: each["curve"] for each in records if "curve" in each and not each["method"].endswith(SLOW)
    }
    for ax, (method, (t, y, mean, std)) in zip(axes[3], list(curves.items())[:4], strict=False):
        summaries.draw_band(ax, t, mean, std, method)
        ax.plot(t, y, color="#c8102e", lw=0.6)
        ax.set(title=f"{method}, {SHOWN_INDUCING}", xlabel="sample")
    summaries.save(fig, path)
