"""What is left to the data, and the whole way from a config to a fitted model."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from overtone.build import build, deepened, num_features
from overtone.config import Config
from overtone.decide import TooFewFrequenciesWarning, resolved
from overtone.model import elbo, layer_marginals
from overtone.natural import OutputMemory, natural_elbo, site_sums
from overtone.params import unwrap
from overtone.sklearn import DeepGPRegressor
from overtone.train import (
    ADDED_WEIGHT,
    ANNEALED,
    _hold_out,
    held_out_density,
    negative_natural,
)

RNG = np.random.default_rng(0)
SERIES = np.linspace(0, 1, 600)[:, None]
WAVES = np.sin(2 * np.pi * 40 * SERIES)
TABLE = RNG.uniform(size=(3000, 4))
KEY = jax.random.key(0)


def test_a_series_decides_its_frequencies_and_a_short_one_is_fitted_in_closed_form():
    config = resolved(Config(), SERIES, WAVES)
    assert 40 < config.n_inducing < 80
    assert (config.output, config.likelihood, config.covariance) == ("collapsed", "gaussian", "block")
    assert config.chooses_depth
    long = np.linspace(0, 1, 2000)[:, None]
    many = resolved(Config(), long, np.sin(2 * np.pi * 150 * long))
    assert many.n_inducing > 150
    assert many.num_layers == 1
    jumps = np.where(np.floor(10 * SERIES) % 2, 1.0, -1.0)
    steps = resolved(Config(), SERIES, jumps)
    assert steps.n_inducing > 100
    assert steps.chooses_depth  # a jump has many frequencies, and depth is what it needs


def test_a_table_gets_two_layers_natural_gradients_and_flexible_noise():
    config = resolved(Config(), TABLE, TABLE[:, :1])
    assert (config.n_layers, config.output, config.likelihood) == (2, "natural", "flexible")
    wide = resolved(Config(), RNG.uniform(size=(3000, 30)), TABLE[:, :1])
    assert wide.covariance == "mean-field"
    assert wide.n_inducing < 10


@pytest.mark.parametrize(("inputs", "units"), [(2, 8), (4, 16), (5, 16), (7, 13), (9, 10), (30, 10)])
def test_hidden_layers_have_as_many_units_as_can_have_full_covariances(inputs, units):
    config = resolved(Config(), RNG.uniform(size=(300, inputs)), TABLE[:300, :1])
    assert config.hidden_width == units
    assert config.covariance == ("block" if (2 * inputs + 1) * units <= 200 else "mean-field")
    for other in (Config("dgp"), Config(preset="paper")):
        assert resolved(other, RNG.uniform(size=(300, inputs)), TABLE[:300, :1]).hidden_width == min(inputs, 10)
    assert num_features(config, inputs) <= 1000  # of the output layer, which pays for wide layers


def test_the_paper_and_inducing_points_keep_to_the_book():
    paper = resolved(Config(preset="paper"), TABLE, TABLE[:, :1])
    assert (paper.output, paper.likelihood, paper.num_layers) == ("adam", "gaussian", 2)
    assert not paper.chooses_depth
    assert resolved(Config(method="svgp"), TABLE, TABLE[:, :1]).n_inducing == 100


def test_settings_that_are_given_stay():
    chosen = {
        "output": "adam",
        "likelihood": "gaussian",
        "covariance": "joint",
        "fine_inputs": (),
        "waves": (),
        "band_limited": "no",
        "hidden_width": 2,
    }
    given = Config(n_inducing=7, n_layers=3, **chosen)
    assert resolved(given, SERIES, np.zeros_like(WAVES)) == given


def test_far_too_few_frequencies_are_worth_a_sentence():
    with pytest.warns(TooFewFrequenciesWarning, match="n_inducing=3 frequencies are far too few .* ask for about"):
        resolved(Config(n_inducing=3), SERIES, WAVES)


def test_flexible_noise_has_no_closed_form():
    with pytest.raises(ValueError, match="output='collapsed' needs likelihood='gaussian'"):
        resolved(Config(output="collapsed", likelihood="flexible"), TABLE, TABLE[:, :1])


def test_a_deep_model_that_starts_from_a_shallow_one_is_nearly_the_same_function(x64):
    """Its hidden layer starts as a copy of the inputs."""
    settings = {
        "n_inducing": 6,
        "dtype": "float64",
        "likelihood": "gaussian",
        "interval": (-0.5, 1.5),
        "n_projections": 9,
        "hidden_width": 4,
    }
    X, y = TABLE[:50], TABLE[:50, :1] * TABLE[:50, 1:2]
    shallow, deep = (build(Config(method, **settings), X, y) for method in ("vff", "id-dgp"))
    rng = np.random.default_rng(1)
    shallow = jax.tree.map(lambda leaf: leaf + 0.1 * rng.normal(size=leaf.shape) if leaf.ndim < 3 else leaf, shallow)
    deep = deepened(deep, shallow)
    for get in (lambda layer: layer.kernel, lambda layer: layer.projection):
        for a, b in zip(*(jax.tree.leaves(get(m.layers[-1])) for m in (deep, shallow)), strict=True):
            np.testing.assert_array_equal(a, b)
    hidden = layer_marginals(deep, KEY, jnp.asarray(X), num_samples=1)[0]
    np.testing.assert_allclose(hidden.mean(), unwrap(deep).layers[0].scaling(X), atol=1e-6)


@pytest.mark.parametrize("likelihood", ["gaussian", "flexible"])
def test_sums_over_sites_are_those_of_a_step_over_all_rows(x64, likelihood):
    """From the prior on, both see the same q, and so the same sites."""
    config = Config("vff", n_inducing=4, dtype="float64", likelihood=likelihood)
    X, y = jnp.asarray(TABLE[:60]), jnp.asarray(TABLE[:60, :1] ** 2)
    model = build(config, TABLE[:60], np.asarray(y))
    bound, memory = natural_elbo(model, OutputMemory.start(model), KEY, X, y, num_data=60)
    assert float(bound) == pytest.approx(float(elbo(model, KEY, X, y, num_data=60)), rel=1e-8)
    gram, projected = site_sums(model, KEY, X, y, jnp.ones(60), 1)
    np.testing.assert_allclose(memory.gram, gram, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(memory.projected, projected, rtol=1e-7, atol=1e-9)


def test_flexible_noise_finds_two_branches_where_one_gaussian_cannot():
    """y is +x or -x at random: no mean says anything, but a mixture of two does."""
    x = RNG.uniform(0.5, 2, size=(3000, 2))
    y = x[:, 0] * RNG.choice([-1.0, 1.0], 3000) + 0.05 * RNG.standard_normal(3000)
    density = {
        likelihood: DeepGPRegressor("vff", likelihood=likelihood, output="natural", max_steps=300, n_inducing=4)
        .fit(x[:2500], y[:2500])
        .log_predictive_density(x[2500:], y[2500:])
        .mean()
        for likelihood in ("gaussian", "flexible")
    }
    assert density["flexible"] > density["gaussian"] + 0.5


def test_so_many_rows_are_not_gone_through_again(monkeypatch):
    """A time limit must hold for millions of rows too: there, q(v) is the one that natural gradients followed."""
    monkeypatch.setattr("overtone.train.MOST_FINISH_ROWS", 2000)
    monkeypatch.setattr("overtone.train._all_sums", None)
    model = DeepGPRegressor("vff", output="natural", max_steps=200, n_inducing=4).fit(TABLE, TABLE[:, 0] ** 2)
    assert model.score(TABLE, TABLE[:, 0] ** 2) > 0.95


def test_a_time_limit_includes_the_whole_fit_and_config_says_what_was_chosen():
    y = WAVES[:, 0] + 0.1 * RNG.standard_normal(600)
    model = DeepGPRegressor(max_time=20).fit(SERIES, y)
    assert model.history_.seconds < 60
    assert model.config_.n_inducing > 40
    assert model.score(SERIES, y) > 0.95


def test_rows_that_tell_when_to_stop_are_the_last_ones_if_later_rows_are_to_be_predicted():
    rows, held_out = _hold_out(Config(held_out="last"), 3000)
    np.testing.assert_array_equal(np.concatenate([rows, held_out]), np.arange(3000))
    assert len(held_out) == 300
    rows, held_out = _hold_out(Config(), 3000)
    assert held_out.min() < 300
    assert rows.max() > 2900
    np.testing.assert_array_equal(np.sort(np.concatenate([rows, held_out])), np.arange(3000))


def test_the_divergence_of_hidden_layers_counts_little_at_first_and_that_of_fine_structure_always(x64):
    config = Config(n_inducing=4, n_layers=3, hidden_width=2, dtype="float64", fine_inputs=(0,), pairs=((0, 1),))
    model = build(config, TABLE[:50], TABLE[:50, :1])
    batch, memory = (jnp.asarray(TABLE[:50]), jnp.asarray(TABLE[:50, :1])), OutputMemory.start(model)
    first, second, _ = unwrap(model).layers
    hidden, added = float(first.q.kl() + second.kl()) / 500, float(first.added.kl()) / 500
    left = hidden + ADDED_WEIGHT * added

    def shortfall(step: int) -> float:
        at = eqx.tree_at(lambda m: m.step, memory, jnp.asarray(step))
        loss, _ = negative_natural(model, at, KEY, *batch, num_data=500, num_samples=1)
        return -float(natural_elbo(model, at, KEY, *batch, num_data=500)[0]) / 500 - float(loss)

    assert min(hidden, added, 1 - ADDED_WEIGHT) > 0.01
    assert [shortfall(step) for step in (0, ANNEALED // 4, ANNEALED, 2 * ANNEALED)] == pytest.approx(
        [hidden + added - share * left for share in (0, 0.25, 1, 1)], rel=1e-9
    )


def test_a_model_without_finite_densities_has_no_finite_score():
    """Missing targets are left out of a score; densities that are missing must not be."""
    with jax.enable_x64(True):
        model = build(Config(method="vff", n_inducing=4), SERIES, WAVES)
        holes = np.where(np.arange(600)[:, None] % 3 == 0, np.nan, WAVES)
        assert np.isfinite(held_out_density(model, KEY, SERIES, holes))
        broken = eqx.tree_at(lambda m: m.layers[0].q.mean, model, jnp.full_like(model.layers[0].q.mean, jnp.nan))
        assert np.isnan(held_out_density(broken, KEY, SERIES, holes))
