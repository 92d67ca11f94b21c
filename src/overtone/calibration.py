"""How sure hidden layers may be of what they pass on: the noise between layers, by cross-validation.

The bound is an average of log densities over draws of the hidden layers, and so it prefers draws that hardly differ.
Between two rows on either side of a jump, the model is then surer of the place of the jump than two rows allow. After
training, the noise between layers is therefore raised. What the output layer knows of the rows are sums, so that some
rows are left out at the price of a subtraction. The hidden layers have seen these rows all the same, which makes the
surest models look better than they are: of all noises that cost the rows left out little, the largest is taken.
"""

import math
from time import perf_counter

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from overtone.collapsed import statistics, with_optimal_output
from overtone.compiling import quickly_compiled
from overtone.model import DeepGP, log_density
from overtone.params import Positive, unwrap

FOLDS, SUM_ROWS, DRAWS = 10, 8192, 32  # parts of the rows; rows times draws for their sums; draws for a density
EXPONENTS, ROUNDS = (-5.0, -1.0), 5  # of the variance, base 10; the inputs of a layer cover about [0, 1]
PREMIUM = 0.02  # nats of log density of a row left out: what the larger noise may cost


def with_calibrated_noise(
    model: DeepGP, key: PRNGKeyArray, X: np.ndarray, y: np.ndarray, seconds: float = math.inf
) -> DeepGP:
    """The model with the noise between its layers raised as far as rows that the output layer has not seen allow.

    By bisection; after some seconds, compilation not counted, it stays at what was found until then.
    """
    if len(model.layers) == 1:
        return model
    size = -(-len(X) // FOLDS)
    place = np.random.default_rng(0).permutation(FOLDS * size).reshape(FOLDS, size)
    rows, weights = np.minimum(place, len(X) - 1), (place < len(X)).astype(float)  # the last row fills up the parts

    def density(model: DeepGP) -> float:
        value = np.average(held_out_densities(model, key, X[rows], y[rows], weights), weights=weights)
        return float(value) if np.isfinite(value) else -math.inf

    def good() -> list[float]:
        return [exponent for exponent, value in found.items() if value >= max(found.values()) - PREMIUM]

    found, (low, high) = {-math.inf: density(model)}, EXPONENTS
    began = perf_counter()
    for _ in range(ROUNDS):
        if perf_counter() - began > seconds or not max(found.values()) > -math.inf:
            break
        middle = (low + high) / 2
        found[middle] = density(_with_noise(model, 10**middle))
        low, high = (middle, high) if middle in good() else (low, middle)
    return _with_noise(model, 10 ** max(good()))  # 10 to the power of -inf is 0


def _with_noise(model: DeepGP, noise: float) -> DeepGP:
    """With at least as much noise after every hidden layer."""

    def raised(layer):
        value = np.maximum(unwrap(layer.noise), noise).astype(layer.q.mean.dtype)
        return eqx.tree_at(lambda layer: layer.noise, layer, Positive(value))

    return eqx.tree_at(lambda m: m.layers, model, (*map(raised, model.layers[:-1]), model.layers[-1]))


@quickly_compiled
def held_out_densities(
    model: DeepGP,
    key: PRNGKeyArray,
    X: Float[Array, "K N D"],
    y: Float[Array, "K N P"],
    weights: Float[Array, "K N"],
) -> Float[Array, "K N"]:
    """Log density of the rows of each part, where the output layer has seen the other parts. Rows count by weight."""
    num_draws = max(1, SUM_ROWS // weights.size)

    def sums(part):
        return statistics(model, *part, num_samples=num_draws)[:2]

    seen = jax.lax.map(sums, (jax.random.split(key, len(X)), X, y, weights))
    total = jax.tree.map(lambda part: jnp.sum(part, axis=0), seen)

    def density(part):
        X, y, left_out = part
        others = jax.tree.map(jnp.subtract, total, left_out)
        return jnp.sum(log_density(with_optimal_output(model, *others), key, X, y, num_samples=DRAWS), axis=1)

    return jax.lax.map(density, (X, y, seen))
