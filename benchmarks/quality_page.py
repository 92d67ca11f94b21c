"""Make curves, tables and what they say of results/quality.jsonl: quality.md, quality.png and quality_table.md.

The last is the table of the README.
"""

import json
from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from benchmarks.quality import FAMILY, METHODS, SECONDS
from benchmarks.tables import NAMES, TIME_ORDERED

RESULTS = Path(__file__).parent / "results"
OURS, IN_TIME = "overtone", "overtone-last"
GPS = [name for name in METHODS if name != "boosting" and not name.startswith("overtone-")]
HUES = ("C3", "C1", "C0", "C2", "C4", "C5", "C6", "C7", "C8")
COLORS = dict(zip((OURS, IN_TIME, *GPS[1:], *FAMILY), HUES, strict=True))
MOST_BELOW = 0.5  # nats below the worst end of a curve to show
TIMES = (30, 120)
NEAR, LEAST_COVERAGE, MOST_COVERAGE = 0.02, 0.92, 0.98
INTRODUCTION = """# Fits by the clock

Test log density (nats per row) and RMSE of the standardised target by seconds of training, on 10 % of the rows held out
at random, or the last 10 % in time; means over the seeds that ours has.
`make bench-quality` measures what is missing in `quality.jsonl` and makes this page; `benchmarks/tables.py`
says how each table becomes inputs and a target.

Every run has one core, two run side by side. The clock of a peer counts its training steps alone, after the first one;
ours counts all of `fit`, with programs in the cache from a short fit before, and each point is a fit of its
own that was told its time. Without anything in the cache a first fit of a kind takes 10 to 25 seconds longer. Peers
have the settings of their documentation (`gpytorch_curve.py`, `gpflux_curve.py`): batches of 1,024, Adam at 0.01,
k-means points, 128 for deep GPs, 300 for the DSPP, 500 for the SVGP. `overtone` has default settings, and so do its
other methods, `overtone-dgp`, `overtone-vff` and `overtone-svgp`. Boosting is scikit-learn's
HistGradientBoostingRegressor with its defaults. Bold is the best log density of `overtone` and the peers.
Ours are tested on every eleventh of power_household's 204,928 later rows.
"""


def read() -> dict:
    """Return (table, method) -> seconds -> the points of all seeds that ours has too: others would not compare."""
    points = defaultdict(lambda: defaultdict(list))
    lines = [json.loads(line) for line in (RESULTS / "quality.jsonl").read_text().splitlines()]
    ours = {(line["table"], line["seed"]) for line in lines if line["method"] == OURS}
    for point in lines:
        if "failed" not in point and ((point["table"], point["seed"]) in ours or point["table"] not in NAMES):
            seconds = min(SECONDS, key=lambda t: abs(t - point.get("budget", point["seconds"])))
            points[point["table"], point["method"]][seconds].append(point)
    return points


def mean(points: dict, table: str, method: str, seconds: int, what: str) -> float:
    """Return the mean over seeds at this time, or the nearest that was looked at."""
    known = points.get((table, method))
    if not known:
        return np.nan
    nearest = min(known, key=lambda t: abs(t - seconds))
    near = abs(nearest - seconds) <= 0.1 * seconds or method == "boosting"
    values = [point[what] for point in known[nearest] if what in point]
    return float(np.mean(values)) if near and values else np.nan


def show(value: float, best: bool = False) -> str:
    """Return a number as a cell of a table."""
    return "" if np.isnan(value) else f"**{value:.3f}**" if best else f"{value:.3f}"


def table_of(points: dict, table: str) -> list[str]:
    """Return the lines about one data set, with a row for each method."""
    head = [f"log density, {t} s" for t in TIMES] + ["RMSE, 120 s", "95 % intervals cover"]
    lines = [f"### {table}", "", f"| | {' | '.join(head)} |", f"|---|{'---:|' * len(head)}"]
    leads = [np.nanmax([mean(points, table, m, t, "log_density") for m in GPS]) for t in TIMES]
    for method in [m for m in METHODS if (table, m) in points]:
        densities = [mean(points, table, method, t, "log_density") for t in TIMES]
        cells = [show(d, bool(np.isclose(d, lead))) for d, lead in zip(densities, leads, strict=True)]
        cells += [show(mean(points, table, method, 120, what)) for what in ("rmse", "coverage")]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return [*lines, ""]


