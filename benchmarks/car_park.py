"""A car park's week: what the deep GP says alone, and what it says with its neighbours, for docs/local.md.

One fit of the default to nine tenths of parking_birmingham; the picture shows rows of both parts, and how far each
prediction is from the rows that were held out. Writes docs/car_park.png.

    OVERTONE_DATA=FOLDER python -m benchmarks.car_park [seconds]
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import polars as pl

from benchmarks import tables
from overtone.sklearn import DeepGPRegressor

NAME, PARK, FIRST_DAY = "parking_birmingham", "Broad Street", np.datetime64("2016-11-07")  # a Monday
PICTURE = Path(__file__).parent.parent / "docs" / "car_park.png"


def week(X: np.ndarray) -> np.ndarray:
    """Return the rows of the car park in that week, in order."""
    frame = pl.read_parquet(tables.folder() / f"{NAME}.parquet")
    days = (frame["last_updated"].to_numpy() - FIRST_DAY) / np.timedelta64(1, "D")
    rows = np.flatnonzero((frame["system_code_number"] == PARK).to_numpy() & (days >= 0) & (days < 7))
    assert len(frame) == len(X), "some rows have gaps"
    return rows[np.argsort(days[rows])]


def main(seconds: int = 60) -> None:
    X, y = tables.load(NAME)
    train, _ = tables.split(NAME, X, 0)  # whose test rows are thinned
    test = np.setdiff1d(np.arange(len(X)), train)
    model = DeepGPRegressor(max_time=seconds).fit(X[train], y[train])
    rows = week(X)
    neighbours, held_out = model.neighbours_, np.isin(rows, test)
    hours = np.arange(len(rows))  # rows side by side, without the nights
    figure, axes = plt.subplots(2, 1, figsize=(9, 4.6), sharex=True, sharey=True, layout="constrained")
    for ax, title, used in zip(axes, ("The deep GP alone", "With its neighbours"), ((), neighbours), strict=True):
        model.neighbours_ = used
        mean = model.predict(X[rows])
        low, high = model.predict_quantiles(X[rows], [0.025, 0.975])
        error = np.sqrt(np.mean((mean - y[rows])[held_out] ** 2))
        ax.fill_between(hours, low, high, alpha=0.25, lw=0, label="95 % interval")
        ax.plot(hours, mean, label="mean")
        ax.plot(hours[~held_out], y[rows][~held_out], "k.", ms=3, label="training rows")
        ax.plot(hours[held_out], y[rows][held_out], "o", mfc="none", color="tab:red", ms=6, label="held-out rows")
        ax.set(title=f"{title}: RMSE of the held-out rows {error:.3f}", ylabel="share of places taken")
    figure.legend(*axes[0].get_legend_handles_labels(), ncols=4, frameon=False, loc="outside upper center")
    weekdays, starts = np.unique(X[rows][:, 2].astype(int), return_index=True)
    axes[1].set_xticks(starts, [("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[day] for day in weekdays])
    axes[1].set_xlabel(f"{PARK}, Birmingham, one week of November 2016 (8:00 to 16:30)")
    figure.savefig(PICTURE, dpi=64)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
