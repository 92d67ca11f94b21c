"""Closed forms against quadrature, quadrature against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from overtone.discrete import Counts, poisson_cdf
from overtone.likelihoods import (
    AbstractLikelihood,
    Bernoulli,
    FlexibleNoise,
    Gaussian,
    Heteroscedastic,
    MixtureNoise,
    Poisson,
    Softmax,
    StudentT,
)
from overtone.likelihoods.base import expected_log_prob, joint_nodes
from overtone.natural import sites

RNG = np.random.default_rng(0)
Y, MEAN, VAR = RNG.normal(size=(4, 2)), RNG.normal(size=(3, 4, 2)), RNG.uniform(0.1, 1.0, size=(3, 4, 2))
NOISE = np.array([0.3, 0.8])
pytestmark = pytest.mark.usefixtures("x64")


def arrays():
    return jnp.asarray(Y), jnp.asarray(MEAN), jnp.asarray(VAR)


def test_gaussian_closed_forms_agree_with_the_default_quadrature():
    likelihood = Gaussian(jnp.asarray(3 * NOISE))  # wide against f, where 20 nodes are exact
    for name in ("expected_log_prob", "log_predictive"):
        closed = getattr(likelihood, name)(*arrays())
        default = getattr(AbstractLikelihood, name)(likelihood, *arrays())
        np.testing.assert_allclose(closed, default, rtol=1e-8)


def test_gaussian_agrees_with_scipy():
    likelihood = Gaussian(jnp.asarray(NOISE))
    y, mean, var = arrays()
    np.testing.assert_allclose(
        likelihood.log_predictive(y, mean, var), stats.norm.logpdf(Y, MEAN, np.sqrt(VAR + NOISE)), rtol=1e-12
    )
    m, v, n = MEAN[0, 0, 0], VAR[0, 0, 0], NOISE[0]
    expected, _ = integrate.quad(
        lambda f: stats.norm.logpdf(Y[0, 0], f, n**0.5) * stats.norm.pdf(f, m, v**0.5), -15, 15
    )
    assert float(likelihood.expected_log_prob(y, mean, var)[0, 0, 0]) == pytest.approx(expected, rel=1e-8)


def test_gaussian_samples_have_its_moments():
    likelihood = Gaussian(jnp.asarray(NOISE))
    f = jnp.zeros((100_000, 2))
    sample = likelihood.sample(jax.random.key(0), f)
    np.testing.assert_allclose(sample.var(axis=0), NOISE, rtol=0.03)
    whole = likelihood.predictive(f[None, :3], jnp.ones((1, 3, 2)))
    assert float(whole.mean()[0, 0]) == 0
    np.testing.assert_allclose(whole.var()[0], 1 + NOISE)


WEIGHTS, SHIFTS, SPREADS = (RNG.uniform(0.2, 1.0, size=(3, 4, 2)) for _ in range(3))
WEIGHTS /= WEIGHTS.sum(axis=0)


def mixture(draws=False):
    """For values of f (N, P), or with an axis of draws before."""
    parts = np.log(WEIGHTS), SHIFTS, SPREADS
    return MixtureNoise(*(jnp.asarray(part[:, None] if draws else part) for part in parts))


def by_quadrature(likelihood):
    """E[log p(y | f)] and log E[p(y | f)], node by node."""
    y, mean, var = arrays()
    nodes, weights = np.polynomial.hermite_e.hermegauss(100)
    log_probs = np.stack([likelihood.log_prob(y, mean + node * jnp.sqrt(var)) for node in nodes])
    weights = (weights / weights.sum())[:, None, None, None]
    return np.sum(weights * log_probs, axis=0), np.log(np.sum(weights * np.exp(log_probs), axis=0))


def test_mixture_noise_is_a_sum_of_densities():
    f = MEAN[0]
    exact = np.log(np.sum(WEIGHTS * stats.norm.pdf(Y, f + SHIFTS, np.sqrt(SPREADS)), axis=0))
    np.testing.assert_allclose(mixture().log_prob(jnp.asarray(Y), jnp.asarray(f)), exact, rtol=1e-10)
    _, predictive = by_quadrature(mixture(True))
    np.testing.assert_allclose(mixture(True).log_predictive(*arrays()), predictive, rtol=1e-6)


def test_the_bound_of_mixture_noise_is_below_the_expectation_and_tight_for_known_f():
    exact, _ = by_quadrature(mixture(True))
    bound = np.asarray(mixture(True).expected_log_prob(*arrays()))
    assert np.all(bound < exact)
    assert np.mean(exact - bound) < 0.5
    tight = mixture(True).expected_log_prob(jnp.asarray(Y), jnp.asarray(MEAN), jnp.zeros_like(MEAN))
    np.testing.assert_allclose(tight, mixture(True).log_prob(jnp.asarray(Y), jnp.asarray(MEAN)), rtol=1e-10)


def test_moments_components_and_draws_of_mixture_noise_agree():
    mean, var = (jnp.asarray(part[:1]) for part in (MEAN, VAR))
    shift = np.sum(WEIGHTS * SHIFTS, axis=0)
    spread = np.sum(WEIGHTS * (SPREADS + (SHIFTS - shift) ** 2), axis=0)
    whole = mixture(True).predictive(mean, var)
    np.testing.assert_allclose(whole.mean(), MEAN[0] + shift, rtol=1e-10)
    np.testing.assert_allclose(whole.var(), VAR[0] + spread, rtol=1e-10)
    draws = mixture(True).sample(jax.random.key(0), jnp.zeros((200_000, 4, 2)))
    np.testing.assert_allclose(draws.mean(axis=0), shift, atol=0.02)
    np.testing.assert_allclose(draws.var(axis=0), spread, atol=0.03)


def test_sites_of_gaussian_noise_are_the_observations():
    mean, var = jnp.asarray(MEAN[0]), jnp.asarray(VAR[0])
    precision, projected = sites(Gaussian(jnp.asarray(NOISE)), jnp.asarray(Y), mean, var)
    np.testing.assert_allclose(precision, np.broadcast_to(1 / NOISE, Y.shape), rtol=1e-10)
    np.testing.assert_allclose(projected, Y / NOISE, rtol=1e-10)


def test_sites_of_mixture_noise_are_those_of_the_responsible_components():
    """The EM algorithm: r_c proportional to weight_c exp(E[log N_c]), precision sum r_c / variance_c."""
    mean, var = MEAN[0], VAR[0]
    precision, projected = sites(mixture(), *map(jnp.asarray, (Y, mean, var)))
    each = WEIGHTS * stats.norm.pdf(Y, mean + SHIFTS, np.sqrt(SPREADS)) * np.exp(-0.5 * var / SPREADS)
    r = each / each.sum(axis=0)
    np.testing.assert_allclose(precision, np.sum(r / SPREADS, axis=0), rtol=1e-9)
    np.testing.assert_allclose(projected, np.sum(r * (Y - SHIFTS) / SPREADS, axis=0), rtol=1e-9)


def test_flexible_noise_at_rows_is_a_function_of_their_features():
    size, rows = 5, 3
    start = FlexibleNoise.start(np.zeros((rows, 2)), 0.2, size, np.float64)
    A = RNG.normal(size=(size, rows))
    given = start.at(jnp.asarray(A), (rows,))
    assert given.means.shape == (5, rows, 2)
    np.testing.assert_allclose(np.sum(np.exp(given.log_weights), axis=0), 1)
    harmonic = 1 / np.sum(np.exp(given.log_weights) / given.variances, axis=0)
    np.testing.assert_allclose(np.broadcast_to(start.reference, (rows, 2)), harmonic, rtol=1e-4)
    weight = RNG.normal(size=start.weight.shape)
    other = FlexibleNoise(start.base, jnp.asarray(weight))
    moved = np.log(other.at(jnp.asarray(A), (rows,)).variances - 1e-6) - np.log(given.variances - 1e-6)
    np.testing.assert_allclose(moved, np.einsum("cpm,mr->crp", weight[2], A), rtol=1e-6)
    assert float(start.kl()) == 0
    assert float(other.kl()) == pytest.approx(0.5 * np.sum(weight**2))


COUNTS = np.array([[0.0, 3.0], [1.0, 4.0], [5.0, 0.0], [2.0, 2.0]])
LOG_EXPOSURE = 0.3 * RNG.normal(size=(4, 2))
BASE = np.array([0.3, -0.2, 0.0])
LABELS = np.array([[0.0], [1.0], [2.0], [1.0]])
# Each likelihood, its targets, the number of its functions, and log p(y | f) by SciPy.
CASES = {
    "student": (
        lambda: StudentT(jnp.asarray(NOISE), jnp.asarray([3.0, 7.0])),
        Y,
        2,
        lambda y, f: stats.t.logpdf(y, [3.0, 7.0], f, np.sqrt(NOISE)),
    ),
    "heteroscedastic": (
        lambda: Heteroscedastic(jnp.log(jnp.asarray(NOISE))),
        Y,
        4,
        lambda y, f: stats.norm.logpdf(y, f[..., :2], np.sqrt(1e-6 + NOISE * np.exp(f[..., 2:]))),
    ),
    "poisson": (
        lambda: Poisson(jnp.asarray([0.5, 1.0])),
        np.concatenate([COUNTS, LOG_EXPOSURE], axis=1),
        2,
        lambda y, f: stats.poisson.logpmf(y[..., :2], np.exp([0.5, 1.0] + f + y[..., 2:])),
    ),
    "bernoulli": (
        lambda: Bernoulli(jnp.asarray([0.3])),
        np.minimum(LABELS, 1),
        1,
        lambda y, f: stats.bernoulli.logpmf(y, 1 / (1 + np.exp(-0.3 - f))),
    ),
    "softmax": (
        lambda: Softmax(jnp.asarray(BASE)),
        LABELS,
        3,
        lambda y, f: np.take_along_axis(
            BASE + f - np.log(np.sum(np.exp(BASE + f), axis=-1, keepdims=True)),
            np.broadcast_to(y.astype(int), (*f.shape[:-1], 1)),
            -1,
        ),
    ),
}


def case(name):
    make, y, functions, log_prob = CASES[name]
    rng = np.random.default_rng(1)
    mean, var = rng.normal(size=(3, 4, functions)), rng.uniform(0.05, 0.5, size=(3, 4, functions))
    return make(), y, mean, var, log_prob


def monte_carlo(name, num=200_000):
    """E[log p(y | f)] and log E[p(y | f)] of one row for each draw, with their standard errors."""
    _, y, mean, var, log_prob = case(name)
    f = mean[:, 1] + np.sqrt(var[:, 1]) * np.random.default_rng(2).normal(size=(num, *mean[:, 1].shape))
    values = log_prob(y[1], f)
    return values.mean(axis=0), np.log(np.exp(values).mean(axis=0)), 5 * values.std(axis=0) / num**0.5 + 1e-4


@pytest.mark.parametrize("name", CASES)
def test_log_prob_agrees_with_scipy(name):
    likelihood, y, mean, _, log_prob = case(name)
    np.testing.assert_allclose(likelihood.log_prob(jnp.asarray(y), jnp.asarray(mean)), log_prob(y, mean), rtol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_expectations_agree_with_many_draws(name):
    likelihood, y, mean, var, _ = case(name)
    expected, predictive, error = monte_carlo(name)
    arrays = map(jnp.asarray, (y, mean, var))
    found = np.asarray(likelihood.expected_log_prob(*arrays))[:, 1]
    if name == "student":  # a bound
        assert np.all(found < expected + error)
        known = likelihood.expected_log_prob(jnp.asarray(y), jnp.asarray(mean), jnp.zeros(mean.shape))
        np.testing.assert_allclose(known, likelihood.log_prob(jnp.asarray(y), jnp.asarray(mean)), rtol=1e-12)
    else:
        assert np.all(np.abs(found - expected) < error + (2e-3 if name == "softmax" else 0))
    found = np.asarray(likelihood.log_predictive(*map(jnp.asarray, (y, mean, var))))[:, 1]
    assert np.all(np.abs(found - predictive) < 5 * error + 2e-3)


@pytest.mark.parametrize("name", CASES)
def test_draws_follow_the_predictive_distribution(name):
    likelihood, y, mean, var, _ = case(name)
    num, row = 200_000, 2
    rng = np.random.default_rng(3)
    f = mean[0, row] + np.sqrt(var[0, row]) * rng.normal(size=(num, 1, mean.shape[-1]))
    draws = np.asarray(likelihood.sample(jax.random.key(0), jnp.asarray(f)))[:, 0]
    whole = likelihood.predictive(jnp.asarray(mean[:1]), jnp.asarray(var[:1]))
    if name in ("bernoulli", "softmax"):
        shares = np.mean(draws == np.arange(whole.probabilities.shape[1]), axis=0)
        np.testing.assert_allclose(whole.probabilities[row], shares, atol=0.005)
        return
    at = y[:, :2]
    np.testing.assert_allclose(whole.mean()[row], draws.mean(axis=0), rtol=0.03, atol=0.01)
    if name != "student":  # whose variance estimates hardly converge
        np.testing.assert_allclose(whole.std()[row], draws.std(axis=0), rtol=0.02)
    below = np.mean(draws < at[row], axis=0) + 0.5 * np.mean(draws == at[row], axis=0)
    np.testing.assert_allclose(whole.cdf(jnp.asarray(at))[row], below, atol=0.005)
    for level in (0.1, 0.5, 0.9):
        quantile = np.asarray(whole.quantile(level))[row]
        assert np.all(np.mean(draws <= quantile, axis=0) > level - 0.006)
        assert np.all(np.mean(draws < quantile, axis=0) < level + 0.006)
    some = draws[:: len(draws) // 2000]
    crps = np.abs(some - at[row]).mean(axis=0) - 0.5 * np.abs(some - some[:, None]).mean(axis=(0, 1))
    np.testing.assert_allclose(whole.crps(jnp.asarray(at))[row], crps, rtol=0.1, atol=0.02)


def test_missing_targets_say_nothing():
    likelihood, (y, mean, var) = Gaussian(jnp.asarray(NOISE)), arrays()
    whole, gaps = expected_log_prob(likelihood, y, mean, var), y.at[1, 0].set(jnp.nan)
    found = expected_log_prob(likelihood, gaps, mean, var)
    np.testing.assert_array_equal(found[:, 1, 0], 0)
    np.testing.assert_array_equal(found.at[:, 1, 0].set(whole[:, 1, 0]), whole)
    precision, projected = sites(likelihood, gaps, mean[0], var[0])
    assert float(precision[1, 0]) == 0
    assert float(projected[1, 0]) == 0


@pytest.mark.parametrize("name", CASES)
def test_a_site_is_within_reach(name):
    likelihood, y, mean, var, _ = case(name)
    precision, projected = sites(likelihood, *map(jnp.asarray, (y, mean[0], var[0])))
    assert np.all(precision >= 0)
    far = np.broadcast_to(np.asarray(likelihood.reach) * (1 + 1e-9), precision.shape)
    assert np.all(np.abs(projected - precision * mean[0]) <= np.where(np.isinf(far), np.inf, far * precision) + 1e-12)


def test_sites_of_students_t_are_observations_with_the_weights_of_em():
    likelihood, y, mean, var, _ = case("student")
    precision, projected = sites(likelihood, *map(jnp.asarray, (y, mean[0], var[0])))
    degrees = np.array([3.0, 7.0])
    np.testing.assert_allclose(precision, (degrees + 1) / (degrees * NOISE + (y - mean[0]) ** 2 + var[0]), rtol=1e-9)
    np.testing.assert_allclose(projected / precision, y, rtol=1e-9)


@pytest.mark.parametrize("dim", [2, 3, 10])
def test_joint_nodes_integrate_cubic_polynomials(dim):
    nodes, weights = joint_nodes(dim)
    np.testing.assert_allclose(weights @ nodes, 0, atol=1e-12)
    np.testing.assert_allclose((weights * nodes.T) @ nodes, np.eye(dim), atol=1e-12)
    np.testing.assert_allclose(np.einsum("k,ki,kj,kl->ijl", weights, nodes, nodes, nodes), 0, atol=1e-12)


@pytest.mark.parametrize("rate", [1e-6, 0.03, 0.3, 1.0, 3.0, 10.0, 200.0, 1e5])
def test_the_poisson_cdf_agrees_with_scipy(rate):
    k = np.unique(np.concatenate([np.arange(-1.0, 30.0), np.floor(rate + np.linspace(-6, 6, 60) * rate**0.5)]))
    found = np.asarray(poisson_cdf(jnp.asarray(k), jnp.full(k.shape, rate)))
    np.testing.assert_allclose(found, stats.poisson.cdf(k, rate), atol=2e-4)


@pytest.mark.parametrize(("rate", "var"), [(0.3, 1.0), (50.0, 0.3), (1e4, 0.04), (1e5, 0.5)])
def test_counts_of_any_size_have_their_distribution(rate, var):
    """Also where the Poisson distribution is far narrower than what is known of its rate."""
    likelihood, mean = Poisson(jnp.zeros(1)), np.log(rate)
    for z in (-2.0, 0.0, 1.5):
        count = float(np.floor(np.exp(mean + z * var**0.5)))

        def density(f, count=count):
            return stats.poisson.pmf(count, np.exp(f)) * stats.norm.pdf(f, mean, var**0.5)

        narrow = 1 / (1 / var + count) ** 0.5  # about as wide as the integrand is
        points = np.log(count + 0.5) + narrow * np.array([-8.0, -2.0, 0.0, 2.0, 8.0])
        exact, _ = integrate.quad(density, mean - 9 * var**0.5, mean + 9 * var**0.5, points=points, limit=500)
        y = jnp.asarray([[count, 0.0]])
        found = likelihood.log_predictive(y, jnp.full((1, 1), mean), jnp.full((1, 1), var))
        assert float(found[0, 0]) == pytest.approx(np.log(exact), abs=0.01)
    whole = likelihood.predictive(jnp.full((1, 1, 1), mean), jnp.full((1, 1, 1), var))
    rng = np.random.default_rng(0)
    draws = rng.poisson(np.exp(mean + var**0.5 * rng.standard_normal(200_000)))
    assert float(whole.mean()[0, 0]) == pytest.approx(draws.mean(), rel=0.02)
    assert float(whole.std()[0, 0]) == pytest.approx(draws.std(), rel=0.06)
    for level in (0.05, 0.25, 0.75, 0.95):
        at = np.asarray(whole.quantile(level))[0, 0]
        assert np.mean(draws < at) - 0.01 < level < np.mean(draws <= at) + 0.01


@pytest.mark.parametrize("degrees", [3.0, 10.0])
def test_students_t_knows_how_rare_an_outlier_is(degrees):
    likelihood = StudentT(jnp.asarray([0.5]), jnp.asarray([degrees]))
    y, nothing = jnp.asarray([[0.0], [3.0], [20.0], [1000.0]]), jnp.zeros((4, 1))
    exact = stats.t.logpdf(np.asarray(y), degrees, 0, 0.5**0.5)
    np.testing.assert_allclose(likelihood.log_predictive(y, nothing, nothing + 1e-9), exact, rtol=1e-4)


def test_large_counts_have_quantiles_too():
    counts = Counts(jnp.full((1, 1, 1), 5e4), jnp.zeros((1, 1, 1)))
    assert float(counts.quantile(0.975)[0, 0]) == pytest.approx(stats.poisson.ppf(0.975, 5e4), abs=1)
    exact = stats.norm.pdf(0) * 2 * 5e4**0.5 - 5e4**0.5 / np.pi**0.5  # of a normal distribution at its centre
    assert float(counts.crps(jnp.full((1, 1), 5e4))[0, 0]) == pytest.approx(exact, rel=0.1)
