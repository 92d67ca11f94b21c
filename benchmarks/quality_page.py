"""Make the page of results/comparison.jsonl: quality.md, and quality_table.md, which the README shows.

python -m benchmarks.quality_page
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.comparison import ALONE, DENSITIES, GAUSSIAN, OTHER_GPS, OURS, SHOWN, Comparison, comparison
from benchmarks.lines import RESULTS
from benchmarks.schedule import CONVERGED, CONVERGED_TABLES, DENSITY_TREES, LONGEST, MEAN_TREES
from benchmarks.tables import NAMES, PARTLY_SEEN, TIME_ORDERED, UNTOUCHED

README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- quality -->\n", "<!-- end of quality -->"
COVERAGES = "coverage_50", "coverage_80", "coverage_95"
PUBLISHED = {  # the best mean test log densities in the units of the target that are known to us
    "uci_boston": -2.27,
    "uci_concrete": -2.64,
    "uci_energy": -0.34,
    "uci_kin8nm": 1.40,
    "uci_naval": 8.20,
    "uci_powerplant": -2.64,
    "uci_protein": -2.03,
    "uci_wine_red": -0.76,
    "uci_yacht": -0.20,
}
GROUPS = {"Tables that defaults were chosen with": NAMES, "Other tables": UNTOUCHED}
INTRODUCTION = f"""# Fits by the clock

Test log density (nats per row), CRPS and RMSE of the standardised target, and the shares of test values inside central
intervals of 50, 80 and 95 %. `make bench-quality` measures what is missing in `comparison.jsonl` and makes this page;
`benchmarks/tables.py` says how each table becomes inputs, a target and two parts, and `benchmarks/schedule.py` how many
seconds each method has. (`quality.jsonl` has older measurements, which the record of trials cites.)

**Rows.** A tenth is for testing, at random, at most 20,000 rows of it; a third of airline_us_mixed; the small UCI sets
have the literature's splits; of traffic_metro_interstate, rows of the same hour stay together. Training sees
standardised columns. Defaults of Overtone were chosen with ten tables in view, their test rows included. On the other
eleven little was chosen, but trials looked at some splits or later rows of those with a dagger: priors and starts of
exact GPs, and when noise varies, at single splits of four small UCI sets, how many inputs may have fine structure at
split 0 of uci_naval, the kernel of a series at later years of two, and the choice of held-out rows at the last tenth of
power_household.

**Overtone** has its default settings and is told how many seconds it has: 60 on the small UCI sets and series
among the other tables, otherwise 120, from the call of `fit` to the fitted model, with programs in the cache from a
short fit before. Without anything in the cache a first fit of a kind takes 10 to 25 seconds longer. *No neighbours* is
the same fit without its last part.

**Gaussian processes.** `exact-gp`: Matern-5/2 or RBF with a lengthscale for each input, the likeliest of fits from
several starts (`exact_gp_curve.py`). GPyTorch and GPflux have the settings of their documentation
(`gpytorch_curve.py`, `gpflux_curve.py`): batches of 1,024, Adam at 0.01, k-means points, 128 for deep GPs, 300 for the
DSPP, 500 for the SVGP. They train for 120 seconds, or 60 on the other tables; their clock counts training steps alone.
*Converged* ones train until their objective no longer rises, at most {LONGEST} seconds.

**Trees** (`trees_curve.py`) are stopped early on a tenth of the training rows. For RMSE: LightGBM with 127 leaves and
at least 5 rows a leaf, CatBoost with depth 8, both at rate 0.05. For densities: CatBoost with RMSEWithUncertainty, and
NGBoost with normal distributions.

Every process has one core. Means are over splits; two methods are compared on the splits that both have, and leads are
positive where Overtone is better. Names with a star were measured with release 0.1.0, which did not know of CRPS. Where
a target has fewer than 20 values (wine), CRPS decides instead of log density.
"""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table, with numbers to the right, or a sentence if it has no rows."""
    if not (rows := list(rows)):
        return ["Not measured yet; `python -m benchmarks.quality --list` says how long it takes.", ""]
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


def show(value: float, digits: int = 3, sign: str = "") -> str:
    """Return a number as a cell."""
    return f"{value:{sign}.{digits}f}" if np.isfinite(value) else ""


def percent(value: float) -> str:
    """Return a share as a cell."""
    return f"{value:.1%}" if np.isfinite(value) else ""


def measured(known: Comparison, tables: Iterable[str]) -> list[str]:
    """Return the tables that ours has been measured on."""
    return [name for name in tables if known.seeds(name, OURS)]


def against(known: Comparison, name: str, methods: Iterable[str]) -> str:
    """Return our lead over the best of the methods as a cell; negative where ours is behind."""
    what = known.decides(name)
    lead, best = known.best(name, methods, what)
    unit = " CRPS" if what == "crps" else ""
    return f"{show(lead, sign='+')}{unit} ({best})" if best else ""


