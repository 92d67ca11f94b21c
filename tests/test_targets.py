"""Targets of all kinds: each likelihood recovers what made the data, and beats the Gaussian on data made for it."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import stats
from scipy.special import expit, softmax

from overtone.numerics.params import unwrap
from overtone.sklearn import DeepGPClassifier, DeepGPRegressor, load

RNG = np.random.default_rng(0)
ROWS = 800
X, XT = RNG.uniform(size=(2, ROWS, 1))
STEPS = 250


def wave(X):
    return np.sin(12 * X[:, 0]) + X[:, 0]


def regressor(likelihood, **settings):
    return DeepGPRegressor("vff", likelihood=likelihood, max_steps=STEPS, **settings)


def test_students_t_finds_the_degrees_of_freedom():
    y, yt = (wave(x) + 0.2 * RNG.standard_t(3, size=ROWS) for x in (X, XT))
    model, gaussian = regressor("student-t").fit(X, y), regressor("gaussian").fit(X, y)
    found = unwrap(model.model_.likelihood)
    assert float(np.sqrt(found.scale[0]) * model.y_scaling_.scale[0]) == pytest.approx(0.2, rel=0.15)
    assert 2.2 < float(found.degrees[0]) < 4.5
    mine, other = model.evaluate(XT, yt), gaussian.evaluate(XT, yt)
    assert mine["log_density"] > other["log_density"] + 0.05
    assert mine["coverage_95"] == pytest.approx(0.95, abs=0.025)


def test_heteroscedastic_noise_is_found_where_it_is():
    def noise(X):
        return np.exp(-2 + 1.5 * np.sin(5 * X[:, 0]))

    y, yt = (wave(x) + noise(x) * RNG.standard_normal(ROWS) for x in (X, XT))
    model, gaussian = regressor("heteroscedastic").fit(X, y), regressor("gaussian").fit(X, y)
    assert model.evaluate(XT, yt)["log_density"] > gaussian.evaluate(XT, yt)["log_density"] + 0.3
    mean, std = model.layer_marginals(XT)[-1]
    log_std = 0.5 * (mean[:, 1] + unwrap(model.model_.likelihood).base[0]) + np.log(model.y_scaling_.scale[0])
    off = (log_std - np.log(noise(XT))) / (0.5 * std[:, 1])
    assert np.max(np.abs(off)) < 5
    assert np.sqrt(np.mean(off**2)) < 2
    assert np.mean(0.5 * std[:, 1]) < 0.15


def test_poisson_finds_the_rate_for_any_exposure():
    exposure, exposure_t = RNG.uniform(0.2, 3, size=(2, ROWS))
    rate = np.exp(1.5 * wave(XT))
    y, yt = RNG.poisson(exposure * np.exp(1.5 * wave(X))), RNG.poisson(exposure_t * rate)
    model = DeepGPRegressor("vff", max_steps=STEPS).fit(X, y, exposure=exposure)
    assert model.plan_.likelihood == "negative-binomial"
    mean, std = model.predict(XT, return_std=True)
    assert np.mean(np.abs(np.log(mean / rate))) < 0.1
    np.testing.assert_allclose(model.predict(XT, exposure=exposure_t), exposure_t * mean, rtol=1e-4)
    assert np.all(std > 0.95 * np.sqrt(mean))
    found = model.evaluate(XT, yt, exposure=exposure_t)
    truth = stats.poisson.logpmf(yt, exposure_t * rate).mean()
    assert found["log_density"] == pytest.approx(truth, abs=0.03)
    assert found["coverage_95"] == pytest.approx(0.95, abs=0.03)
    assert found["coverage_50"] == pytest.approx(0.5, abs=0.06)
    with pytest.raises(ValueError, match="give the exposure of these rows too"):
        model.evaluate(XT, yt)
    gaussian = regressor("gaussian", output="collapsed").fit(np.hstack([X, exposure[:, None]]), y)
    assert found["log_density"] > gaussian.evaluate(np.hstack([XT, exposure_t[:, None]]), yt)["log_density"] + 0.2
    quantiles = model.predict_quantiles(XT, [0.1, 0.9], exposure=exposure_t)
    np.testing.assert_array_equal(quantiles, np.round(quantiles))
    draws = model.sample_y(XT[:50], 400, exposure=exposure_t[:50])
    np.testing.assert_allclose(draws.mean(axis=1), (exposure_t * mean)[:50], rtol=0.3, atol=0.3)


def by_regression(X, Y, XT):
    """The probabilities of a Gaussian likelihood of indicators: that they are above one half."""
    model = regressor("gaussian").fit(X, Y)
    shares = 1 - model.predictive_cdf(XT, np.full((len(XT), Y.shape[1]), 0.5)).reshape(len(XT), -1)
    shares = shares if shares.shape[1] > 1 else np.hstack([1 - shares, shares])
    return shares / shares.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("num", [2, 3])
def test_classes_get_their_probabilities(num):
    def probabilities(X):
        if num == 2:
            share = expit(3 * np.sin(12 * X[:, 0]) - 3)  # a rare event
            return np.stack([1 - share, share], axis=1)
        return softmax(np.stack([8 * np.sin(12 * X[:, 0]), 8 * np.cos(12 * X[:, 0]), 2 * X[:, 0]], axis=1), axis=1)

    y, yt = ((RNG.random((ROWS, 1)) > np.cumsum(probabilities(x), axis=1)).sum(axis=1) for x in (X, XT))
    words = np.array(["low", "medium", "top"])
    model = DeepGPClassifier("vff", max_steps=STEPS).fit(X, words[y])
    assert model.plan_.likelihood == ("bernoulli" if num == 2 else "softmax")
    found = model.predict_proba(XT)
    assert np.sqrt(np.mean((found - probabilities(XT)) ** 2)) < 0.06
    np.testing.assert_allclose(found.sum(axis=1), 1)
    scores = model.evaluate(XT, words[yt])
    truth = np.mean(np.log(probabilities(XT)[np.arange(ROWS), yt]))
    assert scores["log_density"] == pytest.approx(truth, abs=0.03)
    other = by_regression(X, np.eye(num)[y][:, 1:] if num == 2 else np.eye(num)[y], XT)
    assert scores["log_density"] > np.mean(np.log(other[np.arange(ROWS), yt])) + 0.01
    draws = model.sample_y(XT[:20], 500)
    shares = np.stack([np.mean(draws == word, axis=1) for word in words[:num]], axis=1)
    np.testing.assert_allclose(shares, found[:20], atol=0.12)


def test_several_targets_may_have_gaps():
    Y = np.stack([wave(X), -10 * X[:, 0] ** 2], axis=1) + 0.05 * RNG.standard_normal((ROWS, 2)) * [1, 10]
    gaps = RNG.random(Y.shape) < 0.5
    gaps[gaps.all(axis=1), 0] = False  # a row without any target would be left out
    model = DeepGPRegressor("vff", n_inducing=10, max_steps=STEPS).fit(X, np.where(gaps, np.nan, Y))
    mean = model.predict(X)
    for output in range(2):
        there = gaps[:, output]
        assert np.std((mean - Y)[there, output]) < 0.2 * np.std(Y[:, output])
    scores = model.evaluate(X, np.where(gaps, np.nan, Y))
    assert all(np.isfinite(value) for value in scores.values())
    for output, each in enumerate(model.evaluate_outputs(X, np.where(gaps, np.nan, Y))):
        there = ~gaps[:, output]
        assert each["rows"] == there.sum()
        assert each["rmse"] == pytest.approx(np.sqrt(np.mean((mean - Y)[there, output] ** 2)), rel=1e-4)
    assert np.isfinite(model.elbo(X, np.where(gaps, np.nan, Y), n_samples=2))
    assert np.isfinite(model.log_predictive_density(X[:1], [[np.nan, 0.0]])).all()
    nullable = pd.DataFrame(np.where(gaps, np.nan, Y)).convert_dtypes()
    np.testing.assert_allclose(model.evaluate(X, nullable)["rmse"], scores["rmse"])
    with pytest.raises(ValueError, match="column 1 of y has no value at all"):
        model.fit(X, np.stack([Y[:, 0], np.full(ROWS, np.nan)], axis=1))
    with pytest.raises(ValueError, match="complete targets"):
        DeepGPRegressor(output="collapsed").fit(X, np.where(gaps, np.nan, Y))


LABELS = {
    "words": np.array(["b", "a", "c"]),
    "objects": np.array(["b", "a", "c"], object),
    "numbers": np.array([3, -1, 7]),
    "fractions": np.array([1.0, 2.0, 5.0]),
    "truth": np.array([True, False, True]),
}


@pytest.mark.parametrize("name", LABELS)
def test_labels_come_back_as_they_were_also_from_a_file(name, tmp_path):
    y = LABELS[name][np.arange(60) % 3]
    model = DeepGPClassifier("svgp", n_inducing=3, max_steps=2).fit(X[:60], y)
    found = model.predict(X[:60])
    assert found.dtype == y.dtype
    assert set(found) <= set(y)
    model.save(tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    assert isinstance(again, DeepGPClassifier)
    np.testing.assert_array_equal(again.predict_proba(X[:60]), model.predict_proba(X[:60]))
    np.testing.assert_array_equal(again.classes_, model.classes_)
    with pytest.raises(ValueError, match="this is a DeepGPClassifier, not a DeepGPRegressor"):
        DeepGPRegressor.load(tmp_path / "m.safetensors")


@pytest.mark.parametrize("likelihood", ["poisson", "student-t", "heteroscedastic"])
def test_models_of_every_likelihood_come_back_to_the_last_bit(likelihood, tmp_path):
    Y = np.stack([np.round(5 * X[:60, 0]), np.arange(60.0)], axis=1)
    model = DeepGPRegressor("vff", n_inducing=3, max_steps=2, likelihood=likelihood).fit(X[:60], Y)
    model.save(tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.predict(X[:60], return_std=True), model.predict(X[:60], return_std=True))
    assert again.evaluate(X[:60], Y) == model.evaluate(X[:60], Y)


COUNTS = np.round(3 * X[:, 0] + 2 * RNG.random(ROWS)) - 0.0
BAD = {
    "one class": (DeepGPClassifier(), np.zeros(ROWS), {}, "all rows are of the class"),
    "numbers as classes": (DeepGPClassifier(), wave(X), {}, "[Uu]nknown label type"),
    "noise": (DeepGPClassifier(likelihood="gaussian"), COUNTS, {}, "is for numbers; use DeepGPRegressor"),
    "classes": (DeepGPRegressor(likelihood="softmax"), COUNTS, {}, "is for classes; use DeepGPClassifier"),
    "many classes": (DeepGPClassifier(likelihood="bernoulli"), COUNTS, {}, "for two classes, but y has"),
    "negative": (DeepGPRegressor(likelihood="poisson"), COUNTS - 9, {}, "not negative; y has"),
    "fractions": (DeepGPRegressor(likelihood="poisson"), COUNTS + 0.5, {}, "counts are whole numbers"),
    "no label": (DeepGPClassifier(), np.array([None] * ROWS, object), {}, "y has no value at all"),
    "exposure": (DeepGPRegressor(), COUNTS, {"exposure": np.zeros(ROWS)}, "800 positive numbers"),
    "no counts": (DeepGPRegressor(likelihood="gaussian"), COUNTS, {"exposure": np.ones(ROWS)}, "belongs to counts"),
}


@pytest.mark.parametrize("name", BAD)
def test_targets_that_do_not_fit_are_a_clear_error(name):
    model, y, more, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        model.fit(X, y, **more)


def test_counts_that_vary_more_than_poissons_have_intervals_that_cover():
    rng = np.random.default_rng(0)
    rows, new = rng.random((400, 2)), rng.random((2000, 2))
    y, later = (rng.negative_binomial(0.7, 0.7 / (0.7 + np.exp(1 + part[:, 0]))) for part in (rows, new))
    model = DeepGPRegressor(n_inducing=4, max_steps=300).fit(rows, y)
    assert 0.91 < model.evaluate(new, later)["coverage_95"] < 0.985


def test_the_target_decides():
    quick = {"method": "svgp", "n_inducing": 3, "max_steps": 2}
    counts = DeepGPRegressor(**quick).fit(X, RNG.poisson(2, ROWS))
    assert counts.plan_.likelihood == "negative-binomial"
    for y in (1000 * COUNTS, COUNTS + 1, COUNTS + 0.5, COUNTS > 1):
        assert DeepGPRegressor(**quick).fit(X, y).plan_.likelihood == "gaussian"
    assert DeepGPRegressor(**quick, output="collapsed").fit(X, COUNTS).plan_.likelihood == "gaussian"
    nullable = DeepGPClassifier(**quick).fit(X, pd.Series(COUNTS > 1, dtype="boolean"))
    assert nullable.classes_.dtype == bool
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        nullable.evaluate(X, COUNTS[:-1] > 1)
    frame = pl.DataFrame({"when": X[:, 0], "kind": RNG.choice(["a", "b"], ROWS)})
    model = DeepGPClassifier(**quick).fit(frame, pl.Series("seen", RNG.choice(["yes", "no"], ROWS)))
    assert model.target_ == "seen"
    assert set(model.predict(frame)) <= {"yes", "no"}
    with pytest.raises(ValueError, match="the class 'maybe', which the model was not fitted to"):
        model.evaluate(frame, np.full(ROWS, "maybe"))
