"""The output layer by natural gradients, against its closed form."""

from itertools import product

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import overtone as ot
from overtone.gp.likelihoods import Gaussian
from overtone.gp.model import elbo
from overtone.inference.collapsed import Collapsed, collapsed_fit
from overtone.inference.natural import NaturalGradient, OutputMemory
from overtone.inference.objective import Progress, Rows
from overtone.inference.output_layer import site_sums, statistics, sums_over_rows, with_optimal_output
from overtone.numerics.params import Positive, unwrap
from tests.planned import built

RNG = np.random.default_rng(0)
X = RNG.uniform(size=(40, 2))
Y = np.stack([np.sin(5 * X[:, 0] * X[:, 1]), X[:, 0] ** 2], axis=1) + 0.1 * RNG.normal(size=(40, 2))
KEY = jax.random.key(0)
pytestmark = pytest.mark.usefixtures("x64")


def setting(**settings):
    model = built(X, Y, n_inducing=4, dtype="float64", **settings)
    return model, OutputMemory.start(model, len(X))


@eqx.filter_jit
def step(model, memory, key=KEY, rows=slice(None)):
    def bound(model):
        loss, new = NaturalGradient().loss(model, memory, key, Rows(jnp.asarray(X[rows]), jnp.asarray(Y[rows])))
        return -len(X) * loss, new

    (value, new), gradient = eqx.filter_value_and_grad(bound, has_aux=True)(model)
    return value, new, gradient


@eqx.filter_jit
def bound(model):
    return elbo(model, KEY, jnp.asarray(X), jnp.asarray(Y), num_data=len(X))


@eqx.filter_jit
def sums(model):
    return statistics(model, KEY, jnp.asarray(X), jnp.asarray(Y), jnp.ones(len(X)), num_samples=1)


def test_at_the_start_q_is_the_prior():
    model, memory = setting(n_layers=1, method="vff")
    prior = bound(model)
    assert float(step(model, memory)[0]) == pytest.approx(float(prior), rel=1e-10)


