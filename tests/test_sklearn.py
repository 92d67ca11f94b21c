"""The estimator: scikit-learn's own checks, frames, units, shapes, and what it says to bad input."""

from dataclasses import fields

import jax
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from overtone.autopilot.config import Config
from overtone.numerics.params import unwrap
from overtone.sklearn import DeepGPClassifier, DeepGPRegressor, OutsideRangeWarning, UnseenCategoryWarning

RNG = np.random.default_rng(0)
X = RNG.uniform(-3, 3, size=(60, 2))
Y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.05 * RNG.normal(size=60)
METHODS = ["id-dgp", "dgp", "vff", "svgp"]


def quick(**settings) -> DeepGPRegressor:
    return DeepGPRegressor(**{"n_inducing": 8, "max_steps": 300, "learning_rate": 0.03, **settings})


@pytest.fixture(scope="module")
def fitted() -> DeepGPRegressor:
    return quick().fit(X, Y)


@pytest.mark.filterwarnings("ignore")  # the checks warn of what they skip
@parametrize_with_checks(  # one layer of points: compiled in a third of the time, through the same interface
    [DeepGPRegressor("svgp", max_steps=100, n_inducing=5), DeepGPClassifier("svgp", max_steps=30, n_inducing=4)]
)
def test_scikit_learn_s_checks(estimator, check):
    check(estimator)


def test_parameters_are_those_of_the_config():
    defaults = {f.name: f.default for f in fields(Config)}
    assert DeepGPRegressor().get_params() == {**defaults, "verbose": False}
    assert all(f"{name}" in (Config.__doc__ or "") for name in defaults)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("output", ["collapsed", "adam"])
def test_every_method_learns(method, output):
    settings = {"batch_size": 20, "max_steps": 1500} if output == "adam" else {}
    model = quick(method=method, output=output, n_inducing=20, hidden_width=2, **settings).fit(X, Y)
    assert model.score(X, Y) > 0.9
    assert len(model.model_.layers) == (2 if method in ("id-dgp", "dgp") else 1)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_give_the_same_as_arrays(frame):
    table = frame({"time": X[:, 0], "load": X[:, 1]})
    model, of_arrays = quick(max_steps=20).fit(table, Y), quick(max_steps=20).fit(X, Y)
    np.testing.assert_array_equal(model.predict(table), of_arrays.predict(X))
    assert list(model.feature_names_in_) == ["time", "load"]


@pytest.mark.parametrize("output", ["default", "pandas", "polars"])
def test_pipelines_with_one_hot_encoders_work_sparse_or_with_frames(output):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.random(60), "town": rng.choice(list("abcdefghij"), 60)})
    y = 2 * frame["x"] + (frame["town"] == "a")
    encoder = OneHotEncoder(sparse_output=output == "default", handle_unknown="ignore")
    columns = ColumnTransformer([("x", StandardScaler(), ["x"]), ("town", encoder, ["town"])], sparse_threshold=1.0)
    model = make_pipeline(columns.set_output(transform=output), quick(method="svgp", max_steps=100)).fit(frame, y)
    transformed = columns.transform(frame)
    assert sparse.issparse(transformed) == (output == "default")
    values = transformed.toarray() if output == "default" else transformed.to_numpy()
    of_arrays = quick(method="svgp", max_steps=100).fit(values, y)
    np.testing.assert_array_equal(model.predict(frame), of_arrays.predict(values))
    assert model.score(frame, y) > 0.5
    assert (list(getattr(model[-1], "feature_names_in_", ()))[:2] == ["x__x", "town__town_a"]) == (output != "default")


def test_sparse_input_that_does_not_fit_into_memory_is_refused():
    wide = sparse.csr_array((10**6, 10**4))
    message = "1000000 rows of 10000 inputs would take 74.5 GiB, of which at most 2 are allowed; use fewer columns"
    with pytest.raises(ValueError, match=message):
        quick().fit(wide, np.arange(10**6))


def test_results_come_in_the_user_s_units(fitted):
    """Other units of X and y change nothing but the units."""
    scale, shift = 1e7, -3e8
    other = quick().fit(1e-6 * X + 5, scale * Y + shift)
    mean, std = fitted.predict(X, return_std=True)
    other_mean, other_std = other.predict(1e-6 * X + 5, return_std=True)
    np.testing.assert_allclose((other_mean - shift) / scale, mean, atol=0.01)
    np.testing.assert_allclose(other_std / scale, std, rtol=0.05)
    density = other.log_predictive_density(1e-6 * X + 5, scale * Y + shift)
    np.testing.assert_allclose(density + np.log(scale), fitted.log_predictive_density(X, Y), atol=0.3)
    expected = fitted.elbo(X, Y) - len(X) * np.log(scale)
    assert other.elbo(1e-6 * X + 5, scale * Y + shift) == pytest.approx(expected, abs=3)


