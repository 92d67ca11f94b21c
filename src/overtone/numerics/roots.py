"""Roots of increasing functions, many at a time."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array


def increasing_root(
    function: Callable, low: Array, high: Array, start: Array, tolerance: Array | float, max_steps: int
) -> Array:
    """Return where increasing functions are zero, between low and high, by Newton's method. Arrays have one shape.

    function(x) returns their values, their slopes, and where x is accurate. Where a step would leave the bracket, or
    the steps do not get shorter, the bracket is halved instead. What is accurate, or hardly moves any more, stays as it
    is, whatever the others still need.
    """

    def improve(state):
        steps, low, high, x, last = state
        value, slope, is_accurate = function(x)
        low, high = jnp.where(value < 0, x, low), jnp.where(value < 0, high, x)
        newton = x - value / slope
        is_safe = (newton >= low) & (newton <= high) & (jnp.abs(newton - x) < 0.5 * last)
        improved = jnp.where(is_safe, newton, 0.5 * (low + high))
        improved = jnp.where(is_accurate | (last <= tolerance), x, improved)
        return steps + 1, low, high, improved, jnp.abs(improved - x)

    def is_inaccurate(state):
        return (state[0] < max_steps) & jnp.any(state[-1] > tolerance)

    return jax.lax.while_loop(is_inaccurate, improve, (0, low, high, start, jnp.full_like(start, jnp.inf)))[3]
