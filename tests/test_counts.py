"""Counts of any size: probabilities, predictive distributions, expectations and derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from equinox import filter_jit as jit
from scipy import integrate, stats

from overtone.gp.likelihoods import Poisson
from overtone.gp.likelihoods.counts import NegativeBinomial, gamma_groups, grouped_rates, log_rising_power
from overtone.gp.predictive.discrete import Counts, poisson_cdf
from overtone.inference.output_layer import sites
from tests.likelihoods import CASES, MEAN, VAR, case, log_negative_binomial, negative_binomial

pytestmark = pytest.mark.usefixtures("x64")


@pytest.mark.parametrize("rate", [1e-6, 0.03, 0.3, 1.0, 3.0, 10.0, 200.0, 1e5])
def test_the_poisson_cdf_agrees_with_scipy(rate):
    k = np.unique(np.concatenate([np.arange(-1.0, 30.0), np.floor(rate + np.linspace(-6, 6, 60) * rate**0.5)]))
    found = np.asarray(jit(poisson_cdf)(jnp.asarray(k), jnp.full(k.shape, rate)))
    np.testing.assert_allclose(found, stats.poisson.cdf(k, rate), atol=2e-4)


@pytest.mark.parametrize("dispersion", [None, 0.05, 0.5, 2.0])
@pytest.mark.parametrize(("rate", "var"), [(0.3, 1.0), (50.0, 0.3), (1e4, 0.04), (1e5, 0.5)])
def test_counts_of_any_size_have_their_distribution(rate, var, dispersion):
    """The likelihood may be far narrower than what is known of the rate."""
    mean = np.log(rate)
    if dispersion is None:
        likelihood = Poisson(jnp.zeros(1))
    else:
        likelihood = NegativeBinomial(jnp.zeros(1), jnp.asarray([dispersion]))

    def given(f):
        return stats.poisson(np.exp(f)) if dispersion is None else negative_binomial(np.exp(f), dispersion)

    for z in (-2.0, 0.0, 1.5):
        count = float(np.floor(np.exp(mean + z * var**0.5)))

        def density(f, count=count):
            return given(f).pmf(count) * stats.norm.pdf(f, mean, var**0.5)

        narrow = 1 / (1 / var + count) ** 0.5  # about as wide as the integrand is
        points = np.log(count + 0.5) + narrow * np.array([-8.0, -2.0, 0.0, 2.0, 8.0])
        exact, _ = integrate.quad(density, mean - 9 * var**0.5, mean + 9 * var**0.5, points=points, limit=500)
        y = jnp.asarray([[count, 0.0]])
        found = jit(likelihood.log_predictive)(y, jnp.full((1, 1), mean), jnp.full((1, 1), var))
        assert float(found[0, 0]) == pytest.approx(np.log(exact), abs=1e-4)
    whole = jit(likelihood.predictive)(jnp.full((1, 1, 1), mean), jnp.full((1, 1, 1), var))
    rng = np.random.default_rng(0)
    draws = given(mean + var**0.5 * rng.standard_normal(200_000)).rvs(random_state=rng)
    first, second = rate * np.exp(0.5 * var), rate**2 * np.exp(2 * var)  # moments of the rate
    variance = first + (1 + (dispersion or 0)) * second - first**2
    assert float(jit(whole.mean)()[0, 0]) == pytest.approx(first, rel=0.02)
    assert float(jit(whole.std)()[0, 0]) == pytest.approx(variance**0.5, rel=0.06)
    for level in (0.05, 0.25, 0.75, 0.95):
        at = np.asarray(jit(whole.quantile)(jnp.asarray(level)))[0, 0]
        assert np.mean(draws < at) - 0.01 < level < np.mean(draws <= at) + 0.01


def test_large_counts_have_quantiles_too():
    counts = Counts(jnp.full((1, 1, 1), 5e4), jnp.zeros((1, 1, 1)))
    assert float(jit(counts.quantile)(jnp.asarray(0.975))[0, 0]) == pytest.approx(stats.poisson.ppf(0.975, 5e4), abs=1)
    exact = stats.norm.pdf(0) * 2 * 5e4**0.5 - 5e4**0.5 / np.pi**0.5  # of a normal distribution at its centre
    assert float(jit(counts.crps)(jnp.full((1, 1), 5e4))[0, 0]) == pytest.approx(exact, rel=0.1)


@pytest.mark.parametrize("dispersion", [0.05, 0.5, 2.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_predicted_counts_of_a_known_rate_are_negative_binomial(dispersion, dtype):
    rates = np.array([0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0], dtype)
    likelihood = NegativeBinomial(jnp.zeros(1, dtype), jnp.asarray([dispersion], dtype))
    whole = jit(likelihood.predictive)(jnp.log(jnp.asarray(rates))[None, :, None], jnp.zeros((1, len(rates), 1), dtype))
    assert whole.rates.dtype == dtype
    exact = negative_binomial(rates.astype(float)[:, None], dispersion)
    np.testing.assert_allclose(np.sum(np.exp(whole.log_weights), axis=0), 1, rtol=1e-5)
    np.testing.assert_allclose(jit(whole.mean)(), exact.mean(), rtol=1e-5)
    np.testing.assert_allclose(jit(whole.std)(), exact.std(), rtol=1e-5)
    levels = np.array([0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999])
    counts = np.unique(np.concatenate([np.arange(10.0), exact.ppf(levels).ravel()]))
    at_most = jax.jit(jax.vmap(lambda k: whole.at_most(jnp.full((len(rates), 1), k))))(jnp.asarray(counts, dtype))
    np.testing.assert_allclose(at_most[..., 0], exact.cdf(counts).T, atol=2e-3)
    quantiles = np.asarray(jax.jit(jax.vmap(whole.quantile))(jnp.asarray(levels, dtype)))[..., 0].T
    assert np.all(exact.cdf(quantiles - 1) < levels + 2e-3)
    assert np.all(exact.cdf(quantiles) > levels - 2e-3)


@pytest.mark.parametrize("dispersion", [0.05, 2.0])
def test_many_hidden_draws_are_grouped_without_loss(dispersion):
    """The mean and the variance stay as they are, and the distribution follows that of the draws."""
    rng = np.random.default_rng(0)
    means, var = 2 + 0.7 * rng.standard_normal((64, 2, 1)), np.full((64, 2, 1), 0.1)
    likelihood = NegativeBinomial(jnp.zeros(1), jnp.asarray([dispersion]))
    whole = jit(likelihood.predictive)(jnp.asarray(means), jnp.asarray(var))
    assert whole.rates.shape == (1024, 2, 1)
    all_rates, spreads = jit(likelihood.rates)(jnp.asarray(means), jnp.asarray(var))
    weights, rates, grouped_spreads = jit(grouped_rates)(all_rates, spreads)
    assert rates.shape == (32, 2, 1)
    before, after = (
        Counts(all_rates, spreads),
        Counts(rates, grouped_spreads, jnp.broadcast_to(jnp.log(weights)[:, None, None], rates.shape)),
    )
    mean, std = jit(before.mean)(), jit(before.std)()
    np.testing.assert_allclose(jit(after.mean)(), mean, rtol=1e-10)
    np.testing.assert_allclose(jit(after.std)(), std, rtol=1e-10)
    np.testing.assert_allclose(jit(whole.mean)(), mean, rtol=1e-5)
    variance = std**2 + dispersion * (std**2 - mean + mean**2)
    np.testing.assert_allclose(jit(whole.std)() ** 2, variance, rtol=1e-4)
    nodes, node_weights = np.polynomial.hermite_e.hermegauss(30)
    given = negative_binomial(np.exp(means + var**0.5 * nodes), dispersion)
    for count in (0.0, 1.0, 5.0, 20.0, 80.0):
        exact = np.average(given.cdf(count), axis=-1, weights=node_weights).mean(axis=0)[:, None]
        np.testing.assert_allclose(jit(whole.at_most)(jnp.full((2, 1), count)), exact, atol=2e-3)


@pytest.mark.parametrize("shape", [0.05, 0.5, 3.0, 100.0, 1e4])
def test_groups_of_a_gamma_variable_have_its_moments(shape):
    weights, means, spreads = (np.asarray(part)[:, 0] for part in jit(gamma_groups)(jnp.asarray([shape])))
    assert np.sum(weights) == pytest.approx(1, rel=1e-12)
    assert np.sum(weights * means) == pytest.approx(1, rel=1e-5)
    assert np.sum(weights * ((means - 1) ** 2 + (means * spreads) ** 2)) == pytest.approx(1 / shape, rel=1e-4)


@pytest.mark.parametrize("dispersion", [1e-4, 0.05, 0.5, 2.0, 10.0])
@pytest.mark.parametrize("var", [1e-3, 0.3, 2.0])
def test_negative_binomial_expectations_agree_with_adaptive_quadrature(dispersion, var):
    likelihood = NegativeBinomial(jnp.asarray([0.5]), jnp.asarray([dispersion]))
    for count, mean in [(0.0, -2.0), (0.0, 3.0), (1.0, 0.0), (7.0, -1.0), (7.0, 4.0), (400.0, 5.0), (400.0, 2.5)]:

        def log_prob(f, count=count):
            return log_negative_binomial(count, np.exp(0.5 + f), dispersion)

        def log_prior(f, mean=mean):
            return -0.5 * ((f - mean) ** 2 / var + np.log(2 * np.pi * var))

        best = np.log(count + 0.5) - 0.5
        f = np.linspace(min(mean, best) - 9 * var**0.5, max(mean, best) + 9 * var**0.5, 1001)
        rounding = count * np.finfo(float).eps / (dispersion * np.exp(0.5 + f))  # of 1 - p, in SciPy
        exact = negative_binomial(np.exp(0.5 + f), dispersion).logpmf(count)
        assert np.all(np.abs(log_prob(f) - exact) < 1e-9 * (1 + np.abs(exact)) + rounding)
        mode = f[np.argmax(log_prob(f) + log_prior(f))]
        top = log_prob(mode) + log_prior(mode)

        def joint(f, log_prob=log_prob, log_prior=log_prior, top=top):
            return np.exp(log_prob(f) + log_prior(f) - top)

        def weighted(f, log_prob=log_prob, log_prior=log_prior):
            return np.exp(log_prior(f)) * log_prob(f)

        y, where = jnp.asarray([[count, 0.0]]), (jnp.full((1, 1), mean), jnp.full((1, 1), var))
        expected, _ = integrate.quad(weighted, mean - 9 * var**0.5, mean + 9 * var**0.5, points=[mean], limit=500)
        assert float(jit(likelihood.expected_log_prob)(y, *where)[0, 0]) == pytest.approx(expected, rel=1e-5)
        evidence, _ = integrate.quad(joint, f[0], f[-1], points=[mode], limit=500, epsabs=0)
        assert float(jit(likelihood.log_predictive)(y, *where)[0, 0]) == pytest.approx(np.log(evidence) + top, abs=1e-4)


@pytest.mark.parametrize("name", ["poisson", "negative binomial"])
def test_derivatives_of_counts_are_those_of_the_log_probability(name):
    likelihood, y, mean, _, _ = case(name)
    y, f = jnp.asarray(y), jnp.asarray(mean[0])
    score = jax.grad(lambda f: jnp.sum(likelihood.log_prob(y, f)))
    _, second = jax.jvp(score, (f,), (jnp.ones_like(f),))
    first, information = likelihood.derivatives(y[:, :2], likelihood.base + f + y[:, 2:])
    np.testing.assert_allclose(first, score(f), rtol=1e-9)
    np.testing.assert_allclose(information, -second, rtol=1e-9)


@pytest.mark.parametrize("name", ["poisson", "negative binomial"])
def test_gradients_of_the_predictive_density_of_counts_are_those_of_differences(name):
    """The nodes of the rule are constants to the gradient."""
    likelihood, y, mean, var, _ = case(name)
    arguments = likelihood, jnp.asarray(mean), jnp.asarray(var)

    def total(arguments):
        likelihood, mean, var = arguments
        return jnp.sum(likelihood.log_predictive(jnp.asarray(y), mean, var))

    keys = iter(jax.random.split(jax.random.key(0), 8))
    direction = jax.tree.map(lambda a: jax.random.normal(next(keys), a.shape), arguments)
    gradient = jax.jit(jax.grad(total))(arguments)
    slope = sum(jnp.vdot(g, d) for g, d in zip(*map(jax.tree.leaves, (gradient, direction)), strict=True))
    ahead = jit(total)(jax.tree.map(lambda a, d: a + 1e-4 * d, arguments, direction))
    behind = jit(total)(jax.tree.map(lambda a, d: a - 1e-4 * d, arguments, direction))
    assert float(slope) == pytest.approx(float(ahead - behind) / 2e-4, rel=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["poisson", "negative binomial"])
def test_counts_far_from_what_is_expected_have_finite_values_and_gradients(name, dtype):
    dispersion = np.array([1e-4, 0.5, 20.0], dtype)
    grid = np.meshgrid([0.0, 1.0, 1e3, 1e6], [1e-6, 1.0, 1e6], [1e-12, 0.1, 10.0])
    counts, rates, var = (np.repeat(part.reshape(-1, 1), len(dispersion), axis=1).astype(dtype) for part in grid)
    y, mean, var = jnp.asarray(np.concatenate([counts, 0 * counts], axis=1)), jnp.log(rates), jnp.asarray(var)
    base = jnp.zeros(len(dispersion), dtype)
    likelihood = Poisson(base) if name == "poisson" else NegativeBinomial(base, jnp.asarray(dispersion))
    for method in ("expected_log_prob", "log_predictive"):

        def total(likelihood, mean, var, method=method):
            return jnp.sum(getattr(likelihood, method)(y, mean, var))

        value, gradient = jax.jit(jax.value_and_grad(total, (0, 1, 2)))(likelihood, mean, var)
        assert np.isfinite(value)
        assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))
    precision, projected = jit(sites)(likelihood, y, mean, var)
    assert np.all(np.isfinite(precision) & (precision > 0))
    assert np.all(np.isfinite(projected))


def test_little_dispersion_is_poissons_distribution():
    y, mean, var = (jnp.asarray(part) for part in (CASES["poisson"][1], MEAN[0], VAR[0]))
    base = jnp.asarray([0.5, 1.0])
    poisson, limit = Poisson(base), NegativeBinomial(base, jnp.full(2, 1e-9))
    np.testing.assert_allclose(jit(limit.log_prob)(y, mean), jit(poisson.log_prob)(y, mean), rtol=1e-6)
    for name in ("expected_log_prob", "log_predictive"):
        np.testing.assert_allclose(
            jit(getattr(limit, name))(y, mean, var), jit(getattr(poisson, name))(y, mean, var), rtol=1e-5
        )
    for part in zip(jit(sites)(limit, y, mean, var), jit(sites)(poisson, y, mean, var), strict=True):
        np.testing.assert_allclose(*part, rtol=1e-4)
    ours, theirs = (jit(likelihood.predictive)(mean[None], var[None]) for likelihood in (limit, poisson))
    np.testing.assert_allclose(jit(ours.mean)(), jit(theirs.mean)(), rtol=1e-6)
    np.testing.assert_allclose(jit(ours.std)(), jit(theirs.std)(), rtol=1e-6)
    np.testing.assert_allclose(jit(ours.cdf)(y[:, :2]), jit(theirs.cdf)(y[:, :2]), atol=1e-6)
    single = NegativeBinomial(base.astype(np.float32), jnp.full(2, 1e-4, np.float32))
    double = negative_binomial(np.exp(np.asarray(base + mean + y[:, 2:])), 1e-4).logpmf(np.asarray(y[:, :2]))
    np.testing.assert_allclose(jit(single.log_prob)(y.astype(np.float32), mean.astype(np.float32)), double, atol=1e-5)


@pytest.mark.parametrize("r", [0.05, 1.0, 7.99, 8.01, 300.0])
def test_the_rising_power_is_a_product(r):
    exact = [np.sum(np.log1p(np.arange(y) / r)) for y in (0, 1, 5, 1000)]
    found = log_rising_power(jnp.asarray(r), jnp.asarray([0.0, 1.0, 5.0, 1000.0]))
    np.testing.assert_allclose(found, exact, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dispersion", [0.05, 0.5, 2.0])
def test_negative_binomial_samples_have_its_moments(dispersion):
    likelihood = NegativeBinomial(jnp.log(jnp.asarray([0.7, 20.0])), jnp.full(2, dispersion))
    draws = np.asarray(jit(likelihood.sample)(jax.random.key(0), jnp.zeros((200_000, 2))))
    exact = negative_binomial(np.array([0.7, 20.0]), dispersion)
    np.testing.assert_allclose(draws.mean(axis=0), exact.mean(), rtol=0.02)
    np.testing.assert_allclose(draws.var(axis=0), exact.var(), rtol=0.05)
    np.testing.assert_allclose(np.mean(draws == 0, axis=0), exact.pmf(0), atol=0.004)


def test_weighted_counts_are_like_copies_of_a_component():
    """Weights 1/6, 2/6, 3/6 stand for one, two and three equal components."""
    copies, rng = np.repeat(np.arange(3), [1, 2, 3]), np.random.default_rng(0)
    rates, spreads = rng.uniform(0.5, 40, size=(3, 4, 2)), rng.uniform(0, 0.3, size=(3, 4, 2))
    even = Counts(jnp.asarray(rates[copies]), jnp.asarray(spreads[copies]))
    log_weights = jnp.broadcast_to(jnp.log(jnp.asarray([1.0, 2.0, 3.0]) / 6)[:, None, None], rates.shape)
    weighted = Counts(jnp.asarray(rates), jnp.asarray(spreads), log_weights)
    y = jnp.asarray(rng.integers(0, 40, size=(4, 2)).astype(float))
    of_y = (Counts.at_most, Counts.cdf, Counts.crps)
    for value in (Counts.mean, Counts.std, *(lambda c, m=m: m(c, y) for m in of_y), lambda c: c.quantile(0.3)):
        np.testing.assert_allclose(jax.jit(value)(weighted), jax.jit(value)(even), rtol=1e-9)
