"""Load the data sets of the quality benchmark as arrays: inputs X (N, D) and target y (N,).

They are Parquet files in the folder that OVERTONE_DATA names, but for a few made-up ones; nothing is downloaded.
`overtone.experiments.data` makes the inputs.
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
TIME_ORDERED = ("traffic_metro_interstate:last", "power_household:last")  # the last 10 % are held out

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


def split(name: str, num: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return training and test rows: 10 % are held out, at random or the last ones."""
    if name.endswith(":last"):
        return np.arange(num - num // 10), np.arange(num - num // 10, num)
    order = np.random.default_rng(seed).permutation(num)
    return order[num // 10 :], order[: num // 10]
