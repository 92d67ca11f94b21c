"""How sure hidden layers may be of what they pass on: the noise between layers, by rows left out.

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

from overtone.gp.model import DeepGP, log_density
from overtone.inference.output_layer import statistics, with_optimal_output
from overtone.numerics.compiling import quickly_compiled
from overtone.numerics.params import Positive, unwrap

PARTS, SUM_ROWS, DRAWS = 10, 8192, 32  # parts of the rows; rows times draws for their sums; draws for a density
EXPONENTS, BISECTIONS = (-5.0, -1.0), 5  # of the variance, base 10; the inputs of a layer cover about [0, 1]
AFFORDABLE_LOSS = 0.02  # nats of log density of a row left out: what the larger noise may cost


def with_calibrated_noise(
    model: DeepGP, key: PRNGKeyArray, X: np.ndarray, y: np.ndarray, seconds: float = math.inf
) -> DeepGP:
    """Return the model with the noise between its layers raised as far as rows left out of the output layer allow.

    This is a bisection; after some seconds, compilation not counted, it stays at the best noise until then.
    """
    if len(model.layers) == 1:
        return model
    size = -(-len(X) // PARTS)
    index = np.random.default_rng(0).permutation(PARTS * size).reshape(PARTS, size)
    rows, weights = np.minimum(index, len(X) - 1), (index < len(X)).astype(float)  # the last row fills up the parts

    def density(model: DeepGP) -> float:
        value = np.average(held_out_densities(model, key, X[rows], y[rows], weights), weights=weights)
        return float(value) if np.isfinite(value) else -math.inf

    def affordable() -> list[float]:
        return [exponent for exponent, value in densities.items() if value >= max(densities.values()) - AFFORDABLE_LOSS]

    densities, (low, high) = {-math.inf: density(model)}, EXPONENTS
    began = perf_counter()
    for _ in range(BISECTIONS):
        if perf_counter() - began > seconds or not max(densities.values()) > -math.inf:
            break
        middle = (low + high) / 2
        densities[middle] = density(with_layer_noise(model, 10**middle))
        low, high = (middle, high) if middle in affordable() else (low, middle)
    return with_layer_noise(model, 10 ** max(affordable()))  # 10 to the power of -inf is 0


def with_layer_noise(model: DeepGP, noise: float) -> DeepGP:
    """Return the model with at least so much noise after every hidden layer."""

    def raised(layer):
        own = unwrap(layer.main.noise)
        return layer.with_noise(Positive(np.maximum(own, noise).astype(own.dtype)))

    return eqx.tree_at(lambda m: m.layers, model, (*map(raised, model.layers[:-1]), model.layers[-1]))


@quickly_compiled
def held_out_densities(
    model: DeepGP, key: PRNGKeyArray, X: Float[Array, "K N D"], y: Float[Array, "K N P"], weights: Float[Array, "K N"]
) -> Float[Array, "K N"]:
    """Return the log density of the rows of each part, where the output layer knows the other parts alone."""
    num_draws = max(1, SUM_ROWS // weights.size)

    def sums(part):
        return statistics(model, *part, num_samples=num_draws)[:2]

    by_part = jax.lax.map(sums, (jax.random.split(key, len(X)), X, y, weights))
    total = jax.tree.map(lambda part: jnp.sum(part, axis=0), by_part)

    def density(part):
        X, y, left_out = part
        others = jax.tree.map(jnp.subtract, total, left_out)
        return jnp.sum(log_density(with_optimal_output(model, *others), key, X, y, num_samples=DRAWS), axis=1)

    return jax.lax.map(density, (X, y, by_part))
