"""The benchmarks: scores, splits and comparisons of quality, and the page of speed."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from benchmarks import page, steps
from benchmarks.comparison import OURS, Comparison
from benchmarks.curve import crps, mixture_metrics
from benchmarks.schedule import WORKERS, cases
from benchmarks.tables import num_repeated, split


def test_crps_of_a_mixture_is_the_integral_of_squared_differences():
    rng = np.random.default_rng(0)
    means, std, weights = rng.normal(size=(3, 2)), 0.2 + rng.random((3, 2)), np.array([[0.2], [0.3], [0.5]])
    y = rng.normal(size=2)
    for row, score in enumerate(crps(y, weights, means, std)):

        def below(value, row=row):
            return np.sum(weights[:, 0] * norm.cdf(value, means[:, row], std[:, row]))

        left = quad(lambda value: below(value) ** 2, -12, y[row])[0]
        assert score == pytest.approx(left + quad(lambda value: (1 - below(value)) ** 2, y[row], 12)[0], abs=1e-6)


def test_intervals_of_the_true_distribution_cover_as_they_say():
    y = np.random.default_rng(0).normal(size=20_000)
    figures = mixture_metrics(y, np.zeros(1), np.zeros((1, len(y))), np.ones((1, len(y))))
    for level in (50, 80, 95):
        assert figures[f"coverage_{level}"] == pytest.approx(level / 100, abs=0.01)


def test_rows_of_the_same_hour_stay_together():
    X = np.repeat(np.arange(300.0), 2)[:, None]
    train, test = split("traffic_metro_interstate", X, 0)
    assert len(train) + len(test) == len(X)
    assert num_repeated(X[train], X[test]) == 0
    assert num_repeated(X[train], X[train[:5]]) == 5


def test_methods_are_compared_on_the_splits_that_both_have():
    def line(method, seed, value):
        return {"table": "t", "method": method, "seed": seed, "log_density": value}

    known = Comparison([line(OURS, 0, 1.0), line(OURS, 1, -9.0), line("exact-gp", 0, 0.5)])
    assert known.best("t", ["exact-gp", "gpflux-dgp"], "log_density") == (0.5, "exact-gp")


def test_each_case_has_a_worker_and_is_measured_once():
    keys = [tuple(case.key.values()) for case in cases()]
    assert len(keys) == len(set(keys))
    assert {case.method for case in cases()} == set(WORKERS)


def test_the_page_of_speed_is_the_one_that_the_records_make(tmp_path, monkeypatch):
    assert set(page.COVARIANCES) == set(steps.COVARIANCES)
    committed = Path(page.RESULTS)
    for path in committed.glob("*.jsonl"):
        shutil.copy(path, tmp_path)
    monkeypatch.setattr(page, "RESULTS", tmp_path)
    page.main()
    assert (tmp_path / "README.md").read_text() == (committed / "README.md").read_text()