def at_a_glance(known: Comparison, tables: Iterable[str]) -> list[str]:
    """Return a line for each table: ours, our lead over others, and the better of two boosters."""
    head = ["", "splits", "log density", "over the best other GP", "over the best trees with densities", "CRPS"]
    head += ["RMSE", "better of LightGBM and CatBoost", "50, 80, 95 % intervals cover"]
    rows = []
    for name in measured(known, tables):
        lead, best = known.best(name, MEAN_TREES, "rmse")
        ours = {what: known.mean(name, OURS, what) for what in ("log_density", "crps", "rmse", *COVERAGES)}
        boosted = f"{show(ours['rmse'] + lead)} ({best})" if best else ""
        marked = f"{name} †" if name in PARTLY_SEEN else name
        cells = [marked, f"{len(known.seeds(name, OURS))}", show(ours["log_density"]), against(known, name, OTHER_GPS)]
        cells += [against(known, name, DENSITY_TREES), show(ours["crps"]), show(ours["rmse"]), boosted]
        rows.append([*cells, ", ".join(f"{100 * ours[level]:.0f}" for level in COVERAGES)])
    return table(head, rows)


def sentence(known: Comparison, tables: Sequence[str], methods: Iterable[str], what: str, text: str) -> str:
    """Say on how many tables ours is at least as good as all of these methods, and where it is not."""
    leads = {name: known.best(name, methods, what or known.decides(name)) for name in tables}
    leads = {name: pair for name, pair in leads.items() if pair[1]}
    behind = [f"{name} ({-lead:.3f} behind {best})" for name, (lead, best) in leads.items() if lead < 0]
    return f"{text} on {len(leads) - len(behind)} of {len(leads)} tables" + (
        f"; not on {', '.join(behind)}." if behind else "."
    )


def verdict(known: Comparison, tables: Sequence[str]) -> list[str]:
    """Say in sentences what the figures of a group of tables show."""
    tables = measured(known, tables)
    if not tables:
        return []
    covers = {name: known.mean(name, OURS, "coverage_95") for name in tables}
    odd = [f"{name} ({share:.1%})" for name, share in covers.items() if not 0.92 <= share <= 0.98]
    lines = [
        sentence(
            known, tables, OTHER_GPS, "", "Its predictive distributions are as good as any other GP's, or better,"
        ),
        sentence(known, tables, DENSITY_TREES, "", "They are as good as those of trees, or better,"),
        sentence(known, tables, MEAN_TREES, "rmse", "Its RMSE is at or below that of LightGBM and CatBoost"),
        f"Its 95 % intervals cover {min(covers.values()):.1%} to {max(covers.values()):.1%}"
        + (f"; outside 92 to 98 %: {', '.join(odd)}." if odd else "."),
    ]
    return [*(f"- {line}" for line in lines if " on 0 of 0 tables" not in line), ""]  # nothing to compare with yet


def one_at_a_time(known: Comparison) -> list[str]:
    """Return log density and CRPS with Gaussian noise, without neighbours, and with both."""
    methods = (OURS, ALONE[OURS], GAUSSIAN, ALONE[GAUSSIAN])
    names = ("default", "no neighbours", "Gaussian noise", "both")
    head = ["", "splits", *(f"log density: {names[0]}", *names[1:]), *(f"CRPS: {names[0]}", *names[1:])]
    rows = []
    for name in [t for group in GROUPS.values() for t in group if known.seeds(t, *methods)]:
        seeds = known.seeds(name, *methods)
        cells = [show(known.mean(name, m, what, seeds)) for what in ("log_density", "crps") for m in methods]
        rows.append([name, f"{len(seeds)}", *cells])
    return table(head, rows)


def published(known: Comparison) -> list[str]:
    """Return ours in the units of the target, beside the best published log densities."""
    head = ["", "splits", "log density", "best published", "lead", "RMSE"]
    rows = []
    for name in measured(known, PUBLISHED):
        scale = known.values(name, OURS, "scale")
        density = float(np.mean(known.values(name, OURS, "log_density") - np.log(scale)))
        rmse = float(np.mean(known.values(name, OURS, "rmse") * scale))
        cells = [show(density, 2), show(PUBLISHED[name], 2), show(density - PUBLISHED[name], 2, "+"), f"{rmse:.3g}"]
        rows.append([name, f"{len(scale)}", *cells])
    return table(head, rows)


