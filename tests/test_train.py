"""The whole way from a config to a fitted model."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import overtone as ot
from overtone.autopilot.build import build, deepened, objective
from overtone.autopilot.exact import fit_exact
from overtone.autopilot.held_out import held_out_density, hold_out, with_tested_noise
from overtone.autopilot.policies import FINE, OBJECTIVE
from overtone.autopilot.train import Parts, train
from overtone.gp.likelihoods import FlexibleNoise
from overtone.gp.maps import standardise
from overtone.gp.model import elbo, layer_marginals
from overtone.inference.natural import NaturalGradient, OutputMemory
from overtone.inference.objective import KLWeights, Rows
from overtone.inference.output_layer import site_sums
from overtone.numerics.params import unwrap
from overtone.sklearn import DeepGPRegressor
from tests.planned import SERIES, TABLE, WAVES, built, planned

RNG = np.random.default_rng(1)
KEY = jax.random.key(0)


@pytest.mark.usefixtures("x64")
def test_the_trend_of_a_series_goes_on_and_intervals_cover_what_comes():
    """A line, a season of 12 rows and noise: what is to be predicted are 30 later rows, in standardised units."""
    x = np.arange(150.0)[:, None]
    line = 0.06 * x
    y = line + np.sin(2 * np.pi * x / 12) + 0.2 * RNG.standard_normal(x.shape)
    shift, scale = y[:120].mean(), y[:120].std()
    X, Y, line = x / 119, (y - shift) / scale, (line[:, 0] - shift) / scale
    model = train(replace(planned(X[:120], Y[:120]), depths=(1,)), X[:120], Y[:120]).model
    found = ot.predict(model, np.concatenate([X, [[50.0]]]), key=KEY)
    mean, std = np.asarray(found.mean())[:, 0], np.asarray(found.std())[:, 0]
    assert np.mean(np.abs(Y[120:, 0] - mean[120:150]) < 1.96 * std[120:150]) > 0.8
    later = slice(126, 150)  # two seasons, whose waves cancel
    np.testing.assert_allclose(mean[later].mean(), line[later].mean(), atol=0.5 * np.ptp(line[119:150]))
    assert mean[138:150].mean() - mean[126:138].mean() > 0.5 * (line[138] - line[126])
    # Far away nothing is left but the line, whose weight the rows have not said for sure, and the prior's variance.
    kernel, noise = unwrap(model).output.kernel, unwrap(model.likelihood).noise
    assert std[-1] ** 2 > 0.99 * float(sum(part.variance for part in kernel.parts[::2]) + noise[0])


@pytest.mark.parametrize("method", ["vff", "svgp"])
def test_the_paper_s_shallow_models_reach_the_maximum_of_their_bound(method):
    """L-BFGS over all rows: no neighbouring lengthscale, variance or noise has a higher bound."""
    X, y, settings = SERIES, np.sin(12 * SERIES) + 0.1 * RNG.standard_normal(SERIES.shape), {"n_inducing": 10}
    plan = planned(X, y, method, preset="paper", **settings)
    assert (plan.output, plan.optimiser, plan.calibrated, plan.held_out) == ("collapsed", "l-bfgs", False, 0)
    assert planned(X, y, method, preset="paper", output="adam", **settings).optimiser == "plain adam"
    history = train(plan, X, y).history
    assert len(history.loss) < 200
    by_adam = train(replace(plan, optimiser="adam", steps=400), X, y).history
    assert history.loss.min() < by_adam.loss.min() + 1e-3


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
    shallow, deep = (built(X, y, method, **settings) for method in ("vff", "id-dgp"))
    rng = np.random.default_rng(1)
    shallow = jax.tree.map(lambda leaf: leaf + 0.1 * rng.normal(size=leaf.shape) if leaf.ndim < 3 else leaf, shallow)
    deep = deepened(deep, shallow)
    for get in (lambda layer: layer.kernel, lambda layer: layer.projection):
        for a, b in zip(*(jax.tree.leaves(get(m.layers[-1])) for m in (deep, shallow)), strict=True):
            np.testing.assert_array_equal(a, b)
    hidden = eqx.filter_jit(layer_marginals)(deep, KEY, jnp.asarray(X), num_samples=1)[0]
    np.testing.assert_allclose(hidden.mean(), unwrap(deep).layers[0].scaling(X), atol=1e-6)


@pytest.mark.parametrize("likelihood", ["gaussian", "flexible"])
def test_sums_over_sites_are_those_of_a_step_over_all_rows(x64, likelihood):
    """From the prior on, both see the same q, and so the same sites."""
    X, y = jnp.asarray(TABLE[:60]), jnp.asarray(TABLE[:60, :1] ** 2)
    model = built(TABLE[:60], np.asarray(y), "vff", n_inducing=4, dtype="float64", likelihood=likelihood)
    loss, memory = eqx.filter_jit(NaturalGradient().loss)(model, OutputMemory.start(model, 60), KEY, Rows(X, y))
    bound = eqx.filter_jit(elbo)(model, KEY, X, y, num_data=60)
    assert -60 * float(loss) == pytest.approx(float(bound), rel=1e-8)
    gram, projected = eqx.filter_jit(site_sums)(model, KEY, X, y, jnp.ones(60), 1)
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


def test_of_very_many_rows_a_part_is_gone_through_and_counts_for_no_more_than_it_is():
    """The mean is then within a few of q's own standard deviations of the best one, which knows all rows."""
    X, y = (part.astype(np.float32) for part in (TABLE, standardise(TABLE[:, :1] ** 2)(TABLE[:, :1] ** 2)))
    y = y + np.random.default_rng(0).standard_normal(y.shape).astype(np.float32)  # whatever tests ran before
    # After 300 steps the noise is found, without which q's own standard deviations say little.
    plan = planned(X, y, "vff", output="natural", likelihood="gaussian", max_steps=300, n_inducing=4)

    def trained(finish_rows):
        parts = Parts(objective=lambda plan: NaturalGradient(plan.num_samples, finish_rows=finish_rows))
        return train(plan, X, y, parts=parts)[0]

    whole, part = trained(10_000), trained(300)
    with jax.enable_x64(True):
        layers = [unwrap(model).output for model in (part, whole)]
        (mean, var), (best, least) = (map(np.asarray, eqx.filter_jit(layer)(jnp.asarray(X))) for layer in layers)
    assert np.mean(var) > 3 * np.mean(least)
    assert np.mean((mean - best) ** 2 / var) < 2


