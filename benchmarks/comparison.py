"""Read results/comparison.jsonl, and compare methods on the splits that they share.

Splits of small tables differ by more than methods do. So two methods are compared by the mean of their differences on
the same splits, and a method that has fewer of them is not compared with the mean of all.
"""

import json
from collections.abc import Iterable

import numpy as np

from benchmarks.lines import RESULTS
from benchmarks.schedule import CLOCKED, CONVERGED, DENSITY_TREES, MEAN_TREES

OURS, GAUSSIAN = "overtone", "overtone-gaussian"
ALONE = {OURS: "overtone, no neighbours", GAUSSIAN: "overtone-gaussian, no neighbours"}
OTHER_GPS = ("exact-gp", *CLOCKED, *CONVERGED)
DENSITIES = (*OTHER_GPS, *DENSITY_TREES)
SHOWN = (OURS, ALONE[OURS], GAUSSIAN, ALONE[GAUSSIAN], "overtone-last", *DENSITIES, *MEAN_TREES)
FEW_VALUES = 20  # of a target: the density of a spike is as high as one likes, so that CRPS decides


class Comparison:
    """All figures, by table, method and split."""

    def __init__(self, lines: Iterable[dict]):
        self.figures: dict[tuple[str, str], dict[int, dict]] = {}
        self.failures: list[dict] = []
        for line in sorted(lines, key=lambda line: "release" not in line):  # what is newer replaces what is older
            if "failed" in line:
                self.failures.append(line)
                continue
            self._add(line["method"], line)
            if line["method"] in ALONE:
                self._add(ALONE[line["method"]], {**line, **line.get("without_neighbours", {})})

    def _add(self, method: str, line: dict) -> None:
        self.figures.setdefault((line["table"], method), {})[line["seed"]] = line

    def seeds(self, table: str, *methods: str) -> list[int]:
        """Return the splits that all these methods have been measured on."""
        return sorted(set.intersection(*(set(self.figures.get((table, method), {})) for method in methods)))

    def values(self, table: str, method: str, what: str, seeds: Iterable[int] | None = None) -> np.ndarray:
        """Return a figure of each split."""
        of_method = self.figures.get((table, method), {})
        return np.array([of_method[seed].get(what, np.nan) for seed in (of_method if seeds is None else seeds)])

    def mean(self, table: str, method: str, what: str, seeds: Iterable[int] | None = None) -> float:
        """Return the mean of a figure over splits, or NaN."""
        values = self.values(table, method, what, seeds)
        values = values[np.isfinite(values)]
        return float(values.mean()) if len(values) else np.nan

    def about(self, table: str, what: str) -> float:
        """Return what is known about a table, such as its number of rows, as the mean over splits."""
        return self.mean(table, OURS, what)

    def decides(self, table: str) -> str:
        """Return the figure by which distributions are compared."""
        return "crps" if self.about(table, "values") < FEW_VALUES else "log_density"

    def lead(self, table: str, method: str, what: str) -> float:
        """Return by how much ours is better than a method on average, on the splits that both have."""
        seeds = self.seeds(table, OURS, method)
        gains = self.values(table, OURS, what, seeds) - self.values(table, method, what, seeds)
        gains = gains[np.isfinite(gains)] * (1 if what == "log_density" else -1)
        return float(gains.mean()) if len(gains) else np.nan

    def best(self, table: str, methods: Iterable[str], what: str) -> tuple[float, str]:
        """Return the least lead over any of the methods, and which one it is."""
        leads = [(self.lead(table, method, what), method) for method in methods]
        return min((pair for pair in leads if np.isfinite(pair[0])), default=(np.nan, ""))


def comparison() -> Comparison:
    """Return what has been measured."""
    path = RESULTS / "comparison.jsonl"
    return Comparison(map(json.loads, path.read_text().splitlines() if path.exists() else ()))
