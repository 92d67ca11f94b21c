"""New rows without the old ones: the result is that of all rows, fitted again."""

import equinox as eqx
import jax
import numpy as np
import pytest

import overtone as ot
from overtone.app.cli import main
from overtone.estimators.ranges import OutsideRangeWarning
from overtone.inference.output_layer import with_output_from_rows
from overtone.numerics.params import Fixed
from overtone.sklearn import DeepGPClassifier, DeepGPRegressor, load

KEY = jax.random.key(0)
rng = np.random.default_rng(0)
X = rng.random((90, 2))
y = np.sin(5 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(90)
OLD, NEW = slice(0, 60), slice(60, 90)


def gp(features, likelihood=None, *hidden):
    with jax.enable_x64(True):
        layer = ot.Layer(ot.Matern32(1.0, 0.5), features, q=ot.Joint)
        return ot.DeepGP([*hidden, layer], likelihood or ot.Gaussian(0.05)).initialised(X, y[:, None], dtype="float64")


def moments(model, at=X):
    with jax.enable_x64(True):
        found = ot.predict(model, at, key=KEY)
        return np.asarray(found.mean())[:, 0], np.asarray(found.std())[:, 0]


@pytest.mark.parametrize("features", [ot.InducingPoints(20), ot.PinnedFourier(6)])
def test_rows_in_two_parts_are_as_good_as_all_at_once(x64, features):
    model = gp(features)
    rows = y[:, None]
    parts = ot.with_more_rows(with_output_from_rows(model, KEY, X[OLD], rows[OLD]), X[NEW], rows[NEW], key=KEY)
    at_once = with_output_from_rows(model, KEY, X, rows)
    before = moments(with_output_from_rows(model, KEY, X[OLD], rows[OLD]))
    for part, whole, old in zip(moments(parts), moments(at_once), before, strict=True):
        np.testing.assert_allclose(part, whole, atol=1e-8)
        assert np.abs(old - whole).max() > 1e-3  # the new rows do matter


def test_noise_that_varies_stays_a_function_of_the_points_that_it_was_learned_at(x64):
    model = gp(ot.InducingPoints(Fixed(X[OLD])))
    model = with_output_from_rows(model, KEY, X[OLD], y[OLD][:, None])
    num, rng = len(X[OLD]), np.random.default_rng(0)
    parts = np.full((3, 1, 1), -2.0), rng.standard_normal((3, 1, 1, num))
    noise = ot.FlexibleNoise(0.1, *map(jax.device_put, parts))
    varying = eqx.tree_at(lambda m: m.likelihood, model, noise)
    wider = ot.with_more_points(varying, X[NEW])
    for now, before in zip(moments(wider), moments(varying), strict=True):
        np.testing.assert_allclose(now, before, atol=1e-6)
    mean, _ = moments(ot.with_more_rows(wider, X[NEW], y[NEW][:, None], key=KEY), X[NEW])
    assert np.mean((mean - y[NEW]) ** 2) < np.mean((moments(varying, X[NEW])[0] - y[NEW]) ** 2)


def test_an_exact_gp_stays_exact(x64):
    kernel, noise, rows = ot.Matern32(1.0, 0.5), 0.05, y[:, None]
    with jax.enable_x64(True):
        scaling = ot.Affine(np.zeros(2), np.ones(2))
        layer = ot.Layer(kernel, ot.InducingPoints(Fixed(X[OLD])), scaling=scaling, q=ot.Joint)
        model = ot.DeepGP([layer], ot.Gaussian(noise)).initialised(X[OLD], rows[OLD], dtype="float64")
        model = with_output_from_rows(model, KEY, X[OLD], rows[OLD])
    wider = ot.with_more_points(model, X[NEW])
    for now, before in zip(moments(wider), moments(model), strict=True):
        np.testing.assert_allclose(now, before, atol=1e-6)
    known = ot.with_more_rows(wider, X[NEW], rows[NEW], key=KEY)
    at = np.random.default_rng(1).random((20, 2))
    K, k = (np.asarray(kernel.gram(X, Z)) for Z in (X, at))
    weights = np.linalg.solve(K + noise * np.eye(len(X)), k)
    mean, std = moments(known, at)
    np.testing.assert_allclose(mean, weights.T @ y, atol=1e-5)
    np.testing.assert_allclose(std, np.sqrt(1 + noise - np.sum(weights * k, axis=0)), atol=1e-5)


def test_posteriors_that_are_not_joint_are_refused(x64):
    with pytest.raises(TypeError, match="joint over all features"):
        ot.with_more_rows(
            ot.DeepGP([ot.Layer(ot.Matern32(), ot.PinnedFourier(4), q=ot.MeanField)], ot.Gaussian()).initialised(
                X, y[:, None]
            ),
            X,
            y[:, None],
            key=KEY,
        )
    with pytest.raises(TypeError, match="needs inducing points"):
        ot.with_more_points(gp(ot.PinnedFourier(4)), X[NEW])


def test_small_tables_and_their_files_take_in_new_rows(tmp_path, capsys):
    X_new = np.column_stack([1 + 0.5 * rng.random(40), rng.random(40)])  # beyond what is known
    y_new = np.sin(5 * X_new[:, 0]) + X_new[:, 1]
    model = DeepGPRegressor(max_steps=5, likelihood="gaussian").fit(X, y)
    with pytest.warns(OutsideRangeWarning):
        before = np.sqrt(np.mean((model.predict(X_new) - y_new) ** 2))
    model.save(tmp_path / "model.safetensors")
    model.update(X_new[:30], y_new[:30])
    after = np.sqrt(np.mean((model.predict(X_new[30:]) - y_new[30:]) ** 2))
    assert after < 0.1 < before
    again = load(tmp_path / "model.safetensors").update(X_new[:30], y_new[:30])
    np.testing.assert_array_equal(again.predict(X_new), model.predict(X_new))


def test_the_command_line_updates_a_model(tmp_path, capsys):
    import polars as pl

    table = pl.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y})
    table[OLD].write_csv(tmp_path / "old.csv")
    table[NEW].write_csv(tmp_path / "new.csv")
    path = str(tmp_path / "model.safetensors")
    assert main(["fit", str(tmp_path / "old.csv"), "--target", "y", "--steps", "5", "--quiet", "--out", path]) == 0
    new = load(path).predict(X[NEW])
    assert main(["update", path, str(tmp_path / "new.csv")]) == 0
    assert "30 new rows" in capsys.readouterr().out
    assert np.mean((load(path).predict(X[NEW]) - y[NEW]) ** 2) < np.mean((new - y[NEW]) ** 2)


