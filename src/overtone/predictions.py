"""Prediction for any number of rows.

The functions here are jitted; `over_rows` runs them on chunks of one size, so that memory is bounded, and
nothing is compiled again for another number of rows.
"""

from collections.abc import Callable

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from overtone.compiling import quickly_compiled
from overtone.model import DeepGP, draw, elbo, layer_marginals, predict
from overtone.model import log_density as model_log_density
from overtone.params import unwrap

ROWS, ROWS_TIMES_DRAWS = 256, 4096  # in a chunk, at most: more do not fit into the processor's cache


def over_rows(compute: Callable[..., tuple], *arrays: np.ndarray, draws: int = 1) -> tuple[np.ndarray, ...]:
    """compute(*arrays), a tuple of arrays (..., N, P) made of so many draws of hidden layers, by chunks of rows."""
    rows, parts = max(1, min(ROWS, ROWS_TIMES_DRAWS // draws)), []
    for first in range(0, len(arrays[0]), rows):
        chunk = [a[first : first + rows] for a in arrays]
        size = len(chunk[0])
        padded = [np.concatenate([c, np.repeat(c[-1:], rows - size, axis=0)]) for c in chunk]
        parts.append([np.asarray(r)[..., :size, :] for r in compute(*padded)])
    return tuple(np.concatenate(p, axis=-2) for p in zip(*parts, strict=True))


@quickly_compiled
def moments(model: DeepGP, key: PRNGKeyArray, num_samples: int, X, offset):
    """Mean and standard deviation of y."""
    mixture = predict(model, key, X, num_samples=num_samples, offset=offset)
    return mixture.mean(), mixture.std()


@quickly_compiled
def quantiles(model: DeepGP, key: PRNGKeyArray, num_samples: int, levels, X, offset):
    """Quantiles of y, of shape (levels, N, P)."""
    mixture = predict(model, key, X, num_samples=num_samples, offset=offset)
    return (jax.vmap(mixture.quantile)(levels),)


@quickly_compiled
def probabilities(model: DeepGP, key: PRNGKeyArray, num_samples: int, X):
    """The probability of each class."""
    return (predict(model, key, X, num_samples=num_samples).mean(),)


@quickly_compiled
def log_density(model: DeepGP, key: PRNGKeyArray, num_samples: int, X, y):
    """log p(y) for each row and output."""
    return (model_log_density(model, key, X, y, num_samples=num_samples),)


@quickly_compiled
def scores(model: DeepGP, key: PRNGKeyArray, num_samples: int, X, y, offset):
    """The mean, log p(y), P(Y < y) and the continuous ranked probability score for each row and output."""
    mixture = predict(model, key, X, num_samples=num_samples, offset=offset)
    density = model_log_density(model, key, X, y, num_samples=num_samples)
    y = y[:, : density.shape[1]]
    return mixture.mean(), density, mixture.cdf(y), mixture.crps(y)


@quickly_compiled
def layers(model: DeepGP, key: PRNGKeyArray, num_samples: int, X):
    """Mean and standard deviation of every layer's function: (mean_1, std_1, mean_2, std_2, ...)."""
    marginals = layer_marginals(model, key, X, num_samples=num_samples)
    return tuple(moment for m in marginals for moment in (m.mean(), m.std()))


@quickly_compiled
def bound(model: DeepGP, key: PRNGKeyArray, num_samples: int, X, y):
    """The evidence lower bound of all rows, averaged over single draws to keep memory small."""
    one = jax.lax.map(lambda k: elbo(model, k, X, y, num_data=len(X)), jax.random.split(key, num_samples))
    return one.mean()


@quickly_compiled
def observations(model: DeepGP, key: PRNGKeyArray, num_draws: int, X, offset):
    """Draws of y, of shape (draws, N, P): each one function through all layers, plus noise."""

    def one(key):
        function_key, row_key, noise_key = jax.random.split(key, 3)
        inputs, f = draw(model, function_key, row_key, X)[-1]
        return unwrap(model).likelihood_at(inputs[None]).sample(noise_key, f[None] + offset)[0]

    return jax.lax.map(one, jax.random.split(key, num_draws))
