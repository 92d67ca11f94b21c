"""Trigonometric polynomials: what the marginals of a Fourier layer are.

A polynomial of degree M is a vector of coefficients of phi = [1, cos(k t) k = 1..M, sin(k t) k = 1..M]. Products of
two sinusoids are sums of two, so phi^T Q phi is a polynomial of degree 2M for any matrix Q: once its coefficients are
known, each point costs O(M) instead of O(M^2), with the same result to rounding.
"""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

MANY = 200  # frequencies from which on a fast Fourier transform beats a matrix product


def degree(coefficients: Array, axis: int = -1) -> int:
    return coefficients.shape[axis] // 2


def quadratic_forms(
    first: int,
    readout: np.ndarray,
    amplitude: Float[Array, " K"],
    weights: Float[Array, "P rank"],
    U: Float[Array, "K P rank"],
) -> tuple[Float[Array, "P M4"], Float[Array, "K P e"]]:
    """For W = diag(amplitude) U and each output, the quadratic form of W diag(weights) W^T in two ways:

    squares: the coefficients of phi^T W diag(weights) W^T phi, where phi multiplies the rows of W from `first` on, as
        many as the rows of `readout`, before and after, leave;
    crossed: W diag(weights) (readout W)^T.

    The values of the columns on 4M + 1 points of a period, squared and summed, have the coefficients of their sum of
    squares as their Fourier transform. With E and O the even and odd parts at the points t of half a period, the values
    at t and -t are E + O and E - O. No K x K matrix is formed: the cost is that of one product with U, and as much for
    each derivative, of which those of amplitude and weights are by-products: both only scale U.
    """
    num = (len(U) - 2 * first) // 2
    large = num >= MANY
    dtype = U.dtype
    cosines, sines, to_cosines, to_sines = _half_period(1 if large else num, dtype)
    rows = readout.astype(dtype)
    if not large:
        grid = np.zeros((2 * len(cosines), len(U)), dtype)
        grid[: len(cosines), first : first + num + 1] = cosines
        grid[len(cosines) :, first + num + 1 : first + 2 * num + 1] = sines
        rows = np.concatenate([rows, grid])

    @jax.custom_vjp
    def forms(amplitude, weights, U):
        return forward(amplitude, weights, U)[0]

    def forward(amplitude, weights, U):
        Y = jnp.tensordot(rows * amplitude, U, 1)
        z = Y[: len(readout)]
        if large:
            values = _transform(jnp.moveaxis(amplitude[:, None, None] * U, 0, -1)[..., first:-first], _circle(num))
            sums = jnp.einsum("prn,pr->pn", values**2, weights)
            squares = _weights(num, dtype) * _transform_back(sums, 2 * num)
        else:
            values = E, O = Y[len(readout) : len(readout) + 2 * num + 1], Y[len(readout) + 2 * num + 1 :]
            even, odd = jnp.sum((E**2 + O**2) * weights, axis=-1), jnp.sum(2 * E * O * weights, axis=-1)
            squares = jnp.concatenate([jnp.tensordot(to_cosines, even, 1), jnp.tensordot(to_sines, odd, 1)]).T
        crossed = amplitude[:, None, None] * jnp.einsum("kpr,ipr->kpi", U, weights * z)
        return (squares, crossed), (amplitude, weights, U, z, values)

    def backward(saved, gradient):
        amplitude, weights, U, z, values = saved
        by_squares, by_crossed = gradient
        by_z = weights * jnp.einsum("kpi,kpr->ipr", amplitude[:, None, None] * by_crossed, U)
        if large:
            by_sums = _transform(_weights(num, dtype) * by_squares, _circle(num))
            by_values = 2 * by_sums[:, None] * weights[..., None] * values
            by_W = jnp.tensordot(rows.T, by_z, 1)
            by_W = by_W.at[first:-first].add(jnp.moveaxis(_transform_back(by_values, num), -1, 0))
        else:
            E, O = values
            even = jnp.tensordot(to_cosines.T, by_squares.T[: 2 * num + 1], 1)[..., None]
            odd = jnp.tensordot(to_sines.T, by_squares.T[2 * num + 1 :], 1)[..., None]
            by_Y = jnp.concatenate([by_z, 2 * weights * (even * E + odd * O), 2 * weights * (even * O + odd * E)])
            by_W = jnp.tensordot(rows.T, by_Y, 1)
        by_W = by_W + jnp.einsum("kpi,ipr->kpr", by_crossed, weights * z)
        by_U = amplitude[:, None, None] * by_W
        by_amplitude = jnp.einsum("kpr,kpr->k", by_W, U)
        by_weights = jnp.einsum("kpr,kpr->pr", by_U, U) / (2 * weights)
        return by_amplitude, by_weights, by_U

    forms.defvjp(forward, backward)
    return forms(amplitude, weights, U)


