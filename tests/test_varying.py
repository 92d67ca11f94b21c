"""Noise that varies with the inputs, against rows that are really left out, quadrature and fresh rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

import overtone as ot
from overtone.gp.layers import Layer
from overtone.inference import varying
from overtone.inference.evidence import Evidence, with_variances_times
from overtone.inference.objective import Rows
from overtone.inference.quasi_newton import fit_quasi_newton
from overtone.inference.varying import Fold, known_layer, left_out, log_density, log_noise, with_varying_noise
from overtone.numerics.params import Fixed, unwrap
from overtone.sklearn import DeepGPRegressor

KEY = jax.random.key(0)


def table(num: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return inputs, standard deviations of the noise, and targets."""
    rng = np.random.default_rng(seed)
    X = rng.random((num, 1))
    std = 0.05 + 0.5 * X[:, 0] ** 2
    return X, std, np.sin(6 * X[:, 0]) + std * rng.standard_normal(num)


def exact(X: np.ndarray, y: np.ndarray, noise: float = 0.05, lengthscale: float = 0.4) -> ot.DeepGP:
    """Return an exact GP of these rows that is not trained."""
    scaling = ot.Affine(np.zeros(X.shape[1]), np.ones(X.shape[1]))
    layer = Layer(ot.Matern52(1.0, lengthscale), ot.InducingPoints(Fixed(X)), scaling=scaling)
    with jax.enable_x64(True):
        model = ot.DeepGP([layer], ot.Gaussian(noise)).initialised(X, y[:, None], dtype="float64")
        return Evidence().finish(model, None, KEY, Rows(X, y[:, None]))


def noise_at(model: ot.DeepGP, X: np.ndarray) -> np.ndarray:
    """Return the noise variance of each row."""
    zero = jnp.zeros((1, len(X), 1))
    log_weights, _, variances = unwrap(model).likelihood_at(jnp.asarray(X)[None]).components(zero, zero)
    return np.asarray(jnp.sum(jnp.exp(log_weights) * variances, axis=0))[0, :, 0]


def test_rows_are_left_out_as_if_the_others_had_been_fitted_alone(x64):
    X, _, y = table(30)
    mean, var = (np.asarray(part)[:, 0] for part in unwrap(exact(X, y)).layers[0](jnp.asarray(X)))
    left, spread = left_out(y, mean, var, np.full(30, 0.05), np.zeros(30))
    for row in (3, 17):
        others = np.delete(np.arange(30), row)
        refitted = unwrap(exact(X[others], y[others]))
        mean, var = (float(np.asarray(part)[0, 0]) for part in refitted.layers[0](jnp.asarray(X[row : row + 1])))
        assert left[row] == pytest.approx(y[row] - mean, rel=1e-4)
        assert spread[row] == pytest.approx(var, rel=1e-3)


def test_the_evidence_of_one_component_is_an_integral():
    rng = np.random.default_rng(1)
    component = rng.standard_normal((200, 1))
    left, spread = np.exp(0.4 * component[:, 0]) * rng.standard_normal(200), np.full(200, 0.1)
    found = log_noise(component, left, spread)

    def joint(z: float, level: float) -> float:
        return np.sum(log_density(level + component[:, 0] * z, left, spread))

    # The level is nearly known, so that it may be held fixed for the other's posterior.
    peak = joint(found.z[0], found.level)
    weight = quad(lambda z: np.exp(joint(z, found.level) - peak) * norm.pdf(z), 0, 1.5)[0]
    mean = quad(lambda z: z * np.exp(joint(z, found.level) - peak) * norm.pdf(z), 0, 1.5)[0] / weight
    assert found.z[0] == pytest.approx(mean, abs=0.02)
    levels = np.linspace(-1, 1, 201) + found.level
    start = np.log(np.mean(left**2))
    by_level = [np.exp(joint(found.z[0], b) - peak) * norm.pdf(b - start, scale=2) for b in levels]
    total = np.log(np.sum(by_level) * (levels[1] - levels[0])) + np.log(weight) + peak
    assert found.evidence == pytest.approx(total, abs=0.1)


