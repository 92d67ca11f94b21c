"""Quadratic forms of Fourier features as trigonometric polynomials.

Products of two sinusoids are sums of two, so phi^T Q phi is a polynomial of degree 2M for any matrix Q: once its
coefficients are known, each point costs O(M) instead of O(M^2), with the same result to rounding. No M x M matrix Q is
formed: its factor is enough.
"""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from overtone.numerics.trigpoly import degree

FFT_FREQUENCIES = 200  # from so many on, a fast Fourier transform beats a matrix product


def sum_of_diagonal(s: Float[Array, "*R M2"]) -> Float[Array, "*R M4"]:
    """Return the coefficients of phi^T diag(s) phi: cos^2 = (1 + cos(2k)) / 2, sin^2 = (1 - cos(2k)) / 2."""
    num = degree(s)
    first, cosines, sines = s[..., :1], s[..., 1 : num + 1], s[..., num + 1 :]
    constant = first + 0.5 * jnp.sum(cosines + sines, axis=-1, keepdims=True)
    even = 0.5 * (cosines - sines)
    doubled = jnp.stack([jnp.zeros_like(even), even], axis=-1).reshape(*even.shape[:-1], 2 * num)
    return jnp.concatenate([constant, doubled, jnp.zeros_like(doubled)], axis=-1)


def gram_of_sums(sums: Float[Array, " M4"]) -> Float[Array, "M2 M2"]:
    """Return the sum of phi phi^T over points, from the sums of the sinusoids up to 2M.

    Each block is a Toeplitz and a Hankel matrix:
    cos i cos j, sin i sin j = (cos(i - j) +- cos(i + j)) / 2,   cos i sin j = (sin(i + j) - sin(i - j)) / 2.
    """
    num = degree(sums) // 2
    cosines = sums[: 2 * num + 1]
    sines = jnp.concatenate([jnp.zeros(1, sums.dtype), sums[2 * num + 1 :]])
    mirrored = [jnp.concatenate([sign * half[num:0:-1], half[: num + 1]]) for sign, half in ((1, cosines), (-1, sines))]
    same, opposite = (_hankel(half) for half in (cosines, sines))
    cosine_gap, sine_gap = (_hankel(half)[::-1] for half in mirrored)  # of j - i
    cc, ss, cs = cosine_gap + same, (cosine_gap - same)[1:, 1:], (opposite + sine_gap)[:, 1:]
    return 0.5 * jnp.concatenate([jnp.concatenate([cc, cs], axis=1), jnp.concatenate([cs.T, ss], axis=1)])


def _hankel(values: Float[Array, " L"]) -> Float[Array, "n n"]:
    """Return H[i, j] = values[i + j].

    Copies of the values, cut into rows of one more than their number, start one value later from row to row. This needs
    no lookup of indices.
    """
    length = len(values)
    num = (length + 1) // 2
    return jnp.tile(values, num + 1)[: num * (length + 1)].reshape(num, length + 1)[:, :num]


def quadratic_forms(
    first: int,
    readout: np.ndarray,
    amplitude: Float[Array, " K"],
    weights: Float[Array, "P rank"],
    U: Float[Array, "K P rank"],
    lower: bool = False,
) -> tuple[Float[Array, "P M4"], Float[Array, "K P e"]]:
    """Return two views of the matrix W diag(weights) W^T, W = diag(amplitude) U, for each output.

    squares: the coefficients of its quadratic form in phi, which multiplies all rows but the first and last `first`;
    crossed: its product with readout^T.

    The values of the columns of W on 4M + 1 points of a period, squared and summed, have the coefficients as their
    Fourier transform. With E and O the even and odd parts at the points t of half a period, the values at t and -t are
    E + O and E - O: one product of a constant matrix with the cosines of U, one with its sines, and two more for the
    derivative. If U is lower triangular, half of its columns have no cosines, and the gradient is that of its lower
    part alone. The derivatives by amplitude and weights are by-products, since both only scale U.
    """
    num, dtype = (len(U) - 2 * first) // 2, U.dtype
    rank, readout = U.shape[-1], readout.astype(dtype)
    use_fft = num >= FFT_FREQUENCIES
    split = first + num + 1  # rows of cosines end here
    most = min(split, rank) if lower else rank  # the number of columns that have cosines

    @jax.custom_vjp
    def forms(amplitude, weights, U):
        return forward(amplitude, weights, U)[0]

    def forward(amplitude, weights, U):
        z = jnp.tensordot(readout * amplitude, U, 1)
        if use_fft:
            W = amplitude[:, None, None] * U
            values = _transform(jnp.moveaxis(W[first : len(U) - first], 0, -1), _num_points(num))
            sums = jnp.einsum("prn,pr->pn", values**2, weights)
            squares = _to_coefficients(num, dtype) * _transform_back(sums, 2 * num)
        else:
            cosines, sines, _, _ = _half_period(num, dtype)
            even = jnp.tensordot(cosines * amplitude[first:split], U[first:split, :, :most], 1)
            odd = jnp.tensordot(sines * amplitude[split : len(U) - first], U[split : len(U) - first], 1)
            values = even, odd
            squares = _squares(even, odd, weights)
        crossed = amplitude[:, None, None] * jnp.einsum("kpr,ipr->kpi", U, weights * z)
        return (squares, crossed), (amplitude, weights, U, z, values)

    def backward(saved, gradient):
        amplitude, weights, U, z, values = saved
        by_squares, by_crossed = gradient
        by_z = weights * jnp.einsum("kpi,kpr->ipr", amplitude[:, None, None] * by_crossed, U)
        by_W = jnp.tensordot(readout.T, by_z, 1) + jnp.einsum("kpi,ipr->kpr", by_crossed, weights * z)
        if use_fft:
            by_sums = _transform(_to_coefficients(num, dtype) * by_squares, _num_points(num))
            waves = _transform_back(2 * by_sums[:, None] * weights[..., None] * values, num)
            by_W = by_W.at[first : len(U) - first].add(jnp.moveaxis(waves, -1, 0))
        else:
            cosines, sines, _, _ = _half_period(num, dtype)
            even, odd = values
            by_even, by_odd = _squares_backward(even, odd, weights, by_squares)
            by_W = by_W.at[first:split, :, :most].add(jnp.tensordot(cosines.T, by_even, 1))
            by_W = by_W.at[split : len(U) - first].add(jnp.tensordot(sines.T, by_odd, 1))
        by_U = amplitude[:, None, None] * by_W
        by_weights = jnp.einsum("kpr,kpr->pr", by_U, U) / (2 * weights)
        return jnp.einsum("kpr,kpr->k", by_W, U), by_weights, by_U

    forms.defvjp(forward, backward)
    return forms(amplitude, weights, U)


