"""What a prediction's methods return to a user: in the model's precision, one number for each row and output."""

import jax
import numpy as np
import pytest
from scipy import stats

from overtone.gp.predictive.discrete import Counts
from overtone.gp.predictive.mixture import Mixture

RNG = np.random.default_rng(0)
MEANS, STDS = RNG.normal(1.0, 0.3, size=(3, 5, 1)), RNG.uniform(0.2, 1.5, size=(3, 5, 1))
Y = RNG.normal(1.0, 1.0, size=5)


def distribution(kind, *parts):
    with jax.enable_x64(True):
        return kind(*map(jax.device_put, parts))


def test_methods_compute_in_double_precision_where_a_model_does_and_jax_does_not():
    assert not jax.config.read("jax_enable_x64")
    mixture = distribution(Mixture, MEANS, STDS**2)
    expected = {
        "mean": MEANS.mean(axis=0),
        "std": np.sqrt(np.mean(STDS**2 + (MEANS - MEANS.mean(axis=0)) ** 2, axis=0)),
        "cdf": stats.norm.cdf(Y[:, None], MEANS, STDS).mean(axis=0),
        "log_prob": np.log(stats.norm.pdf(Y[:, None], MEANS, STDS).mean(axis=0)),
    }
    for name, value in expected.items():
        found = getattr(mixture, name)(*[Y[:, None]] * (name in ("cdf", "log_prob")))
        np.testing.assert_allclose(found, value, rtol=1e-12)
    median = np.asarray(mixture.quantile(0.5))
    np.testing.assert_allclose(stats.norm.cdf(median, MEANS, STDS).mean(axis=0), 0.5, rtol=1e-12)
    rates = np.exp(MEANS)
    counts = distribution(Counts, rates, np.zeros_like(rates))
    np.testing.assert_allclose(counts.std() ** 2, rates.mean(axis=0) + rates.var(axis=0), rtol=1e-6)
    assert counts.mean().dtype == counts.crps(np.ones((5, 1))).dtype == np.float64


@pytest.mark.parametrize("name", ["log_prob", "cdf", "crps", "score"])
def test_targets_of_one_output_may_be_a_vector(name):
    """They would be compared with every row otherwise."""
    mixture = Mixture(*(jax.device_put(part.astype("f4")) for part in (MEANS, STDS**2)))
    vector, column = (getattr(mixture, name)(y.astype("f4")) for y in (Y, Y[:, None]))
    assert vector.shape == (5, 1)
    np.testing.assert_array_equal(vector, column)
