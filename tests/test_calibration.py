"""The noise between layers, against dense linear algebra and on data where it matters."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from overtone.inference.calibration import held_out_densities, with_calibrated_noise
from overtone.inference.output_layer import statistics, with_optimal_output
from overtone.numerics.params import unwrap
from tests.planned import built

RNG = np.random.default_rng(0)
KEY = jax.random.key(0)
X = RNG.uniform(size=(24, 1))
Y = np.stack([np.sin(9 * X[:, 0]), X[:, 0]], axis=1) + 0.1 * RNG.standard_normal((24, 2))


def test_rows_left_out_have_the_density_of_a_model_that_has_not_seen_them(x64):
    """Against dense regression on the features of the other rows; three of 24 rows only fill up the parts."""
    model = built(X, Y, "vff", n_inducing=4, dtype="float64")
    rows = RNG.permutation(24).reshape(4, 6)
    weights = (rows < 21).astype(float)
    found = held_out_densities(model, KEY, X[rows], Y[rows], weights)
    (layer,), noise = unwrap(model).layers, np.asarray(unwrap(model).likelihood.noise)
    A = np.asarray(eqx.filter_jit(lambda: layer.features.whitened(layer.kernel, layer.at(jnp.asarray(X))[1]))())
    k = float(np.sum(unwrap(layer.kernel).parts.variance))
    for part, part_found in zip(rows, found, strict=True):
        seen = np.setdiff1d(np.arange(21), part)
        expected = np.zeros(len(part))
        for output in range(2):
            precision = np.eye(len(A)) + A[:, seen] @ A[:, seen].T / noise[output]
            mean = A[:, part].T @ np.linalg.solve(precision, A[:, seen] @ Y[seen, output] / noise[output])
            inner = np.sum(A[:, part] * np.linalg.solve(precision, A[:, part]), axis=0)
            var = k - np.sum(A[:, part] ** 2, axis=0) + inner + noise[output]
            expected += -0.5 * np.log(2 * np.pi * var) - 0.5 * (Y[part, output] - mean) ** 2 / var
        np.testing.assert_allclose(part_found, expected, rtol=1e-8)


def test_the_largest_noise_that_costs_little_is_taken(x64, monkeypatch):
    deep, seen = built(X, Y, n_inducing=4, n_layers=2, dtype="float64"), []

    def densities(model, key, X, y, weights):
        noise = float(unwrap(model.layers[0].noise))
        seen.append(noise)
        return np.full(weights.shape, 0.015 * (noise > 5e-4) - 0.03 * (noise > 2e-3) - (noise > 0.02))

    monkeypatch.setattr("overtone.inference.calibration.held_out_densities", densities)
    found = float(unwrap(with_calibrated_noise(deep, KEY, X, Y).layers[0].noise))
    assert 1e-3 < found < 2e-3
    assert found == max(noise for noise in seen if noise < 2e-3)
    seen.clear()
    with_calibrated_noise(deep, KEY, X, Y, seconds=-1.0)
    assert len(seen) == 1


def test_a_shallow_model_has_nothing_to_raise_and_a_deep_one_stays_below_its_scale(x64):
    shallow = built(X, Y, "vff", n_inducing=4, dtype="float64")
    assert with_calibrated_noise(shallow, KEY, X, Y) is shallow
    deep = built(X, Y, n_inducing=6, n_layers=2, dtype="float64")

    @eqx.filter_jit
    def trained(model):
        sums = statistics(model, KEY, jnp.asarray(X), jnp.asarray(Y), jnp.ones(24), num_samples=4)[:2]
        return with_optimal_output(model, *sums)

    deep = with_calibrated_noise(trained(deep), KEY, X, Y)
    assert float(unwrap(deep.layers[0].noise)) < 0.02  # the inputs of the next layer cover [0, 1]


@pytest.mark.parametrize("num", [7, 10, 23])
def test_every_row_counts_once(num, x64, monkeypatch):
    seen = []

    def densities(model, key, X, y, weights):
        seen.append((X[..., 0], weights))
        return -np.ones(weights.shape)

    monkeypatch.setattr("overtone.inference.calibration.held_out_densities", densities)
    deep = built(X, Y, n_inducing=4, n_layers=2, dtype="float64")
    numbers = np.arange(num, dtype=float)[:, None]
    with_calibrated_noise(deep, KEY, numbers, Y[:num])
    for values, weights in seen:
        np.testing.assert_array_equal(np.sort(values[weights > 0]), np.arange(num))