def test_density_quantiles_and_draws_describe_one_distribution(fitted):
    mean, std = fitted.predict(X, return_std=True)
    draws = fitted.sample_y(X, 4000, random_state=1)
    assert draws.shape == (60, 4000)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=0.15 * std.max())
    np.testing.assert_allclose(draws.std(axis=1), std, rtol=0.15)
    low, middle, high = fitted.predict_quantiles(X, [0.1, 0.5, 0.9])
    assert np.all((low < middle) & (middle < high))
    share = np.mean((draws > low[:, None]) & (draws < high[:, None]))
    assert share == pytest.approx(0.8, abs=0.02)
    # The density integrates to 1 along y.
    grid = np.linspace(-6, 6, 2001)
    density = np.exp(fitted.log_predictive_density(np.tile(X[:1], (2001, 1)), grid))
    assert np.trapezoid(density, grid) == pytest.approx(1, abs=1e-3)


def test_multi_output_shapes():
    both = np.column_stack([Y, -10 * Y])
    model = quick(method="vff").fit(X, both)
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == (60, 2)
    assert model.sample_y(X, 3).shape == (60, 2, 3)
    assert model.predict_quantiles(X, [0.5]).shape == (1, 60, 2)
    assert model.log_predictive_density(X, both).shape == (60,)
    np.testing.assert_allclose(mean[:, 1], -10 * mean[:, 0], atol=1.0)
    single = quick(method="vff").fit(X, Y[:, None])
    assert single.predict(X).shape == (60, 1)


def test_layers_and_diagnostics(fitted):
    (hidden, _), (output, _) = fitted.layer_marginals(X)
    assert hidden.shape == (60, 8)
    assert output.shape == (60, 1)
    assert len(fitted.outside_fraction(X)) == 2
    assert 0 <= max(fitted.outside_fraction(X)) <= 1
    assert 0 <= max(fitted.residual_fraction(X)) <= 1
    assert len(fitted.history_.loss) == 300
    assert fitted.history_.loss[-1] < fitted.history_.loss[0]


def test_double_precision_is_a_switch():
    """A shallow model has no random draws, and with its inputs as directions one optimum: both find the same fit."""
    double, single = (quick(method="vff", dtype=d, n_projections=2).fit(X, Y) for d in ("float64", "float32"))
    assert double.model_.layers[0].q.mean.dtype == np.float64
    assert single.model_.layers[0].q.mean.dtype == np.float32
    np.testing.assert_allclose(double.predict(X), single.predict(X), atol=1e-3)
    assert not jax.config.jax_enable_x64  # the user's own setting is left alone


@pytest.mark.parametrize("name", ["sin", "square", "positive", "zeros_like"])
def test_series_without_any_noise_simply_work(name):
    function, x = getattr(np, name), np.linspace(0, 6, 300)
    mean, std = DeepGPRegressor(max_steps=40).fit(x[:, None], function(x)).predict(x[:, None], return_std=True)
    np.testing.assert_allclose(mean, function(x), atol=0.02 * np.ptp(function(x)) + 1e-9)
    assert np.all(np.isfinite(std))
    assert np.all(std < 0.1 * np.ptp(function(x)) + 0.1)


def test_constant_columns_and_targets_simply_work():
    table, target = np.column_stack([X[:, 0], np.full(60, 3.0)]), Y - 0.5 * X[:, 1]
    assert quick().fit(table, target).score(table, target) > 0.9
    mean, std = quick().fit(X, np.full(60, 42.0)).predict(X, return_std=True)
    np.testing.assert_allclose(mean, 42.0, atol=0.01)
    assert np.all(np.isfinite(std))
    assert np.all(np.isfinite(quick().fit(np.ones((60, 2)), np.ones(60)).predict(np.ones((1, 2)))))


def test_far_inputs_and_duplicates_give_finite_answers(fitted):
    far = np.array([[1e300, 0.0], [-1e12, 1e12], [3.1, 3.0]])
    with pytest.warns(OutsideRangeWarning, match="2 of 3 rows"):
        mean, std = fitted.predict(far, return_std=True)
    assert np.all(np.isfinite(mean))
    assert np.all(std > 0)
    twice = quick(method="dgp").fit(np.repeat(X[:5], 4, axis=0), np.repeat(Y[:5], 4))
    with pytest.warns(OutsideRangeWarning):
        assert np.all(np.isfinite(twice.predict(X)))


