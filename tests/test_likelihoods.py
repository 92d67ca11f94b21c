"""Closed forms against quadrature, quadrature against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from overtone.likelihoods import AbstractLikelihood, Gaussian

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