def _squares(even: Float[Array, "G P most"], odd: Float[Array, "G P rank"], weights: Float[Array, "P rank"]):
    """Return the coefficients of sum (E + O)^2 at t and sum (E - O)^2 at -t.

    The sum of E^2 + O^2 is their even part, that of 2 E O their odd part. Columns beyond those of E are odd.
    """
    to_cosines, to_sines = _half_period(degree(even, 0), even.dtype)[2:]
    most = even.shape[-1]
    same = jnp.sum(odd**2 * weights, axis=-1) + jnp.sum(even**2 * weights[:, :most], axis=-1)
    opposite = 2 * jnp.sum(even * odd[..., :most] * weights[:, :most], axis=-1)
    return jnp.concatenate([to_cosines @ same, to_sines @ opposite]).T


def _squares_backward(even, odd, weights, gradient):
    """Return the gradients of E and O."""
    num, most = degree(gradient), even.shape[-1]
    to_cosines, to_sines = _half_period(num // 2, even.dtype)[2:]
    same = 2 * (to_cosines.T @ gradient[:, : num + 1].T)[..., None]
    opposite = 2 * (to_sines.T @ gradient[:, num + 1 :].T)[..., None]
    by_even = weights[:, :most] * (same * even + opposite * odd[..., :most])
    by_odd = weights * same * odd
    by_odd = by_odd.at[..., :most].add(weights[:, :most] * opposite * even)
    return by_even, by_odd


@lru_cache(maxsize=16)
def _half_period(num: int, dtype) -> tuple[np.ndarray, ...]:
    """Return cosines and sines up to M at 2M + 1 points of half a period, and the maps from values to coefficients."""
    k = np.arange(2 * num + 1)
    angles = 2 * np.pi * np.outer(k, k) / (4 * num + 1)
    cosines, sines = np.cos(angles), np.sin(angles)
    twice = np.where(k == 0, 1, 2)  # t = 0 is one point, every other stands for t and -t; likewise for coefficients
    to_cosines, to_sines = (twice[:, None] * m * twice / (4 * num + 1) for m in (cosines, sines))
    matrices = cosines[:, : num + 1], sines[:, 1 : num + 1], to_cosines, to_sines[1:]
    return tuple(matrix.astype(dtype) for matrix in matrices)


def _num_points(num: int) -> int:
    """Return how many points of a period determine a polynomial of degree 2M: a power of two above 4M."""
    return 1 << (4 * num).bit_length()


def _to_coefficients(num: int, dtype) -> np.ndarray:
    """Return the factors that turn sums of values times sinusoids into coefficients."""
    return (np.where(np.arange(4 * num + 1) == 0, 1, 2) / _num_points(num)).astype(dtype)


def _transform(coefficients: Float[Array, "*R M2"], points: int) -> Float[Array, "*R points"]:
    """Return the values of polynomials at equidistant points of a period."""
    constant, cosines, sines = jnp.split(coefficients, [1, degree(coefficients) + 1], axis=-1)
    real = jnp.concatenate([2 * constant, cosines], axis=-1)
    waves = jax.lax.complex(real, -jnp.concatenate([jnp.zeros_like(constant), sines], axis=-1))
    return 0.5 * jnp.fft.irfft(waves, points, norm="forward")


def _transform_back(values: Float[Array, "*R points"], num: int) -> Float[Array, "*R M2"]:
    """Return the sums of values times 1, cosines and sines, the transpose of `_transform`."""
    waves = jnp.fft.rfft(values)[..., : num + 1]
    return jnp.concatenate([waves.real, -waves.imag[..., 1:]], axis=-1)