def test_a_time_limit_includes_the_whole_fit_and_config_says_what_was_chosen():
    y = WAVES[:, 0] + 0.1 * RNG.standard_normal(600)
    model = DeepGPRegressor(max_time=20).fit(SERIES, y)
    assert model.history_.seconds < 60
    assert model.plan_.num_inducing > 40
    assert model.score(SERIES, y) > 0.95


def test_an_exact_gp_of_a_series_starts_from_the_waves_of_its_spectrum(x64):
    y = WAVES + 0.1 * np.random.default_rng(1).standard_normal((600, 1))
    fitted, _ = fit_exact(planned(SERIES, y), Rows(SERIES, y), KEY, lambda: False)
    mean = np.asarray(ot.predict(fitted.model, SERIES, key=KEY).mean())
    assert np.mean((mean - WAVES) ** 2) < 0.005  # half of the noise


def test_rows_that_tell_when_to_stop_are_the_last_ones_if_later_rows_are_to_be_predicted():
    held_out = hold_out(planned(TABLE, TABLE[:, :1], held_out="last"), 3000)
    np.testing.assert_array_equal(held_out, np.arange(2700, 3000))
    held_out = hold_out(planned(TABLE, TABLE[:, :1]), 3000)
    assert len(np.unique(held_out)) == 300
    assert held_out.min() < 300
    assert held_out.max() < 3000
    assert np.sum(held_out >= 2700) < 60