def test_rows_outside_the_training_range_are_counted_in_one_warning(fitted):
    low, high = X.min(axis=0), X.max(axis=0)
    hair, far = 0.04 * (high - low), 0.06 * (high - low)
    rows = np.stack([low - hair, high + hair, low - far, [high[0], high[1] + far[1]], (low + high) / 2])
    calls = {
        "predict": lambda: fitted.predict(rows),
        "predict_quantiles": lambda: fitted.predict_quantiles(rows),
        "evaluate": lambda: fitted.evaluate(rows, np.zeros(5)),
        "evaluate_outputs": lambda: fitted.evaluate_outputs(rows, np.zeros(5)),
        "score": lambda: fitted.score(rows, np.arange(5)),
    }
    for name, call in calls.items():
        with pytest.warns(OutsideRangeWarning) as caught:
            call()
        (warning,) = caught
        assert "2 of 5 rows lie outside the range of the training inputs (by 'x2' and another input)" in str(
            warning.message
        ), name
    assert caught[0].filename.endswith(("test_sklearn.py", "regressor.py"))
    np.testing.assert_array_equal(fitted.count_outside(rows), [2, 1, 2])
    fitted.predict(rows[[0, 1, 4]])  # which warns of nothing


def test_a_model_that_is_updated_knows_all_rows():
    """Its output layer is that of dense Gaussian conditioning, with the hyperparameters that it had."""
    x = np.sort(RNG.random(60))[:, None]
    y, few = np.sin(9 * x[:, 0]), np.r_[0:25, 35:60]
    settings = {"method": "vff", "likelihood": "gaussian", "n_inducing": 30, "max_steps": 50, "dtype": "float64"}
    model = quick(**settings).fit(x[few], y[few])
    with jax.enable_x64(True):
        parts = unwrap(model.model_)
    model.update(x[25:35], y[25:35])
    with jax.enable_x64(True):
        Z = jax.device_put(model.x_scaling_(x))
        K = np.asarray(parts.output.kernel.gram(Z, Z))
    target = (y - model.y_scaling_.shift) / model.y_scaling_.scale
    expected = K @ np.linalg.solve(K + float(parts.likelihood.noise[0]) * np.eye(60), target)
    np.testing.assert_allclose(model.predict(x), expected * model.y_scaling_.scale + model.y_scaling_.shift, atol=5e-3)
    with pytest.warns(OutsideRangeWarning):
        model.update(x + 0.2, y)


def test_an_exact_process_is_updated_with_rows_outside_its_range():
    model = DeepGPRegressor().fit(X[:40], Y[:40])
    rows = np.concatenate([X, X[:1] + 5])
    assert model.count_outside(rows)[0] > 0
    model.update(rows[40:], np.append(Y, 3.0)[40:])
    assert model.count_outside(rows)[0] == 0
    mean, std = model.predict(rows, return_std=True)
    assert np.abs(mean[-1] - 3) < 2 * std[-1] < 1


def with_value(value):
    table = X.copy()
    table[3, 1] = value
    return table


def target_with(value):
    target = Y.copy()
    target[3] = value
    return target


BAD = {
    "nan in X": (quick(), with_value(np.nan), Y, "Input X contains NaN"),
    "infinity in X": (quick(), with_value(np.inf), Y, "Input X contains infinity"),
    "no y": (quick(), X, np.nan * Y, "y has no value at all"),
    "infinity in y": (quick(), X, target_with(-np.inf), "Input y contains infinity"),
    "no rows": (quick(), X[:0], Y[:0], "0 sample"),
    "one row": (quick(), X[:1], Y[:1], "minimum of 2 is required"),
    "no columns": (quick(), X[:, :0], Y, "0 feature"),
    "one dimension": (quick(), X[:, 0], Y, "Expected 2D array"),
    "lengths": (quick(), X, Y[:-1], "inconsistent numbers of samples"),
    "text": (
        quick(),
        pd.DataFrame({"a": X[:, 0], "city": [f"town {i}" for i in range(60)]}),
        Y,
        "column 'city' is text with 60 different values",
    ),
    "objects": (quick(), pl.DataFrame({"a": X[:, 0], "list": [[1, 2]] * 60}), Y, "'list' holds List"),
    "missing": (quick(), pl.DataFrame({"a": X[:, 0], "b": ["x", None] * 30}), Y, r"missing values in 'b' \(30\)"),
    "missing number": (
        quick(),
        pd.DataFrame(with_value(np.nan), columns=["a", "b"]),
        Y,
        r"missing values in 'b' \(1\)",
    ),
    "missing option": (quick(missing="guess"), X, Y, "missing must be one of 'error', 'drop', 'mean'; got 'guess'"),
    "empty column": (quick(missing="mean"), X * [1, np.nan], Y, "column 1 of X has no value at all"),
    "no complete row": (quick(missing="drop"), X * [1, np.nan], Y, "0 rows without missing values"),
    "huge": (quick(), X, 1e200 * np.sign(Y), "too large"),
    "no points": (quick(n_inducing=0), X, Y, 'n_inducing must be a whole number of at least 1 or "auto"; got 0'),
    "fraction": (quick(n_inducing=2.5), X, Y, "n_inducing must be a whole number"),
    "no layers": (quick(n_layers=0), X, Y, "n_layers must be a whole number"),
    "method": (quick(method="gp"), X, Y, "method must be one of 'id-dgp', 'dgp', 'vff', 'svgp'; got 'gp'"),
    "kernel": (quick(kernel="rbf"), X, Y, "needs a Matern kernel"),
    "deep vff": (quick(method="vff", n_layers=2), X, Y, "has one layer; got n_layers=2"),
    "interval": (quick(interval=(0.5, 2)), X, Y, r"interval must contain \[0, 1\]"),
    "one end": (quick(interval=3), X, Y, r"interval must contain \[0, 1\]"),
    "endless": (quick(max_time=float("inf")), X, Y, "max_time must be a positive number of seconds"),
    "rate": (quick(learning_rate=-1), X, Y, "learning_rate must be between 0 and 1"),
    "steps": (quick(max_steps=0), X, Y, "max_steps must be a whole number"),
}


