"""Load the data sets of the quality benchmark as arrays: inputs X (N, D) and target y (N,), and split their rows.

They are Parquet files in the folder that OVERTONE_DATA names, but for a few made-up ones; nothing is downloaded. Times
become a trend in days, the hour of the day, the day of the week and, for more than a year, the day of the year;
categories become indicator columns, or for car parks a number. Defaults were chosen with the tables of NAMES in view,
their test rows included. Of those of UNTOUCHED, some splits or later rows of PARTLY_SEEN were looked at in trials that
docs/inference.md records.
"""

import os
from pathlib import Path

import numpy as np
import pandas as pd

from overtone.app.demo import multi_step

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
        return multi_step(0, 1000)
    if name in WAVES:
        rng = np.random.default_rng(0)
        X = rng.random((6000, 2))
        return X, np.sin(2 * np.pi * WAVES[name](*X.T)) + 0.1 * rng.standard_normal(6000)
    name = name.removesuffix(":last")
    frame = pd.read_parquet(folder() / f"{name}.parquet")
    X, y = (LOADERS.get(name) or _last_column)(frame)
    X, y = np.asarray(X, float), np.asarray(y, float)
    keep = np.isfinite(y) & np.all(np.isfinite(X), axis=1)
    return X[keep], y[keep]


def split(name: str, X: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return training and test rows: a tenth is held out at random, the last tenth, or the literature's choice."""
    num = len(X)
    if name in STANDARD_SPLITS:
        splits = pd.read_parquet(folder() / "uci_splits.parquet")
        chosen = (splits["dataset"] == name.removeprefix("uci_")) & (splits["split"] == seed)
        test = splits["test_index"][chosen].to_numpy()
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


def _times(times: pd.Series) -> list[np.ndarray]:
    """Return a trend in days, the hour, the day of the week and, for more than a year, the day of the year."""
    days = (times - times.min()).dt.total_seconds().to_numpy() / 86400
    seconds = times.dt.hour * 3600 + times.dt.minute * 60 + times.dt.second
    parts = [days, seconds.to_numpy() / 3600, times.dt.dayofweek.to_numpy()]
    return [*parts, times.dt.dayofyear.to_numpy()] if days.max() > 400 else parts


def _columns(*parts) -> np.ndarray:
    return np.column_stack([np.asarray(part, float) for part in parts])


def _last_column(frame: pd.DataFrame):
    return frame.iloc[:, :-1].to_numpy(float), frame.iloc[:, -1].to_numpy(float)


def _audio(frame: pd.DataFrame):
    return frame[["t"]][:35267].to_numpy(float), frame["y"][:35267]


def _co2(frame: pd.DataFrame):
    return ((frame["date"] - frame["date"].min()).dt.days.to_numpy(float))[:, None], frame["co2"]


def _traffic(frame: pd.DataFrame):
    weather = frame["temp"].clip(lower=200), frame["rain_1h"].clip(upper=60), frame["clouds_all"]
    return _columns(*_times(frame["datetime"]), *weather), frame["traffic_volume"]


def _air(frame: pd.DataFrame):
    names = ["dewpoint", "temperature", "pressure", "wind_speed_cum", "snow_hours_cum", "rain_hours_cum"]
    wind = pd.get_dummies(frame["wind_direction"])
    return _columns(*_times(frame["datetime"]), *(frame[n] for n in names), *(wind[c] for c in wind)), frame["pm25"]


def _parking(frame: pd.DataFrame):
    park = frame["system_code_number"].astype("category").cat.codes
    return _columns(*_times(frame["last_updated"]), frame["capacity"], park), frame["occupancy"] / frame["capacity"]


def _power(frame: pd.DataFrame):
    return _columns(*_times(frame["datetime"])), frame["global_active_power"]


def _naval(frame: pd.DataFrame):
    decays = ["gt_compressor_decay", "gt_turbine_decay"]  # either would tell of the other
    return frame.drop(columns=decays).to_numpy(float), frame[decays[0]]


def _solar(frame: pd.DataFrame):
    return frame[["year"]].to_numpy(float), frame["cycle_plus_background"]


def _airline(frame: pd.DataFrame):
    times = (frame[name] // 100 * 60 + frame[name] % 100 for name in ("dep_time", "arr_time"))  # hhmm to minutes
    others = (frame[name] for name in ("distance", "air_time", "day_of_week", "day_of_month", "month"))
    return _columns(frame["year"] - frame["plane_year"], *times, *others), frame["arr_delay"]


def _appliances(frame: pd.DataFrame):
    return frame.drop(columns=["datetime", "appliances"]).to_numpy(float), frame["appliances"]


LOADERS = {
    "audio_subband": _audio,
    "co2_mauna_loa_weekly": _co2,
    "traffic_metro_interstate": _traffic,
    "air_beijing_pm25": _air,
    "parking_birmingham": _parking,
    "appliances_energy": _appliances,
    "power_household": _power,
    "uci_naval": _naval,
    "solar_irradiance": _solar,
    "airline_us_mixed": _airline,
}