def until_converged(known: Comparison) -> list[str]:
    """Return what peers gain if they are trained until they no longer improve."""
    head = ["", "by the clock", "until it no longer improves", "seconds", "ended by itself", "overtone"]
    rows = []
    for name in CONVERGED_TABLES:
        for method in [m for m in CONVERGED if known.seeds(name, m)]:
            seeds, usual = known.seeds(name, method), method.removesuffix("-converged")
            pair = (known.mean(name, m, "log_density", seeds if known.seeds(name, m) else ()) for m in (usual, method))
            ended = all(known.values(name, method, "converged"))
            cells = [*map(show, pair), f"{known.mean(name, method, 'seconds'):.0f}", "yes" if ended else "no"]
            ours = known.mean(name, OURS, "log_density", known.seeds(name, OURS, method))
            rows.append([f"{name}, {usual}", *cells, show(ours)])
    return table(head, rows)


def known_rows(known: Comparison) -> list[str]:
    """Return the sizes of tables, and how many test rows have their inputs among the training rows."""
    head = ["", "training rows", "inputs", "test rows", "with inputs of a training row", "distinct targets"]
    rows = []
    for name in measured(known, (*NAMES, *UNTOUCHED, *TIME_ORDERED)):
        sizes = [f"{known.about(name, what):,.0f}" for what in ("rows", "inputs", "test_rows")]
        repeated, num = known.about(name, "repeated"), known.about(name, "test_rows")
        cells = f"{repeated:.1f} ({repeated / num:.1%})" if repeated else "none"
        rows.append([name, *sizes, cells, f"{known.about(name, 'values'):,.0f}"])
    return table(head, rows)


def all_figures(known: Comparison, name: str) -> list[str]:
    """Return the lines about one table, with a row for each method."""
    head = ["", "splits", "log density", "CRPS", "RMSE", *(f"{level[-2:]} % cover" for level in COVERAGES), "seconds"]
    rows, what = [], known.decides(name)
    present = [method for method in SHOWN if known.seeds(name, method)]
    complete = [m for m in present if m in (OURS, *DENSITIES)]
    means = {m: known.mean(name, m, what) * (1 if what == "log_density" else -1) for m in complete}
    lead = max((value for value in means.values() if np.isfinite(value)), default=np.nan)
    for method in present:
        star = "*" if any("release" in line for line in known.figures[name, method].values()) else ""
        cells = [show(known.mean(name, method, w)) for w in ("log_density", "crps", "rmse")]
        if means.get(method) == lead:
            place = 0 if what == "log_density" else 1
            cells[place] = f"**{cells[place]}**"
        cells += [percent(known.mean(name, method, level)) for level in COVERAGES]
        seconds = f"{known.mean(name, method, 'seconds'):.0f}"
        rows.append([method + star, f"{len(known.seeds(name, method))}", *cells, seconds])
    return [f"### {name}", "", *table(head, rows)] if rows else []


def other_tests() -> list[str]:
    """Say what two more files of results show."""
    lines = []
    if steps := lines_of("multi_step.jsonl"):
        share, longest = [line["share"] for line in steps], max(line["default_seconds"] for line in steps)
        lines.append(
            f"- Multi-step function, 400 points, {len(steps)} seeds, at most {longest:.0f} s (`multi_step.py`): the "
            f"default comes {min(share):.0%} to {max(share):.0%} of the way from a shallow fit to the true function, "
            f"90 % or more with {sum(s >= 0.9 for s in share)} seeds."
        )
    if fits := lines_of("random_tables.jsonl"):
        good = sum(line["outcome"] == "finite" for line in fits)
        lines.append(
            f"- Random tables (`random_tables.py`): {good} of {len(fits)} fits end without an exception and finite."
        )
    return [*lines, ""]


def lines_of(name: str) -> list[dict]:
    """Return the lines of one file of results, if it is there."""
    path = RESULTS / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def summary(known: Comparison) -> list[str]:
    """Return what the README shows: two tables, and what they say."""
    return [
        line
        for title, tables in GROUPS.items()
        if measured(known, tables)
        for line in (f"**{title}**", "", *at_a_glance(known, tables), *verdict(known, tables))
    ]


def main() -> None:
    """Write the page and the README's tables."""
    known = comparison()
    sections = {
        "What it says": [*summary(known), *other_tests()],
        "One thing at a time": one_at_a_time(known),
        "Beside published figures, in the units of the target": published(known),
        "Peers until they no longer improve": until_converged(known),
        "Rows that training has seen": known_rows(known),
        "All figures": [
            line for group in (*GROUPS.values(), TIME_ORDERED) for t in group for line in all_figures(known, t)
        ],
    }
    failed = [f"- {line['table']}, split {line['seed']}, {line['method']}: {line['failed']}" for line in known.failures]
    sections |= {"Fits that failed": failed} if failed else {}
    page = [INTRODUCTION, *(line for title, lines in sections.items() for line in (f"## {title}", "", *lines))]
    (RESULTS / "quality.md").write_text("\n".join(page).rstrip() + "\n")
    text = "\n".join(summary(known))
    (RESULTS / "quality_table.md").write_text(text)
    before, _, rest = README.read_text().partition(BEGIN)
    README.write_text(before + BEGIN + text + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