EVENTS: list[str] = []
jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: EVENTS.append(event))


@pytest.fixture
def compilations():
    """Return a function of the compilations since the test began."""
    EVENTS.clear()
    return lambda: [event for event in EVENTS if "compile" in event]


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_a_clear_error_before_anything_is_compiled(name, compilations):
    model, table, target, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        clone(model).fit(table, target)
    assert compilations() == []


def test_bad_input_at_predict_is_a_clear_error(fitted):
    with pytest.raises(ValueError, match="X has 1 features, but DeepGPRegressor is expecting 2 features"):
        fitted.predict(X[:, :1])
    with pytest.raises(ValueError, match="contains NaN"):
        fitted.predict(with_value(np.nan))
    with pytest.raises(ValueError, match="levels must be"):
        fitted.predict_quantiles(X, [0.5, 1.0])
    with pytest.raises(ValueError, match="y has 2 outputs, but the model was fitted to 1"):
        fitted.log_predictive_density(X, np.column_stack([Y, Y]))


@pytest.mark.parametrize("library", [pd, pl])
def test_a_frame_may_have_dates_and_words_and_is_matched_by_name(library):
    when = pd.date_range("2020-01-01", periods=60, freq="6h")
    frame = library.DataFrame({"when": when, "town": ["x", "y", "z"] * 20, "a": X[:, 0]})
    model = quick(method="vff", max_steps=2).fit(frame, Y)
    expected = ["when: trend", "when: time of day", "when: day of week", "town=x", "town=y", "town=z", "a"]
    assert model.encoder_.inputs == expected
    np.testing.assert_array_equal(model.predict(frame), model.predict(frame[["a", "town", "when"]]))
    new = pd.DataFrame({"when": when, "town": ["x", "new", "z"] * 20, "a": X[:, 0]})
    sentence = r"^20 of 60 rows have categories that no training row has \(in 'town'\); trust them less\.$"
    with pytest.warns(UnseenCategoryWarning, match=sentence) as caught:
        model.predict(library.DataFrame(new))
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with pytest.raises(ValueError, match="does not have: 'when'"):
        model.predict(frame[["a", "town"]])


@pytest.mark.parametrize("codes", [[10, 20, 5000], [0.5, 1.0, 2.0], ["1", "2", "3"]])
def test_a_column_of_pandas_type_category_is_one_whatever_its_values(codes):
    column = pd.Categorical(codes * 20)
    for frame in (pd.DataFrame({"a": X[:, 0], "code": column}), pd.DataFrame({"code": column})):
        model = quick(method="svgp", max_steps=30).fit(frame, np.array([0.0, 5.0, 1.0] * 20))
        columns = [f"code={code}".removesuffix(".0") for code in codes]
        assert [name for name in model.encoder_.inputs if name != "a"] == columns
        assert np.all(model.predict(frame)[1::3] > 3)
        plain = frame.assign(code=frame["code"].astype(type(codes[0])))
        np.testing.assert_array_equal(model.predict(plain), model.predict(frame))


def test_evaluate_agrees_with_the_single_predictions():
    model = quick(max_steps=20).fit(X, 10 * Y)
    found = model.evaluate(X, 10 * Y)
    mean, std = model.predict(X, return_std=True)
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((mean - 10 * Y) ** 2)))
    assert found["log_density"] == pytest.approx(model.log_predictive_density(X, 10 * Y).mean(), rel=1e-5)
    low, high = model.predict_quantiles(X, [0.1, 0.9])
    assert found["coverage_80"] == pytest.approx(np.mean((10 * Y > low) & (10 * Y < high)))
    assert 0 < found["crps"] < std.max()
