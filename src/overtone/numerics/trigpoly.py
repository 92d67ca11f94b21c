"""Trigonometric polynomials, the form that the marginals of a Fourier layer have.

A polynomial of degree M is a vector of coefficients of phi = [1, cos(k t) k = 1..M, sin(k t) k = 1..M], where t is
counted in periods: k t is short for 2 pi k t. Values and derivatives at N points cost O(N M), and all polynomials share
the sinusoids. Weighted sums of phi over the points cost the same: `sums` is the transpose of `evaluate`.
"""

from collections.abc import Callable
from functools import lru_cache, partial, reduce
from math import factorial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

CHUNK_ROWS = 1024  # points whose sinusoids are in memory at a time, for sums over all points


def degree(coefficients: Array, axis: int = -1) -> int:
    """Return the degree M of polynomials with 2M + 1 coefficients along an axis."""
    return coefficients.shape[axis] // 2


@jax.custom_vjp
def evaluate(
    high: Float[Array, "R M4"], low: Float[Array, "Q M2"], t: Float[Array, " N"]
) -> tuple[Float[Array, "R N"], Float[Array, "Q N"]]:
    """Return the values at t of polynomials of degree 2M, and of others of degree M."""
    return _values(harmonics(t, degree(low)), high, low)


def _values(tables, high, low):
    """Return the values of polynomials from tables of sinusoids; those above M are for degree 2M alone."""
    below, above = tables
    rows = jnp.concatenate([_fit(_interleaved(stack), len(below)) for stack in (high, low)])
    values = rows @ below + jnp.concatenate([high[:, :1], low[:, :1]])
    return values[: len(high)] + _fit(_interleaved(high)[:, len(below) :], len(above)) @ above, values[len(high) :]


def _values_and_slopes(tables, high, low):
    """Return values, and those of the derivatives: further polynomials, which need no sinusoids of their own."""
    both = _values(tables, *(jnp.concatenate([stack, _derivative(stack)]) for stack in (high, low)))
    return tuple(zip(*(jnp.split(stack, 2) for stack in both), strict=True))


def _forward(high, low, t):
    tables = harmonics(t.value, degree(low.value))
    given = tables, high.value, low.value
    values, slopes = _values_and_slopes(*given) if t.perturbed else (_values(*given), None)  # None for fixed points
    return values, (tables, slopes, low.value[:0])  # an array without rows, whose shape tells the degree


def _backward(saved, gradient):
    tables, slopes, num = *saved[:2], degree(saved[2])
    high, low = (g if isinstance(g, jax.Array) else jnp.zeros(g.shape, g.dtype) for g in gradient)  # symbolic zeros
    by_t = jnp.zeros(tables[0].shape[1:], tables[0].dtype) if slopes is None else _inner((high, low), slopes)
    return *_sums(tables, high, low, num), by_t


evaluate.defvjp(_forward, _backward, symbolic_zeros=True)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def sums(
    high: Float[Array, "R N"], low: Float[Array, "Q N"], t: Float[Array, " N"], num: int
) -> tuple[Float[Array, "R M4"], Float[Array, "Q M2"]]:
    """Return weighted sums of phi(t) over the points, up to degree 2M for the weights `high`, up to M for `low`."""
    return _sums(harmonics(t, num), high, low, num)


def _sums(tables, high, low, num: int):
    """Return `sums` from tables of sinusoids."""
    below, above = tables
    weights = jnp.concatenate([high, low])
    constants = jnp.sum(weights, axis=-1)
    # The larger factor comes first, and the result is transposed at the very end.
    upper = jnp.pad(above @ high.T, ((0, 0), (0, len(low))))
    waves = jnp.concatenate([below @ weights.T, upper]).reshape(-1, 2, len(weights))
    sums_to_2M, sums_to_M = (jnp.concatenate([constants[None], waves[:k, 0], waves[:k, 1]]).T for k in (2 * num, num))
    return sums_to_2M[: len(high)], sums_to_M[len(high) :]


def _sums_forward(high, low, t, num):
    tables = harmonics(t, num)
    return _sums(tables, high, low, num), (tables, high, low)


def _sums_backward(num, saved, gradient):
    tables, *weights = saved
    values, slopes = _values_and_slopes(tables, *gradient)
    return *values, _inner(weights, slopes)


sums.defvjp(_sums_forward, _sums_backward)


def _inner(stacks, slopes) -> Float[Array, " N"]:
    """Return the derivative by t, given those by the values of both stacks."""
    by_high, by_low = (jnp.sum(stack * slope, axis=0) for stack, slope in zip(stacks, slopes, strict=True))
    return by_high + by_low


