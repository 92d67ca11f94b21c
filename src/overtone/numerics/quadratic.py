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
    weights: Float[Array, "P K"],
    U: Float[Array, "K P K"],
) -> tuple[Float[Array, "P M4"], Float[Array, "K P e"]]:
    """Return two views of the matrix W diag(weights) W^T, W = diag(amplitude) U, for each output.

    squares: the coefficients of its quadratic form in phi, which multiplies all rows but the first and last `first`;
    crossed: its product with readout^T.

    U is lower triangular, and the gradient is that of its lower part alone. Amplitude and weights only scale U, so that
    their derivatives are by-products of that by U: they are taken of factors of 1.
    """
    readout, inner = readout.astype(U.dtype), slice(first, len(U) - first)
    squares_of = _squares_by_fft if len(U[inner]) // 2 >= FFT_FREQUENCIES else _squares_by_products
    fixed, fixed_weights = jax.lax.stop_gradient((amplitude, weights))
    U = U * (amplitude / fixed)[:, None, None] * jnp.sqrt(weights / fixed_weights)
    z = jnp.tensordot(readout * fixed, U, 1)
    crossed = fixed[:, None, None] * jnp.einsum("kpr,ipr->kpi", U, fixed_weights * z)
    return squares_of(fixed[inner], fixed_weights, U[inner], first), crossed


def _squares_by_products(amplitude, weights, U: Float[Array, "M2 P K"], first: int) -> Float[Array, "P M4"]:
    """Return the coefficients of the sum of the squares of polynomials, the columns of diag(amplitude) U.

    Their values on 4M + 1 points of a period, squared and summed, have the coefficients as their Fourier transform.
    With E and O the even and odd parts at the points t of half a period, the values at t and -t are E + O and E - O:
    one product of a constant matrix with the cosines of U, which half of its columns have, and one with its sines. The
    sum of E^2 + O^2 is the even part of the squares, that of 2 E O their odd part.
    """
    num = degree(U, 0)
    most = first + num + 1  # the number of columns that have cosines
    cosines, sines, to_cosines, to_sines = _half_period(num, U.dtype)
    even = jnp.tensordot(cosines * amplitude[: num + 1], U[: num + 1, :, :most], 1)
    odd = jnp.tensordot(sines * amplitude[num + 1 :], U[num + 1 :], 1)
    same = jnp.sum(odd**2 * weights, axis=-1) + jnp.sum(even**2 * weights[:, :most], axis=-1)
    opposite = 2 * jnp.sum(even * odd[..., :most] * weights[:, :most], axis=-1)
    return jnp.concatenate([to_cosines @ same, to_sines @ opposite]).T


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


def _squares_by_fft(amplitude, weights, U: Float[Array, "M2 P K"], _) -> Float[Array, "P M4"]:
    """Return the same by fast Fourier transforms, on as many points as the power of two above 4M."""
    num = degree(U, 0)
    points = 1 << (4 * num).bit_length()
    constant, cosines, sines = jnp.split(jnp.moveaxis(amplitude[:, None, None] * U, 0, -1), [1, num + 1], axis=-1)
    waves = jnp.concatenate([2 * constant, jax.lax.complex(cosines, -sines)], axis=-1)
    values = 0.5 * jnp.fft.irfft(waves, points, norm="forward")
    sums = jnp.fft.rfft(jnp.einsum("prn,pr->pn", values**2, weights))[:, : 2 * num + 1]
    return jnp.concatenate([sums.real[:, :1], 2 * sums.real[:, 1:], -2 * sums.imag[:, 1:]], axis=-1) / points


def quadratic(form: Float[Array | np.ndarray, "R e e"], e: Float[Array, "e N"]) -> Float[Array, "R N"]:
    """Return e^T form e for symmetric forms of few rows, at each column of e; its derivative by e is 2 form e."""
    fixed = jax.lax.stop_gradient(e)
    applied = (form.reshape(-1, len(e)) @ fixed).reshape(len(form), *e.shape)
    return inner(applied, 2 * e - fixed)


@jax.custom_vjp
def inner(a: Float[Array, "R e N"], e: Float[Array, "e N"]) -> Float[Array, "R N"]:
    """Return sum_i a[:, i] e[i], added up one by one, which is far quicker than a reduction over so few."""
    return sum((a[:, i] * e[i] for i in range(1, len(e))), start=a[:, 0] * e[0])


def _inner_backward(saved, gradient):
    a, e = saved
    return gradient[:, None] * e, sum(gradient[i] * a[i] for i in range(len(gradient)))


inner.defvjp(lambda a, e: (inner(a, e), (a, e)), _inner_backward)