def test_the_posterior_of_some_rows_is_that_of_a_model_which_knows_them_alone(x64):
    X, std, y = table(30)
    model, known = exact(X, y), np.arange(0, 30, 2)
    layer = known_layer(model, X)
    mean, var = layer.posterior(y, np.full(30, 0.05), known)
    expected = unwrap(exact(X[known], y[known])).layers[0](jnp.asarray(X))
    np.testing.assert_allclose(mean, np.asarray(expected[0])[:, 0], atol=1e-5)
    np.testing.assert_allclose(var + layer.residual, np.asarray(expected[1])[:, 0], atol=1e-5)
    # With noise of its own for each row, against the dense formula.
    K = 1.0 * np.asarray(ot.Matern52(1.0, 0.4).gram(jnp.asarray(X), jnp.asarray(X)))
    weights = K[:, known] @ np.linalg.inv(K[np.ix_(known, known)] + np.diag(std[known] ** 2))
    mean, var = layer.posterior(y, std**2, known)
    np.testing.assert_allclose(mean, weights @ y[known], atol=1e-5)
    np.testing.assert_allclose(var + layer.residual, np.diag(K - weights @ K[known]), atol=1e-5)


def test_rows_of_a_fold_are_predicted_by_the_hyperparameters_of_the_others(x64):
    X, _, y = table(40)
    known, left = np.arange(0, 40, 2), np.arange(1, 40, 2)
    fold = Fold(known_layer(exact(X, y, 0.1, lengthscale=0.2), X), known, left)
    found = varying.tested(known_layer(exact(X, y), X), y, 0, [fold], ())
    others = unwrap(exact(X[known], y[known], 0.1, lengthscale=0.2))
    mean, var = (np.asarray(part)[:, 0] for part in others.layers[0](jnp.asarray(X[left])))
    np.testing.assert_allclose(found.left, y[left] - mean, atol=1e-4)
    np.testing.assert_allclose(found.spread, var, atol=1e-4)
    np.testing.assert_allclose(found.expected, np.log(0.1), atol=1e-6)


def test_hyperparameters_that_know_the_rows_of_a_fold_make_them_look_better_predicted_than_fresh_rows(x64):
    rng = np.random.default_rng(0)
    X, X_new = rng.random((60, 8)), rng.random((2000, 8))

    def targets(X: np.ndarray) -> np.ndarray:
        return np.sin(6 * X[:, 0]) + 0.5 * rng.standard_normal(len(X))

    def fitted(rows: np.ndarray) -> ot.DeepGP:
        model = exact(X, y, lengthscale=1.0)
        return fit_quasi_newton(model, Evidence(), (X[rows], y[rows, None]), key=KEY, finish=False).model

    y, y_new, everything = targets(X), targets(X_new), np.arange(60)
    of_all = known_layer(fitted(everything), X)
    shared, refitted = [], []
    for first in range(5):
        known = np.setdiff1d(everything, out := everything[first::5])
        shared.append(Fold(of_all, known, out))
        refitted.append(Fold(known_layer(fitted(known), X), known, out))
    misses = [np.mean(varying.tested(of_all, y, 0, folds, ()).left ** 2) for folds in (shared, refitted)]
    model = Evidence().finish(fitted(everything), None, KEY, Rows(X, y[:, None]))
    fresh = np.mean((y_new - np.asarray(ot.predict(model, X_new, key=KEY).mean())[:, 0]) ** 2)
    assert misses[0] < 0.8 * fresh
    assert misses[1] == pytest.approx(fresh, rel=0.25)


def test_three_gaussians_have_the_moments_of_noise_whose_logarithm_is_uncertain():
    rng = np.random.default_rng(0)
    for log_noise_, deviation in ((0.0, 0.4), (-1.0, 0.8)):
        r = rng.standard_normal(6)

        def at(e: float, r: float, b: float = log_noise_, d: float = deviation) -> float:
            return norm.pdf(r, scale=np.sqrt(0.1 + np.exp(b + d * e))) * norm.pdf(e)

        exact = np.log([quad(at, -8, 8, args=(each,))[0] for each in r])
        np.testing.assert_allclose(log_density(np.full(6, log_noise_), r, np.full(6, 0.1), deviation), exact, atol=0.02)


