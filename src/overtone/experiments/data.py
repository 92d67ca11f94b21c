"""The data sets of the experiments as arrays: inputs X (N, D) and target y (N,), without rows that have gaps.

They are Parquet files in one folder, whose columns `overtone.experiments.convert` makes from the original downloads;
nothing is downloaded. Times become a trend in days, the hour of the day, the day of the week and, for more than a year,
the day of the year; categories become indicator columns, or for car parks a number.
"""

import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import polars as pl

HEIGHTS, NOISE = np.array([0.0, 1.0, -0.5, 0.6, -1.0]), 0.05  # of the multi-step function
AUDIO_ROWS = 35267
REAL_WORLD = {
    "parking": "parking_birmingham",
    "air": "air_beijing_pm25",
    "traffic": "traffic_metro_interstate",
    "power": "power_household",
    "appliances": "appliances_energy",
    "airline": "airline_us_mixed",
}
AIRLINE_INPUTS = "age", "distance", "air_time", "departure", "arrival", "day_of_week", "day_of_month", "month"


def multi_step(seed: int, num: int) -> tuple[np.ndarray, np.ndarray]:
    """Return `num` noisy points (X, y) of a function with five plateaus on [0, 1]."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0, 1, num))
    plateau = np.minimum((x * len(HEIGHTS)).astype(int), len(HEIGHTS) - 1)
    return x[:, None], HEIGHTS[plateau] + NOISE * rng.standard_normal(num)


def path_of(folder: Path | None, name: str) -> Path:
    """Return where a table of the data folder is, which OVERTONE_DATA names unless one is given."""
    if folder is None and not os.environ.get("OVERTONE_DATA"):
        raise ValueError("there is no data folder; give one with --data, or set OVERTONE_DATA.")
    return (folder or Path(os.environ["OVERTONE_DATA"])) / f"{name}.parquet"


def read(folder: Path | None, name: str) -> pl.DataFrame:
    """Return a table of the data folder."""
    if not (path := path_of(folder, name)).exists():
        how = "`python -m overtone.experiments.convert` makes it from the original download"
        raise ValueError(f"{path} does not exist; {how}.")
    return pl.read_parquet(path)


@lru_cache(maxsize=2)
def load(folder: Path | None, name: str, source: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs and target of a table; of airline_us_mixed, the flights of one source or of all."""
    frame = read(folder, name)
    if source is not None:
        frame = frame.filter(pl.col("source") == source)
    return arrays(name, frame)


def arrays(name: str, frame: pl.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs and target of a table that was read."""
    X, y = LOADERS.get(name, _last_column)(frame)
    keep = np.isfinite(y) & np.all(np.isfinite(X), axis=1)
    return X[keep], y[keep]


def uci_split(folder: Path | None, name: str, split: int) -> np.ndarray:
    """Return the test rows of a standard split of a uci_ table."""
    chosen = (pl.col("dataset") == name) & (pl.col("split") == split)
    return read(folder, "uci_splits").filter(chosen)["test_index"].to_numpy()


def random_split(num: int, seed: int, test_share: float, most_test: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return training rows and test rows in random order; of many test rows, the first `most_test`."""
    order = np.random.default_rng(seed).permutation(num)
    num_test = round(test_share * num)
    return order[num_test:], order[:num_test][:most_test]


def _numbers(*columns: pl.Series) -> np.ndarray:
    return np.column_stack([column.cast(pl.Float64).to_numpy() for column in columns])


def _times(times: pl.Series) -> list[pl.Series]:
    """Return a trend in days, the hour, the day of the week and, for more than a year, the day of the year."""
    since = (times - times.min()).dt.total_microseconds()  # type: ignore[operator]
    days = since.to_numpy() / 1e6 / 86400
    seconds = times.dt.hour().cast(int) * 3600 + times.dt.minute().cast(int) * 60 + times.dt.second()
    parts = [pl.Series(days), pl.Series(seconds.to_numpy() / 3600), times.dt.weekday().cast(int) - 1]
    return [*parts, times.dt.ordinal_day()] if days.max() > 400 else parts


def _indicators(column: pl.Series) -> list[pl.Series]:
    return [column == value for value in sorted(column.drop_nulls().unique())]


def _target(column: pl.Series) -> np.ndarray:
    return column.cast(pl.Float64).to_numpy()


def _last_column(frame: pl.DataFrame):
    return _numbers(*frame.get_columns()[:-1]), _target(frame.get_columns()[-1])


def _naval(frame: pl.DataFrame):
    return _last_column(frame.drop("gt_turbine_decay"))  # a second target


def _audio(frame: pl.DataFrame):
    return _numbers(frame["t"][:AUDIO_ROWS]), _target(frame["y"][:AUDIO_ROWS])


def _co2(frame: pl.DataFrame):
    days = (frame["date"] - frame["date"].min()).dt.total_days()  # type: ignore[operator]
    return _numbers(days), _target(frame["co2"])


def _traffic(frame: pl.DataFrame):
    weather = frame["temp"].clip(lower_bound=200), frame["rain_1h"].clip(upper_bound=60), frame["clouds_all"]
    return _numbers(*_times(frame["datetime"]), *weather), _target(frame["traffic_volume"])


def _air(frame: pl.DataFrame):
    names = "dewpoint", "temperature", "pressure", "wind_speed_cum", "snow_hours_cum", "rain_hours_cum"
    wind = _indicators(frame["wind_direction"])
    return _numbers(*_times(frame["datetime"]), *(frame[name] for name in names), *wind), _target(frame["pm25"])


def _parking(frame: pl.DataFrame):
    park = frame["system_code_number"].rank("dense") - 1
    X = _numbers(*_times(frame["last_updated"]), frame["capacity"], park)
    return X, _target(frame["occupancy"] / frame["capacity"])


def _power(frame: pl.DataFrame):
    return _numbers(*_times(frame["datetime"])), _target(frame["global_active_power"])


def _appliances(frame: pl.DataFrame):
    return _numbers(*frame.drop("datetime", "appliances").get_columns()), _target(frame["appliances"])


def _solar(frame: pl.DataFrame):
    return _numbers(frame["year"]), _target(frame["cycle_plus_background"])


def _minutes(clock: pl.Series) -> pl.Series:
    """Return minutes since midnight, of hours and minutes as one number hhmm."""
    return (clock // 100) * 60 + clock % 100


def _airline(frame: pl.DataFrame):
    times = _minutes(frame["dep_time"]), _minutes(frame["arr_time"])
    dates = frame["day_of_week"], frame["day_of_month"], frame["month"]
    age = frame["year"].cast(pl.Float64) - frame["plane_year"].cast(pl.Float64)
    return _numbers(age, frame["distance"], frame["air_time"], *times, *dates), _target(frame["arr_delay"])


def _airline_2001(frame: pl.DataFrame):
    day, number = frame["dep_datetime"].dt, pl.Float64
    minutes = day.hour().cast(number) * 60 + day.minute().cast(number)
    return _numbers(frame["distance"], minutes, day.weekday(), day.day(), day.month()), _target(frame["arr_delay"])


LOADERS: dict[str, Callable[[pl.DataFrame], tuple[np.ndarray, np.ndarray]]] = {
    "audio_subband": _audio,
    "co2_mauna_loa_weekly": _co2,
    "traffic_metro_interstate": _traffic,
    "air_beijing_pm25": _air,
    "parking_birmingham": _parking,
    "appliances_energy": _appliances,
    "power_household": _power,
    "airline_us_mixed": _airline,
    "airline_us2001": _airline_2001,
    "airline_us2008": _airline,
    "uci_naval": _naval,
    "solar_irradiance": _solar,
}
