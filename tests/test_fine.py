"""Inputs with fine structure: are they found, and does the first layer follow them?"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from overtone.autopilot.config import Config
from overtone.autopilot.fine import fine_inputs, fine_share, left_by_lines
from overtone.autopilot.policies import FINE
from overtone.gp.layers import SumOfLayers
from overtone.gp.pathwise import draw_path
from overtone.numerics.params import unwrap
from overtone.sklearn import DeepGPRegressor
from tests.planned import built, planned
from tests.posteriors import shaken

RNG = np.random.default_rng(0)
PLACES, LEVELS = RNG.uniform(size=300), RNG.standard_normal(300)  # a column that tells groups of rows apart
GROUP = RNG.integers(300, size=4000)
TABLE = np.column_stack([RNG.uniform(size=4000), PLACES[GROUP], RNG.uniform(size=4000)])
SMOOTH = np.sin(4 * TABLE[:, 0]) + TABLE[:, 2]
TARGET = SMOOTH + LEVELS[GROUP] * (1 + TABLE[:, 0]) + 0.1 * RNG.standard_normal(4000)


def test_the_column_with_fine_structure_is_found_and_no_other():
    assert fine_inputs(TABLE, TARGET[:, None]) == (1,)
    assert fine_inputs(TABLE, np.column_stack([SMOOTH, TARGET])) == (1,)
    assert fine_inputs(TABLE, np.where(RNG.uniform(size=4000) < 0.1, np.nan, TARGET)[:, None]) == (1,)
    assert fine_inputs(TABLE, SMOOTH[:, None]) == ()
    assert fine_inputs(TABLE, RNG.standard_normal((4000, 1))) == ()
    assert fine_inputs(TABLE[:1000], TARGET[:1000, None]) == ()  # too few rows to be sure


def test_fine_structure_along_many_inputs_is_that_of_inputs_that_depend_on_each_other():
    several = np.column_stack([TABLE[:, 0], *[TABLE[:, 1] + 0.01 * k for k in range(FINE.max_inputs)]])
    assert fine_inputs(several, TARGET[:, None]) == tuple(range(1, FINE.max_inputs + 1))
    assert fine_inputs(np.column_stack([several, -TABLE[:, 1]]), TARGET[:, None]) == ()


def test_interactions_do_not_hide_fine_structure():
    """Lines leave so much that the column's share of it is small; random waves do not."""
    hidden = 3 * np.sin(9 * TABLE[:, 0]) * np.cos(9 * TABLE[:, 2]) + 0.5 * LEVELS[GROUP]
    noise = 0.1 * RNG.standard_normal(4000)
    lines = np.linalg.qr(np.column_stack([np.ones(4000), TABLE]))[0]
    assert fine_share(TABLE[:, 1], left_by_lines(lines, TABLE[:, 1], hidden + noise)) < FINE.share_of_lines
    assert fine_inputs(TABLE, (hidden + noise)[:, None]) == (1,)
    assert fine_inputs(TABLE, (hidden - 0.5 * LEVELS[GROUP] + noise)[:, None]) == ()


def test_constant_columns_and_targets_are_no_reason_to_fail():
    table = np.column_stack([TABLE[:, 1], np.ones(4000), np.r_[1e9, np.zeros(3999)]])
    assert fine_inputs(table, np.ones((4000, 1))) == ()
    assert fine_inputs(table, np.full((4000, 1), np.nan)) == ()
    assert fine_inputs(table, table[:, :1]) == ()


def test_only_pinned_features_below_another_layer_have_them():
    Y = TARGET[:, None]
    assert planned(TABLE, Y).fine_inputs == (1,)
    for other in ({"method": "vff"}, {"method": "dgp"}, {"preset": "paper"}, {"n_layers": 1}):
        assert planned(TABLE, Y, **other).fine_inputs == ()
    with pytest.raises(ValueError, match="fine_inputs must be from 0 to 2; got"):
        planned(TABLE, Y, fine_inputs=(3,))
    for odd in ("all", [0], (0.5,), 0):
        with pytest.raises(ValueError, match="fine_inputs must be a tuple of numbers of inputs, or 'auto'; got"):
            Config(fine_inputs=odd).validate()


@pytest.fixture
def layer(x64):
    """With q(v) at the prior, so that the layer is the prior process, whose covariance is known."""
    settings = {"n_layers": 2, "n_inducing": 4, "dtype": "float64", "hidden_width": 2}
    layer = unwrap(built(TABLE[:50], TARGET[:50, None], fine_inputs=(1, 2), **settings)).layers[0]

    def at_prior(part):
        q = type(part.q).start(part.q.mean.shape, 1.0, np.dtype("float64"))
        return eqx.tree_at(lambda each: each.q, part, unwrap(q))

    return SumOfLayers(tuple(at_prior(part) for part in layer.parts))


def _matern32(x: np.ndarray, variance, lengthscale) -> np.ndarray:
    r = np.sqrt(3) * np.abs(x[:, None] - x) / lengthscale
    return variance * (1 + r) * np.exp(-r)


