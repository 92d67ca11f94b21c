"""Draws of functions: consistent, and with the covariances that they must have."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from overtone.gp.features import InducingPoints
from overtone.gp.kernels import Linear, Matern32, RationalQuadratic, SquaredExponential
from overtone.gp.layers import Layer
from overtone.gp.likelihoods import Gaussian
from overtone.gp.model import DeepGP
from overtone.gp.pathwise import RandomFunctions, draw_paths, follow
from overtone.gp.variational import Full
from overtone.numerics.compiling import quickly_compiled
from overtone.numerics.params import unwrap
from overtone.sklearn import DeepGPClassifier, DeepGPRegressor
from tests.planned import built

RNG = np.random.default_rng(0)
X, Y = RNG.uniform(size=(30, 2)), RNG.normal(size=(30, 2))
AT = np.concatenate([RNG.uniform(size=(5, 2)), [[0.5, 1.3], [-0.2, 0.4]]])  # also outside
NUM = 2000


def shallow(method, preset="default", **settings):
    model = unwrap(built(X, Y, method, n_inducing=3, dtype="float64", preset=preset, **settings))
    mean, log_diag, unit = (np.asarray(part) for part in (lambda q: (q.mean, q.log_diag, q.unit))(model.layers[0].q))
    unit = unit + np.tril(0.3 * RNG.normal(size=np.moveaxis(unit, 2, 1).shape), -1).swapaxes(1, 2)
    q = Full(*map(jnp.asarray, (RNG.normal(size=mean.shape), log_diag + RNG.normal(size=mean.shape), unit)))
    return eqx.tree_at(lambda m: m.layers[0].q, model, q)


def draws(model, prior):
    paths = quickly_compiled(draw_paths)(model, jax.random.key(1), NUM, prior)
    return np.asarray(quickly_compiled(follow)(model, paths, jnp.asarray(AT))[1][-1])


@quickly_compiled
def exact(layer, X):
    """K, A, and the layer's own means and variances."""
    _, H = layer.at(X)
    return layer.kernel.gram(H, H), layer.features.whitened(layer.kernel, H), *layer(X)


CASES = {
    "pinned": ("vff", {}),
    "pinned, smoother": ("vff", {"kernel": "matern52"}),
    "paper": ("vff", {"preset": "paper"}),
    "points": ("svgp", {}),
    "sum": ("svgp", {}),  # of a stationary kernel and straight lines
}


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", CASES)
def test_covariances_of_draws_are_those_of_the_process(name):
    method, settings = CASES[name]
    model = shallow(method, **settings)
    if name == "sum":
        kernel = model.layers[0].kernel + Linear(jnp.asarray(2.0))
        model = eqx.tree_at(lambda m: m.layers[0].kernel, model, kernel)
    layer = model.layers[0]
    K, A, mean, var = map(np.asarray, exact(layer, jnp.asarray(AT)))
    within = 5 * np.diag(K).max() * (2 / NUM) ** 0.5  # standard errors
    prior = draws(model, True)[..., 0]
    assert np.all(np.abs(np.cov(prior.T) - K) < within)
    posterior, q = draws(model, False), layer.q
    for output in range(2):
        S = np.zeros((A.shape[0], A.shape[0]))
        size = q.mean.shape[2]
        for block in range(q.mean.shape[0]):
            root = np.asarray(q.unit)[block, :, output] * np.exp(np.asarray(q.log_diag))[block, output]
            part = slice(block * size, (block + 1) * size)
            S[part, part] = root @ root.T
        covariance = K - A.T @ A + A.T @ S @ A
        np.testing.assert_allclose(np.diag(covariance), var[:, output], rtol=1e-6)
        scale = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
        assert np.all(np.abs(np.cov(posterior[..., output].T) - covariance) < 5 * scale * (2 / NUM) ** 0.5)
        assert np.all(np.abs(posterior[..., output].mean(axis=0) - mean[:, output]) < 5 * np.sqrt(var[:, output] / NUM))


@quickly_compiled
def both(features, kernel, finer, H):
    R = features.from_finer(kernel, finer, jnp.eye(finer.num_features)).T
    return R, features.whitened(kernel, H), finer.whitened(kernel, H)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", ["pinned", "pinned, smoother", "paper"])
