"""All likelihoods: closed forms against quadrature, quadrature against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from equinox import filter_jit as jit
from scipy import stats

from overtone.gp.likelihoods import (
    AbstractLikelihood,
    AbstractNoise,
    Bernoulli,
    FlexibleNoise,
    Gaussian,
    Heteroscedastic,
    Poisson,
    Softmax,
    StudentT,
)
from overtone.gp.likelihoods.base import expected_log_prob, joint_nodes
from overtone.gp.likelihoods.counts import AbstractCounts, NegativeBinomial
from overtone.inference.output_layer import sites
from overtone.numerics.params import Fixed, Positive, unwrap
from tests.likelihoods import CASES, COUNTS, LABELS, LOG_EXPOSURE, NOISE, Y, arrays, case

pytestmark = pytest.mark.usefixtures("x64")
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
    y, f = jnp.asarray([[0.0], [1.0]], dtype), jnp.asarray(np.random.default_rng(4).normal(size=(2, num)), dtype)

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


@pytest.mark.parametrize("degrees", [3.0, 10.0])
def test_students_t_knows_how_rare_an_outlier_is(degrees):
    likelihood = StudentT(jnp.asarray([0.5]), jnp.asarray([degrees]))
    y, nothing = jnp.asarray([[0.0], [3.0], [20.0], [1000.0]]), jnp.zeros((4, 1))
    exact = stats.t.logpdf(np.asarray(y), degrees, 0, 0.5**0.5)
    np.testing.assert_allclose(jit(likelihood.log_predictive)(y, nothing, nothing + 1e-9), exact, rtol=1e-4)
