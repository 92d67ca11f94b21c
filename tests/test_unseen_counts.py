"""Counts whose rows have categories that no training row has: intervals are as wide as the known categories say."""

import numpy as np
import polars as pl
import pytest

from overtone.sklearn import DeepGPClassifier, DeepGPRegressor

pytestmark = pytest.mark.filterwarnings("ignore::overtone.sklearn.UnseenCategoryWarning")
QUICK = {"method": "svgp", "n_inducing": 20, "max_steps": 150, "learning_rate": 0.05}
EFFECTS = {"a": -0.2, "b": 0.0, "c": 0.2}
NEW = pl.DataFrame({"x": [0.5, 2.0], "c": ["new", "newer"]})
HOURS = np.array([1.0, 2.5])


def table(effects: dict[str, float], rows: int = 300) -> tuple[pl.DataFrame, np.ndarray]:
    """Return rows whose log rate has a known effect of each category, and their counts."""
    rng = np.random.default_rng(0)
    x, c = rng.uniform(0, 3, rows), rng.choice(list(effects), rows)
    rate = np.exp(1 + 0.5 * np.sin(x) + np.array([effects[word] for word in c]))
    return pl.DataFrame({"x": x, "c": c}), rng.poisson(rate)


@pytest.fixture(scope="module")
def model() -> DeepGPRegressor:
    frame, count = table(EFFECTS)
    return DeepGPRegressor(**QUICK).fit(frame, count, exposure=np.ones(300))


@pytest.fixture(scope="module")
def turns(model) -> list[tuple[pl.DataFrame, np.ndarray]]:
    """Return the new rows with each known category, and exposures that stretch the differences of the log rates.

    The mean of the rates over the categories stays what it is.
    """
    frames = [NEW.with_columns(c=pl.lit(word)) for word in EFFECTS]
    f = np.array([model.layer_marginals(frame)[-1][0][:, 0] for frame in frames])
    factor = np.minimum(4.3027 / 1.96 * 2**0.5, 1 / f.std(axis=0))  # Student's t with two degrees of freedom
    assert np.all(factor > 1.2)
    growth = np.exp((factor - 1) * (f - f.mean(axis=0)))
    means = np.array([model.predict(frame, exposure=HOURS) for frame in frames])
    exposures = HOURS * growth * means.sum(axis=0) / np.sum(growth * means, axis=0)
    return list(zip(frames, exposures, strict=True))


@pytest.fixture(scope="module")
def probabilities(model, turns) -> np.ndarray:
    """Return those of the counts 0, 1, ... of both rows, (2, counts), from the densities of the known categories."""
    counts = np.arange(120)

    def of_row(i: int, frame: pl.DataFrame, exposure: np.ndarray) -> np.ndarray:
        rows, same = pl.concat([frame[i]] * 120), np.full(120, exposure[i])
        return np.exp(model.log_predictive_density(rows, counts, exposure=same))

    found = np.array([np.mean([of_row(i, *turn) for turn in turns], axis=0) for i in range(2)])
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-3)
    return found


def test_moments_are_those_of_the_mixture_over_the_known_categories(model, turns):
    each = np.array([model.predict(frame, return_std=True, exposure=hours) for frame, hours in turns])
    mean, std = model.predict(NEW, return_std=True, exposure=HOURS)
    np.testing.assert_allclose(mean, each[:, 0].mean(axis=0), rtol=1e-4)
    as_known = [model.predict(frame, exposure=HOURS) for frame, _ in turns]
    np.testing.assert_allclose(mean, np.mean(as_known, axis=0), rtol=1e-3)
    variance = np.mean(each[:, 1] ** 2, axis=0) + np.var(each[:, 0], axis=0)
    np.testing.assert_allclose(std, np.sqrt(variance), rtol=1e-4)
    assert np.all(std > 1.2 * model.predict(turns[1][0], return_std=True, exposure=HOURS)[1])


def test_densities_quantiles_and_scores_are_those_of_the_mixture(model, probabilities):
    y, below = np.array([3, 12]), np.cumsum(probabilities, axis=1)
    density = model.log_predictive_density(NEW, y, exposure=HOURS)
    np.testing.assert_allclose(density, np.log(probabilities[[0, 1], y]), rtol=1e-4)
    levels = [0.031, 0.27, 0.52, 0.94]
    expected = [[np.argmax(shares >= level) for shares in below] for level in levels]
    np.testing.assert_array_equal(model.predict_quantiles(NEW, levels, exposure=HOURS), expected)
    scores = model.evaluate(NEW, y, exposure=HOURS)
    crps = np.mean([np.sum((below[i] - (np.arange(120) >= y[i])) ** 2) for i in range(2)])
    assert scores["crps"] == pytest.approx(crps, rel=0.01)
    assert scores["log_density"] == pytest.approx(density.mean(), rel=1e-5)
    cdf = model.predictive_cdf(NEW, y, exposure=HOURS)
    assert np.all((cdf > below[[0, 1], y - 1] - 1e-3) & (cdf < below[[0, 1], y] + 1e-3))


def test_draws_are_those_of_the_mixture(model):
    mean, std = model.predict(NEW, return_std=True, exposure=HOURS)
    draws = model.sample_y(NEW, 4000, exposure=HOURS)
    np.testing.assert_allclose(draws.mean(axis=1), mean, rtol=0.05)
    np.testing.assert_allclose(draws.std(axis=1), std, rtol=0.1)


def test_intervals_of_counts_cover_new_effects():
    rng = np.random.default_rng(2)
    (known, y), (new, z) = (table({f"{name}{i}": 0.6 * rng.normal() for i in range(60)}) for name in ("old", "new"))
    model = DeepGPRegressor(**QUICK).fit(known, y)
    assert model.evaluate(new[:80], z[:80])["coverage_95"] > 0.9


def test_draws_of_labels_are_as_frequent_as_their_probabilities():
    frame, count = table({"a": -1.0, "b": 1.0})
    model = DeepGPClassifier(**{**QUICK, "max_steps": 30}).fit(frame, count > 3)
    share = model.sample_y(NEW, 3000).mean(axis=1)
    np.testing.assert_allclose(share, model.predict_proba(NEW)[:, 1], atol=0.03)
