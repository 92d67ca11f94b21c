"""Closed forms against quadrature, quadrature against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from equinox import filter_jit as jit
from scipy import integrate, stats
from scipy.special import gammaln

from overtone.gp.likelihoods import (
    AbstractLikelihood,
    AbstractNoise,
    Bernoulli,
    FlexibleNoise,
    Gaussian,
    Heteroscedastic,
    MixtureNoise,
    Poisson,
    Softmax,
    StudentT,
)
from overtone.gp.likelihoods.base import expected_log_prob, joint_nodes
from overtone.gp.likelihoods.counts import (
    AbstractCounts,
    NegativeBinomial,
    gamma_groups,
    grouped_rates,
    log_rising_power,
)
from overtone.gp.predictive.discrete import Counts, poisson_cdf
from overtone.inference.output_layer import sites
from overtone.numerics.params import Fixed, Positive, unwrap

RNG = np.random.default_rng(0)
Y, MEAN, VAR = RNG.normal(size=(4, 2)), RNG.normal(size=(3, 4, 2)), RNG.uniform(0.1, 1.0, size=(3, 4, 2))
NOISE = np.array([0.3, 0.8])
pytestmark = pytest.mark.usefixtures("x64")


def arrays():
    return jnp.asarray(Y), jnp.asarray(MEAN), jnp.asarray(VAR)


def test_gaussian_closed_forms_agree_with_the_default_quadrature():
    likelihood = Gaussian(jnp.asarray(3 * NOISE))  # wide against f, where 20 nodes are exact
    for name in ("expected_log_prob", "log_predictive"):
        closed = jit(getattr(likelihood, name))(*arrays())
        default = jit(getattr(AbstractLikelihood, name))(likelihood, *arrays())
        np.testing.assert_allclose(closed, default, rtol=1e-8)


def test_gaussian_agrees_with_scipy():
    likelihood = Gaussian(jnp.asarray(NOISE))
    y, mean, var = arrays()
    np.testing.assert_allclose(
        jit(likelihood.log_predictive)(y, mean, var), stats.norm.logpdf(Y, MEAN, np.sqrt(VAR + NOISE)), rtol=1e-12
    )
    m, v, n = MEAN[0, 0, 0], VAR[0, 0, 0], NOISE[0]
    expected, _ = integrate.quad(
        lambda f: stats.norm.logpdf(Y[0, 0], f, n**0.5) * stats.norm.pdf(f, m, v**0.5), -15, 15
    )
    assert float(jit(likelihood.expected_log_prob)(y, mean, var)[0, 0, 0]) == pytest.approx(expected, rel=1e-8)


def test_gaussian_samples_have_its_moments():
    likelihood = Gaussian(jnp.asarray(NOISE))
    f = jnp.zeros((100_000, 2))
    sample = jit(likelihood.sample)(jax.random.key(0), f)
    np.testing.assert_allclose(sample.var(axis=0), NOISE, rtol=0.03)
    whole = jit(likelihood.predictive)(f[None, :3], jnp.ones((1, 3, 2)))
    assert float(jit(whole.mean)()[0, 0]) == 0
    np.testing.assert_allclose(jit(whole.var)()[0], 1 + NOISE)


WEIGHTS, SHIFTS, SPREADS = (RNG.uniform(0.2, 1.0, size=(3, 4, 2)) for _ in range(3))
WEIGHTS /= WEIGHTS.sum(axis=0)


def mixture(draws=False):
    """Return mixture noise for values of f (N, P), or with an axis of draws before."""
    parts = np.log(WEIGHTS), SHIFTS, SPREADS
    return MixtureNoise(*(jnp.asarray(part[:, None] if draws else part) for part in parts))


def by_quadrature(likelihood):
    """Return E[log p(y | f)] and log E[p(y | f)], node by node."""
    y, mean, var = arrays()
    nodes, weights = np.polynomial.hermite_e.hermegauss(100)
    log_probs = np.stack([jit(likelihood.log_prob)(y, mean + node * jnp.sqrt(var)) for node in nodes])
    weights = (weights / weights.sum())[:, None, None, None]
    return np.sum(weights * log_probs, axis=0), np.log(np.sum(weights * np.exp(log_probs), axis=0))


def test_mixture_noise_is_a_sum_of_densities():
    f = MEAN[0]
    exact = np.log(np.sum(WEIGHTS * stats.norm.pdf(Y, f + SHIFTS, np.sqrt(SPREADS)), axis=0))
    np.testing.assert_allclose(jit(mixture().log_prob)(jnp.asarray(Y), jnp.asarray(f)), exact, rtol=1e-10)
    _, predictive = by_quadrature(mixture(True))
    np.testing.assert_allclose(jit(mixture(True).log_predictive)(*arrays()), predictive, rtol=1e-6)


def test_the_bound_of_mixture_noise_is_below_the_expectation_and_tight_for_known_f():
    exact, _ = by_quadrature(mixture(True))
    bound = np.asarray(jit(mixture(True).expected_log_prob)(*arrays()))
    assert np.all(bound < exact)
    assert np.mean(exact - bound) < 0.5
    tight = jit(mixture(True).expected_log_prob)(jnp.asarray(Y), jnp.asarray(MEAN), jnp.zeros_like(MEAN))
    np.testing.assert_allclose(tight, jit(mixture(True).log_prob)(jnp.asarray(Y), jnp.asarray(MEAN)), rtol=1e-10)


def test_moments_components_and_draws_of_mixture_noise_agree():
    mean, var = (jnp.asarray(part[:1]) for part in (MEAN, VAR))
    shift = np.sum(WEIGHTS * SHIFTS, axis=0)
    spread = np.sum(WEIGHTS * (SPREADS + (SHIFTS - shift) ** 2), axis=0)
    whole = jit(mixture(True).predictive)(mean, var)
    np.testing.assert_allclose(jit(whole.mean)(), MEAN[0] + shift, rtol=1e-10)
    np.testing.assert_allclose(jit(whole.var)(), VAR[0] + spread, rtol=1e-10)
    draws = jit(mixture(True).sample)(jax.random.key(0), jnp.zeros((200_000, 4, 2)))
    np.testing.assert_allclose(draws.mean(axis=0), shift, atol=0.02)
    np.testing.assert_allclose(draws.var(axis=0), spread, atol=0.03)


def test_sites_of_gaussian_noise_are_the_observations():
    mean, var = jnp.asarray(MEAN[0]), jnp.asarray(VAR[0])
    precision, projected = jit(sites)(Gaussian(jnp.asarray(NOISE)), jnp.asarray(Y), mean, var)
    np.testing.assert_allclose(precision, np.broadcast_to(1 / NOISE, Y.shape), rtol=1e-10)
    np.testing.assert_allclose(projected, Y / NOISE, rtol=1e-10)


def test_sites_of_mixture_noise_are_those_of_the_responsible_components():
    """The EM algorithm: r_c proportional to weight_c exp(E[log N_c]), precision sum r_c / variance_c."""
    mean, var = MEAN[0], VAR[0]
    precision, projected = jit(sites)(mixture(), *map(jnp.asarray, (Y, mean, var)))
    each = WEIGHTS * stats.norm.pdf(Y, mean + SHIFTS, np.sqrt(SPREADS)) * np.exp(-0.5 * var / SPREADS)
    r = each / each.sum(axis=0)
    np.testing.assert_allclose(precision, np.sum(r / SPREADS, axis=0), rtol=1e-9)
    np.testing.assert_allclose(projected, np.sum(r * (Y - SHIFTS) / SPREADS, axis=0), rtol=1e-9)


def test_flexible_noise_at_rows_is_a_function_of_their_features():
    size, rows = 5, 3
    start = FlexibleNoise(noise=0.2).initialised(np.zeros((rows, 2)), size, np.float64)
    assert start.weight.shape == (3, 5, 2, size)
    A = RNG.normal(size=(size, rows))
    given = start.at(lambda W: W @ A, (rows,))
    assert given.means.shape == (5, rows, 2)
    np.testing.assert_allclose(np.sum(np.exp(given.log_weights), axis=0), 1)
    harmonic = 1 / np.sum(np.exp(given.log_weights) / given.variances, axis=0)
    np.testing.assert_allclose(np.broadcast_to(start.reference, (rows, 2)), harmonic, rtol=1e-4)
    weight = RNG.normal(size=start.weight.shape)
    other = FlexibleNoise(base=start.base, weight=jnp.asarray(weight))
    moved = np.log(other.at(lambda W: W @ A, (rows,)).variances - 1e-6) - np.log(given.variances - 1e-6)
    np.testing.assert_allclose(moved, np.einsum("cpm,mr->crp", weight[2], A), rtol=1e-6)
    assert float(start.kl()) == 0
    assert float(other.kl()) == pytest.approx(0.5 * np.sum(weight**2))


COUNTS = np.array([[0.0, 3.0], [1.0, 4.0], [5.0, 0.0], [2.0, 2.0]])
LOG_EXPOSURE = 0.3 * RNG.normal(size=(4, 2))
BASE = np.array([0.3, -0.2, 0.0])
LABELS = np.array([[0.0], [1.0], [2.0], [1.0]])
DISPERSION = np.array([0.3, 1.5])


def negative_binomial(mean, dispersion):
    """Return SciPy's distribution of this mean, of variance mean + dispersion mean^2."""
    return stats.nbinom(1 / dispersion, 1 / (1 + dispersion * mean))