def sum_over_chunks(of_rows: Callable, *arrays: Float[Array, "N ..."]) -> Any:
    """Return of_rows(*arrays, is_row), a tree of sums over rows, as the total over chunks of rows.

    Tables of the sinusoids of all rows would be large. The last chunk is filled up with copies of the last row, for
    which is_row is 0. Derivatives compute each chunk again.
    """
    num = len(arrays[0])
    rows = min(num, CHUNK_ROWS)
    index = np.arange(-(-num // rows) * rows).reshape(-1, rows)
    chunks = [a[np.minimum(index, num - 1)] for a in arrays]
    is_row = jnp.asarray(index < num, arrays[0].dtype)
    chunk_sums: Any = jax.lax.map(jax.checkpoint(lambda chunk: of_rows(*chunk)), (*chunks, is_row))
    return jax.tree.map(lambda a: jnp.sum(a, axis=0), chunk_sums)


def _interleaved(coefficients: Float[Array, "R M2"]) -> Float[Array, "R K2"]:
    """Return the coefficients without the constant, a cosine and its sine in turn, like the rows of the tables."""
    _, cosines, sines = jnp.split(coefficients, [1, degree(coefficients) + 1], axis=1)
    return jnp.stack([cosines, sines], axis=-1).reshape(len(coefficients), -1)


def _derivative(coefficients: Float[Array, "R M2"]) -> Float[Array, "R M2"]:
    """d/dt (C cos(k t) + S sin(k t)) = 2 pi k (S cos(k t) - C sin(k t))."""
    constant, cosines, sines = jnp.split(coefficients, [1, degree(coefficients) + 1], axis=1)
    k = 2 * np.pi * np.arange(1, degree(coefficients) + 1).astype(coefficients.dtype)
    return jnp.concatenate([0 * constant, k * sines, -k * cosines], axis=1)


def _fit(rows: Float[Array, "R K"], width: int) -> Float[Array, "R width"]:
    """Return the rows cut to this width, or filled up to it with zeros."""
    return jnp.pad(rows[:, :width], ((0, 0), (0, max(0, width - rows.shape[1]))))


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def sinusoids(t: Float[Array, " N"], num: int) -> Float[Array, "M2 N"]:
    """Return phi(t) = [1, cos(k t), sin(k t)], k = 1..M, itself."""
    waves = harmonics(t, num)[0].reshape(-1, 2, len(t))[:num]
    return jnp.concatenate([jnp.ones_like(t)[None], waves[:, 0], waves[:, 1]])


def _sinusoids_forward(t, num):
    phi = sinusoids(t, num)
    return phi, phi


def _sinusoids_backward(num, phi, gradient):
    k = 2 * np.pi * np.arange(1, num + 1).astype(phi.dtype)
    by_cosines, by_sines = gradient[1 : num + 1], gradient[num + 1 :]
    return (k @ (by_sines * phi[1 : num + 1] - by_cosines * phi[num + 1 :]),)


sinusoids.defvjp(_sinusoids_forward, _sinusoids_backward)


def harmonics(t: Float[Array, " N"], num: int) -> tuple[Float[Array, "L2 N"], Float[Array, "H2 N"]]:
    """Return two tables of rows cos(k t), sin(k t) in turn.

    The first goes up to k = num or a little more, the second from there up to 2 num or a little more. Angles are added
    in two levels, e^(i (j B + b) t) = e^(i j B t) e^(i b t): doubling gives about 2 sqrt(2 num) rows, and one pass over
    the table combines them.
    """
    block, lower, total = _levels(num)
    c, s = _multiples(*_cosine_and_sine(t), block)
    C, S = _multiples(c[-1], s[-1], total - 1)
    C, S = jnp.concatenate([jnp.ones_like(t)[None], C]), jnp.concatenate([jnp.zeros_like(t)[None], S])
    # Without the barrier, the compiler would compute these few rows again for each row of the table.
    C, S, plain, turned = jax.lax.optimization_barrier((C, S, jnp.stack([c, s], axis=1), jnp.stack([-s, c], axis=1)))
    tables = (C[j, None, None] * plain + S[j, None, None] * turned for j in (np.s_[:lower], np.s_[lower:]))
    below, above = (table.reshape(-1, len(t)) for table in tables)
    return below, above


def _cosine_and_sine(t: Float[Array, " N"]) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
    """Return cos(t) and sin(t), by power series of r, a quarter of a period minus |t|.

    They are many times quicker than the library's functions.
    """
    t = t - jnp.round(t)
    r = np.pi / 2 - 2 * np.pi * jnp.abs(t)
    terms = 8 if t.dtype == jnp.float32 else 13

    def series(odd: int) -> Array:
        coefficients = [(-1) ** k / factorial(2 * k + odd) for k in range(terms)]
        return reduce(lambda value, c: c + r**2 * value, coefficients[::-1], jnp.zeros_like(r))

    return r * series(1), jnp.where(t < 0, -1, 1) * series(0)


@lru_cache(maxsize=64)
def _levels(num: int) -> tuple[int, int, int]:
    """Return the size of a block and how many blocks cover 1..num and 1..2 num, for the smallest tables."""
    sizes = range(1, 2 * int(num**0.5) + 3)
    return min(((b, -(-num // b), -(-2 * num // b)) for b in sizes), key=lambda s: s[0] * s[2] + 2 * (s[0] + s[2]))


def _multiples(c: Float[Array, " N"], s: Float[Array, " N"], num: int):
    """Return the cosines and sines of the multiples 1..num of an angle, by doubling."""
    c, s = c[None], s[None]
    while len(c) < num:
        m = min(len(c), num - len(c))
        more = c[-1] * c[:m] - s[-1] * s[:m], s[-1] * c[:m] + c[-1] * s[:m]
        c, s = jax.lax.optimization_barrier((jnp.concatenate([c, more[0]]), jnp.concatenate([s, more[1]])))
    return c[:num], s[:num]
