"""Missing inputs: what training does without them, and what predictions say about such rows."""

import equinox as eqx
import numpy as np
import pandas as pd
import polars as pl
import pytest

from overtone.sklearn import DeepGPClassifier, DeepGPRegressor, load

RNG = np.random.default_rng(0)
X = RNG.uniform(size=(40, 2))
Y = np.sin(6 * X[:, 0])
GAPS = np.zeros((40, 2), bool)
GAPS[[3, 17, 30], [0, 1, 0]] = True
HOLES, COMPLETE = np.where(GAPS, np.nan, X), ~GAPS.any(axis=1)
QUICK = {"method": "vff", "n_inducing": 3, "max_steps": 2}


def nullable(table):
    return pd.DataFrame(table, columns=["a", "b"]).convert_dtypes()


def with_words(table):
    """A frame that needs an encoder."""
    return pl.DataFrame({"a": table[:, 0], "b": table[:, 1], "word": ["x", "y"] * (len(table) // 2)}, nan_to_null=True)


KINDS = {
    "array": np.asarray,
    "pandas": lambda table: pd.DataFrame(table, columns=["a", "b"]),
    "nullable": nullable,
    "polars": lambda table: pl.DataFrame(table, schema=["a", "b"], nan_to_null=True),
    "words": with_words,
}


def rows(table, kept):
    return table.filter(pl.Series(kept)) if isinstance(table, pl.DataFrame) else table[kept]


@pytest.mark.parametrize("kind", KINDS)
def test_dropped_rows_are_not_trained_on_and_get_no_prediction(kind, tmp_path):
    table, complete = KINDS[kind](HOLES), rows(KINDS[kind](X), COMPLETE)
    model = DeepGPRegressor(**QUICK, missing="drop").fit(table, Y)
    without = DeepGPRegressor(**QUICK).fit(complete, Y[COMPLETE])
    model.save(tmp_path / "m.safetensors")
    for found in (model, load(tmp_path / "m.safetensors")):
        mean, std = found.predict(table, return_std=True)
        np.testing.assert_array_equal(np.isnan(mean), ~COMPLETE)
        np.testing.assert_array_equal(np.isnan(std), ~COMPLETE)
        np.testing.assert_array_equal(mean[COMPLETE], without.predict(complete))


@pytest.mark.parametrize("kind", KINDS)
def test_gaps_are_filled_with_the_means_of_training(kind, tmp_path):
    table, filled = KINDS[kind](HOLES), KINDS[kind](np.where(GAPS, np.nanmean(HOLES, axis=0), X))
    model = DeepGPRegressor(**QUICK, missing="mean").fit(table, Y)
    expected = DeepGPRegressor(**QUICK).fit(filled, Y).predict(filled)
    model.save(tmp_path / "m.safetensors")
    for found in (model, load(tmp_path / "m.safetensors")):
        np.testing.assert_allclose(found.predict(table), expected, rtol=1e-6)
        few = rows(table, ~COMPLETE)  # whose own means are others
        np.testing.assert_allclose(found.predict(few), expected[~COMPLETE], rtol=1e-6)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "array"])
def test_by_default_an_error_names_columns_and_counts(kind):
    with pytest.raises(ValueError, match=r"missing values in 'a' \(2\), 'b' \(1\)"):
        DeepGPRegressor(**QUICK).fit(KINDS[kind](HOLES), Y)
    model = DeepGPRegressor(**QUICK).fit(KINDS[kind](X), Y)
    with pytest.raises(ValueError, match=r"missing values in 'a' \(2\), 'b' \(1\)"):
        model.predict(KINDS[kind](HOLES))


def test_scores_and_draws_leave_dropped_rows_out():
    model = DeepGPRegressor(**QUICK, missing="drop").fit(HOLES, Y)
    assert model.evaluate(HOLES, Y) == pytest.approx(model.evaluate(X[COMPLETE], Y[COMPLETE]))
    assert model.score(HOLES, Y) == pytest.approx(model.score(X[COMPLETE], Y[COMPLETE]))
    assert model.elbo(HOLES, Y) == pytest.approx(model.elbo(X[COMPLETE], Y[COMPLETE]))
    assert model.residual_fraction(HOLES) == pytest.approx(model.residual_fraction(X[COMPLETE]))
    results = (
        model.log_predictive_density(HOLES, Y),
        model.predictive_cdf(HOLES, Y),
        model.predict_quantiles(HOLES, [0.5])[0],
        model.sample_y(HOLES, 2)[:, 1],
        model.sample_functions(2)(HOLES)[:, 1],
    )
    for values in results:
        np.testing.assert_array_equal(np.isnan(values), ~COMPLETE)
    with pytest.raises(ValueError, match="no row with both inputs and targets"):
        model.evaluate(HOLES[~COMPLETE], Y[~COMPLETE])


def test_predictions_that_are_not_numbers_are_not_taken_for_missing_targets():
    """Damage must show: only rows without inputs or targets are left out of scores."""
    model = DeepGPRegressor(**QUICK, missing="drop").fit(HOLES, Y)
    model.model_ = eqx.tree_at(lambda m: m.layers[0].q.mean, model.model_, replace_fn=lambda mean: mean * np.nan)
    assert np.isnan(model.evaluate(HOLES, Y)["rmse"])
    with pytest.raises(ValueError, match="NaN"):
        model.score(HOLES, Y)


def test_counts_lose_their_exposure_with_the_row_and_targets_their_last_value():
    counts, exposure = RNG.poisson(2, 40), RNG.uniform(1, 2, 40)
    model = DeepGPRegressor(**QUICK, missing="drop").fit(HOLES, counts, exposure=exposure)
    without = DeepGPRegressor(**QUICK).fit(X[COMPLETE], counts[COMPLETE], exposure=exposure[COMPLETE])
    np.testing.assert_array_equal(model.predict(X), without.predict(X))
    with pytest.raises(ValueError, match="column 1 of y has no value at all"):
        model.fit(HOLES, np.stack([Y, np.where(COMPLETE, np.nan, Y)], axis=1))


def test_a_row_without_inputs_has_no_class():
    model = DeepGPClassifier(**QUICK, missing="drop").fit(HOLES, Y > 0)
    np.testing.assert_array_equal(np.isnan(model.predict_proba(HOLES)).all(axis=1), ~COMPLETE)
    assert model.evaluate(HOLES, Y > 0) == pytest.approx(model.evaluate(X[COMPLETE], Y[COMPLETE] > 0))
    for ask in (model.predict, model.sample_y):
        with pytest.raises(ValueError, match=r"3 rows with missing values, for which this model .* predicts no class"):
            ask(HOLES)


def test_infinite_inputs_are_an_error_whatever_is_missing():
    with pytest.raises(ValueError, match="infinity"):
        DeepGPRegressor(**QUICK, missing="mean").fit(np.where(GAPS, np.inf, X), Y)


UNKNOWN = np.isin(np.arange(40), [2, 30])
TARGETS = {
    "array": lambda y: np.where(UNKNOWN, np.nan, y),
    "pandas": lambda y: pd.Series(np.where(UNKNOWN, np.nan, y), name="y"),
    "nullable": lambda y: pd.Series(np.where(UNKNOWN, np.nan, y), name="y").convert_dtypes(),
    "polars": lambda y: pl.Series("y", np.where(UNKNOWN, np.nan, y), nan_to_null=True),
}


@pytest.mark.parametrize("kind", TARGETS)
def test_rows_without_a_target_are_left_out_with_a_warning(kind):
    y, frame = TARGETS[kind](Y), with_words(X)
    with pytest.warns(UserWarning, match=r"^2 rows without a target are left out\.$"):
        model = DeepGPRegressor(**QUICK).fit(frame, y)
    without = DeepGPRegressor(**QUICK).fit(rows(frame, ~UNKNOWN), Y[~UNKNOWN])
    np.testing.assert_array_equal(model.predict(frame), without.predict(frame))
    assert model.target_ == (None if kind == "array" else "y")
    assert model.evaluate(frame, y) == pytest.approx(without.evaluate(rows(frame, ~UNKNOWN), Y[~UNKNOWN]))
    assert model.score(frame, y) == pytest.approx(without.score(rows(frame, ~UNKNOWN), Y[~UNKNOWN]))


@pytest.mark.parametrize("unknown", [None, np.nan, pd.NA])
def test_rows_without_a_label_are_left_out_with_a_warning(unknown):
    labels = np.where(Y > 0, "up", "down").astype(object)
    some = np.where(UNKNOWN, unknown, labels)
    with pytest.warns(UserWarning, match=r"^2 rows without a target are left out\.$"):
        model = DeepGPClassifier(**QUICK).fit(X, some)
    without = DeepGPClassifier(**QUICK).fit(X[~UNKNOWN], labels[~UNKNOWN])
    np.testing.assert_array_equal(model.predict_proba(X), without.predict_proba(X))
    with pytest.warns(UserWarning, match="2 rows without a target"):
        assert model.evaluate(X, some) == without.evaluate(X[~UNKNOWN], labels[~UNKNOWN])


def test_rows_without_a_target_lose_their_exposure_and_lengths_are_checked():
    counts, exposure = RNG.poisson(2, 40).astype(float), RNG.uniform(1, 2, 40)
    with pytest.warns(UserWarning, match="2 rows without a target"):
        model = DeepGPRegressor(**QUICK).fit(X, np.where(UNKNOWN, np.nan, counts), exposure=exposure)
    without = DeepGPRegressor(**QUICK).fit(X[~UNKNOWN], counts[~UNKNOWN], exposure=exposure[~UNKNOWN])
    np.testing.assert_array_equal(model.predict(X), without.predict(X))
    with (
        pytest.warns(UserWarning, match="2 rows without a target"),
        pytest.raises(ValueError, match="inconsistent numbers of samples"),
    ):
        model.fit(np.vstack([X, X]), np.where(UNKNOWN, np.nan, counts))


@pytest.mark.parametrize("method", ["elbo", "residual_fraction", "outside_fraction"])
def test_sums_over_no_complete_row_at_all_are_refused(method):
    model, nothing = DeepGPRegressor(**QUICK, missing="drop").fit(HOLES, Y), np.full((2, 2), np.nan)
    with pytest.raises(ValueError, match="X has no row without missing values; there is nothing to compute"):
        getattr(model, method)(nothing, *([Y[:2]] if method == "elbo" else []))
