"""Trigonometric polynomials: what the marginals of a Fourier layer are.

With phi = [cos(k t) k = 0..M, sin(k t) k = 1..M], a product of two entries is a sum of two sinusoids, so phi^T Q phi is
a trigonometric polynomial of degree 2M for any Q. Its coefficients are sums along diagonals and antidiagonals of Q,
O(M^2) once for all points; then each point costs O(M) instead of O(M^2), with the same result to rounding.

Coefficients have the shape (..., degree + 1, 2), of cosines and sines.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def linear_coefficients(v: Float[Array, "*R M2"]) -> Float[Array, "*R M1 2"]:
    """Coefficients of phi^T v."""
    half = v.shape[-1] // 2
    cosines, sines = v[..., : half + 1], v[..., half + 1 :]
    return jnp.stack([cosines, _behind_zero(sines, 1)], axis=-1)


def quadratic_coefficients(Q: Float[Array, "*R M2 M2"]) -> Float[Array, "*R M4 2"]:
    """Coefficients of phi^T Q phi for a symmetric Q, up to degree 2M.

    2 cos(i) cos(j) = cos(i-j) + cos(i+j),  2 sin(i) sin(j) = cos(i-j) - cos(i+j),
    2 sin(i) cos(j) = sin(i+j) + sin(i-j).
    """
    half = Q.shape[-1] // 2
    cos_cos = Q[..., : half + 1, : half + 1]
    sin_sin = _behind_zero(_behind_zero(Q[..., half + 1 :, half + 1 :], 1), 2)
    sin_cos = _behind_zero(Q[..., half + 1 :, : half + 1], 2)
    same, opposite = cos_cos + sin_sin, cos_cos - sin_sin
    # For i - j = -M..M, folded to 0..M: cosines are even, sines odd.
    difference = antidiagonal_sums(same[..., ::-1])
    cosines = 0.5 * antidiagonal_sums(opposite)
    cosines = cosines.at[..., : half + 1].add(difference[..., half:]).at[..., 0].add(-0.5 * difference[..., half])
    skew = antidiagonal_sums(sin_cos[..., ::-1])
    sines = antidiagonal_sums(sin_cos)
    sines = sines.at[..., : half + 1].add(skew[..., half:] - skew[..., half::-1])
    return jnp.stack([cosines, sines], axis=-1)


def antidiagonal_sums(Q: Float[Array, "*R n n"]) -> Float[Array, "*R m"]:
    """sum over i + j = k of Q[i, j], k = 0..2n-2: rows padded to 2n and read as rows of 2n - 1 line up their i + j."""
    *lead, n, _ = Q.shape
    padded = jnp.pad(Q, [(0, 0)] * (len(lead) + 1) + [(0, n)]).reshape(*lead, 2 * n * n)
    return jnp.sum(padded[..., : n * (2 * n - 1)].reshape(*lead, n, 2 * n - 1), axis=-2)


def harmonics(t: Float[Array, " N"], degree: int) -> Float[Array, "K1 2 N"]:
    """cos(k t) and sin(k t), k = 0..degree, by doubling: log2(degree) additions of angles."""
    c, s = jnp.cos(t)[None], jnp.sin(t)[None]  # k = 1..m
    while len(c) < degree:
        more = min(len(c), degree - len(c))
        top_c, top_s, low_c, low_s = c[-1:], s[-1:], c[:more], s[:more]
        doubled = (
            jnp.concatenate([c, top_c * low_c - top_s * low_s]),
            jnp.concatenate([s, top_s * low_c + top_c * low_s]),
        )
        # Without the barrier the compiler fuses all doublings into one, and computes the early ones many times over.
        c, s = jax.lax.optimization_barrier(doubled)
    one = jnp.stack([jnp.ones_like(t), jnp.zeros_like(t)])
    return jnp.concatenate([one[None], jnp.stack([c, s], axis=1)])


@jax.custom_vjp
def evaluate(
    high: Float[Array, "R K1 2"], low: Float[Array, "S L1 2"], t: Float[Array, " N"]
) -> tuple[Float[Array, "R N"], Float[Array, "S N"]]:
    """Values at t of polynomials of two degrees, the first the higher, which share their sinusoids."""
    values, _ = _forward(high, low, t)
    return values


def _forward(high, low, t):
    table = harmonics(t, high.shape[-2] - 1).reshape(-1, t.shape[0])
    short = table[: 2 * low.shape[-2]]
    # d/dt (C cos(k t) + S sin(k t)) = k S cos(k t) - k C sin(k t): derivatives need no sinusoids of their own.
    high_rows = jnp.concatenate([high, _derivative(high)]).reshape(2 * len(high), -1) @ table
    low_rows = jnp.concatenate([low, _derivative(low)]).reshape(2 * len(low), -1) @ short
    (high_value, high_slope), (low_value, low_slope) = jnp.split(high_rows, 2), jnp.split(low_rows, 2)
    return (high_value, low_value), (high, low, table, high_slope, low_slope)


def _backward(saved, gradient):
    high, low, table, high_slope, low_slope = saved
    by_high, by_low = gradient
    high_bar = (by_high @ table.T).reshape(high.shape)
    low_bar = (by_low @ table[: 2 * low.shape[-2]].T).reshape(low.shape)
    t_bar = jnp.sum(by_high * high_slope, axis=0) + jnp.sum(by_low * low_slope, axis=0)
    return high_bar, low_bar, t_bar


evaluate.defvjp(_forward, _backward)


def _derivative(coefficients: Float[Array, "R K1 2"]) -> Float[Array, "R K1 2"]:
    k = jnp.arange(coefficients.shape[-2], dtype=coefficients.dtype)[:, None]
    return k * coefficients[..., ::-1] * jnp.asarray([1, -1], coefficients.dtype)


def _behind_zero(Q: Array, axis: int) -> Array:
    """A row (axis 2 from the end) or column (1 from the end) of zeros in front: the missing sine of frequency 0."""
    pads = [(0, 0)] * Q.ndim
    pads[Q.ndim - axis] = (1, 0)
    return jnp.pad(Q, pads)
