"""Closed forms against quadrature, quadrature against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from overtone.likelihoods import AbstractLikelihood, FlexibleNoise, Gaussian, MixtureNoise
from overtone.mixture import Mixture
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
    mean, var = likelihood.moments(f, jnp.ones_like(f))
    assert float(mean[0, 0]) == 0
    np.testing.assert_allclose(var[0], 1 + NOISE)


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
    log_weights, means, variances = mixture(True).components(mean, var)
    whole = Mixture(means[:, 0], variances[:, 0], log_weights[:, 0])
    for a, b in zip(mixture(True).moments(mean, var), (whole.mean(), whole.var()), strict=True):
        np.testing.assert_allclose(a[0], b, rtol=1e-10)
    draws = mixture(True).sample(jax.random.key(0), jnp.zeros((200_000, 4, 2)))
    centre, spread = mixture().moments(jnp.zeros((4, 2)), jnp.zeros((4, 2)))
    np.testing.assert_allclose(draws.mean(axis=0), centre, atol=0.02)
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
    start = FlexibleNoise.start(0.2, 2, size, np.float64)
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