@lru_cache(maxsize=16)
def _half_period(num: int, dtype) -> tuple[np.ndarray, ...]:
    """Cosines and sines of degree M at 2M + 1 points of half a period, and the coefficients of even and odd values."""
    t = 2 * np.pi * np.arange(2 * num + 1) / (4 * num + 1)
    k = np.arange(2 * num + 1)
    weights = np.where(k == 0, 1, 2) / (4 * num + 1)  # of the points: t = 0 is one, the others stand for t and -t
    cosines, sines = np.cos(np.outer(t, k)), np.sin(np.outer(t, k))
    to_cosines = np.where(k == 0, 1, 2)[:, None] * cosines.T * weights
    to_sines = 2 * sines.T * weights
    matrices = cosines[:, : num + 1], sines[:, 1 : num + 1], to_cosines, to_sines[1:]
    return tuple(matrix.astype(dtype) for matrix in matrices)


def _circle(num: int) -> int:
    """Points of a period for a polynomial of degree 2M: a power of two above 4M + 1."""
    return 1 << (4 * num).bit_length()


def _weights(num: int, dtype) -> np.ndarray:
    """From sums of values times sinusoids to coefficients."""
    return (np.where(np.arange(4 * num + 1) == 0, 1, 2) / _circle(num)).astype(dtype)


def _transform(coefficients: Float[Array, "*R M2"], points: int) -> Float[Array, "*R points"]:
    """Values at equal distances on a period."""
    num = degree(coefficients)
    constant, cosines, sines = jnp.split(coefficients, [1, num + 1], axis=-1)
    waves = jax.lax.complex(
        jnp.concatenate([2 * constant, cosines], axis=-1), -jnp.concatenate([jnp.zeros_like(constant), sines], axis=-1)
    )
    return 0.5 * jnp.fft.irfft(waves, points, norm="forward")


def _transform_back(values: Float[Array, "*R points"], num: int) -> Float[Array, "*R M2"]:
    """Sums of values times 1, cosines, sines: the transpose of `_transform`."""
    waves = jnp.fft.rfft(values)[..., : num + 1]
    return jnp.concatenate([waves.real, -waves.imag[..., 1:]], axis=-1)


def sum_of_diagonal(s: Float[Array, "*R M2"]) -> Float[Array, "*R M4"]:
    """Coefficients of phi^T diag(s) phi: cos^2 = (1 + cos(2k)) / 2, sin^2 = (1 - cos(2k)) / 2."""
    num = degree(s)
    first, cosines, sines = s[..., :1], s[..., 1 : num + 1], s[..., num + 1 :]
    constant = first + 0.5 * jnp.sum(cosines + sines, axis=-1, keepdims=True)
    even = 0.5 * (cosines - sines)
    doubled = jnp.stack([jnp.zeros_like(even), even], axis=-1).reshape(*even.shape[:-1], 2 * num)
    return jnp.concatenate([constant, doubled, jnp.zeros_like(doubled)], axis=-1)