def test_after_one_look_at_all_rows_bound_and_gradient_are_those_of_the_closed_form():
    """At the optimum of q, the gradient of the rest does not see that q depends on it."""
    model, memory = setting(n_layers=1, method="vff")
    _, memory, _ = step(model, memory)
    value, _, gradient = step(model, memory)
    rows = Rows(jnp.asarray(X), jnp.asarray(Y))
    closed, closed_gradient = eqx.filter_jit(
        eqx.filter_value_and_grad(lambda m: -len(X) * Collapsed().loss(m, Progress.start(rows), KEY, rows)[0])
    )(model)
    assert float(value) == pytest.approx(float(closed), rel=1e-10)
    # All but q, which has no part in it.
    for get in (lambda m: m.likelihood, lambda m: m.layers[0].kernel, lambda m: m.layers[0].projection):
        for a, b in zip(*(jax.tree.leaves(get(g)) for g in (gradient, closed_gradient)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-7)


def test_each_draw_is_scored_by_what_the_others_say():
    """Against dense linear algebra, for three draws and two outputs of different noise."""
    model, _ = setting(n_layers=2, covariance="mean-field", hidden_width=2)
    noises = np.array([0.01, 0.1])
    model = eqx.tree_at(lambda m: m.likelihood, model, Gaussian(Positive(noises)))
    plain, num = unwrap(model), len(X)

    @eqx.filter_jit
    def of_draws(model):
        def at(each):
            _, H = model.output.at(each)
            return model.output.features.whitened(model.output.kernel, H), model.output.kernel.diag(H)

        inputs = model.propagate(model.draw_noise(KEY, 3, num), jnp.asarray(X))[-1][0]
        return *jax.vmap(at)(inputs), collapsed_fit(model, inputs, jnp.asarray(Y))

    A, prior, found = map(np.asarray, of_draws(plain))
    expected = 0.0
    for s, (noise, y) in product(range(3), zip(noises, Y.T, strict=True)):
        others = [A[r] for r in range(3) if r != s]
        S = np.linalg.inv(np.eye(len(A[0])) + sum(a @ a.T for a in others) / (2 * noise))
        m = S @ sum(a @ y for a in others) / (2 * noise)
        var = prior[s] - np.sum(A[s] ** 2, axis=0) + np.sum(A[s] * (S @ A[s]), axis=0)
        fit = -0.5 * (np.log(2 * np.pi * noise) + ((y - A[s].T @ m) ** 2 + var) / noise)
        kl = 0.5 * (np.trace(S) + m @ m - len(m) - np.linalg.slogdet(S)[1])
        expected += (fit.sum() - kl) / 3
    assert float(found) == pytest.approx(expected, rel=1e-6)


def test_hidden_draws_cannot_explain_noise():
    """Rows that differ in nothing but how a hidden unit happened to be drawn: the best noise is that of the data."""
    rng = np.random.default_rng(0)
    flat, noise = np.zeros((60, 1)), rng.standard_normal((60, 1))
    model = built(flat, noise, n_layers=2, n_inducing=12, output="collapsed", dtype="float64")
    rows = Rows(jnp.asarray(flat), jnp.asarray(noise))

    @eqx.filter_jit
    def objective(model):
        keys = jax.random.split(KEY, 20)
        return -jax.lax.map(lambda k: Collapsed(4).loss(model, Progress.start(rows), k, rows)[0], keys).mean()

    def at(value):
        return eqx.tree_at(
            lambda m: (m.likelihood, m.layers[0].noise),
            model,
            (Gaussian(Positive(np.array([value]))), Positive(np.array(0.1))),
        )

    values = [float(objective(at(value))) for value in (0.001, 0.01, 0.1, 0.5, 1.0, 2.0)]
    assert np.argmax(values) == 4
    assert values[4] < -1.3  # and no more is explained than there is


def test_sites_of_gaussian_noise_have_the_sums_of_the_closed_form():
    model, _ = setting(n_layers=2, hidden_width=2, likelihood="gaussian")
    model = eqx.tree_at(lambda m: m.likelihood.noise.log, model, jnp.log(jnp.asarray([0.01, 0.1])))
    X_, Y_, weights = jnp.asarray(X), jnp.asarray(Y), jnp.asarray(RNG.uniform(size=len(X)))

    @eqx.filter_jit
    def closed_form(model):
        """Sums over rows for the same three draws."""
        model, keys = unwrap(model), jax.random.split(KEY, 3)
        draws = [model.propagate(model.draw_noise(key, 1, len(X)), X_)[-1][0] for key in keys]
        return sums_over_rows(model, jnp.concatenate(draws), Y_, weights)[:2]

    gram, projected = closed_form(model)
    grams, sums = eqx.filter_jit(site_sums)(model, KEY, X_, Y_, weights, 3)
    np.testing.assert_allclose(grams, np.stack([gram, gram]), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(sums, projected, rtol=1e-7, atol=1e-9)


def test_sums_over_several_draws_are_the_means_of_those_over_single_ones():
    model, _ = setting(n_layers=2, hidden_width=2, likelihood="gaussian")
    weights = jnp.asarray(RNG.uniform(size=len(X)))

    @eqx.filter_jit
    def compute(model):
        plain = unwrap(model)
        inputs = plain.propagate(plain.draw_noise(KEY, 3, len(X)), jnp.asarray(X))[-1][0]
        single = [sums_over_rows(plain, inputs[s : s + 1], jnp.asarray(Y), weights) for s in range(3)]
        return statistics(model, KEY, jnp.asarray(X), jnp.asarray(Y), weights, num_samples=3), single

    together, single = compute(model)
    for whole, *parts in zip(together, *single, strict=True):
        np.testing.assert_allclose(whole, np.mean(parts, axis=0), rtol=1e-9, atol=1e-12)
    assert not np.allclose(single[0][0], single[1][0])


def test_q_of_the_memory_is_the_one_that_a_model_gets():
    model, memory = setting(hidden_width=2)
    gram, projected, _, _ = sums(model)
    memory = eqx.tree_at(lambda m: (m.gram, m.projected), memory, (jnp.stack([gram, gram]), projected))
    value, _, _ = step(model, memory)
    given = bound(eqx.filter_jit(with_optimal_output)(model, gram, projected))
    assert float(value) == pytest.approx(float(given), rel=1e-8)


def test_rounding_errors_of_sums_over_millions_of_rows_do_no_harm():
    """Products in single precision are symmetric, but their sum may have negative eigenvalues."""
    model, memory = setting(method="vff", n_layers=1)
    model = jax.tree.map(lambda leaf: leaf.astype(jnp.float32) if eqx.is_inexact_array(leaf) else leaf, model)
    size = memory.gram.shape[-1]
    direction, error = RNG.normal(size=(size, 1)), RNG.normal(size=(size, size))
    gram = 1e9 * (direction @ direction.T + 1e-7 * (error + error.T) / 2)
    assert np.linalg.eigvalsh(gram).min() < -10
    both = jnp.asarray(np.stack([gram, gram])), 1e9 * jnp.ones((2, size))
    q = eqx.filter_jit(with_optimal_output)(model, *both).layers[0].q
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(q))


def test_averages_of_minibatches_tend_to_the_sums_over_all_rows():
    """First the mean of all estimates, then an exponential average: within a few deviations of the exact sums."""
    model, memory = setting(n_layers=1, method="vff")
    gram, _, _, _ = sums(model)
    objective, distances = NaturalGradient(), []
    look = eqx.filter_jit(objective.loss)
    for _ in range(60):
        rows = RNG.permutation(len(X))[:20]
        _, memory = look(model, memory, KEY, Rows(jnp.asarray(X[rows]), jnp.asarray(Y[rows])))
        distances.append(float(jnp.linalg.norm(memory.gram - gram)))
    assert int(memory.step) == 60
    assert np.mean(distances[-20:]) < 2 * (objective.rate / 2) ** 0.5 * distances[0]


@pytest.mark.parametrize("num_data", [2e7, 1e9])
def test_very_many_rows_leave_sums_in_single_precision_positive_definite(num_data):
    X = np.random.default_rng(0).random((300, 6)).astype("float32")
    y = np.sin(6 * X[:, :1])
    layer = ot.Layer(ot.Matern32(), ot.PinnedFourier(8), q=ot.Joint, projection=ot.Projection(20))
    model = ot.DeepGP([layer], ot.Gaussian(0.03)).initialised(X, y)
    model, memory = NaturalGradient().init(model, Rows(X, y))
    memory = eqx.tree_at(lambda m: m.num_data, memory, jax.device_put(np.float32(num_data)))
    loss = eqx.filter_jit(NaturalGradient().loss)
    for first in (0, 100, 200):
        value, memory = loss(model, memory, KEY, Rows(X[first : first + 100], y[first : first + 100]))
    assert -1.0 < float(value) < -0.5
