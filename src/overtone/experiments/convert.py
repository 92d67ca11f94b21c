"""Make the Parquet files of the experiments from the original public downloads.

    python -m overtone.experiments.convert NAME SOURCE FILE

Rows keep their order and values; only names, numbers and time stamps are read anew. NAME is one of
    audio_subband               audio_subband.mat of github.com/thangbui/tsgp (exps)
    power_household             household_power_consumption.txt (UCI 235)
    appliances_energy           energydata_complete.csv (UCI 374)
    parking_birmingham          dataset.csv (UCI 482)
    air_beijing_pm25            PRSA_data_2010.1.1-2014.12.31.csv (UCI 381)
    traffic_metro_interstate    Metro_Interstate_Traffic_Volume.csv, or .csv.gz (UCI 492)
    airline_us2008              2008.csv with plane-data.csv beside it (ASA Data Expo 2009)
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import polars as pl

MISSING = "?", "NA", ""  # in the downloads
STAMP, SHORT_STAMP = "%Y-%m-%d %H:%M:%S", "%d/%m/%Y %H:%M:%S"


def _csv(path: Path, separator: str = ",", missing: Sequence[str] = MISSING) -> pl.DataFrame:
    return pl.read_csv(path, separator=separator, null_values=list(missing), infer_schema_length=None)


def _audio(path: Path) -> pl.DataFrame:
    from scipy.io import loadmat

    y = np.asarray(loadmat(path)["y"], float).ravel()
    return pl.DataFrame({"t": np.arange(1, len(y) + 1), "y": y})


def _power(path: Path) -> pl.DataFrame:
    frame = _csv(path, ";")
    times = (frame["Date"] + " " + frame["Time"]).str.to_datetime(SHORT_STAMP)
    numbers = frame.drop("Date", "Time").with_columns(pl.all().cast(pl.Float64))
    return numbers.rename(str.lower).insert_column(0, times.alias("datetime"))


def _appliances(path: Path) -> pl.DataFrame:
    frame = _csv(path).rename(str.lower).rename({"date": "datetime"})
    numbers = pl.all().exclude("datetime").cast(pl.Float64)  # which the download has in quotes
    return frame.with_columns(pl.col("datetime").str.to_datetime(STAMP), numbers)


def _parking(path: Path) -> pl.DataFrame:
    names = {
        "SystemCodeNumber": "system_code_number",
        "Capacity": "capacity",
        "Occupancy": "occupancy",
        "LastUpdated": "last_updated",
    }
    return _csv(path).rename(names).with_columns(pl.col("last_updated").str.to_datetime(STAMP))


def _air(path: Path) -> pl.DataFrame:
    frame = _csv(path)
    names = {
        "pm2.5": "pm25",
        "DEWP": "dewpoint",
        "TEMP": "temperature",
        "PRES": "pressure",
        "cbwd": "wind_direction",
        "Iws": "wind_speed_cum",
        "Is": "snow_hours_cum",
        "Ir": "rain_hours_cum",
    }
    times = pl.datetime("year", "month", "day", "hour").alias("datetime")
    return frame.select(times, *(pl.col(old).alias(new) for old, new in names.items()))


def _traffic(path: Path) -> pl.DataFrame:
    frame = _csv(path, missing=("?", "")).rename({"date_time": "datetime"})
    return frame.with_columns(pl.col("datetime").str.to_datetime(STAMP))


def _airline(path: Path) -> pl.DataFrame:
    """Return the flights that were neither cancelled nor diverted, with the year in which the aircraft was made."""
    beside = path.with_name("plane-data.csv")
    if not beside.exists():
        raise ValueError(f"{beside} does not exist; it comes with the flights and says how old an aircraft is.")
    names = {
        "Year": "year",
        "Month": "month",
        "DayofMonth": "day_of_month",
        "DayOfWeek": "day_of_week",
        "DepTime": "dep_time",
        "ArrTime": "arr_time",
        "AirTime": "air_time",
        "Distance": "distance",
        "ArrDelay": "arr_delay",
        "TailNum": "tailnum",
    }
    planes = _csv(beside, missing=(*MISSING, "None", "0000")).select(
        pl.col("tailnum").cast(pl.String), pl.col("year").cast(pl.Int64, strict=False).alias("plane_year")
    )
    chosen = (pl.col("Cancelled") == 0) & (pl.col("Diverted") == 0)
    flights = _csv(path).filter(chosen).select(pl.col(old).alias(new) for old, new in names.items())
    flights = flights.with_columns(pl.col("tailnum").cast(pl.String))
    return flights.join(planes, on="tailnum", how="left", maintain_order="left").drop("tailnum")


CONVERTERS: dict[str, Callable[[Path], pl.DataFrame]] = {
    "audio_subband": _audio,
    "power_household": _power,
    "appliances_energy": _appliances,
    "parking_birmingham": _parking,
    "air_beijing_pm25": _air,
    "traffic_metro_interstate": _traffic,
    "airline_us2008": _airline,
}


def convert(name: str, source: Path, destination: Path) -> int:
    """Write the Parquet file of a data set, and return its number of rows."""
    if name not in CONVERTERS:
        raise ValueError(f"there is no converter for {name!r}; there are {', '.join(CONVERTERS)}.")
    if not source.exists():
        raise ValueError(f"{source} does not exist.")
    frame = CONVERTERS[name](source)
    frame.write_parquet(destination, compression="zstd")
    return len(frame)


def main(arguments: Sequence[str] | None = None) -> int:
    """Convert what the command line names, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m overtone.experiments.convert", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("name", help=", ".join(CONVERTERS))
    parser.add_argument("source", type=Path, help="the download")
    parser.add_argument("destination", type=Path, help="the .parquet file to write")
    given = parser.parse_args(arguments)
    try:
        print(f"{convert(given.name, given.source, given.destination)} rows in {given.destination}")
    except (ValueError, OSError, pl.exceptions.PolarsError) as error:
        print(f"convert: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