def test_the_features_are_a_part_of_the_finer_ones(name):
    method, settings = CASES[name]
    layer = shallow(method, **settings).layers[0]
    finer = layer.features.finer()
    R, coarse, fine = map(np.asarray, both(layer.features, layer.kernel, finer, layer.at(jnp.asarray(AT))[1]))
    np.testing.assert_allclose(R @ fine, coarse, atol=2e-6)
    np.testing.assert_allclose(R @ R.T, np.eye(len(R)), atol=2e-6)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("kind", [SquaredExponential, Matern32, RationalQuadratic])
def test_random_waves_have_the_kernel_as_their_mean(kind):
    shape = (jnp.asarray(0.9),) if kind is RationalQuadratic else ()
    kernel = kind(jnp.asarray(1.7), jnp.asarray([0.3, 0.8]), *shape)
    waves = RandomFunctions([kernel.frequencies(jax.random.key(0), (100_000, 2))], 2)
    phi = waves.Kuf(kernel, jnp.asarray(AT))
    np.testing.assert_allclose(phi.T @ phi, kernel.gram(jnp.asarray(AT), jnp.asarray(AT)), atol=0.03)


def test_kernels_without_finer_features_and_without_waves_are_refused():
    model = unwrap(DeepGP([Layer(Linear() * Matern32(), InducingPoints(3))], Gaussian()).initialised(X, Y))
    with pytest.raises(TypeError, match="functions of a Product kernel need features that have finer ones"):
        draw_paths(model, jax.random.key(0), 2, False)


@pytest.fixture(scope="module")
def fitted():
    X = np.linspace(0, 10, 60)[:, None]
    y = 5 + 3 * np.sign(np.sin(X[:, 0])) + 0.1 * RNG.normal(size=60)
    return DeepGPRegressor(n_layers=2, n_inducing=8, max_steps=200).fit(X, y)


def test_a_draw_is_a_function(fitted):
    functions, X = fitted.sample_functions(5, random_state=1), np.linspace(-1, 11, 300)[:, None]
    values = functions(X)
    assert values.shape == (300, 5)
    np.testing.assert_array_equal(functions(X), values)
    np.testing.assert_allclose(functions(X[::-7]), values[::-7], rtol=1e-4, atol=1e-4)
    assert not np.allclose(values[:, 0], values[:, 1])
    again = fitted.sample_functions(5, random_state=1)
    np.testing.assert_array_equal(again(X), values)
    hidden, output = functions.layers(X)
    assert hidden.shape == output.shape == (300, 1, 5)
    np.testing.assert_allclose(fitted.y_scaling_.inverse(output[:, 0]), values, rtol=1e-5)


def test_draws_of_a_deep_model_have_its_marginals(fitted):
    X = np.linspace(0.1, 9.9, 40)[:, None]
    values = fitted.sample_functions(2000)(X)
    mean, std = fitted.predict(X, return_std=True)
    noise = fitted.y_scaling_.scale * np.sqrt(unwrap(fitted.model_.likelihood).noise)
    assert np.max(np.abs(values.mean(axis=1) - mean)) < 0.15 * std.max()
    np.testing.assert_allclose(np.sqrt(values.var(axis=1) + noise**2).mean(), std.mean(), rtol=0.05)


def test_draws_from_the_prior_know_nothing_of_the_data(fitted):
    X = np.linspace(0.1, 9.9, 40)[:, None]
    values = fitted.sample_functions(2000, prior=True)(X)
    assert np.all(np.abs(values.mean(axis=1) - fitted.y_scaling_.shift) < 0.1 * values.std(axis=1) + 0.2)
    assert np.all(values.std(axis=1) > 1)


def test_draws_of_a_classifier_are_probabilities():
    X = RNG.uniform(size=(60, 2))
    model = DeepGPClassifier("vff", n_inducing=3, max_steps=30).fit(X, np.digitize(X[:, 0], [0.3, 0.6]))
    values = model.sample_functions(300)(X)
    assert values.shape == (60, 3, 300)
    np.testing.assert_allclose(values.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(values.mean(axis=2), model.predict_proba(X), atol=0.08)
