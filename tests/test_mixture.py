"""The predictive mixture against SciPy and large samples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from overtone.gp.predictive.mixture import Mixture

RNG = np.random.default_rng(0)
MEANS, STDS = RNG.normal(size=(5, 3, 2)), RNG.uniform(0.2, 1.5, size=(5, 3, 2))
pytestmark = pytest.mark.usefixtures("x64")


@pytest.fixture
def mixture(x64):
    return Mixture(jnp.asarray(MEANS), jnp.asarray(STDS**2))


def test_moments_are_those_of_the_mixture(mixture):
    """Mean of variances plus variance of means, not the mean of variances alone."""
    which = RNG.integers(5, size=400_000)
    sample = MEANS[which] + STDS[which] * RNG.normal(size=(400_000, 3, 2))
    np.testing.assert_allclose(mixture.mean(), sample.mean(axis=0), atol=0.02)
    np.testing.assert_allclose(mixture.std(), sample.std(axis=0), atol=0.02)
    assert np.all(mixture.var() > np.mean(STDS**2, axis=0))


def test_log_density_is_the_log_of_the_mean(mixture):
    y = RNG.normal(size=(3, 2))
    expected = logsumexp(stats.norm.logpdf(y, MEANS, STDS), axis=0) - np.log(5)
    np.testing.assert_allclose(mixture.log_prob(jnp.asarray(y)), expected, rtol=1e-12)


@pytest.mark.parametrize("level", [0.001, 0.05, 0.5, 0.975])
def test_quantiles_invert_the_distribution_function(mixture, level):
    q = np.asarray(mixture.quantile(level))
    np.testing.assert_allclose(np.mean(stats.norm.cdf(q, MEANS, STDS), axis=0), level, rtol=1e-9)


@pytest.mark.parametrize("level", [1e-6, 0.3, 0.5, 0.7, 1 - 1e-6])
def test_quantiles_of_peaks_far_apart_and_of_one_point(level):
    """Between peaks the density is next to nothing, and Newton's steps lead anywhere."""
    means = np.array([[0.0, 5.0], [1e4, 5.0], [1e4 + 1e-3, 5.0]])[:, None]
    stds = np.array([[1e-3, 1e-8], [1e2, 1e-8], [1e-6, 1e-8]])[:, None]
    q = np.asarray(Mixture(jnp.asarray(means), jnp.asarray(stds**2)).quantile(level))
    below, above = (np.mean(stats.norm.cdf(q + s * 1e-9 * (1 + np.abs(q)), means, stds), axis=0) for s in (-1, 1))
    assert np.all(below <= level)
    assert np.all(above >= level)


def test_the_quantile_of_a_row_does_not_depend_on_other_rows():
    mixture = Mixture(jnp.asarray(MEANS, jnp.float32), jnp.asarray(STDS**2, jnp.float32))
    alone = Mixture(mixture.means[:, :1], mixture.variances[:, :1])
    np.testing.assert_array_equal(mixture.quantile(0.9)[:1], alone.quantile(0.9))


def test_weights_count_like_copies_of_a_component():
    """Weights 1/6, 2/6, 3/6 against one, two and three equal components."""
    copies = np.repeat(np.arange(3), [1, 2, 3])
    even = Mixture(jnp.asarray(MEANS[copies]), jnp.asarray(STDS[copies] ** 2))
    log_weights = jnp.broadcast_to(jnp.log(jnp.asarray([1.0, 2.0, 3.0]) / 6)[:, None, None], (3, 3, 2))
    weighted = Mixture(jnp.asarray(MEANS[:3]), jnp.asarray(STDS[:3] ** 2), log_weights)
    y = jnp.asarray(RNG.normal(size=(3, 2)))
    for of in (Mixture.mean, Mixture.var, lambda m: m.log_prob(y), lambda m: m.cdf(y), lambda m: m.quantile(0.1)):
        np.testing.assert_allclose(of(weighted), of(even), rtol=1e-9)


def test_the_sample_axis_stays_inside(mixture):
    for value in (mixture.mean(), mixture.var(), mixture.std(), mixture.quantile(0.5)):
        assert value.shape == (3, 2)


def test_crps_is_the_integral_of_the_squared_difference_of_distributions():
    rng = np.random.default_rng(0)
    parts = [jnp.asarray(rng.standard_normal((3, 4, 1))), jnp.asarray(rng.uniform(0.1, 1, (3, 4, 1)))]
    weights = jax.nn.log_softmax(jnp.asarray(rng.standard_normal((3, 4, 1))), axis=0)
    y, t = rng.standard_normal((4, 1)), np.linspace(-12, 12, 40_001)
    for log_weights in (None, weights):
        mixture = Mixture(*parts, log_weights)
        below = np.stack([np.asarray(mixture.cdf(jnp.full((4, 1), v)))[:, 0] for v in t[::40]], axis=1)
        expected = np.trapezoid((below - (t[::40] >= y)) ** 2, t[::40], axis=1)
        np.testing.assert_allclose(mixture.crps(jnp.asarray(y))[:, 0], expected, atol=0.02)


@pytest.mark.parametrize("distance", [3.0, 10.0])
def test_crps_of_many_components_counts_an_outlying_one(distance):
    """One of 200 components lies far from the others: on a fine grid, against the integral itself."""
    means = np.random.default_rng(2).normal(scale=0.3, size=200)
    means[0] = distance
    mixture = Mixture(*(jnp.asarray(part)[:, None, None] for part in (means, np.full(200, 0.1))))
    t = np.linspace(-10, distance + 10, 40_001)
    below = np.mean(stats.norm.cdf(t[:, None], means, 0.1**0.5), axis=1)
    expected = np.trapezoid((below - (t >= 0.2)) ** 2, t)
    np.testing.assert_allclose(mixture.crps(jnp.full((1, 1), 0.2))[0, 0], expected, rtol=2e-3)


def test_crps_of_heavy_tails_counts_the_widest_components():
    """Student's t with 3 degrees of freedom as the mixture that its likelihood makes of it."""
    t, half = np.linspace(-8, 4, 100), 1.5
    log_weights = half * (t - np.exp(t))
    parts = np.zeros(100), np.exp(-t), log_weights - logsumexp(log_weights)
    mixture = Mixture(*(jnp.asarray(part)[:, None, None] for part in parts))
    grid = np.linspace(-2000, 2000, 400_001)
    below = stats.t.cdf(grid, 3)
    expected = np.trapezoid((below - (grid >= 0)) ** 2, grid)
    np.testing.assert_allclose(mixture.crps(jnp.zeros((1, 1)))[0, 0], expected, rtol=1e-4)


def test_crps_of_many_components_agrees_with_that_by_pairs():
    rng = np.random.default_rng(1)
    scales = np.repeat(rng.uniform(0.3, 4, 5), 32)[:, None, None]
    many = Mixture(jnp.asarray(rng.normal(size=(160, 3, 1))), jnp.asarray(np.broadcast_to(scales**2, (160, 3, 1))))
    error = many._half_distance() - many._half_distance_by_pairs()
    assert np.abs(error / many.std()).max() < 1e-4
    y = jnp.zeros((3, 1))
    apart = jnp.mean(jnp.abs(many.means), axis=0)  # by Jensen, E|Y - 0| is at least the mean of |means|
    assert np.all(many.crps(y) > apart - many._half_distance_by_pairs() - 1e-3)