def _covariance(layer, X: np.ndarray) -> np.ndarray:
    """Of the sum of all processes, from the formula of the kernel."""
    parts, fine = (part.kernel.parts for part in layer.parts)
    Z = (X - layer.main.scaling.shift) / layer.main.scaling.scale
    H = 0.5 + (Z - 0.5) @ layer.main.projection.weight
    each = zip(
        (*H.T, Z[:, 1], Z[:, 2]),
        np.r_[parts.variance, fine.variance],
        np.r_[parts.lengthscale.ravel(), fine.lengthscale.ravel()],
        strict=True,
    )
    return sum(_matern32(np.asarray(x), *of_kernel) for x, *of_kernel in each)


def at(layer, X):
    """Return the layer's means and variances."""
    return map(np.asarray, eqx.filter_jit(type(layer).__call__)(layer, jnp.asarray(X)))


def many(draw, num):
    """Return draws of many keys, by a program that is optimised: its run takes longer than its compilation."""
    keys = jax.random.split(jax.random.key(0), num)
    options = {"xla_backend_optimization_level": 2}
    return np.asarray(jax.jit(lambda keys: jax.lax.map(draw, keys, batch_size=100), compiler_options=options)(keys))


def test_a_layer_at_its_prior_is_the_sum_of_all_processes(layer):
    X = TABLE[:6]
    K = _covariance(layer, X)
    mean, var = at(layer, X)
    np.testing.assert_allclose(mean, layer.main.mean_function(layer.main.scaling(X)), atol=1e-9)
    np.testing.assert_allclose(var, np.repeat(np.diag(K)[:, None], 2, axis=1) + layer.main.noise, rtol=1e-6)
    assert float(layer.kl()) == pytest.approx(0, abs=1e-6)
    draws = {
        "path": lambda key: draw_path(layer, key, prior=False)(layer, jnp.asarray(X)),
        "rows": lambda key: layer.draw_prior(key, jnp.asarray(X)),
    }
    for draw in draws.values():
        values = many(draw, 4000) - mean
        found = np.einsum("sip,sjp->ij", values, values) / (2 * len(values))
        np.testing.assert_allclose(found, K, atol=6 * np.max(K) / np.sqrt(2 * len(values)))


@pytest.fixture
def shaken_sum(layer):
    """A sum whose posteriors are any."""
    rng = np.random.default_rng(3)
    return SumOfLayers(tuple(eqx.tree_at(lambda each: each.q, part, shaken(part.q, 0.3, rng)) for part in layer.parts))


def test_moments_and_divergence_of_a_sum_are_those_of_its_parts(shaken_sum):
    X = jnp.asarray(TABLE[:6])
    means, variances = zip(*(at(part, X) for part in shaken_sum.parts), strict=True)
    mean, var = at(shaken_sum, X)
    np.testing.assert_allclose(mean, means[0] + means[1], rtol=1e-12)
    np.testing.assert_allclose(var, variances[0] + variances[1], rtol=1e-12)
    first, second = (float(part.kl()) for part in shaken_sum.parts)
    assert min(first, second) > 1
    for weight in (0.0, 0.2, 1.0):
        assert float(shaken_sum.kl(weight)) == pytest.approx(first + weight * second, rel=1e-12)
    assert float(shaken_sum.kl()) == pytest.approx(first + second, rel=1e-12)
    assert (shaken_sum.num_outputs, shaken_sum.main) == (2, shaken_sum.parts[0])


def test_only_the_first_part_of_a_sum_has_a_mean_and_noise(shaken_sum):
    first, second = shaken_sum.parts
    assert float(first.noise) > 0
    assert float(second.noise) == 0
    assert not np.any(second.mean_function(jnp.asarray(TABLE[:6])))
    noisy = shaken_sum.with_noise(jnp.asarray(0.5))
    assert (float(noisy.parts[0].noise), float(noisy.parts[1].noise)) == (0.5, 0.0)
    (_, before), (_, after) = at(shaken_sum, TABLE[:6]), at(noisy, TABLE[:6])
    np.testing.assert_allclose(after - before, 0.5 - first.noise, rtol=1e-9)


def test_draws_of_a_sum_have_its_moments(shaken_sum):
    """By rows and as whole functions; covariances between rows are the sums of those of the parts."""
    X, num = jnp.asarray(TABLE[:6]), 4000
    mean, var = at(shaken_sum, X)
    draws = {
        "path": lambda key: draw_path(shaken_sum, key, prior=False)(shaken_sum, X),
        "rows": lambda key: shaken_sum.draw(*jax.random.split(key), X),
    }
    for draw in draws.values():
        values = many(draw, num)
        assert np.all(np.abs(values.mean(axis=0) - mean) < 5 * np.sqrt(var / num))
        np.testing.assert_allclose(values.var(axis=0), var, rtol=6 * (2 / num) ** 0.5)


def test_fine_structure_is_followed_and_saved(tmp_path):
    train, test = slice(0, 3500), slice(3500, None)
    settings = {"n_inducing": 4, "hidden_width": 2, "max_steps": 150, "neighbours": "no"}  # they would know it too
    fitted = DeepGPRegressor(**settings).fit(TABLE[train], TARGET[train])
    without = DeepGPRegressor(**settings, fine_inputs=()).fit(TABLE[train], TARGET[train])
    assert fitted.score(TABLE[test], TARGET[test]) > without.score(TABLE[test], TARGET[test]) + 0.2
    fitted.save(tmp_path / "model.safetensors")
    again = DeepGPRegressor.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict(TABLE[test]), fitted.predict(TABLE[test]))
