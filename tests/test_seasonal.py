"""The seasonal naive: the value a day, a week or a year earlier, beside the other baselines of rows in time."""

import numpy as np
import polars as pl
import pytest
from scipy.stats import norm

from overtone.app.judging import judge
from overtone.estimators.baselines import seasonal_naive
from overtone.sklearn import DeepGPRegressor, load

HOURS = np.arange(240)
DAILY = 10.0 * (HOURS % 24) + HOURS // 24  # each day is the one before it plus 1
LATER = np.arange(240, 270)


def test_it_is_the_value_one_day_earlier_or_the_fewest_days_that_reach_back_to_training():
    values, spread = seasonal_naive(HOURS / 24, DAILY[:, None], LATER / 24)
    assert values[:, 0].tolist() == [*DAILY[216:240], *DAILY[216:222]]
    assert spread.tolist() == [1.0]


@pytest.mark.parametrize(
    ("step", "rows", "season"), [(1.0, 60, 7), (7.0, 110, 52), (30.436875, 40, 12), (1 / 24, 240, 24)]
)
def test_the_season_is_the_one_that_repeats(step, rows, season):
    pattern = np.random.default_rng(0).standard_normal(season)
    series = np.tile(pattern, 1 + 2 * rows // season)
    days = step * np.arange(rows + 5)
    values, spread = seasonal_naive(days[:rows], series[:rows, None], days[rows:])
    np.testing.assert_array_equal(values[:, 0], series[rows : rows + 5])
    assert spread[0] < 1e-5


@pytest.mark.parametrize(
    ("days", "later"),
    [
        (np.arange(12.0) * 400, np.array([5000.0])),  # no season is longer than a step
        (HOURS / 24, np.array([0.5])),  # less than a season after the first row
        (np.arange(5) / 24, np.array([1.0])),  # nothing is repeated
    ],
)
def test_there_may_be_none(days, later):
    assert seasonal_naive(days, np.sin(days)[:, None], later) is None


@pytest.mark.filterwarnings("ignore::overtone.sklearn.OutsideRangeWarning")
def test_it_is_judged_beside_the_mean_and_a_line_where_rows_follow_training(tmp_path):
    when = pl.datetime_range(pl.datetime(2024, 1, 1), pl.datetime(2024, 1, 12), "1h", eager=True).alias("when")
    train, later = when[:240].to_frame(), when[240:264].to_frame()
    model = DeepGPRegressor(method="svgp", n_inducing=4, max_steps=2).fit(train, DAILY)
    y = DAILY[216:240] + 3.0  # the day before, plus 3
    found = judge(model, later, y)["y"].baselines
    assert list(found) == ["mean", "straight line", "seasonal naive"]
    assert found["seasonal naive"]["rmse"] == pytest.approx(3.0, rel=1e-5)
    assert found["seasonal naive"]["log_density"] == pytest.approx(norm.logpdf(3.0), rel=1e-4)
    model.save(tmp_path / "m.safetensors")
    assert judge(load(tmp_path / "m.safetensors"), later, y)["y"].baselines == found
    assert "seasonal naive" not in model.evaluate_baselines(train, DAILY)  # the first day has none before it
    assert "seasonal naive" not in DeepGPRegressor(method="svgp", n_inducing=4, max_steps=2).fit(
        HOURS[:, None], DAILY
    ).evaluate_baselines(LATER[:, None], LATER)
