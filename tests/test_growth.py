"""Models that turn out too small in training get more frequencies and go on; noise is tested on held-out rows."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad

from overtone.build import build, enlarged
from overtone.config import Config
from overtone.decide import larger
from overtone.diagnostics import residual_fraction, share_beyond
from overtone.fit import History
from overtone.likelihoods import FlexibleNoise
from overtone.params import Positive, unwrap
from overtone.sklearn import DeepGPRegressor, load
from overtone.spectrum import matern_density
from overtone.train import Data, Stage, _with_tested_noise, held_out_density

RNG = np.random.default_rng(0)
X = RNG.uniform(size=(2500, 2))
Y = np.sin(2 * np.pi * 2 * X.sum(axis=1)) + 0.1 * RNG.standard_normal(2500)
KEY = jax.random.key(0)


@pytest.mark.parametrize("kernel", ["matern12", "matern32", "matern52"])
def test_the_share_beyond_is_an_integral_of_the_spectral_density_and_about_the_residual(x64, kernel):
    lengthscale, num = 0.02, 30
    config = Config("vff", n_inducing=num, kernel=kernel, interval=(0.0, 1.0), dtype="float64", n_projections=2)
    model = build(config, X, Y[:, None])
    short = Positive(np.full(2, lengthscale))
    model = eqx.tree_at(lambda m: m.layers[0].kernel.parts.lengthscale, model, short)
    order = model.layers[0].features.parts.order
    beyond = quad(lambda w: matern_density(np.array([w]), lengthscale, order)[0] / np.pi, 2 * np.pi * num, np.inf)[0]
    assert share_beyond(model.layers[0]) == pytest.approx(beyond, rel=1e-6)
    (residual,) = residual_fraction(model, KEY, jnp.asarray(X))
    assert 0.8 * beyond < float(residual) < 1.2 * beyond


@pytest.mark.parametrize("covariance", ["block", "low-rank", "mean-field"])
def test_an_enlarged_model_starts_as_the_functions_of_the_trained_one(x64, covariance):
    """But for what the waves leave of the states at the far ends, whose variables are 0 here."""
    settings = {"hidden_width": 3, "dtype": "float64", "likelihood": "flexible", "fine_inputs": (1,)}
    config = Config(n_inducing=4, covariance=covariance, **settings)
    small, large = (build(Config(**{**vars(config), "n_inducing": n}), X[:99], Y[:99, None]) for n in (4, 11))
    rng, ends = np.random.default_rng(1), small.layers[0].features.parts.order + 1
    trained = jax.tree.map(lambda leaf: leaf + 0.1 * rng.normal(size=leaf.shape) if leaf.ndim < 4 else leaf, small)
    weight = 0.1 * rng.normal(size=small.likelihood.weight.shape)
    weight.reshape(-1, small.layers[-1].features.parts.num_features)[:, -ends:] = 0
    means = trained.layers[0].q.mean.at[..., -ends:].set(0)
    trained = eqx.tree_at(lambda m: (m.layers[0].q.mean, m.likelihood.weight), trained, (means, jnp.asarray(weight)))
    start = enlarged(large, trained)
    assert start.layers[0].features.parts.num_frequencies == 11

    def seen(model):
        model = unwrap(model)
        draws = [jnp.zeros((1, 99, width)) for width in model.hidden_widths]
        inputs, _, _ = model.propagate(draws, jnp.asarray(X[:99]))[-1]
        return inputs, *jax.tree.leaves(model.likelihood_at(inputs))

    for ours, theirs in zip(seen(start), seen(trained), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
    q, old = (unwrap(model).layers[0].q for model in (start, trained))
    assert float(q.kl()) > float(old.kl())
    if covariance == "block":
        assert np.all(np.triu(np.moveaxis(np.asarray(q.unit), 2, 1), 1) == 0)


def test_only_frequencies_that_were_left_to_the_data_grow_and_only_as_many_as_are_affordable():
    config, table = Config(n_inducing=6, output="natural"), np.zeros((1, 12))
    assert larger(config, np.zeros((1, 2))).n_inducing == 18
    assert larger(config, table).n_inducing == 17  # 25 directions, 1,000 features
    for stays in (Config(n_inducing=6, output="adam"), Config("dgp", n_inducing=6), Config(n_inducing=60)):
        assert larger(stays, table) == stays
    assert larger(config, np.zeros((1, 1))) == config


def test_a_model_that_is_too_small_goes_on_with_more_frequencies(monkeypatch, tmp_path):
    monkeypatch.setattr("overtone.train.MOST_BEYOND", 0.0)
    settings = {"method": "vff", "max_steps": 400, "likelihood": "gaussian"}
    model = DeepGPRegressor(**settings).fit(X, Y, checkpoint=tmp_path)
    assert model.config_.n_inducing == 3 * 6
    assert unwrap(model.model_).layers[0].features.parts.num_frequencies == 3 * 6
    assert len(model.history_.loss) == 300  # of the second part: a quarter of the steps were the first
    again = DeepGPRegressor(**settings).fit(X, Y, checkpoint=tmp_path)  # from the files of both parts
    model.save(tmp_path / "model.safetensors")
    read = load(tmp_path / "model.safetensors")
    for other in (again, read):
        np.testing.assert_array_equal(other.predict(X[:50]), model.predict(X[:50]))
    given = DeepGPRegressor(**settings, n_inducing=6).fit(X, Y)
    assert given.config_.n_inducing == 6
    assert model.score(X, Y) > given.score(X, Y) - 0.01


def test_flexible_noise_becomes_as_large_as_held_out_rows_say(x64):
    y = RNG.standard_normal((2500, 1))
    model = build(Config("vff", n_inducing=4, dtype="float64", likelihood="flexible"), X, y)
    same = jnp.zeros_like(model.likelihood.base).at[2].set(np.log(0.5))
    sure = eqx.tree_at(lambda q: q.log_diag, model.layers[0].q, jnp.full_like(model.layers[0].q.log_diag, -9.0))
    tiny = eqx.tree_at(lambda k: k.parts.variance.log, model.layers[0].kernel, jnp.full(5, -20.0))
    model = eqx.tree_at(lambda m: (m.layers[0].q, m.layers[0].kernel, m.likelihood.base), model, (sure, tiny, same))
    rows = np.arange(2500)
    data = Data(X, y, rows[:1500], rows[1500:])
    found = _with_tested_noise(Stage(Config(), model, KEY, History(np.zeros(0), 0.0)), data)
    assert isinstance(found.likelihood, FlexibleNoise)
    assert float(found.likelihood.usual_noise[0]) == pytest.approx(np.mean(y[1500:] ** 2), rel=0.03)
    before, after = (held_out_density(m, KEY, X[1500:], y[1500:]) for m in (model, found))
    assert after > before + 0.05


@pytest.mark.parametrize(("output", "differ"), [("natural", True), ("adam", False)])
def test_rows_that_are_seen_very_often_have_two_cycles(monkeypatch, output, differ):
    settings = {"method": "vff", "max_steps": 40, "n_inducing": 4, "likelihood": "gaussian", "output": output}
    one = DeepGPRegressor(**settings).fit(X, Y)
    monkeypatch.setattr("overtone.train.MANY_PASSES", 0)
    two = DeepGPRegressor(**settings).fit(X, Y)
    assert (not np.array_equal(one.history_.loss, two.history_.loss)) == differ