def log_negative_binomial(count, mean, dispersion):
    """Return the logarithm of its probabilities, which SciPy takes long for, from the formula."""
    r = 1 / dispersion
    many = gammaln(count + r) - gammaln(r) - gammaln(count + 1)
    return many + count * (np.log(mean) - np.log(r + mean)) - r * np.log1p(mean / r)


# Each likelihood, its targets, the number of its functions, and log p(y | f) by SciPy.
CASES = {
    "student": (
        lambda: StudentT(jnp.asarray(NOISE), jnp.asarray([3.0, 7.0])),
        Y,
        2,
        lambda y, f: stats.t.logpdf(y, [3.0, 7.0], f, np.sqrt(NOISE)),
    ),
    "heteroscedastic": (
        lambda: Heteroscedastic(base=jnp.log(jnp.asarray(NOISE))),
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
    "negative binomial": (
        lambda: NegativeBinomial(jnp.asarray([0.5, 1.0]), jnp.asarray(DISPERSION)),
        np.concatenate([COUNTS, LOG_EXPOSURE], axis=1),
        2,
        lambda y, f: negative_binomial(np.exp([0.5, 1.0] + f + y[..., 2:]), DISPERSION).logpmf(y[..., :2]),
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


# Each likelihood as a user writes it, and targets to start from.
STARTS = {
    "gaussian": (Gaussian, Y),
    "student": (StudentT, Y),
    "heteroscedastic": (Heteroscedastic, Y),
    "flexible": (FlexibleNoise, Y),
    "poisson": (Poisson, np.concatenate([COUNTS, LOG_EXPOSURE], axis=1)),
    "negative binomial": (NegativeBinomial, np.concatenate([COUNTS, LOG_EXPOSURE], axis=1)),
    "bernoulli": (Bernoulli, np.minimum(LABELS, 1)),
    "softmax": (Softmax, LABELS),
}


@pytest.mark.parametrize("name", STARTS)
def test_a_likelihood_starts_from_its_targets(name):
    make, y = STARTS[name]
    family = make()
    started = family.initialised(y, 5, np.float32)
    arrays = jax.tree.leaves(started)
    assert arrays
    assert all(isinstance(array, jax.Array) and array.dtype == jnp.float32 for array in arrays)
    again = started.initialised(y, 5, np.float32)
    for array, same in zip(arrays, jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(array, same)
    functions = family.num_functions(y)
    assert family.classes == (name in ("bernoulli", "softmax"))
    assert family.counts == (name in ("poisson", "negative binomial"))
    rough = family.rough_functions(y)
    assert rough.shape == (len(y), y.shape[1] if isinstance(family, AbstractNoise) else functions)
    assert np.all(np.isfinite(rough))
    started = unwrap(started)
    assert started.reference.shape == (functions,)
    assert np.all(started.reference > 0)
    assert float(started.kl()) == 0
    shape = (1, len(y))
    bound = started.at(lambda W: W @ jnp.zeros((5, len(y)), jnp.float32), shape)
    assert isinstance(bound, AbstractLikelihood)
    f = jnp.zeros((*shape, functions), jnp.float32)
    y = jnp.asarray(y, jnp.float32)
    assert np.all(np.isfinite(jit(bound.log_prob)(y, f)))
    assert np.all(np.isfinite(jit(bound.predictive)(f, f + 1).mean()))


def test_numbers_to_start_from_become_parameters_and_parameters_stay():
    y = STARTS["poisson"][1]
    for made, value in (
        (Gaussian(0.3).initialised(Y, 5, np.float64).noise, 0.3),
        (StudentT(0.3).initialised(Y, 5, np.float64).scale, 0.3),
        (StudentT(degrees=4.0).initialised(Y, 5, np.float64).degrees, 4.0),
        (NegativeBinomial().initialised(y, 5, np.float64).dispersion, 0.5),
        (NegativeBinomial(dispersion=0.0).initialised(y, 5, np.float64).dispersion, 1.1e-4),
    ):
        assert isinstance(made, Positive)
        np.testing.assert_allclose(unwrap(made), [value, value], rtol=1e-12)
    fixed = Fixed(np.array([0.2, 0.2]))
    assert Gaussian(fixed).initialised(Y, 5, np.float64).noise is fixed
    assert NegativeBinomial(dispersion=fixed).initialised(y, 5, np.float64).dispersion is fixed
    base = jnp.asarray([1.0, 2.0])
    for likelihood in (Heteroscedastic(base=base), Poisson(base), NegativeBinomial(base)):
        targets = y if isinstance(likelihood, AbstractCounts) else Y
        np.testing.assert_array_equal(likelihood.initialised(targets, 5, np.float64).base, base)
    np.testing.assert_allclose(Heteroscedastic(0.3).initialised(Y, 5, np.float64).base, np.log(0.3), rtol=1e-12)
    rates = (COUNTS.sum(axis=0) + 0.5) / np.exp(LOG_EXPOSURE).sum(axis=0)
    for likelihood in (Poisson(), NegativeBinomial()):
        np.testing.assert_allclose(likelihood.initialised(y, 5, np.float64).base, np.log(rates), rtol=1e-12)


def case(name):
    make, y, functions, log_prob = CASES[name]
    rng = np.random.default_rng(1)
    mean, var = rng.normal(size=(3, 4, functions)), rng.uniform(0.05, 0.5, size=(3, 4, functions))
    return make(), y, mean, var, log_prob


def monte_carlo(name, num=200_000):
    """Return E[log p(y | f)] and log E[p(y | f)] of one row for each draw, with their standard errors."""
    _, y, mean, var, log_prob = case(name)
    f = mean[:, 1] + np.sqrt(var[:, 1]) * np.random.default_rng(2).normal(size=(num, *mean[:, 1].shape))
    values = log_prob(y[1], f)
    return values.mean(axis=0), np.log(np.exp(values).mean(axis=0)), 5 * values.std(axis=0) / num**0.5 + 1e-4


@pytest.mark.parametrize("name", CASES)
def test_log_prob_agrees_with_scipy(name):
    likelihood, y, mean, _, log_prob = case(name)
    np.testing.assert_allclose(
        jit(likelihood.log_prob)(jnp.asarray(y), jnp.asarray(mean)), log_prob(y, mean), rtol=1e-6
    )


@pytest.mark.parametrize("name", CASES)
def test_expectations_agree_with_many_draws(name):
    likelihood, y, mean, var, _ = case(name)
    expected, predictive, error = monte_carlo(name)
    arrays = map(jnp.asarray, (y, mean, var))
    found = np.asarray(jit(likelihood.expected_log_prob)(*arrays))[:, 1]
    if name == "student":  # a bound
        assert np.all(found < expected + error)
        known = jit(likelihood.expected_log_prob)(jnp.asarray(y), jnp.asarray(mean), jnp.zeros(mean.shape))
        np.testing.assert_allclose(known, jit(likelihood.log_prob)(jnp.asarray(y), jnp.asarray(mean)), rtol=1e-12)
    else:
        assert np.all(np.abs(found - expected) < error + (2e-3 if name == "softmax" else 0))
    found = np.asarray(jit(likelihood.log_predictive)(*map(jnp.asarray, (y, mean, var))))[:, 1]
    assert np.all(np.abs(found - predictive) < 5 * error + 2e-3)


@pytest.mark.parametrize("name", CASES)
def test_draws_follow_the_predictive_distribution(name):
    likelihood, y, mean, var, _ = case(name)
    num, row = 200_000, 2
    rng = np.random.default_rng(3)
    f = mean[0, row] + np.sqrt(var[0, row]) * rng.normal(size=(num, 1, mean.shape[-1]))
    draws = np.asarray(jit(likelihood.sample)(jax.random.key(0), jnp.asarray(f)))[:, 0]
    whole = jit(likelihood.predictive)(jnp.asarray(mean[:1]), jnp.asarray(var[:1]))
    if name in ("bernoulli", "softmax"):
        shares = np.mean(draws == np.arange(whole.probabilities.shape[1]), axis=0)
        np.testing.assert_allclose(whole.probabilities[row], shares, atol=0.005)
        return
    at = y[:, :2]
    np.testing.assert_allclose(jit(whole.mean)()[row], draws.mean(axis=0), rtol=0.03, atol=0.01)
    if name != "student":  # whose variance estimates hardly converge
        # The standard deviation of draws of such long tails is itself uncertain by 1 %.
        np.testing.assert_allclose(jit(whole.std)()[row], draws.std(axis=0), rtol=0.03 if "negative" in name else 0.02)
    below = np.mean(draws < at[row], axis=0) + 0.5 * np.mean(draws == at[row], axis=0)
    np.testing.assert_allclose(jit(whole.cdf)(jnp.asarray(at))[row], below, atol=0.005)
    for level in (0.1, 0.5, 0.9):
        quantile = np.asarray(jit(whole.quantile)(jnp.asarray(level)))[row]
        assert np.all(np.mean(draws <= quantile, axis=0) > level - 0.006)
        assert np.all(np.mean(draws < quantile, axis=0) < level + 0.006)
    some = draws[:: len(draws) // 2000]
    crps = np.abs(some - at[row]).mean(axis=0) - 0.5 * np.abs(some - some[:, None]).mean(axis=(0, 1))
    np.testing.assert_allclose(jit(whole.crps)(jnp.asarray(at))[row], crps, rtol=0.1, atol=0.02)


def test_missing_targets_say_nothing():
    likelihood, (y, mean, var) = Gaussian(jnp.asarray(NOISE)), arrays()
    whole, gaps = expected_log_prob(likelihood, y, mean, var), y.at[1, 0].set(jnp.nan)
    found = expected_log_prob(likelihood, gaps, mean, var)
    np.testing.assert_array_equal(found[:, 1, 0], 0)
    np.testing.assert_array_equal(found.at[:, 1, 0].set(whole[:, 1, 0]), whole)
    precision, projected = jit(sites)(likelihood, gaps, mean[0], var[0])
    assert float(precision[1, 0]) == 0
    assert float(projected[1, 0]) == 0


@pytest.mark.parametrize("name", CASES)
def test_a_site_is_within_reach(name):
    likelihood, y, mean, var, _ = case(name)
    precision, projected = jit(sites)(likelihood, *map(jnp.asarray, (y, mean[0], var[0])))
    assert np.all(precision >= 0)
    far = np.broadcast_to(np.asarray(likelihood.reach) * (1 + 1e-9), precision.shape)
    assert np.all(np.abs(projected - precision * mean[0]) <= np.where(np.isinf(far), np.inf, far * precision) + 1e-12)


@pytest.mark.parametrize(
    "likelihood", [Bernoulli(jnp.zeros(1)), Softmax(jnp.zeros(3)), Heteroscedastic(0.1, jnp.zeros(1))]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_derivatives_are_finite_where_functions_are_known(likelihood, dtype):
    """At variance 0, as rounding leaves it, the slope is that of log p(y | f), and quadrature divides by no root."""
    likelihood = jax.tree.map(lambda leaf: leaf.astype(dtype), likelihood)
    num = {Softmax: 3, Heteroscedastic: 2}.get(type(likelihood), 1)
    y, f = jnp.asarray([[0.0], [1.0]], dtype), jnp.asarray(RNG.normal(size=(2, num)), dtype)

    def total(mean, var):
        return jnp.sum(expected_log_prob(likelihood, y, mean, var))

    by_mean, by_var = jit(jax.grad(total, argnums=(0, 1)))(f, jnp.zeros_like(f))
    expected = jax.grad(lambda f: jnp.sum(likelihood.log_prob(y, f)))(f)
    np.testing.assert_allclose(by_mean, expected, rtol=1e-4, atol=1e-6)
    assert np.all(np.isfinite(by_var))


def test_sites_of_students_t_are_observations_with_the_weights_of_em():
    likelihood, y, mean, var, _ = case("student")
    precision, projected = jit(sites)(likelihood, *map(jnp.asarray, (y, mean[0], var[0])))
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


@pytest.mark.parametrize("degrees", [3.0, 10.0])
def test_students_t_knows_how_rare_an_outlier_is(degrees):
    likelihood = StudentT(jnp.asarray([0.5]), jnp.asarray([degrees]))
    y, nothing = jnp.asarray([[0.0], [3.0], [20.0], [1000.0]]), jnp.zeros((4, 1))
    exact = stats.t.logpdf(np.asarray(y), degrees, 0, 0.5**0.5)
    np.testing.assert_allclose(jit(likelihood.log_predictive)(y, nothing, nothing + 1e-9), exact, rtol=1e-4)


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
