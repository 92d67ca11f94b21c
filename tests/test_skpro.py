"""The adapter for skpro: its own checks, and the distribution against what the model itself predicts."""

import warnings

import numpy as np
import pandas as pd
import pytest
from skpro.metrics import LogLoss
from skpro.utils import check_estimator

from overtone.sklearn import DeepGPRegressor
from overtone.skpro import DeepGPProbaRegressor

pytestmark = pytest.mark.filterwarnings("default")  # skpro's own


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.random((60, 2)), columns=["a", "b"], index=np.arange(60)[::-1])
    return X, pd.DataFrame({"y": np.sin(6 * X["a"]) + 0.1 * rng.standard_normal(60)})


@pytest.fixture(scope="module")
def fitted(table):
    X, y = table
    return DeepGPProbaRegressor(DeepGPRegressor("svgp", max_steps=100)).fit(X[:40], y[:40])


def test_it_passes_skpros_own_checks():
    with warnings.catch_warnings(action="ignore"):
        found = check_estimator(DeepGPProbaRegressor, verbose=False)
    assert len(found) > 30
    assert set(found.values()) == {"PASSED"}


def test_the_distribution_is_the_models(fitted, table):
    X, y = (part[40:] for part in table)
    model, distribution = fitted.estimator_, fitted.predict_proba(X)
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(fitted.predict(X)["y"], mean, rtol=1e-6)
    np.testing.assert_allclose(fitted.predict_var(X)["y"], std**2, rtol=1e-6)
    np.testing.assert_allclose(distribution.log_pdf(y)["y"], model.log_predictive_density(X, y["y"]), rtol=1e-6)
    interval = fitted.predict_interval(X, coverage=0.9)["y", 0.9]
    np.testing.assert_allclose(interval.to_numpy().T, model.predict_quantiles(X, [0.05, 0.95]), rtol=1e-6)
    assert list(interval.index) == list(X.index)


def test_quantiles_probabilities_and_densities_agree(fitted, table):
    distribution = fitted.predict_proba(table[0][40:])
    levels = np.linspace(0.02, 0.98, 20)[:, None]
    values = distribution.ppf(levels)
    np.testing.assert_allclose(distribution.cdf(values), levels, atol=1e-4)
    step = 1e-2 * np.sqrt(distribution.var())
    slope = (distribution.cdf(values + step) - distribution.cdf(values - step)) / (2 * step)
    np.testing.assert_allclose(distribution.pdf(values), slope, rtol=2e-3)
    assert list(distribution.ppf(np.array([[0.0], [1.0], *[[0.5]] * 18]))["y"][:2]) == [-np.inf, np.inf]


def test_rows_and_single_entries_can_be_taken(fitted, table):
    distribution = fitted.predict_proba(table[0][40:])
    some = distribution.iloc[[3, 1]]
    pd.testing.assert_frame_equal(some.mean(), distribution.mean().iloc[[3, 1]], rtol=1e-6)
    assert distribution.iat[2, 0].cdf(0.3) == pytest.approx(distribution.cdf(0.3).iloc[2, 0], rel=1e-6)


def test_draws_have_the_predicted_distribution(fitted, table):
    distribution = fitted.predict_proba(table[0][40:])
    np.random.seed(0)  # noqa: NPY002
    draws = distribution.sample(2000)["y"].to_numpy().reshape(2000, 20)
    np.testing.assert_allclose(np.mean(draws < distribution.ppf(0.3)["y"].to_numpy(), axis=0), 0.3, atol=0.05)


def test_skpros_metrics_take_it(fitted, table):
    X, y = (part[40:] for part in table)
    density = fitted.estimator_.log_predictive_density(X, y["y"]).mean()
    assert LogLoss()(y, fitted.predict_proba(X)) == pytest.approx(-density, rel=1e-6)
