"""Do forecasts go on as the series does, and are they honest? Real series, of which the last fifth is to be predicted.

The defaults are fitted to the first 80 % of each series, and scored on the rest beside three naive forecasts: the last
value, the last value with the mean slope, and the last season with the mean slope. A tenth of the first 80 %, held out
at random, says what interpolation costs. Writes one JSON line for each case to results/extrapolation.jsonl (those that
are there are not fitted again), and the table to results/extrapolation.md. Another label, such as "before", makes
further columns.

    python -m benchmarks.extrapolation [label]
"""

import os
import sys
import warnings
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.lines import RESULTS, completed
from overtone.sklearn import DeepGPRegressor

PATH = RESULTS / "extrapolation.jsonl"
SHARE, INSIDE, SECONDS = 0.8, 0.1, 30  # of rows to train on; of these, held out at random; time limit of a fit
# File, column of time, target, rows that are averaged ("" for none), season in rows. Dates stay dates.
SERIES = {
    "co2, weeks": ("co2_mauna_loa_weekly", "date", "co2", "", 52),
    "co2, months": ("co2_mauna_loa_weekly", "date", "co2", "1mo", 12),
    "co2, years as numbers": ("co2_mauna_loa_weekly", "date", "co2", "number", 12),
    "sunspots": ("sunspots_yearly", "year", "sunactivity", "", 11),
    "solar irradiance": ("solar_irradiance", "year", "cycle_plus_background", "", 11),
    "temperature in Beijing, days": ("air_beijing_pm25", "datetime", "temperature", "1d", 365),
    "particles in Beijing, days": ("air_beijing_pm25", "datetime", "pm25", "1d", 365),
    "power, days": ("power_household", "datetime", "global_active_power", "1d", 7),
    "traffic, days": ("traffic_metro_interstate", "datetime", "traffic_volume", "1d", 7),
    "temperature in Stambruges, hours": ("appliances_energy", "datetime", "t_out", "1h", 24),
}


def rows(name: str) -> tuple[pl.DataFrame, np.ndarray, int]:
    """Return the inputs and targets of a series in the order of time, and its season in rows."""
    file, time, target, every, season = SERIES[name]
    frame = pl.read_parquet(Path(os.environ["OVERTONE_DATA"]) / f"{file}.parquet").select(time, target).drop_nulls()
    frame = frame.sort(time)
    if every:
        step = "1mo" if every == "number" else every
        frame = frame.group_by_dynamic(time, every=step).agg(pl.col(target).mean())
    if every == "number":
        frame = frame.with_columns(pl.col(time).dt.epoch("d") / 365.25 + 1970)
    return frame.select(time), frame[target].to_numpy().astype(float), season


def naive(y: np.ndarray, num: int, season: int) -> dict[str, np.ndarray]:
    """Return forecasts of the next rows after y."""
    ahead = np.arange(1, num + 1)
    slope = (y[-1] - y[0]) / (len(y) - 1)
    seasonal_slope = np.mean(y[season:] - y[:-season]) / season
    last = y[len(y) - season + (ahead - 1) % season] + seasonal_slope * season * (1 + (ahead - 1) // season)
    return {"last": np.full(num, y[-1]), "drift": y[-1] + slope * ahead, "seasonal": last}


def measure(code: str, series: str, split: str) -> dict:
    """Fit the defaults, and return what the rows that were left out say of it."""
    X, y, season = rows(series)
    num = round(SHARE * len(y))
    index, order = np.arange(len(y)), np.random.default_rng(0).permutation(num)
    train, test = index[:num], index[num:]
    if split == "inside":
        train, test = np.sort(order[round(INSIDE * num) :]), np.sort(order[: round(INSIDE * num)])
    model = DeepGPRegressor(max_time=SECONDS).fit(X[train], y[train])
    with warnings.catch_warnings(action="ignore"):
        metrics = model.evaluate(X[test], y[test])
    line = {"code": code, "series": series, "split": split, "rows": len(train), "seconds": model.history_.seconds}
    line |= {"layers": len(model.model_.layers), **{k: metrics[k] for k in ("rmse", "log_density", "coverage_95")}}
    if split == "later":
        guesses = naive(y[train], len(test), season)
        line |= {f"rmse_{name}": float(np.sqrt(np.mean((y[test] - g) ** 2))) for name, g in guesses.items()}
    return line


def page(lines: list[dict]) -> str:
    """Return the table of errors and coverages."""
    codes = list(dict.fromkeys(line["code"] for line in lines))
    found = {(line["code"], line["series"], line["split"]): line for line in lines}
    later = [f"{title} {code}" for code in codes for title in ("RMSE", "95 % intervals cover", "density inside,")]
    text = "| series | last value | drift | seasonal, drift | " + " | ".join(later) + " |\n"
    text += "|---|" + "---:|" * (3 + len(later)) + "\n"
    for series in SERIES:
        one = next(line for line in lines if line["series"] == series and line["split"] == "later")
        cells = [f"{one[f'rmse_{name}']:.3g}" for name in ("last", "drift", "seasonal")]
        for code in codes:
            ahead, inside = (found.get((code, series, split)) for split in ("later", "inside"))
            cells += [f"{ahead['rmse']:.3g}", f"{ahead['coverage_95']:.0%}"] if ahead else ["", ""]
            cells += [f"{inside['log_density']:.2f}" if inside else ""]
        text += f"| {series} | " + " | ".join(cells) + " |\n"
    return text


def main(code: str = "now") -> None:
    cases = product((code,), SERIES, ("later", "inside"))
    lines = completed(PATH, cases, ("code", "series", "split"), measure)
    (RESULTS / "extrapolation.md").write_text(page(lines))


if __name__ == "__main__":
    main(*sys.argv[1:])