def derivatives_at_zero(num: int, order: int) -> np.ndarray:
    """phi and its derivatives up to `order` at 0, as rows: cosines 1, 0, -k^2; sines 0, k, 0."""
    k = np.arange(1, num + 1)
    zero, one = np.zeros_like(k), np.ones_like(k)
    return np.asarray([[1, *one, *zero], [0, *zero, *k], [0, *-(k**2), *zero]][: order + 1], float)


def harmonics(t: Float[Array, " N"], num: int) -> Float[Array, "2 K N"]:
    """cos(k t) and sin(k t), k = 1..num, by doubling: log2(num) additions of angles."""
    table = jnp.stack([jnp.cos(t), jnp.sin(t)])[:, None]
    while table.shape[1] < num:
        more = _rotated(table)[:, : num - table.shape[1]]
        # Without the barrier the compiler fuses all doublings into one, and computes the early ones many times over.
        table = jax.lax.optimization_barrier(jnp.concatenate([table, more], axis=1))
    return table


def _rotated(table: Float[Array, "2 K N"]) -> Float[Array, "2 K N"]:
    """The next harmonics, by adding the angle of the last: cos(a + b), sin(a + b)."""
    c, s = table
    return jnp.stack([c[-1] * c - s[-1] * s, s[-1] * c + c[-1] * s])


@jax.custom_vjp
def evaluate(
    high: Float[Array, "R M4"], low: tuple[Float[Array, "_ M2"], ...], t: Float[Array, " N"]
) -> tuple[Float[Array, "R N"], tuple[Float[Array, "_ N"], ...]]:
    """Values at t of polynomials of degree 2M and, in some stacks, of degree M: they all share their sinusoids."""
    values, _ = _forward(high, low, t)
    return values


def _forward(high, low, t):
    num, rows = degree(low[0]), len(high)
    table = harmonics(t, num)
    upper = _rotated(table).reshape(2 * num, -1)
    table = table.reshape(2 * num, -1)
    # d/dt (C cos(k t) + S sin(k t)) = k S cos(k t) - k C sin(k t): derivatives need no sinusoids of their own.
    cosines = jnp.concatenate([high[:, 1 : num + 1], *(part[:, 1 : num + 1] for part in low)])
    sines = jnp.concatenate([high[:, 2 * num + 1 : 3 * num + 1], *(part[:, num + 1 :] for part in low)])
    below, above = (cosines, sines), (high[:, num + 1 : 2 * num + 1], high[:, 3 * num + 1 :])
    k = np.arange(1, num + 1, dtype=t.dtype)
    values = _with_slopes(*below, k) @ table
    beyond = _with_slopes(*above, k + num) @ upper
    half = len(values) // 2
    high_values = values[:rows] + beyond[:rows] + high[:, :1]
    ends = half - np.cumsum([len(part) for part in low[::-1]])[::-1]
    low_values = tuple(values[i : i + len(part)] + part[:, :1] for i, part in zip(ends, low, strict=True))
    return (high_values, low_values), (table, upper, values[half:], beyond[rows:])


def _with_slopes(cosines: Array, sines: Array, k: np.ndarray) -> Array:
    return jnp.concatenate([
        jnp.concatenate([cosines, sines], axis=1),
        jnp.concatenate([k * sines, -k * cosines], axis=1),
    ])


def _backward(saved, gradient):
    table, upper, slopes, beyond = saved
    by_high, by_low = gradient
    rows, num, everything = len(by_high), len(table) // 2, jnp.concatenate([by_high, *by_low])
    constant, below, above = jnp.sum(everything, axis=-1, keepdims=True), everything @ table.T, by_high @ upper.T
    high = [constant[:rows], below[:rows, :num], above[:, :num], below[:rows, num:], above[:, num:]]
    both = jnp.concatenate([constant, below], axis=1)
    ends = np.cumsum([rows, *(len(part) for part in by_low)])
    t_bar = sum(g * s for g, s in zip([*everything, *by_high], [*slopes, *beyond], strict=True))
    return jnp.concatenate(high, axis=1), tuple(both[i:j] for i, j in zip(ends[:-1], ends[1:], strict=True)), t_bar


evaluate.defvjp(_forward, _backward)
