"""The scores of scikit-learn: of rows that are known, with weights, and with exposures."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import r2_score

from overtone.sklearn import DeepGPClassifier, DeepGPRegressor

RNG = np.random.default_rng(0)
X = RNG.uniform(0, 1, (60, 2))
Y = np.sin(9 * X[:, 0]) + X[:, 1]
QUICK = {"method": "svgp", "n_inducing": 6, "max_steps": 20}
GAPS = pd.Series(Y).astype("Float64").where(Y > 0)


@pytest.fixture(scope="module")
def regressor() -> DeepGPRegressor:
    return DeepGPRegressor(**QUICK).fit(X, Y)


@pytest.fixture(scope="module")
def classifier() -> DeepGPClassifier:
    return DeepGPClassifier(**QUICK).fit(X, np.where(Y > 0.5, "high", "low"))


def test_a_weight_of_two_is_a_row_that_is_there_twice(regressor, classifier):
    weights, labels = RNG.integers(0, 4, 60), np.where(Y > 0.7, "high", "low")
    for model, y in ((regressor, Y), (regressor, GAPS), (classifier, labels)):
        rows = np.repeat(np.arange(60), weights)
        twice = model.score(X[rows], y[rows])
        assert model.score(X, y, sample_weight=weights.tolist()) == pytest.approx(twice, rel=1e-6)
        assert model.score(X, y) != pytest.approx(twice, rel=1e-3)


def test_rows_without_a_target_are_left_out(regressor, classifier):
    there = Y > 0
    assert regressor.score(X, GAPS) == pytest.approx(r2_score(Y[there], regressor.predict(X[there])), rel=1e-6)
    labels = np.where(Y > 0.5, "high", "low").astype(object)
    labels[~there] = None
    with pytest.warns(UserWarning, match="rows without a target are left out"):
        score = classifier.score(X, labels)
    assert score == np.mean(classifier.predict(X[there]) == labels[there])
    both = np.stack([Y, -Y], axis=1)
    two, of_two = DeepGPRegressor(**QUICK).fit(X, both), pd.DataFrame({"a": GAPS, "b": -Y})
    assert two.score(X, of_two) == pytest.approx(two.score(X[there], both[there]))


def test_a_score_of_nothing_or_of_other_shapes_is_refused(regressor, classifier):
    with pytest.raises(ValueError, match="no row with both inputs and targets"):
        regressor.score(X, np.full(60, np.nan))
    for model, y in ((regressor, Y), (classifier, np.where(Y > 0.5, "high", "low"))):
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            model.score(X, y, sample_weight=[1.0, 2.0])
    with pytest.raises(ValueError, match="y has 2 outputs, but the model was fitted to 1"):
        regressor.score(X, np.stack([Y, Y], axis=1))


def test_counts_with_an_exposure_are_scored_with_it():
    hours = RNG.uniform(1, 9, 60)
    count = RNG.poisson(2 * hours)
    model = DeepGPRegressor(**QUICK).fit(X, count, exposure=hours)
    expected = r2_score(count, model.predict(X, exposure=hours))
    assert model.score(X, count, exposure=hours) == pytest.approx(expected, rel=1e-6)
    with pytest.raises(ValueError, match="give the exposure of these rows too"):
        model.score(X, count)
