"""Baselines beside every metric, and verdicts in words."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import nbinom, norm
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler

from overtone.app.judging import POLICY, judge, print_judgements, verdict
from overtone.estimators.baselines import scores
from overtone.sklearn import DeepGPClassifier, DeepGPRegressor, load
from overtone.storage import files

RNG = np.random.default_rng(0)
X = RNG.uniform(-3, 3, size=(200, 2)) * [1, 100]
Y = 5 * X[:, 0] + np.sin(3 * X[:, 0]) + 40 + 0.3 * RNG.standard_normal(200)
NEW = RNG.uniform(-3, 3, size=(60, 2)) * [1, 100]
LATER = 5 * NEW[:, 0] + np.sin(3 * NEW[:, 0]) + 40
QUICK = {"method": "svgp", "n_inducing": 4, "max_steps": 2}


@pytest.fixture(scope="module")
def numbers():
    """Two targets of which the first has gaps."""
    Y2 = np.column_stack([np.where(np.arange(200) % 4 == 0, np.nan, Y), -3 * Y])
    return DeepGPRegressor(**QUICK).fit(X, Y2)


@pytest.fixture(scope="module")
def counts():
    hours = RNG.uniform(0.5, 3, 200)
    return DeepGPRegressor(**QUICK).fit(X, RNG.poisson(hours * np.exp(0.5 * X[:, 0])), exposure=hours)


def test_baselines_of_numbers_are_what_anybody_would_compute(numbers):
    known, later = np.arange(200) % 4 > 0, np.column_stack([LATER, -3 * LATER])
    found = numbers.evaluate_baselines(NEW, later, output=0)
    scaler, y = StandardScaler().fit(X), Y[known]
    line = Ridge().fit(scaler.transform(X[known]), y)
    left = y - line.predict(scaler.transform(X[known]))
    expected = {
        "mean": (np.full(60, y.mean()), np.std(y, ddof=1)),
        "straight line": (line.predict(scaler.transform(NEW)), np.sqrt(left @ left / (len(y) - 3))),
    }
    for name, (mean, std) in expected.items():
        metrics = found[name]
        assert metrics["rmse"] == pytest.approx(np.sqrt(np.mean((LATER - mean) ** 2)), rel=1e-4)
        assert metrics["log_density"] == pytest.approx(norm.logpdf(LATER, mean, std).mean(), rel=1e-3)
        assert metrics["r2"] == pytest.approx(1 - np.sum((LATER - mean) ** 2) / np.sum((LATER - LATER.mean()) ** 2))
        assert metrics["coverage_80"] == np.mean(np.abs(LATER - mean) < std * norm.ppf(0.9))
        draws = mean + std * RNG.standard_normal((4000, 60))
        crps = np.abs(draws - LATER).mean() - np.abs(draws - draws[::-1]).mean() / 2
        assert metrics["crps"] == pytest.approx(crps, rel=0.02)
    assert set(found["mean"]) == set(numbers.evaluate(NEW, later))
    both = numbers.evaluate_baselines(NEW, later)["mean"]
    each = [numbers.evaluate_baselines(NEW, later, output=i)["mean"] for i in range(2)]
    assert both["log_density"] == pytest.approx(sum(metrics["log_density"] for metrics in each))


def test_r2_is_the_one_of_score(numbers):
    later = np.column_stack([LATER, -3 * LATER])
    assert numbers.evaluate(NEW, later)["r2"] == pytest.approx(numbers.score(NEW, later), abs=1e-5)
    assert numbers.evaluate_baselines(NEW[:1], later[:1])["mean"]["r2"] == 0.0  # one row does not vary


def test_baselines_of_counts_know_exposures(counts):
    (rate, line), hours = counts.baselines_.values(), RNG.uniform(0.5, 3, 60)
    y = RNG.poisson(hours * np.exp(0.5 * NEW[:, 0])).astype(float)
    found = counts.evaluate_baselines(NEW, y, exposure=hours)
    size = 1 / rate[0, 1]
    mean = hours * np.exp(rate[0, 0])
    share = size / (size + mean)
    assert found["constant rate"]["log_density"] == pytest.approx(nbinom.logpmf(y, size, share).mean(), rel=1e-6)
    grid = np.arange(200)[:, None]
    crps = np.sum((nbinom.cdf(grid, size, share) - (y <= grid)) ** 2, axis=0).mean()
    assert found["constant rate"]["crps"] == pytest.approx(crps, rel=1e-6)
    slope = line[0, 2:] / counts.x_scaling_.scale
    np.testing.assert_allclose(slope, [0.5, 0], atol=0.05)
    assert found["Poisson regression"]["log_density"] > found["constant rate"]["log_density"] + 0.2
    assert 0.85 < found["Poisson regression"]["coverage_95"]


def test_scores_of_large_counts_are_nearly_those_of_a_normal_distribution():
    parameters = np.array([[np.log(1e4), 1e-3, 0.0]])  # where the closed form overflows
    *_, crps = scores(parameters, np.zeros((1, 1)), np.array([[10_500.0, 0.0]]))
    std = np.sqrt(1e4 + 1e-3 * 1e8)
    z = 500 / std
    assert crps[0, 0] == pytest.approx(std * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - np.pi**-0.5), rel=1e-6)


@pytest.mark.parametrize("edges", [[40], [35, 45]])
def test_baselines_of_classes(edges):
    labels, later = (np.digitize(y, edges).astype(str) for y in (Y, LATER))
    model = DeepGPClassifier(**QUICK).fit(X, labels)
    found, scaler = model.evaluate_baselines(NEW, later), StandardScaler().fit(X)
    shares = np.unique(labels, return_counts=True)[1] / 200
    line = LogisticRegression().fit(scaler.transform(X), labels)
    probabilities = line.predict_proba(scaler.transform(NEW))
    for name, p in (("class frequencies", np.tile(shares, (60, 1))), ("logistic regression", probabilities)):
        assert found[name]["log_density"] == pytest.approx(-log_loss(later, p), abs=1e-3)
        assert found[name]["accuracy"] == np.mean(line.classes_[p.argmax(axis=1)] == later)
    assert found["logistic regression"]["brier"] < found["class frequencies"]["brier"]
    assert "of the rows are right" in judge(model, NEW, later)["y"].verdict


def test_files_keep_baselines_and_older_ones_have_none(numbers, counts, tmp_path):
    for model in (numbers, counts):
        model.save(tmp_path / "model.safetensors")
        again = load(tmp_path / "model.safetensors")
        assert list(again.baselines_) == list(model.baselines_)
        for name, parameters in model.baselines_.items():
            np.testing.assert_array_equal(again.baselines_[name], parameters)
    older = load(Path(__file__).parent / "data" / "estimator-6.safetensors")
    x = np.linspace(0, 1, 60)[:, None]
    assert older.evaluate_baselines(x, np.sin(9 * x[:, 0])) == {}
    assert judge(older, x, np.sin(9 * x[:, 0]))["y"].verdict.startswith("Explains")
    arrays, about = files.read(tmp_path / "model.safetensors", "estimator")
    arrays["baselines_.constant rate"] = np.zeros((2, 4))
    files.write(tmp_path / "damaged.safetensors", "estimator", arrays, about)
    with pytest.raises(files.FileError, match="its baselines do not belong to its model"):
        load(tmp_path / "damaged.safetensors")


HONEST = {f"coverage_{level}": level / 100 for level in (50, 80, 95)}
LINE = {"rows": 400, "log_density": -1.0, "r2": 0.6, **HONEST}
BASELINES = {"mean": {**LINE, "log_density": -2.0, "r2": 0.0}, "straight line": LINE}
VERDICTS = {
    "better": (
        {"log_density": -0.58, "r2": 0.87},
        "Better than a straight line by 0.42 nats per row; explains 87% of the variance; intervals are honest.",
    ),
    "as good": (
        {"log_density": -0.97},
        "No better than a straight line; explains 60% of the variance; intervals are honest.",
    ),
    "worse": (
        {"log_density": -1.5, "r2": 0.5},
        "Worse than a straight line by 0.50 nats per row; explains 50% of the variance, and a straight line 60%; "
        "intervals are honest.",
    ),
    "narrow": (
        {"coverage_95": 0.8},
        "No better than a straight line; explains 60% of the variance; intervals are too narrow.",
    ),
    "wide": (
        {"coverage_50": 0.7},
        "No better than a straight line; explains 60% of the variance; intervals are too wide.",
    ),
    "both": (
        {"coverage_50": 0.7, "coverage_95": 0.8},
        "No better than a straight line; explains 60% of the variance; intervals are too narrow or too wide.",
    ),
    "few rows": (
        {"rows": 16, "log_density": -0.9, "coverage_95": 0.5},
        "No better than a straight line; explains 60% of the variance; there are too few rows to judge its intervals.",
    ),
    "nothing": (
        {"log_density": -2.3, "r2": -0.2},
        "Worse than a straight line by 1.30 nats per row; explains none of the variance, and a straight line 60%; "
        "intervals are honest.",
    ),
    "everything": (
        {"log_density": 4.0, "r2": 0.9999},
        "Better than a straight line by 5.00 nats per row; explains nearly all of the variance; intervals are honest.",
    ),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_verdicts(name):
    metrics, sentence = VERDICTS[name]
    assert verdict({**LINE, **metrics}, BASELINES) == sentence


def test_verdicts_on_classes_and_without_baselines():
    frequencies = {"rows": 400, "log_density": -0.7, "accuracy": 0.6}
    good, bad = {**frequencies, "log_density": -0.3, "accuracy": 0.9}, {**frequencies, "accuracy": 0.5}
    baselines = {"class frequencies": frequencies}
    words = "the class frequencies"
    assert verdict(good, baselines) == f"Better than {words} by 0.40 nats per row; 90% of the rows are right."
    assert verdict(bad, baselines) == f"No better than {words}; 50% of the rows are right, and {words} 60%."
    assert verdict(LINE, {}) == "Explains 60% of the variance; intervals are honest."


def test_few_rows_decide_less():
    gain = 0.5 * (POLICY.min_nats + POLICY.noise_nats)
    better = {**LINE, "log_density": LINE["log_density"] + gain}
    assert verdict(better, BASELINES).startswith("Better")
    assert verdict({**better, "rows": 1}, BASELINES).startswith("No better")


def test_tables_name_every_target_and_baseline(numbers, capsys):
    print_judgements(judge(numbers, NEW, np.column_stack([LATER, -3 * LATER])))
    printed = capsys.readouterr().out.splitlines()
    assert [line.split() for line in printed if line.endswith("y2")] == [
        ["y1", "y2"],
        ["mean", "y1", "y2"],
        ["straight", "line", "y1", "y2"],
    ]
    assert sum(" than a straight line" in line and line.startswith("    y") for line in printed) == 2
