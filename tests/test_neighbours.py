"""What neighbours know: the GP of scores against dense algebra, and the distribution that it corrects."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from overtone.gp.neighbours import NeighbourGP, conditional, mixed
from overtone.gp.predictive.mixture import STEP, Corrected, Mixture
from overtone.inference import neighbours
from overtone.inference.neighbours import fit_neighbours, from_neighbours, with_rows, with_tested_scale
from overtone.sklearn import DeepGPRegressor

RNG = np.random.default_rng(0)
MEANS, VARIANCES = RNG.normal(size=(12, 5, 1)), RNG.uniform(0.1, 1, (12, 5, 1))
SHIFT, VARIANCE = RNG.normal(size=(5, 1)), RNG.uniform(0.05, 1, (5, 1))
Y = RNG.normal(size=(5, 1))


@pytest.fixture(scope="module", autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def base():
    return Mixture(jnp.asarray(MEANS), jnp.asarray(VARIANCES))


@pytest.fixture(scope="module")
def corrected(base):
    return Corrected(base, mixed(SHIFT, VARIANCE, 2 * VARIANCE, 0.2))


def dense(X, z, new, lengthscales, share):
    """The exact GP with all rows, in NumPy."""

    def cov(A, B):
        return share * np.exp(-np.linalg.norm((A[:, None] - B) / lengthscales, axis=-1))

    weights = np.linalg.solve(cov(X, X) + (1 - share) * np.eye(len(X)), cov(X, new))
    return weights.T @ z, 1 - np.sum(weights * cov(X, new), axis=0)


def process_of(X, z, lengthscales, share):
    return NeighbourGP(*map(jnp.asarray, (X, z, lengthscales, np.asarray(share))))


def test_with_all_rows_as_neighbours_it_is_the_exact_gp():
    X, z, new = RNG.random((30, 2)), RNG.normal(size=30), RNG.random((7, 2))
    found = from_neighbours(process_of(X, z, np.array([0.3, 0.8]), 0.9), new)
    mean, var = dense(X, z, new, np.array([0.3, 0.8]), 0.9)
    np.testing.assert_allclose(found.mean()[:, 0], mean, rtol=1e-8)
    np.testing.assert_allclose(found.var()[:, 0], var, rtol=1e-8)


def test_derivatives_do_without_those_of_the_factorisation():
    near, z, x = (jnp.asarray(RNG.random(shape)) for shape in ((4, 6, 2), (4, 6), (4, 2)))

    def value(share, scale, solve):
        mean, var = solve(share, x * scale, near * scale, z)
        return jnp.sum(jnp.sin(3 * mean) + jnp.log(var))

    def plainly(share, x, near, z):
        K = share * jnp.exp(-jnp.sqrt(jnp.sum((near[:, :, None] - near[:, None]) ** 2, axis=-1) + 1e-14))
        k = share * jnp.exp(-jnp.sqrt(jnp.sum((near - x[:, None]) ** 2, axis=-1)))
        w = jnp.linalg.solve(K + (1 - share) * jnp.eye(6), jnp.stack([k, z], axis=-1))
        return jnp.sum(k * w[..., 1], axis=-1), 1 - jnp.sum(k * w[..., 0], axis=-1)

    at = jnp.asarray(0.8), jnp.asarray([1.5, 0.7])
    ours, theirs = (eqx.filter_jit(jax.value_and_grad(value, (0, 1)))(*at, s) for s in (conditional, plainly))
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_far_from_all_rows_the_base_is_back():
    process = process_of(RNG.random((40, 2)), RNG.normal(size=40), np.array([0.1, 0.1]), 0.9)
    process = eqx.tree_at(lambda p: (p.gain, p.scales, p.weight), process, (1.3, (0.4, 2.5), 0.1))
    scores = from_neighbours(process, np.full((1, 2), 50.0))
    np.testing.assert_allclose(scores.means, 0, atol=1e-12)
    np.testing.assert_allclose(scores.variances, 1, atol=1e-12)


def test_the_order_of_rows_does_not_matter(monkeypatch):
    X, z, new = RNG.random((200, 2)), RNG.normal(size=200), RNG.random((50, 2))
    process, order, new_order = process_of(X, z, np.ones(2), 0.7), RNG.permutation(200), RNG.permutation(50)
    expected = from_neighbours(process, new)
    monkeypatch.setattr(neighbours, "CHUNK_ROWS", 16)
    found = from_neighbours(process_of(X[order], z[order], np.ones(2), 0.7), new[new_order])
    np.testing.assert_allclose(found.means, expected.means[:, new_order], rtol=1e-9)
    np.testing.assert_allclose(found.variances, expected.variances[:, new_order], rtol=1e-9)


def test_the_search_misses_nothing_but_farther_rows_and_finds_others_hardly_farther_away():
    rng = np.random.default_rng(0)
    X, new = rng.random((20_000, 4)), rng.random((300, 4))
    found = neighbours.Search(X, np.ones(4)).nearest(new, 32)
    distances = np.linalg.norm(new[:, None] - X[found], axis=-1)
    everything = np.linalg.norm(new[:, None] - X, axis=-1)
    nearest = np.sort(everything, axis=1)[:, :32]
    near = everything < nearest[:, -1:] / (1 + neighbours.SLACK)
    assert all(set(np.flatnonzero(row)) <= set(indices) for row, indices in zip(near, found, strict=True))
    assert np.all(np.diff(distances, axis=1) >= 0)
    assert nearest.mean() <= distances.mean() < 1.01 * nearest.mean()


def test_a_search_is_made_once_and_forgotten_with_its_rows():
    process = process_of(np.eye(4), np.arange(4.0), np.ones(4), 0.9)
    search, before = neighbours.search_of(process), len(neighbours._searches)
    assert neighbours.search_of(process) is search
    slower = eqx.tree_at(lambda p: p.lengthscales, process, 2 * process.lengthscales)
    assert neighbours.search_of(slower) is not search
    del process, slower
    assert len(neighbours._searches) == before - 1


def test_rows_without_a_score_are_left_out():
    rng = np.random.default_rng(0)
    X, z = rng.random((300, 2)), rng.normal(size=300)
    gaps = np.where(np.arange(400) < 300, np.resize(z, 400), np.nan)
    found, expected = fit_neighbours(np.resize(X, (400, 2)), gaps), fit_neighbours(X, z)
    for part, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(part, other)


def test_copies_of_a_row_are_neighbours_but_the_row_is_not():
    near = np.array([[5, 2, 7], [1, 4, 9], [3, 0, 6]])
    np.testing.assert_array_equal(neighbours._others(near, np.array([5, 4, 8])), [[2, 7], [1, 9], [3, 0]])


def test_a_fit_finds_the_input_along_which_scores_are_alike():
    X = RNG.random((1500, 3))
    K = 0.9 * np.exp(-np.abs(X[:, :1] - X[:, 0]) / 0.05) + 0.1 * np.eye(1500)
    z = np.linalg.cholesky(K) @ RNG.normal(size=1500)
    process = fit_neighbours(X[:1200], z[:1200])
    assert 3 * process.lengthscales[0] < min(process.lengthscales[1:])
    found, nats = with_tested_scale(process, X[1200:], z[1200:])
    mean, var = dense(X[:1200], z[:1200], X[1200:], np.array([0.05, 1e9, 1e9]), 0.9)
    best = 0.5 * (z[1200:] ** 2 - np.log(var) - (z[1200:] - mean) ** 2 / var)
    assert np.mean(nats) > 0.75 * np.mean(best)
    # Scores that are too narrow by half are known to be.
    narrow, again = with_tested_scale(with_rows(process, X[:1200], 0.5 * z[:1200]), X[1200:], z[1200:])
    assert float(narrow.gain) == pytest.approx(2 * float(found.gain), rel=0.02)
    np.testing.assert_allclose(again.mean(), nats.mean(), atol=1e-3)
    noise = RNG.normal(size=1500)
    _, none = with_tested_scale(fit_neighbours(X[:1200], noise[:1200]), X[1200:], noise[1200:])
    assert np.mean(none) < 2 * np.std(none) / len(none) ** 0.5 + 0.01


def test_scores_and_values_are_inverse_to_each_other_far_into_the_tails(base):
    for score in (-9.0, -2.0, 0.0, 0.3, 9.0):
        value = base.at_score(jnp.full((5, 1), score))
        np.testing.assert_allclose(base.score(value), score, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(base.score(jnp.asarray(Y)), norm.ppf(base.cdf(jnp.asarray(Y))), rtol=1e-9)


def test_without_knowledge_nothing_is_corrected(base):
    same, y = Corrected(base, mixed(np.zeros((5, 1)), 1.0, 1.0, 0.3)), jnp.asarray(Y)
    for compute in (lambda d: d.cdf(y), lambda d: d.log_prob(y), lambda d: d.quantile(0.2)):
        np.testing.assert_allclose(compute(same), compute(base), rtol=1e-9)
    for compute in (lambda d: d.mean(), lambda d: d.std(), lambda d: d.crps(y)):
        np.testing.assert_allclose(compute(same) / base.std(), compute(base) / base.std(), atol=2e-3)


def test_density_distribution_and_quantiles_agree(corrected):
    y, step = jnp.asarray(Y), 1e-5
    slope = (corrected.cdf(y + step) - corrected.cdf(y - step)) / (2 * step)
    np.testing.assert_allclose(jnp.exp(corrected.log_prob(y)), slope, rtol=1e-6)
    for level in (1e-6, 0.025, 0.5, 0.999):
        np.testing.assert_allclose(corrected.cdf(corrected.quantile(level)), level, rtol=1e-8)


def distribution_function(distribution, t):
    return np.asarray(jax.lax.map(lambda v: distribution.cdf(jnp.full((5, 1), v)), jnp.asarray(t)))[:, :, 0]


def test_moments_and_score_agree_with_integrals(corrected):
    t = np.linspace(-8, 8, 4001)
    below = distribution_function(corrected, t)
    mean = t[-1] - np.trapezoid(below, t, axis=0)
    square = t[-1] ** 2 - np.trapezoid(2 * t[:, None] * below, t, axis=0)
    found_mean, found_std = corrected.moments()
    np.testing.assert_allclose(found_mean[:, 0], mean, atol=1e-3)
    np.testing.assert_allclose(found_std[:, 0], np.sqrt(square - mean**2), atol=2e-3)
    crps = np.trapezoid((below - (t[:, None] >= Y[:, 0])) ** 2, t, axis=0)
    np.testing.assert_allclose(corrected.crps(jnp.asarray(Y))[:, 0], crps, atol=4e-3)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("y", [-40.0, 6.0, 12.0, 40.0])
def test_the_score_of_an_outlier_is_its_distance(corrected, dtype, y):
    """Its density is zero to rounding, which says nothing about how steeply values rise with their scores."""
    t = np.linspace(-60, 60, 20_001)
    expected = np.trapezoid((distribution_function(corrected, t) - (t[:, None] >= y)) ** 2, t, axis=0)
    same = jax.tree.map(lambda leaf: leaf.astype(dtype), corrected)
    np.testing.assert_allclose(same.crps(jnp.full((5, 1), y, dtype))[:, 0], expected, atol=4e-3)


def test_the_score_between_two_modes_is_as_good_as_the_rule():
    modes = Mixture(jnp.asarray(np.where(MEANS < 0, -10.0, 10.0)), jnp.full(MEANS.shape, 1e-4))
    split, t = Corrected(modes, mixed(SHIFT, VARIANCE, 2 * VARIANCE, 0.2)), np.linspace(-20, 20, 20_001)
    below = distribution_function(split, t)
    for y in (-10.0, 0.0, 9.9):
        expected = np.trapezoid((below - (t[:, None] >= y)) ** 2, t, axis=0)
        assert np.all(np.abs(split.crps(jnp.full((5, 1), y))[:, 0] - expected) < 20 * STEP * norm.pdf(0))


def test_draws_have_the_predicted_distribution(corrected):
    draws = jax.vmap(corrected.sample)(jax.random.split(jax.random.key(0), 4000))
    np.testing.assert_allclose(np.mean(draws < corrected.quantile(0.3), axis=0), 0.3, atol=0.03)


SETTINGS = {"max_steps": 120, "hidden_width": 2, "n_inducing": 3, "fine_inputs": ()}


def levels(num):
    """A smooth function, and a level for each of 80 places, which only neighbours know."""
    rng = np.random.default_rng(3)
    place, x = rng.integers(80, size=num), rng.random(num)
    at = rng.normal(size=80)
    return np.column_stack([x, place / 80]), np.sin(5 * x) + at[place] + 0.2 * rng.normal(size=num)


@pytest.fixture(scope="module")
def fitted():
    X, y = levels(2600)
    return DeepGPRegressor(**SETTINGS).fit(X[:2200], y[:2200]), X[2200:], y[2200:]


def test_an_estimator_asks_neighbours_where_held_out_rows_say_that_it_pays(fitted, tmp_path):
    model, X, y = fitted
    assert "Neighbours are asked: they gain" in model.plan_.reasons["neighbours"]
    found = model.evaluate(X, y)
    path = tmp_path / "model"
    model.save(path)
    loaded = DeepGPRegressor.load(path)
    assert loaded.evaluate(X, y) == found
    low, high = loaded.predict_quantiles(X, [0.025, 0.975])
    assert np.mean((low < y) & (y < high)) == pytest.approx(found["coverage_95"], abs=0.01)
    assert model.log_predictive_density(X, y).mean() == pytest.approx(found["log_density"], abs=1e-4)
    model.save(path, neighbours=False)
    alone = DeepGPRegressor.load(path).evaluate(X, y)
    assert found["log_density"] > alone["log_density"] + 0.2
    assert found["rmse"] < 0.8 * alone["rmse"]
    assert found["crps"] < alone["crps"]
    assert 0.9 < found["coverage_95"] < 0.99


def test_neighbours_take_new_rows_in(fitted, tmp_path):
    model, X, y = fitted
    model.save(tmp_path / "model")
    before = model.log_predictive_density(X[:200], y[:200]).mean()
    updated = DeepGPRegressor.load(tmp_path / "model").update(X[:200], y[:200])
    assert len(updated.neighbours_[0].scores) == len(model.neighbours_[0].scores) + 200
    assert updated.log_predictive_density(X[:200], y[:200]).mean() > before + 0.2  # each is its own neighbour now


def test_neighbours_are_not_asked_for_what_they_do_not_know():
    X, _ = levels(2600)
    y = np.sin(5 * X[:, 0]) + 0.3 * np.random.default_rng(1).normal(size=2600)
    model = DeepGPRegressor(**SETTINGS).fit(X[:2200], y[:2200])
    assert model.neighbours_ == ()
    assert "Neighbours are not asked" in model.plan_.reasons["neighbours"]
    with pytest.raises(ValueError, match="neighbours='yes' needs"):
        DeepGPRegressor(neighbours="yes").fit(X[:50], y[:50])