def test_the_divergence_of_hidden_layers_counts_little_at_first_and_that_of_fine_structure_always(x64):
    settings = {"n_inducing": 4, "n_layers": 3, "hidden_width": 2, "fine_inputs": (0,), "output": "natural"}
    plan = planned(TABLE[:50], TABLE[:50, :1], dtype="float64", likelihood="gaussian", **settings)
    model = build(plan, TABLE[:50], TABLE[:50, :1])
    batch, memory = Rows(jnp.asarray(TABLE[:50]), jnp.asarray(TABLE[:50, :1])), OutputMemory.start(model, 500)
    first, second, _ = unwrap(model).layers
    hidden, added = float(first.main.kl() + second.kl()) / 500, float(first.parts[1].kl()) / 500
    weight, annealed = FINE.kl_weight, OBJECTIVE.anneal_steps
    left = hidden + weight * added
    assert objective(plan).kl == KLWeights(annealed, weight)

    @eqx.filter_jit
    def losses(step):
        at = eqx.tree_at(lambda m: m.step, memory, step)
        return NaturalGradient().loss(model, at, KEY, batch)[0], objective(plan).loss(model, at, KEY, batch)[0]

    def shortfall(step: int) -> float:
        bound, weighted = losses(jnp.asarray(step))
        return float(bound - weighted)

    assert min(hidden, added, 1 - weight) > 0.01
    assert [shortfall(step) for step in (0, annealed // 4, annealed, 2 * annealed)] == pytest.approx(
        [hidden + added - share * left for share in (0, 0.25, 1, 1)], rel=1e-9
    )


def test_flexible_noise_becomes_as_large_as_held_out_rows_say(x64):
    X, y = RNG.uniform(size=(2500, 2)), RNG.standard_normal((2500, 1))
    model = built(X, y, "vff", n_inducing=4, dtype="float64", likelihood="flexible")
    same = jnp.zeros_like(model.likelihood.base).at[2].set(np.log(0.5))
    sure = eqx.tree_at(lambda q: q.log_diag, model.layers[0].q, jnp.full_like(model.layers[0].q.log_diag, -9.0))
    tiny = eqx.tree_at(lambda k: k.parts.variance.log, model.layers[0].kernel, jnp.full(5, -20.0))
    model = eqx.tree_at(lambda m: (m.layers[0].q, m.layers[0].kernel, m.likelihood.base), model, (sure, tiny, same))
    held_out = Rows(X[1500:], y[1500:])
    found = with_tested_noise(model, KEY, held_out)
    assert isinstance(found.likelihood, FlexibleNoise)
    assert float(found.likelihood.usual_noise[0]) == pytest.approx(np.mean(y[1500:] ** 2), rel=0.03)
    before, after = (held_out_density(m, KEY, held_out) for m in (model, found))
    assert after > before + 0.05
    assert with_tested_noise(model, KEY, Rows(X[:0], y[:0])) is model
    gaussian = built(X, y, "vff", n_inducing=4, dtype="float64", likelihood="gaussian")
    assert with_tested_noise(gaussian, KEY, held_out) is gaussian


def test_a_model_without_finite_densities_has_no_finite_score():
    """Missing targets are left out of a score; densities that are missing must not be."""
    with jax.enable_x64(True):
        model = built(SERIES, WAVES, "vff", n_inducing=12)
        holes = np.where(np.arange(600)[:, None] % 3 == 0, np.nan, WAVES)
        assert np.isfinite(held_out_density(model, KEY, Rows(SERIES, holes)))
        broken = eqx.tree_at(lambda m: m.layers[0].q.mean, model, jnp.full_like(model.layers[0].q.mean, jnp.nan))
        assert np.isnan(held_out_density(broken, KEY, Rows(SERIES, holes)))
