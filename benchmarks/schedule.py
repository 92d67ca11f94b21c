"""What the quality benchmark measures: which method on which table, with which splits, and for how many seconds.

The order is that of measuring: Overtone first, then what is quick, and last the Gaussian processes of other libraries.
"""

import sys
from itertools import product
from typing import NamedTuple

from benchmarks.tables import NAMES, SERIES, STANDARD_SPLITS, TIME_ORDERED, UNTOUCHED

OURS, PEERS = sys.executable, ".venv-bench/bin/python"
DENSITY_TREES, MEAN_TREES = ("catboost-density", "ngboost"), ("lightgbm", "catboost")
CLOCKED = ("gpytorch-dgp", "gpytorch-dspp", "gpytorch-svgp", "gpflux-dgp")
CONVERGED = tuple(f"{name}-converged" for name in CLOCKED)
EXACT_TABLES = ("multi_step", "co2_mauna_loa_weekly", *(n for n in STANDARD_SPLITS if n != "uci_naval"), *SERIES)
CONVERGED_TABLES = ("uci_kin8nm", "uci_powerplant", "parking_birmingham", "uci_concrete")
LARGE = ("power_household", "airline_us_mixed")
SMALL = (*STANDARD_SPLITS, *SERIES)
WORKERS = {
    **dict.fromkeys(("overtone", "overtone-gaussian", "overtone-last"), (OURS, "overtone_curve")),
    **dict.fromkeys((*MEAN_TREES, *DENSITY_TREES), (PEERS, "trees_curve")),
    "exact-gp": (PEERS, "exact_gp_curve"),
    **dict.fromkeys((*CLOCKED, *CONVERGED), (PEERS, "gpytorch_curve")),
    **dict.fromkeys(("gpflux-dgp", "gpflux-dgp-converged"), (PEERS, "gpflux_curve")),
}
LONGEST = 900  # seconds of training until nothing improves


class Case(NamedTuple):
    """A method on one split of a table; seconds is what a fit by the clock has, and `usual` what else it takes."""

    method: str
    table: str
    seed: int
    seconds: int = 0
    usual: int = 0

    @property
    def key(self) -> dict:
        """Return what tells the lines of this case from others."""
        return {"table": self.table, "seed": self.seed, "method": self.method}


def cases() -> list[Case]:
    """Return all cases, in the order of measuring."""
    parts = [
        # methods, tables, seeds, seconds, usual seconds besides
        (("overtone",), NAMES, 3, 120, 40),
        (("overtone",), SMALL, 10, 60, 15),
        (("overtone",), LARGE, 3, 120, 90),
        (("overtone", "overtone-last"), TIME_ORDERED, 1, 120, 60),
        (("overtone-gaussian",), NAMES, 3, 120, 40),
        (("overtone-gaussian",), SMALL, 3, 60, 15),
        (("overtone-gaussian",), LARGE, 1, 120, 90),
        ((*MEAN_TREES, *DENSITY_TREES), SMALL, 10, 0, 20),
        ((*MEAN_TREES, *DENSITY_TREES), NAMES, 3, 0, 100),
        ((*MEAN_TREES, *DENSITY_TREES), LARGE, 1, 0, 900),
        (MEAN_TREES, TIME_ORDERED, 1, 0, 500),
        (("exact-gp",), EXACT_TABLES, 3, 0, 60),
        (("exact-gp",), [name for name in EXACT_TABLES if name in SMALL], 10, 0, 60),
        (CLOCKED, NAMES, 3, 120, 20),
        (CLOCKED, UNTOUCHED, 2, 60, 20),
        (CLOCKED, TIME_ORDERED, 1, 120, 20),
        (CONVERGED, CONVERGED_TABLES, 1, LONGEST, 20),
    ]
    every = {}
    for methods, tables, seeds, seconds, usual in parts:
        for seed, method, table in product(range(seeds), methods, tables):
            case = Case(method, table, seed, seconds, usual)
            every.setdefault(tuple(case.key.values()), case)
    return list(every.values())


def costs(chosen: list[Case]) -> str:
    """Return a table of core-minutes by method."""
    text = "method                        cases  core-minutes\n"
    for method in dict.fromkeys(case.method for case in chosen):
        own = [case.seconds + case.usual for case in chosen if case.method == method]
        text += f"{method:28}  {len(own):5}  {sum(own) / 60:12.0f}\n"
    return text + f"{'all':28}  {len(chosen):5}  {sum(c.seconds + c.usual for c in chosen) / 60:12.0f}\n"
