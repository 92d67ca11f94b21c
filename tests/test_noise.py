"""Gaussian, mixture and flexible noise: closed forms against quadrature and SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from equinox import filter_jit as jit
from scipy import integrate, stats

from overtone.gp.likelihoods import AbstractLikelihood, FlexibleNoise, Gaussian, MixtureNoise
from overtone.inference.output_layer import sites
from tests.likelihoods import MEAN, NOISE, RNG, VAR, Y, arrays

pytestmark = pytest.mark.usefixtures("x64")


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