def at_a_glance(points: dict) -> str:
    """Return a line for each table, with the best of the other GP methods."""
    head = ["log density", "best other GP", "RMSE", "boosting's RMSE", "95 % intervals cover"]
    lines = [f"| after {TIMES[-1]} s | {' | '.join(head)} |", f"|---|{'---:|' * len(head)}"]
    for table in [t for t in NAMES if (t, OURS) in points]:
        ours, rmse, covers = (mean(points, table, OURS, TIMES[-1], w) for w in ("log_density", "rmse", "coverage"))
        others = ((mean(points, table, m, TIMES[-1], "log_density"), m) for m in GPS if m != OURS)
        best, name = max(other for other in others if np.isfinite(other[0]))
        boosting = mean(points, table, "boosting", 0, "rmse")
        cells = [show(ours, ours > best), f"{best:.3f} ({name})", show(rmse), show(boosting), f"{covers:.0%}"]
        lines.append(f"| {table} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def curves(points: dict) -> None:
    """Draw log density over seconds, a panel for each table."""
    figure, all_axes = plt.subplots(4, 3, figsize=(12, 12), layout="constrained")
    labels = {}
    for axes, table in zip(all_axes.flat, (*NAMES, *TIME_ORDERED), strict=True):
        ends = []
        for method in [m for m in (*GPS, IN_TIME, *FAMILY) if (table, m) in points]:
            times = sorted(points[table, method])
            values = [np.mean([p["log_density"] for p in points[table, method][t]]) for t in times]
            look = {"color": COLORS[method], "linewidth": 2 if method == OURS else 1}
            (labels[method],) = axes.plot(times, values, marker=".", linestyle=":" if method in FAMILY else "-", **look)
            ends.append(values[-1])
        axes.set(title=table, xlabel="seconds", ylabel="log density")
        if ends:  # slow starts would flatten the rest
            axes.set_ylim(bottom=max(axes.get_ylim()[0], min(ends) - MOST_BELOW))
    figure.legend(list(labels.values()), list(labels), loc="outside lower center", ncols=5)
    figure.savefig(RESULTS / "quality.png", dpi=90)


def verdict(points: dict) -> list[str]:
    """Say in sentences what the tables show."""
    measured = [t for t in NAMES if (t, OURS) in points]
    seeds = {len(points[t, OURS][120]) for t in measured}
    num = f"{max(seeds)}" if min(seeds) == max(seeds) else f"{min(seeds)} to {max(seeds)}"
    lines = [f"{len(measured)} of {len(NAMES)} tables are measured, with {num} seeds."]
    for seconds in TIMES:
        ours = {t: mean(points, t, OURS, seconds, "log_density") for t in measured}
        rivals = {
            t: max((mean(points, t, m, seconds, "log_density"), m) for m in GPS if m != OURS and (t, m) in points)
            for t in measured
        }
        behind = [
            f"{t} ({ours[t]:.3f} against {rivals[t][0]:.3f} of {rivals[t][1]})"
            for t in measured
            if not ours[t] > rivals[t][0]
        ]
        lines.append(
            f"After {seconds} s Overtone has the best log density of the GP methods on {len(measured) - len(behind)} "
            f"tables{'; not on ' + ', '.join(behind) if behind else ''}."
        )
    gaps = {t: mean(points, t, OURS, 120, "rmse") - mean(points, t, "boosting", 0, "rmse") for t in measured}
    near = [t for t, gap in gaps.items() if gap <= NEAR]
    far = [f"{t} ({gap:+.3f})" for t, gap in gaps.items() if gap > NEAR]
    lines.append(
        f"Its RMSE is at most {NEAR} above boosting's, or below it, on {len(near)} tables; not on {', '.join(far)}."
    )
    covered = {t: mean(points, t, OURS, 120, "coverage") for t in measured}
    odd = [f"{t} ({c:.3f})" for t, c in covered.items() if not LEAST_COVERAGE <= c <= MOST_COVERAGE]
    lines.append(
        f"Its 95 % intervals cover between 92 and 98 % on all tables{' but ' + ', '.join(odd) if odd else ''}."
    )
    for method in FAMILY:
        known = [t for t in measured if np.isfinite(mean(points, t, method, TIMES[-1], "log_density"))]
        if known:
            both = {t: [mean(points, t, m, TIMES[-1], "log_density") for m in (OURS, method)] for t in known}
            behind = [f"{t} ({a:.3f} against {b:.3f})" for t, (a, b) in both.items() if a < b - 0.01]
            seeds = {len(points[t, method][TIMES[-1]]) for t in known}
            lines.append(
                f"After {TIMES[-1]} s the default is as good as {method} (up to 0.01), or better, on "
                f"{len(known) - len(behind)} of {len(known)} tables{'; not on ' + ', '.join(behind) if behind else ''} "
                f"({method} has {min(seeds)}{f' to {max(seeds)}' if max(seeds) > min(seeds) else ''} seeds)."
            )
    for table in [t for t in TIME_ORDERED if (t, OURS) in points]:
        early, late = (mean(points, table, OURS, t, "log_density") for t in TIMES)
        rival = np.nanmax([mean(points, table, m, TIMES[-1], "log_density") for m in GPS if m != OURS])
        covers = mean(points, table, OURS, TIMES[-1], "coverage")
        lines.append(
            f"Later than all training rows, {table} (one seed): {early:.3f} after {TIMES[0]} s and {late:.3f} after "
            f"{TIMES[-1]} s, where the best of the others has {rival:.3f}; 95 % intervals cover {covers:.0%}."
        )
        if (table, IN_TIME) in points:
            early, late = (mean(points, table, IN_TIME, t, "log_density") for t in TIMES)
            covers = mean(points, table, IN_TIME, TIMES[-1], "coverage")
            lines[-1] += f" With held_out='last': {early:.3f} and {late:.3f}, {covers:.0%} covered."
    steps, fits = lines_of("multi_step.jsonl"), lines_of("random_tables.jsonl")
    if steps:
        share, longest = [line["share"] for line in steps], max(line["default_seconds"] for line in steps)
        lines.append(
            f"Multi-step function, 400 points, {len(steps)} seeds, at most {longest:.0f} s (`multi_step.py`): the "
            f"default comes {min(share):.0%} to {max(share):.0%} of the way from a shallow fit to the true function, "
            f"90 % or more with {sum(s >= 0.9 for s in share)} seeds."
        )
    if fits:
        good = sum(line["outcome"] == "finite" for line in fits)
        lines.append(
            f"Random tables (`random_tables.py`): {good} of {len(fits)} fits end without an exception and finite."
        )
    return [f"- {line}" for line in lines]


def lines_of(name: str) -> list[dict]:
    """Return the lines of one file of results, if it is there."""
    path = RESULTS / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main() -> None:
    """Write the page, the picture and the README's table."""
    points = read()
    lines = [
        INTRODUCTION,
        "## What it says",
        "",
        *verdict(points),
        "",
        "![Log density over seconds](quality.png)",
        "",
        "## Tables",
        "",
    ]
    curves(points)
    for table in (*NAMES, *TIME_ORDERED):
        if any(key[0] == table for key in points):
            lines += table_of(points, table)
    (RESULTS / "quality.md").write_text("\n".join(lines))
    (RESULTS / "quality_table.md").write_text(at_a_glance(points))
    print("\n".join(verdict(points)))


if __name__ == "__main__":
    main()