def test_classes_take_in_new_rows_and_adam_refuses():
    labels = np.where(X[:, 0] > 0.5, "right", "left")
    model = DeepGPClassifier(max_steps=20, n_layers=1).fit(X[OLD], labels[OLD])
    before = model.predict_proba(X[NEW])[np.arange(30), np.searchsorted(model.classes_, labels[NEW])]
    model.update(X[NEW], labels[NEW])
    after = model.predict_proba(X[NEW])[np.arange(30), np.searchsorted(model.classes_, labels[NEW])]
    assert np.mean(np.log(after)) > np.mean(np.log(before))
    fixed = DeepGPRegressor("vff", output="adam", max_steps=2).fit(X, y)
    with pytest.raises(ValueError, match="cannot take in new rows"):
        fixed.update(X, y)


@pytest.mark.parametrize("far", [1e30, 1e300])
def test_a_row_far_away_does_not_spoil_an_exact_gp(far):
    model = DeepGPRegressor().fit(X[OLD], y[OLD])
    before, std = model.predict(X[OLD], return_std=True)
    model.update([[far, 0.5]], [1.0])
    np.testing.assert_allclose(model.predict(X[OLD]), before, atol=0.2 * std.min())
    assert model.predict([[far, 0.5]]) == pytest.approx(1, abs=3 * std.max())


def test_targets_beyond_the_model_s_precision_are_refused():
    model = DeepGPRegressor(method="svgp", n_inducing=4, max_steps=2).fit(X[OLD], y[OLD])
    before = model.predict(X)
    with pytest.raises(ValueError, match="y has values too large for float32"):
        model.update(X[:1], [1e300])
    np.testing.assert_array_equal(model.predict(X), before)
