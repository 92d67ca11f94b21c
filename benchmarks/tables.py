"""Load the data sets of the quality benchmark as arrays: inputs X (N, D) and target y (N,), and split their rows.

They are Parquet files in the folder that OVERTONE_DATA names, but for a few made-up ones; nothing is downloaded.
`overtone.experiments.data` makes the inputs. Defaults were chosen with the tables of NAMES in view,
their test rows included. Of those of UNTOUCHED, some splits or later rows of PARTLY_SEEN were looked at in trials that
docs/inference.md records.
"""

import os
from pathlib import Path

import numpy as np

from overtone.experiments import data

NAMES = (
    "multi_step",
    "audio_subband",
    "co2_mauna_loa_weekly",
    "traffic_metro_interstate",
    "air_beijing_pm25",
    "parking_birmingham",
    "appliances_energy",
    "uci_kin8nm",
    "uci_powerplant",
    "uci_protein",
)
STANDARD_SPLITS = ("uci_boston", "uci_concrete", "uci_energy", "uci_naval", "uci_wine_red", "uci_yacht")
SERIES = ("mcycle", "sunspots_yearly", "solar_irradiance")
UNTOUCHED = (*STANDARD_SPLITS, *SERIES, "power_household", "airline_us_mixed")
PARTLY_SEEN = (
    *("uci_boston", "uci_concrete", "uci_energy", "uci_yacht"),  # priors and starts of exact GPs
    *("sunspots_yearly", "solar_irradiance"),  # their later years: the kernel of a series
    "uci_naval",  # split 0: how many inputs may have fine structure
    "power_household",  # its last tenth: which rows to hold out
)
TIME_ORDERED = ("traffic_metro_interstate:last", "power_household:last")  # the last 10 % are held out
PARTS = {"airline_us_mixed": 3}  # of which one is for testing, as in the literature; otherwise ten
GROUPS = {"traffic_metro_interstate": 0}  # the input whose equal values stay together: rows that report the same hour
MAX_TEST_ROWS = 20_000

WAVES = {  # of two inputs, which no input shows alone
    "waves_5": lambda x, z: 5 * (x + z),
    "waves_10": lambda x, z: 10 * (x + z),
    "waves_product": lambda x, z: 8 * x * z,
}


def folder() -> Path:
    """Return the folder with the data sets."""
    name = os.environ.get("OVERTONE_DATA")
    if not name:
        raise SystemExit("OVERTONE_DATA is not set; it names the folder with the Parquet files of the data sets.")
    return Path(name)


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs and target of one data set, without rows that have gaps."""
    if name == "multi_step":
        return data.multi_step(0, 1000)
    if name in WAVES:
        rng = np.random.default_rng(0)
        X = rng.random((6000, 2))
        return X, np.sin(2 * np.pi * WAVES[name](*X.T)) + 0.1 * rng.standard_normal(6000)
    name = name.removesuffix(":last")
    return data.load(folder(), name)


def split(name: str, X: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return training and test rows: a tenth is held out at random, the last tenth, or the literature's choice."""
    num = len(X)
    if name in STANDARD_SPLITS:
        test = data.uci_split(folder(), name.removeprefix("uci_"), seed)
        return np.setdiff1d(np.arange(num), test), test
    if name.endswith(":last"):
        return np.arange(num - num // 10), thinned(np.arange(num - num // 10, num))
    if name in GROUPS:
        values, groups = np.unique(X[:, GROUPS[name]], return_inverse=True)
        held_out = np.random.default_rng(seed).permutation(len(values))[: len(values) // 10]
        chosen = np.isin(groups, held_out)
        return np.flatnonzero(~chosen), np.flatnonzero(chosen)
    order, num_test = np.random.default_rng(seed).permutation(num), num // PARTS.get(name, 10)
    return order[num_test:], thinned(order[:num_test])


def thinned(rows: np.ndarray) -> np.ndarray:
    """Return every second, third, ... of the test rows, so that there are not too many."""
    return rows[:: -(-len(rows) // MAX_TEST_ROWS)]


def num_repeated(known: np.ndarray, new: np.ndarray) -> int:
    """Return how many rows of new are exactly among the rows of known."""
    rows = {row.tobytes() for row in np.ascontiguousarray(known)}
    return sum(row.tobytes() in rows for row in np.ascontiguousarray(new))