def test_noise_that_varies_is_found_and_one_variance_is_kept_where_it_is_enough(x64):
    X, _, y = table(200)
    varied, nats = with_varying_noise(exact(X, y), KEY, X, y[:, None])
    assert nats.shape == (200, 1)
    assert nats.sum() > 30
    new = np.linspace(0.1, 0.9, 50)[:, None]
    found = np.sqrt(noise_at(varied, new))
    assert np.mean(np.abs(np.log(found / (0.05 + 0.5 * new[:, 0] ** 2)))) < 0.3
    constant = np.sin(6 * X[:, 0]) + 0.2 * np.random.default_rng(3).standard_normal(200)
    model = exact(X, constant)
    with pytest.raises(TypeError, match="needs one layer"):
        with_varying_noise(varied, KEY, X, y[:, None])
    same, nats = with_varying_noise(model, KEY, X, constant[:, None])
    assert same is model
    assert not nats.any()


def test_heavy_tails_are_found_and_no_outlier_passes_for_noise_that_varies(x64):
    rng = np.random.default_rng(5)
    X = rng.random((300, 1))
    f, tail = np.sin(6 * X[:, 0]), 0.1 * rng.standard_t(2.5, 300)
    heavy, nats = with_varying_noise(exact(X, f + tail, 0.03), KEY, X, (f + tail)[:, None])
    assert nats.sum() > 10
    assert not np.any(heavy.likelihood.weight)
    low, _, high = np.asarray(heavy.likelihood.base)[2, :, 0]
    assert high - low > 1.5
    X_new = rng.random((2000, 1))
    y_new = np.sin(6 * X_new[:, 0]) + 0.1 * rng.standard_t(2.5, 2000)
    densities = [
        ot.predict(m, X_new, key=KEY).log_prob(y_new[:, None]).mean() for m in (heavy, exact(X, f + tail, 0.03))
    ]
    assert densities[0] > densities[1] + 0.05


def test_the_order_of_rows_does_not_matter_and_scaling_all_variances_keeps_the_shape(x64):
    X, _, y = table(60)
    order = np.random.default_rng(0).permutation(60)
    first, nats = with_varying_noise(exact(X, y), KEY, X, y[:, None])
    _, again = with_varying_noise(exact(X, y), KEY, X[order], y[order, None])
    np.testing.assert_allclose(np.sort(nats[:, 0]), np.sort(again[:, 0]), atol=1e-5)
    wider = with_variances_times(first, 1.5)
    floor = 1e-6  # is added to the noise, and not scaled
    np.testing.assert_allclose(noise_at(wider, X) - floor, 1.5 * (noise_at(first, X) - floor), rtol=1e-6)


def test_intervals_of_a_small_series_are_as_wide_as_its_noise_is(tmp_path):
    X, _, y = table(150)
    model = DeepGPRegressor(max_steps=1).fit(X, y)
    X_new, _, y_new = table(1000, seed=1)
    low, high = model.predict_quantiles(X_new, [0.025, 0.975])
    inside = (y_new > low) & (y_new < high)
    assert 0.9 < inside.mean() < 0.99
    for part in (X_new[:, 0] < 0.4, X_new[:, 0] > 0.6):
        assert 0.86 < inside[part].mean() < 1
    assert "varies" in model.plan_.reasons["likelihood"]
    one = DeepGPRegressor(max_steps=1, likelihood="gaussian").fit(X, y)
    assert model.log_predictive_density(X_new, y_new).mean() > one.log_predictive_density(X_new, y_new).mean() + 0.2
    model.save(tmp_path / "model.safetensors")
    again = DeepGPRegressor.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict_quantiles(X_new[:5], [0.1]), model.predict_quantiles(X_new[:5], [0.1]))


def test_a_series_without_noise_is_not_too_much_for_the_closed_form(x64):
    X = np.linspace(0, 1, 120)[:, None]
    y = np.sin(40 * X[:, 0]) * np.exp(-3 * X[:, 0])
    model, nats = with_varying_noise(exact(X, y, 1e-6), KEY, X, y[:, None])
    assert np.all(np.isfinite(nats))
    assert np.all(np.isfinite(noise_at(model, X)))
