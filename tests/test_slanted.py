"""Waves of two inputs together: are they found, and followed?"""

import jax.numpy as jnp
import numpy as np
import pytest

from overtone.build import build
from overtone.config import Config
from overtone.decide import resolved
from overtone.params import unwrap
from overtone.sklearn import DeepGPRegressor, load
from overtone.slanted import slanted_waves

RNG = np.random.default_rng(0)
X = RNG.uniform(size=(3000, 4))
NOISE = RNG.standard_normal(3000)


def wave(*cycles: float) -> np.ndarray:
    return np.sin(2 * np.pi * X @ np.array(cycles) + 1)


@pytest.mark.parametrize("cycles", [(10, 0, 10, 0), (0, 12.4, 0, -7.3), (3, 6.5, 0, 0), (0, 0, -30, 40)])
def test_a_wave_is_found_beside_others_of_few_cycles(cycles):
    y = wave(*cycles) + 2 * np.sin(7 * X[:, 0]) * X[:, 1] + X[:, 2] + 0.5 * NOISE
    (found,) = slanted_waves(1e6 + 3 * X, y[:, None])
    np.testing.assert_allclose(np.sign(np.dot(found, cycles)) * np.array(found), cycles, atol=0.05)


def test_of_several_targets_and_waves_the_strongest_is_first():
    Y = np.column_stack([wave(0, 9, 9, 0) + NOISE, 3 * wave(14, 0, 0, 5) + wave(0, 0, 11, 20)])
    Y[RNG.uniform(size=Y.shape) < 0.1] = np.nan
    found = np.abs(slanted_waves(X, Y))
    np.testing.assert_allclose(found[0], (14, 0, 0, 5), atol=0.05)
    np.testing.assert_allclose(found[1], (0, 9, 9, 0), atol=0.05)
    assert len(found) == 2  # what the strong wave hides is not found
    assert len(slanted_waves(X, np.column_stack([Y, -Y]))) == 2


DAYS = RNG.uniform(0, 2190, size=3000)
CALENDAR = np.column_stack([DAYS, DAYS % 365, np.floor(24 * (DAYS % 1)), np.floor(DAYS % 7)])


@pytest.mark.parametrize(
    ("table", "y"),
    [
        (X, NOISE),
        (X, np.zeros(3000)),
        (X, np.full(3000, np.nan)),
        (X, wave(20, 0, 0, 0)),  # of one input, which shows it
        (X, wave(3, 2, 0, 0) + 0.1 * NOISE),  # of few cycles
        (X, np.exp(3 * X[:, 0]) * np.cos(5 * X[:, 1] + 3 * X[:, 2])),
        (X[:400], wave(10, 10, 0, 0)[:400]),  # too few rows to be sure
        (X[:, :1], wave(20, 0, 0, 0)),
        (CALENDAR, np.sin(CALENDAR[:, 1] / 58) + np.sin(CALENDAR[:, 2] / 4) * (CALENDAR[:, 3] > 4) + 0.3 * NOISE),
        (np.column_stack([X[:, :2], np.ones(3000), np.r_[1e9, np.zeros(2999)]]), X[:, 0] + 0.1 * NOISE),
        (np.repeat(X[:, :1], 4, axis=1), np.sin(9 * X[:, 0]) + 0.1 * NOISE),
    ],
)
def test_where_there_is_no_such_wave_none_is_found(table, y):
    assert slanted_waves(table, y[:, None]) == ()


def test_the_first_layer_sees_the_inputs_and_cosine_and_sine_of_each_wave(x64):
    config = Config(waves=((10, 0, -6.5, 0), (0, 9, 9, 0)), n_inducing=4, dtype="float64", fine_inputs=(2,))
    layers = unwrap(build(config, 5 + 2 * X, NOISE[:, None])).layers
    low, high = X.min(axis=0), X.max(axis=0)
    Z = (X[:9] - low) / (high - low)
    phase = 2 * np.pi * np.stack([10 * Z[:, 0] - 6.5 * Z[:, 2], 9 * Z[:, 1] + 9 * Z[:, 2]], axis=1)
    seen, _ = layers[0].place(jnp.asarray(5 + 2 * X[:9]))
    np.testing.assert_allclose(seen, np.hstack([Z, 0.5 + 0.5 * np.cos(phase), 0.5 + 0.5 * np.sin(phase)]), atol=1e-9)
    assert layers[0].projection.weight.shape == (8, 17)
    assert layers[1].projection.weight.shape == (11, 23)
    _, fine = layers[0].added.place(jnp.asarray(5 + 2 * X[:9]))
    np.testing.assert_allclose(fine, Z[:, [2]], atol=1e-9)


def test_waves_are_looked_for_unless_they_are_given_or_would_not_be_the_paper():
    y = (wave(10, 0, 8, 0) + 0.1 * NOISE)[:, None]
    for found in (Config(), Config("dgp"), Config("vff"), Config("svgp")):
        assert len(resolved(found, X, y).waves) == 1
    for none in (Config(preset="paper"), Config(n_projections=4), Config(waves=())):
        assert resolved(none, X, y).waves == ()
    given = ((1.0, 2.0, 3.0, 4.0),)
    assert resolved(Config(waves=given), X, y).waves == given
    for table in (X[:, :3], X[:, :1]):
        with pytest.raises(ValueError, match=f"waves need several inputs, .* for {table.shape[1]} inputs"):
            resolved(Config(waves=given), table, y)
    for wrong in ("all", (1, 2), ((1, "2"),), ((np.nan, 1.0),), [[1, 2]]):
        with pytest.raises(ValueError, match="waves must be 'auto' or cycles"):
            Config(waves=wrong).validate()


@pytest.mark.parametrize("method", ["id-dgp", "vff", "svgp"])
def test_a_fit_follows_the_wave_and_is_saved(method, tmp_path):
    y = wave(10.3, 0, 8.4, 0) + X[:, 1] + 0.1 * NOISE
    model = DeepGPRegressor(method=method, max_steps=150).fit(X[:2500], y[:2500])
    assert model.score(X[2500:], y[2500:]) > 0.95
    model.save(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(load(tmp_path / "model.safetensors").predict(X[:50]), model.predict(X[:50]))
