"""A series without waves beyond its frequencies: what the features leave is zero inside, and the Matern's outside."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from overtone.gp.features import BandLimited, PinnedFourier
from overtone.gp.kernels import Matern32
from overtone.gp.variational import Full
from overtone.inference.collapsed import best_scales
from overtone.sklearn import DeepGPRegressor, OutsideRangeWarning

RNG = np.random.default_rng(0)


@pytest.mark.usefixtures("x64")
def test_marginals_lose_the_residual_inside_and_nothing_outside():
    a, b, num = jnp.zeros(()), jnp.ones(()), 5
    free = PinnedFourier(num, a, b, 1)
    limited = BandLimited(free)
    kernel = Matern32(jnp.asarray(1.3), jnp.asarray(0.2))
    points = np.linspace(-0.4, 1.4, 37)[:, None]
    X = jnp.asarray(points)
    inside = (points[:, 0] >= 0) & (points[:, 0] <= 1)
    q = Full(*(jnp.asarray(RNG.normal(size=(1, 2, free.num_features))) for _ in range(2)), jnp.asarray(
        np.tril(RNG.normal(size=(free.num_features, free.num_features)), -1) + np.eye(free.num_features)
    )[None, :, None].repeat(2, axis=2))  # fmt: skip

    @eqx.filter_jit
    def compute(f):
        A = f.whitened(kernel, X)
        return A, f.marginals(kernel, q, X), f.unexplained(kernel, A, X), f.prior_variance(kernel, X)

    A, (mean, var), unexplained, _ = compute(free)
    same_A, (same, less), less_unexplained, prior_variance = compute(limited)
    left = np.where(inside, 1.3 - np.sum(np.asarray(A) ** 2, axis=0), 0)
    assert left.max() > 0.005
    np.testing.assert_allclose(same, mean, rtol=1e-12)
    np.testing.assert_allclose(var - less, np.stack([left, left], axis=1), atol=1e-10)
    np.testing.assert_allclose(less_unexplained, np.where(inside, 0, unexplained))
    np.testing.assert_allclose(same_A, A, rtol=1e-12)
    np.testing.assert_allclose(prior_variance, np.where(inside, np.sum(np.asarray(A) ** 2, axis=0), 1.3))
    rows, weights = jnp.asarray(points[inside]), jnp.linspace(0.5, 2, int(inside.sum()))
    equations = eqx.filter_jit(lambda f: f.normal_equations(kernel, rows, jnp.cos(rows), weights))
    found, expected = equations(limited), equations(free)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-12)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-12)
    assert float(expected[2]) == pytest.approx(float(weights @ left[inside]), rel=1e-9)
    assert float(found[2]) == 0
    assert limited.outside(X)[:, 0].tolist() == (~inside).tolist()


def test_the_best_scales_maximise_the_evidence_of_a_joint_gaussian():
    A, y = RNG.normal(size=(4, 30)), RNG.normal(size=(30, 2))
    noises, scales = np.geomspace(0.01, 10, 9), np.geomspace(0.01, 10, 7)
    scale, noise = best_scales(A @ A.T, (A @ y).T, np.sum(y**2, axis=0), 30, noises, scales)

    def evidence(scale, noise, target):
        return multivariate_normal(np.zeros(30), scale * A.T @ A + noise * np.eye(30)).logpdf(target)

    table = np.array([[[evidence(s, n, target) for n in noises] for target in y.T] for s in scales])
    best = np.argmax(table.max(axis=2).sum(axis=1))
    assert scale == scales[best]
    np.testing.assert_array_equal(noise, noises[table[best].argmax(axis=1)])


def waves(x: np.ndarray) -> np.ndarray:
    return sum(np.sin(2 * np.pi * k * x + k) for k in range(101, 111)) / 5**0.5


def test_a_band_of_waves_is_found_out_and_fitted_to_its_last_digits():
    x = np.sort(RNG.random(3000))
    clean, noisy = (waves(x) + scale * RNG.standard_normal(3000) for scale in (1e-4, 0.3))
    model = DeepGPRegressor(max_steps=5, n_inducing=150).fit(x[:, None], clean)
    assert model.plan_.band_limited
    new = RNG.uniform(0.01, 0.99, 500)
    mean, std = model.predict(new[:, None], return_std=True)
    error = mean - waves(new)
    assert np.sqrt(np.mean(error**2)) < 1e-4
    assert 0.5e-4 < np.median(std) < 2e-4  # about the noise
    with pytest.warns(OutsideRangeWarning):
        beyond = model.predict(np.array([[2.0]]), return_std=True)[1]
    assert beyond > 0.3  # it does not think that it knows what happens elsewhere
    draws = model.sample_functions(20)(new[:, None])
    assert np.abs(draws - mean[:, None]).max() < 1e-3
    other = DeepGPRegressor(max_steps=1, n_inducing=150).fit(x[:, None], noisy)
    assert not other.plan_.band_limited


def test_it_is_for_one_layer():
    with pytest.raises(ValueError, match="one layer"):
        DeepGPRegressor(band_limited="yes", n_layers=2).fit(RNG.random((20, 1)), RNG.random(20))
    assert jax.config.values["jax_enable_x64"] is False
