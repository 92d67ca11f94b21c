"""Rows that do not fit together, or not to the model, are refused with one sentence before anything is computed."""

import jax
import numpy as np
import optax
import pytest

import overtone as ot
from overtone.inference.predictions import log_density, over_rows
from overtone.numerics.params import Positive

KEY = jax.random.key(0)
X = np.random.default_rng(0).uniform(size=(30, 2))
Y = X[:, 0] - X[:, 1]


def untrained(likelihood=None, y=Y, rows=X):
    layer = ot.Layer(ot.Matern32(), ot.InducingPoints(5))
    return ot.DeepGP([layer], likelihood or ot.Gaussian()).initialised(rows, y)


def fit(X, y, objective=None, **settings):
    steps = {"optim": optax.adam(0.01), "steps": 1, **settings}
    return ot.fit(untrained(), objective or ot.NaturalGradient(), (X, y), key=KEY, **steps)


@pytest.mark.parametrize(
    ("rows", "targets", "message"),
    [
        (X, Y[:20], "X and y must have the same rows; got 30 in X and 20 in y"),
        (X[:20], Y, "got 20 in X and 30 in y"),
        (X[:0], Y[:0], "X has no rows"),
        (X[:, 0], Y, "X must have rows and columns, got shape"),
        (X[:, :1], Y, "the model has 2 inputs; got rows of shape"),
        (X, np.stack([Y, Y], axis=1), "y asks for 2 functions, but the model was initialised with 1"),
    ],
)
def test_training_refuses_rows_that_do_not_fit_together(rows, targets, message):
    for objective in (ot.NaturalGradient(), ot.Collapsed()):
        with pytest.raises(ValueError, match=message):
            fit(rows, targets, objective)
    with pytest.raises(ValueError, match=message):
        ot.fit_quasi_newton(untrained(), ot.Evidence(), (rows, targets), key=KEY)
    with pytest.raises(ValueError, match=message):
        ot.elbo(untrained(), (rows, targets), key=KEY)


def test_training_refuses_batches_of_no_rows():
    with pytest.raises(ValueError, match="batch_size must be at least 1; got 0"):
        fit(X, Y, batch_size=0)


@pytest.mark.parametrize("rows", [X[:, :1], X[:, 0], X[:0], np.ones((3, 3))])
def test_prediction_refuses_rows_of_other_inputs(rows):
    """One column would be taken for each of the inputs."""
    with pytest.raises(ValueError, match=r"inputs; got rows of shape|rows and columns|no rows"):
        ot.predict(untrained(), rows, key=KEY)


def test_scores_and_offsets_have_as_many_rows_as_the_inputs():
    with pytest.raises(ValueError, match="X and offset must have the same rows; got 30 in X and 7 in offset"):
        ot.predict(untrained(), X, key=KEY, offset=np.zeros(7))
    single = X.astype("f4"), Y[:20, None].astype("f4")
    with pytest.raises(ValueError, match=r"all arrays must have the same rows; got \[20, 30\]"):
        over_rows(lambda *rows: log_density(untrained(), KEY, 1, *rows), *single)
    shifted = ot.predict(untrained(), X, key=KEY, offset=np.arange(30.0)).mean()
    np.testing.assert_allclose(shifted[:, 0], np.arange(30.0), atol=1e-5)


@pytest.mark.parametrize(
    ("likelihood", "y", "message"),
    [
        (ot.Poisson(), np.arange(30), "columns of counts, then as many of log exposures; got 1 columns"),
        (ot.Bernoulli(), np.sign(Y), "one column of numbers 0, 1, 2, .*such as -1.0, 1.0"),
        (ot.Bernoulli(), np.arange(30) % 3, "two classes, 0 and 1; got 2"),
        (ot.Softmax(), 0.5 * np.ones(30), "one column of numbers 0, 1, 2"),
        (ot.Softmax(), np.ones((30, 2)), "got 2 columns"),
    ],
)
def test_targets_of_another_kind_than_the_likelihood_are_refused(likelihood, y, message):
    with pytest.raises(ValueError, match=message):
        untrained(likelihood, y)


def test_some_rows_need_not_have_all_classes_but_no_others():
    model = untrained(ot.Softmax(), np.arange(30) % 3)
    assert np.isfinite(ot.elbo(model, (X, np.arange(30) % 2), key=KEY, num_samples=1))
    with pytest.raises(ValueError, match="y asks for 4 functions, but the model was initialised with 3"):
        ot.elbo(model, (X, np.arange(30) % 4), key=KEY)


def test_missing_classes_count_nothing():
    y = np.where(np.arange(30) < 10, np.nan, np.arange(30) % 2)
    for likelihood, log_odds in ((ot.Bernoulli(), 0.0), (ot.Softmax(), np.log(0.5))):
        np.testing.assert_allclose(untrained(likelihood, y).likelihood.base, log_odds, atol=1e-6)


def test_parameters_are_positive_and_whole_numbers_are_numbers():
    assert float(Positive(2).unwrap()) == pytest.approx(2, rel=1e-6)
    np.testing.assert_allclose(Positive(np.array([2, 300]), lower=1.0).unwrap(), [2, 300], rtol=1e-6)
    for value in (-1.0, np.nan):
        layer = ot.Layer(ot.Matern32(value), ot.InducingPoints(5))
        with pytest.raises(ValueError, match=f"a positive parameter must be above 0; got {value:g}"):
            ot.DeepGP([layer], ot.Gaussian()).initialised(X, Y)


@pytest.mark.parametrize("shape", [(4, 1), (4, 3), (4,)])
def test_inducing_points_of_other_inputs_are_refused(shape):
    layer = ot.Layer(ot.Matern32(), ot.InducingPoints(ot.Fixed(np.ones(shape))))
    with pytest.raises(ValueError, match="inducing points must be rows of 2 inputs; got an array of shape"):
        ot.DeepGP([layer], ot.Gaussian()).initialised(X, Y)


def test_models_start_with_finite_rows_and_at_least_one_layer():
    for value in (np.nan, np.inf):
        with pytest.raises(ValueError, match="X must be finite numbers"):
            untrained(rows=np.where(X == X[7, 1], value, X))
    with pytest.raises(ValueError, match="at least one layer"):
        ot.DeepGP([], ot.Gaussian())
