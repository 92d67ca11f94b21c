"""Frequencies and noise of series and tables where they are known."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from overtone.autopilot.policies import SPECTRUM
from overtone.autopilot.spectrum import (
    frequencies,
    highest_of_input,
    highest_of_series,
    matern_density,
    noise_of_series,
    start_of_series,
    variance_beyond,
)
from overtone.gp.kernels import Matern12, Matern32, Matern52
from overtone.inference.collapsed import Collapsed
from overtone.inference.objective import Progress, Rows
from tests.planned import built, planned

RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(size=2000))
NOISE = RNG.standard_normal(2000)


@pytest.mark.parametrize("cycles", [3, 40, 200])
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_the_highest_wave_of_a_series_is_found_at_irregular_times(cycles, noise):
    y = np.sin(2 * np.pi * cycles * X) + 2 * np.sin(2 * np.pi * X) + noise * NOISE
    assert cycles - 3 <= highest_of_series(X, y) <= cycles + 8


def test_noise_has_no_waves():
    assert highest_of_series(X, NOISE) == 0
    assert highest_of_input(X, NOISE) == 0
    assert frequencies(X[:, None], NOISE[:, None]) == 2 * SPECTRUM.min_frequencies


def test_the_noise_of_a_series_is_found_beside_its_waves():
    assert noise_of_series(X, np.sin(2 * np.pi * 5 * X) + 0.3 * NOISE) == pytest.approx(0.09, rel=0.1)
    assert noise_of_series(X, np.sin(2 * np.pi * 5 * X)) < 1e-4


def test_more_cycles_ask_for_more_frequencies_than_there_are_cycles():
    found = [frequencies(X[:, None], np.sin(2 * np.pi * c * X)[:, None]) for c in (10, 100, 300)]
    assert all(more > c for more, c in zip(found, (10, 100, 300), strict=True))
    assert found == sorted(found)


def test_the_input_with_waves_decides_for_a_table():
    table = RNG.uniform(size=(3000, 4))
    y = np.sin(2 * np.pi * 7 * table[:, 2]) + table[:, 0] + 0.5 * RNG.standard_normal(3000)
    assert 7 <= frequencies(table, y[:, None]) <= 8
    assert frequencies(table, table.sum(axis=1, keepdims=True)) == SPECTRUM.min_frequencies


FAR_AWAY = 1e9 + 1e-6 * np.arange(50)


@pytest.mark.parametrize(
    "x", [np.zeros(50), np.repeat([0.0, 1.0], 25), np.arange(2.0), np.r_[0.0, np.full(49, 1e-9)], FAR_AWAY]
)
def test_few_distinct_values_and_far_away_ones_are_no_reason_to_fail(x):
    y = np.arange(len(x), dtype=float)
    assert highest_of_series(x, y) >= 0
    assert highest_of_input(x, y) >= 0
    assert noise_of_series(x, y) >= 0


def test_a_series_starts_from_the_kernel_and_the_noise_that_it_was_drawn_from():
    x, rng = np.linspace(0, 1, 800), np.random.default_rng(1)
    K = Matern32(jnp.ones(()), jnp.full((), 0.1)).gram(jnp.asarray(x[:, None]), jnp.asarray(x[:, None]))
    draws = np.linalg.cholesky(np.asarray(K, float) + 1e-6 * np.eye(800)) @ rng.standard_normal((800, 8))
    start = start_of_series(x, draws + 0.1 * rng.standard_normal((800, 8)), 1, 100)
    assert 0.05 < start.lengthscale < 0.2
    assert 0.4 < start.variance < 2.5
    assert 0.005 < start.noise < 0.02


def test_the_bound_at_the_start_is_that_of_the_collapsed_model():
    """Whittle's approximation against Titsias' bound, dense, at the same kernel and noise."""
    x, rng = np.linspace(0, 1, 400), np.random.default_rng(0)
    y = np.sin(2 * np.pi * 12 * x) + 0.2 * rng.standard_normal(400)
    start = start_of_series(x, (y / y.std())[:, None], 1, 40)
    with jax.enable_x64(True):
        rows = Rows(x[:, None], (y / y.std())[:, None])
        model = built(*rows, "vff", n_inducing=40, dtype="float64")
        state, given = Progress.start(rows), Rows(*map(jnp.asarray, rows))
        loss, _ = eqx.filter_jit(Collapsed().loss)(model, state, jax.random.key(0), given)
    assert -float(loss) == pytest.approx(start.bound, abs=0.05)


def test_a_band_of_waves_wants_a_smooth_kernel_and_more_frequencies():
    plan = planned(X[:, None], np.sin(2 * np.pi * 40 * X)[:, None])
    assert plan.kernel == "matern52"
    assert plan.num_inducing > frequencies(X[:, None], np.sin(2 * np.pi * 40 * X)[:, None])
    steps = planned(X[:, None], (np.sign(np.sin(2 * np.pi * 3 * X)) + 0.1 * NOISE)[:, None])
    assert steps.kernel == "matern32"


@pytest.mark.parametrize("kind", [Matern12, Matern32, Matern52])
def test_the_spectral_density_is_the_kernel_s(kind):
    w = np.linspace(0, 300, 50)
    kernel = kind(jnp.ones(()), jnp.full((), 0.1))
    np.testing.assert_allclose(matern_density(w, 0.1, kind.order), kernel.spectral_density(jnp.asarray(w)), rtol=1e-5)


@pytest.mark.parametrize(("noise", "least"), [(0.0, 1e-9), (0.1, 0.01)])
def test_waves_that_no_feature_carries_are_noise_to_begin_with(noise, least):
    x = np.linspace(0, 1, 3000)
    y = 2**0.5 * np.sin(2 * np.pi * 40 * x) + noise * np.random.default_rng(0).standard_normal(3000)
    assert variance_beyond(x, y, 30.0) == pytest.approx(1 + noise**2, rel=0.03)
    assert variance_beyond(x, y, 50.0) == pytest.approx(least, rel=0.3 if noise else 1.0, abs=1e-8)
    for features, settings in (("pinned", {}), ("fourier", {}), ("points", {"method": "dgp"})):
        few = planned(x[:, None], y[:, None], n_inducing=35, n_layers=2, features=features, **settings)
        assert few.noise == pytest.approx(0.1)
        many = planned(x[:, None], y[:, None], n_inducing=300, n_layers=2, features=features, **settings)
        assert many.noise < 0.03
