"""Likelihoods, their targets, and what SciPy says of them."""

import jax.numpy as jnp
import numpy as np
from scipy import stats
from scipy.special import gammaln

from overtone.gp.likelihoods import Bernoulli, Heteroscedastic, Poisson, Softmax, StudentT
from overtone.gp.likelihoods.counts import NegativeBinomial

RNG = np.random.default_rng(0)
Y, MEAN, VAR = RNG.normal(size=(4, 2)), RNG.normal(size=(3, 4, 2)), RNG.uniform(0.1, 1.0, size=(3, 4, 2))
NOISE = np.array([0.3, 0.8])


def arrays():
    return jnp.asarray(Y), jnp.asarray(MEAN), jnp.asarray(VAR)


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


def case(name):
    make, y, functions, log_prob = CASES[name]
    rng = np.random.default_rng(1)
    mean, var = rng.normal(size=(3, 4, functions)), rng.uniform(0.05, 0.5, size=(3, 4, functions))
    return make(), y, mean, var, log_prob
