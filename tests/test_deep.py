"""Two layers against brute-force Monte Carlo of the joint model, and what prediction promises."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from overtone.build import build
from overtone.config import Config
from overtone.diagnostics import outside_fraction, residual_fraction
from overtone.features import FourierFeatures
from overtone.model import DeepGP, draw, draw_prior, elbo, layer_marginals, predict, quasi_normal
from overtone.params import unwrap
from tests.posteriors import shaken

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
X = RNG.uniform(size=(6, 2))
Y = RNG.normal(size=(6, 1))
pytestmark = pytest.mark.usefixtures("x64")


def random_model(method: str, **settings) -> DeepGP:
    """A two-layer model whose q is far from its start."""
    config = Config(method=method, n_inducing=5, dtype="float64", **settings)
    model = unwrap(build(config, X, Y))
    rng = np.random.default_rng(1)

    def shake(layer):
        return eqx.tree_at(lambda la: la.q, layer, shaken(layer.q, 0.5, rng))

    return eqx.tree_at(lambda m: m.layers, model, tuple(shake(layer) for layer in model.layers))


def brute_force(model: DeepGP, num: int, seed: int) -> np.ndarray:
    """Joint draws of f(X) through the stack: v ~ q(v), then f | v at all rows from its full Gaussian conditional.

    The inputs of a layer differ from draw to draw, so each has its own dense conditional covariance K - A^T A.
    """
    rng = np.random.default_rng(seed)
    H = np.broadcast_to(X, (num, *X.shape))
    for layer in model.layers:
        Z, H = map(np.asarray, jax.vmap(layer.place)(jnp.asarray(H)))
        num_outputs = layer.num_outputs
        eps = rng.normal(size=(num, *layer.q.mean.shape))
        root = np.asarray(layer.q.unit) * np.exp(layer.q.log_diag)[:, None]
        v = np.asarray(layer.q.mean) + np.einsum("bmpk,sbpk->sbpm", root, eps)
        A, K = _covariances(layer, jnp.asarray(H))
        conditional = K - np.swapaxes(A, 1, 2) @ A + (float(layer.noise) + 1e-10) * np.eye(len(X))
        noise = np.linalg.cholesky(conditional) @ rng.normal(size=(num, len(X), num_outputs))
        H = (
            np.einsum("smn,spm->snp", A, np.swapaxes(v, 1, 2).reshape(num, num_outputs, -1))
            + noise
            + _means(layer, jnp.asarray(Z))
        )
    return H


@eqx.filter_jit
def _covariances(layer, H):
    return jax.vmap(lambda h: (layer.features.whitened(layer.kernel, h), layer.kernel.gram(h, h)))(H)


@eqx.filter_jit
def _means(layer, H):
    return jax.vmap(layer.mean_function)(H)


@pytest.mark.parametrize("method", ["id-dgp", "dgp"])
def test_two_layer_moments_agree_with_brute_force(method):
    model, num = random_model(method), 20_000
    draws = brute_force(model, num, seed=2)[:, :, 0]
    mixture = eqx.filter_jit(layer_marginals)(model, KEY, jnp.asarray(X), num_samples=4096)[-1]
    mean_error = draws.std(axis=0) / np.sqrt(num)
    np.testing.assert_array_less(np.abs(mixture.mean()[:, 0] - draws.mean(axis=0)), 4.5 * mean_error)
    fourth = np.mean((draws - draws.mean(axis=0)) ** 4, axis=0)
    var_error = np.sqrt((fourth - draws.var(axis=0) ** 2) / num)
    np.testing.assert_array_less(np.abs(mixture.var()[:, 0] - draws.var(axis=0)), 4.5 * var_error)


@pytest.mark.parametrize("method", ["id-dgp", "dgp"])
def test_function_draws_have_the_predicted_moments(method):
    model = random_model(method)
    keys = jax.random.split(KEY, (20_000, 2))
    draws = jax.jit(jax.vmap(lambda k: draw(model, k[0], k[1], jnp.asarray(X))[-1][1]))(keys)[:, :, 0]
    mixture = eqx.filter_jit(layer_marginals)(model, KEY, jnp.asarray(X), num_samples=4096)[-1]
    error = np.asarray(draws).std(axis=0) / np.sqrt(len(keys))
    np.testing.assert_array_less(np.abs(mixture.mean()[:, 0] - draws.mean(axis=0)), 4.5 * error)
    np.testing.assert_allclose(draws.std(axis=0), mixture.std()[:, 0], rtol=0.05)


@pytest.mark.parametrize("method", ["id-dgp", "dgp"])
def test_prior_draws_have_the_prior_covariance(method):
    """The first layer's draws are exact: linear mean, covariance K(X, X) for each unit. The second's are finite."""
    model = unwrap(build(Config(method=method, n_inducing=5, dtype="float64"), X, Y))
    layer = model.layers[0]
    keys = jax.random.split(KEY, 20_000)
    (_, hidden), (_, output) = jax.jit(jax.vmap(lambda k: draw_prior(model, k, jnp.asarray(X))))(keys)
    Z, H = layer.place(jnp.asarray(X))
    np.testing.assert_allclose(np.asarray(hidden).mean(axis=0), layer.mean_function(Z), atol=0.05)
    np.testing.assert_allclose(np.cov(np.asarray(hidden)[:, :, 1].T), layer.kernel.gram(H, H), atol=0.05)
    assert np.abs(np.corrcoef(hidden[:, 0, 0], hidden[:, 0, 1])[0, 1]) < 0.03
    np.testing.assert_allclose(np.asarray(output).var(axis=0), 1.0, atol=0.05)


def test_same_key_draws_the_same_function_whatever_the_rows():
    """The part carried by the inducing variables is one function: only the residual changes with row_key."""
    model = random_model("dgp", n_layers=1)
    many = jnp.concatenate([model.layers[0].features.Z] * 2)  # at the points themselves there is no residual
    values = draw(model, KEY, jax.random.key(1), model.layers[0].scaling.inverse(many))[-1][1]
    np.testing.assert_allclose(values[:5], values[5:], atol=1e-5)


def test_minibatch_elbo_is_unbiased():
    model = random_model("id-dgp")
    X_, Y_ = jnp.asarray(X), jnp.asarray(Y)
    value = jax.jit(lambda k, x, y: elbo(model, k, x, y, num_data=6, num_samples=2000))
    full = value(KEY, X_, Y_)
    halves = [value(jax.random.key(i), X_[rows], Y_[rows]) for i, rows in enumerate((slice(0, 3), slice(3, 6)))]
    assert float(sum(halves)) / 2 == pytest.approx(float(full), rel=0.02)


def test_prediction_depends_neither_on_batch_nor_on_order():
    model = random_model("id-dgp")
    compute = eqx.filter_jit(lambda x: predict(model, KEY, x, num_samples=16))
    whole, part = compute(jnp.asarray(X)), compute(jnp.asarray(X[[4, 1]]))
    np.testing.assert_allclose(part.means, whole.means[:, [4, 1]], rtol=1e-12)
    np.testing.assert_allclose(part.variances, whole.variances[:, [4, 1]], rtol=1e-12)


def test_every_width_and_depth_runs():
    for widths, layers in ((1, 2), (2, 3), (5, 4)):  # PCA down, identity, padding up
        config = Config(method="id-dgp", n_inducing=3, hidden_width=widths, n_layers=layers, dtype="float64")
        model = build(config, X, np.tile(Y, 2))
        marginals = eqx.filter_jit(layer_marginals)(model, KEY, jnp.asarray(X), num_samples=4)
        assert [m.mean().shape for m in marginals] == [(6, widths)] * (layers - 1) + [(6, 2)]


def test_start_is_the_paper_s():
    """Inner layers copy their input through the linear mean, almost without noise from q; the outer q is its prior."""
    model = unwrap(build(Config(n_inducing=30, preset="paper", dtype="float64"), X, Y))
    inner, outer = model.layers
    assert float(inner.q.spread(jnp.eye(inner.features.num_features)).max()) == pytest.approx(1e-5)
    assert float(outer.q.spread(jnp.eye(outer.features.num_features)).max()) == pytest.approx(1.0)
    mean, _ = eqx.filter_jit(inner)(jnp.asarray(X))
    np.testing.assert_allclose(mean, inner.scaling(jnp.asarray(X)), atol=1e-12)
    assert float(outer.kl()) == 0.0
    assert isinstance(inner.features.parts, FourierFeatures)
    np.testing.assert_array_equal([inner.features.parts.a, outer.features.parts.b], [[-2, -2], [3, 3]])


def test_outside_fraction_counts_inputs_beyond_the_interval():
    model = unwrap(build(Config(method="id-dgp", n_inducing=3, dtype="float64"), X, Y))
    first, second = eqx.filter_jit(outside_fraction)(model, KEY, jnp.asarray(X))
    assert float(first) == 0.0
    moved = eqx.tree_at(lambda m: m.layers[1].features.parts.a, model, jnp.full(17, 0.5))
    _, second = eqx.filter_jit(outside_fraction)(moved, KEY, jnp.asarray(X), num_samples=50)
    assert 0.2 < float(second) < 0.8


def test_residual_fraction_falls_with_the_number_of_frequencies():
    shares = []
    for size in (2, 8, 32):
        model = build(Config(n_inducing=size, dtype="float64"), X, Y)
        shares.append([float(share) for share in eqx.filter_jit(residual_fraction)(model, KEY, jnp.asarray(X))])
    coarse, middle, fine = np.array(shares)
    assert np.all(fine < middle)
    assert np.all(middle < coarse)
    assert np.all((fine > 0) & (coarse < 1))
    layer = unwrap(model).layers[0]
    _, H = layer.place(jnp.asarray(X))
    A = np.asarray(layer.features.whitened(layer.kernel, H))
    assert fine[0] == pytest.approx(1 - np.mean(np.sum(A**2, axis=0) / np.asarray(layer.kernel.diag(H))))


def test_quasi_normal_draws_are_even():
    eps = np.asarray(quasi_normal(KEY, 256, 3, jnp.float64))
    assert np.abs(eps.mean(axis=0)).max() < 0.02
    assert np.abs(np.cov(eps.T) - np.eye(3)).max() < 0.05
    assert quasi_normal(KEY, 5, 0, jnp.float64).shape == (5, 0)
    assert quasi_normal(KEY, 5, 2, jnp.float64).shape == (5, 2)
