"""Rows with categories that no training row has: intervals are as wide as the known categories say."""

import numpy as np
import polars as pl
import pytest

from overtone.sklearn import DeepGPClassifier, DeepGPRegressor

pytestmark = pytest.mark.filterwarnings("ignore::overtone.sklearn.UnseenCategoryWarning")
QUICK = {"method": "svgp", "n_inducing": 40, "max_steps": 200, "learning_rate": 0.05, "random_state": 0}


def table(rng: np.random.Generator, effects: dict[str, float], rows: int = 250) -> tuple[pl.DataFrame, np.ndarray]:
    """Return rows whose target has a known effect of each category."""
    x, c = rng.uniform(0, 3, rows), rng.choice(list(effects), rows)
    y = 10 * (np.sin(x) + np.array([effects[word] for word in c]) + 0.2 * rng.standard_normal(rows))
    return pl.DataFrame({"x": x, "c": c}), y


def effects(rng: np.random.Generator, letter: str, num: int) -> dict[str, float]:
    return {f"{letter}{i}": float(e) for i, e in enumerate(rng.standard_normal(num))}


@pytest.mark.parametrize("num", [2, 60])  # inputs of zeros and ones, and hashed
def test_intervals_of_unseen_categories_cover_new_effects(num):
    rng = np.random.default_rng(num)
    known = effects(rng, "known", num)
    model = DeepGPRegressor(**QUICK).fit(*table(rng, known))
    (old, y), (new, z) = table(rng, known), table(rng, effects(rng, "new", 60))
    seen, unseen = (model.predict(frame, return_std=True)[1].mean() for frame in (old, new))
    assert unseen > 1.5 * seen
    assert model.evaluate(new, z)["coverage_95"] > 0.85  # the effects of a few categories happen to be alike
    assert model.evaluate(old, y)["coverage_95"] > 0.9
    both = pl.concat([old[:5], new[:5]])
    np.testing.assert_array_equal(model.predict(both)[:5], model.predict(old[:5]))


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    return DeepGPRegressor(**QUICK).fit(*table(rng, {"a": -1.0, "b": 0.0, "c": 1.0}))


def test_a_column_without_effects_widens_hardly_anything():
    rng = np.random.default_rng(0)
    model = DeepGPRegressor(**QUICK).fit(*table(rng, dict.fromkeys("abcde", 0.0)))
    frame = pl.DataFrame({"x": [1.0, 1.0], "c": ["a", "new"]})
    seen, unseen = model.predict(frame, return_std=True)[1]
    assert seen < 1.05 * unseen < 1.4 * seen


def test_all_that_describes_a_widened_distribution_agrees(model):
    frame = pl.DataFrame({"x": [1.0, 2.0], "c": ["new", "newer"]})
    mean, std = model.predict(frame, return_std=True)
    levels = [0.025, 0.25, 0.5, 0.975]
    quantiles = model.predict_quantiles(frame, levels)
    for level, values in zip(levels, quantiles, strict=True):
        np.testing.assert_allclose(model.predictive_cdf(frame, values), level, atol=1e-3)
    np.testing.assert_allclose((quantiles[3] - quantiles[0]) / std, 3.92, rtol=0.02)
    each = np.array([model.predict(frame.with_columns(c=pl.lit(word)), return_std=True) for word in "abc"])
    np.testing.assert_allclose(mean, each[:, 0].mean(axis=0), rtol=1e-4)
    heavier = 4.3027 / 1.96  # Student's t with two degrees of freedom
    expected = np.mean(each[:, 1] ** 2, axis=0) + np.var(each[:, 0], axis=0, ddof=1) * (1 + 1 / 3) * heavier**2
    spread = model.y_spread_[0]
    np.testing.assert_allclose(std, np.minimum(np.sqrt(expected), 2 * spread), rtol=1e-3)
    grid = np.linspace(-200, 200, 1001)
    rows = pl.DataFrame({"x": np.ones(1001), "c": ["new"] * 1001})
    density = np.exp(model.log_predictive_density(rows, grid))
    assert np.trapezoid(density, grid) == pytest.approx(1, abs=1e-3)
    scores = model.evaluate(rows, grid)
    assert scores["log_density"] == pytest.approx(np.log(density).mean(), rel=1e-4)
    draws = model.sample_y(frame, 3000)
    np.testing.assert_allclose(draws.std(axis=1), std, rtol=0.1)
    low, high = np.abs(draws[0] - 3).mean(), np.abs(np.diff(draws[0])).mean() / 2
    assert model.evaluate(frame[:1], [3.0])["crps"] == pytest.approx(low - high, rel=0.1)


def test_an_unseen_category_gets_the_average_probabilities():
    rng = np.random.default_rng(0)
    frame, y = table(rng, {"a": -2.0, "b": 2.0})
    model = DeepGPClassifier(**{**QUICK, "max_steps": 50}).fit(frame, y > 8)
    new = frame[:5].with_columns(c=pl.lit("new"))
    each = [model.predict_proba(new.with_columns(c=pl.lit(word))) for word in "ab"]
    np.testing.assert_allclose(model.predict_proba(new), np.mean(each, axis=0), atol=1e-6)
    density = model.log_predictive_density(new, [True] * 5)
    np.testing.assert_allclose(np.exp(density), np.mean(each, axis=0)[:, 1], rtol=0.02)


@pytest.fixture(scope="module")
def towns() -> pl.DataFrame:
    """Rows with a column of two categories, one of five and one of a single category."""
    rng = np.random.default_rng(1)
    words = {"a": rng.choice(["low", "high"], 200), "b": rng.choice(list("stuvw"), 200), "c": ["all"] * 200}
    return pl.DataFrame({"x": rng.uniform(0, 3, 200), **words})


ROWS = pl.DataFrame(
    {"x": [1.0] * 5, "a": ["new", "low", "high", "new", "low"], "b": ["s", "new", "t", "newer", "s"]}
).with_columns(c=pl.Series(["all"] * 4 + ["new"]))


def described(model, frame: pl.DataFrame, y: np.ndarray) -> list[np.ndarray]:
    """Return all that is predicted of each row, with the rows along the first axis."""
    if isinstance(model, DeepGPClassifier):
        return [model.predict_proba(frame), model.log_predictive_density(frame, y)]
    moments, quantiles = model.predict(frame, return_std=True), model.predict_quantiles(frame)
    return [*moments, *quantiles, model.log_predictive_density(frame, y)]


@pytest.mark.filterwarnings("ignore::overtone.sklearn.OutsideRangeWarning")  # the column with one category
@pytest.mark.parametrize("kind", ["numbers", "counts", "classes"])
def test_predictions_of_unseen_categories_do_not_depend_on_other_rows(towns, kind):
    """There may be rows with unseen categories of another column, or of one that has a single known category."""
    rate = np.array([3 * (a == "low") + "stuvw".index(b) for a, b in zip(towns["a"], towns["b"], strict=True)])
    target = {"numbers": rate + 0.1, "counts": np.random.default_rng(0).poisson(rate), "classes": rate > 4}[kind]
    kind_of_model = DeepGPClassifier if kind == "classes" else DeepGPRegressor
    model = kind_of_model(**{**QUICK, "max_steps": 30}).fit(towns, target)
    assert model.model_.likelihood.counts == (kind == "counts")
    y = np.array([1, 0, 1, 1, 0])
    for i in range(len(ROWS)):
        for alone, together in zip(described(model, ROWS[i], y[i : i + 1]), described(model, ROWS, y), strict=True):
            np.testing.assert_allclose(together[i], alone[0], rtol=1e-6)
