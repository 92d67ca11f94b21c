"""Trigonometric polynomials: what the marginals of a Fourier layer are.

A polynomial of degree M is a vector of coefficients of phi = [1, cos(k t) k = 1..M, sin(k t) k = 1..M]. Products of
two sinusoids are sums of two, so phi^T Q phi is a polynomial of degree 2M for any matrix Q: once its coefficients are
known, each point costs O(M) instead of O(M^2), with the same result to rounding.
"""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

FEW = 16  # rows to be summed one by one
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


def harmonics(t: Float[Array, " N"], num: int) -> tuple[Float[Array, "L2 N"], Float[Array, "H2 N"]]:
    """Rows cos(k t), sin(k t) in turn: up to k = num or a little more, and from there up to 2 num or a little more.

    Angles are added in two levels, e^(i (j B + b) t) = e^(i j B t) e^(i b t): about 2 sqrt(2 num) small rows by
    doubling, and from those one pass over the table.
    """
    block, lower, total = _levels(num)
    c, s = _powers(jnp.cos(t), jnp.sin(t), block)
    C, S = _powers(c[-1], s[-1], total - 1)
    C, S = jnp.concatenate([jnp.ones_like(t)[None], C]), jnp.concatenate([jnp.zeros_like(t)[None], S])
    # Without the barrier the compiler computes the small rows again for each of the large ones.
    C, S, plain, turned = jax.lax.optimization_barrier((C, S, jnp.stack([c, s], axis=1), jnp.stack([-s, c], axis=1)))
    tables = (C[j, None, None] * plain + S[j, None, None] * turned for j in (np.s_[:lower], np.s_[lower:]))
    first, second = (table.reshape(-1, len(t)) for table in tables)
    return first, second


@lru_cache(maxsize=64)
def _levels(num: int) -> tuple[int, int, int]:
    """The size of a block, the blocks that cover 1..num, and those that cover 1..2 num: the smallest tables."""
    sizes = range(1, 2 * int(num**0.5) + 3)
    return min(((b, -(-num // b), -(-2 * num // b)) for b in sizes), key=lambda s: s[0] * s[2] + 2 * (s[0] + s[2]))


def _powers(c: Float[Array, " N"], s: Float[Array, " N"], num: int) -> tuple[Float[Array, "K N"], Float[Array, "K N"]]:
    """Cosines and sines of the angle's multiples 1..num, by doubling."""
    c, s = c[None], s[None]
    while len(c) < num:
        m = min(len(c), num - len(c))
        more = c[-1] * c[:m] - s[-1] * s[:m], s[-1] * c[:m] + c[-1] * s[:m]
        c, s = jax.lax.optimization_barrier((jnp.concatenate([c, more[0]]), jnp.concatenate([s, more[1]])))
    return c[:num], s[:num]


@jax.custom_vjp
def evaluate(
    high: Float[Array, "R M4"], low: tuple[Float[Array, "_ M2"], ...], t: Float[Array, " N"]
) -> tuple[Float[Array, "R N"], tuple[Float[Array, "_ N"], ...]]:
    """Values at t of polynomials of degree 2M and, in some stacks, of degree M: they all share their sinusoids."""
    values, _, _ = _values_and_slopes(high, low, t, slopes=False)
    return values


def _values_and_slopes(high, low, t, slopes: bool):
    below, above = harmonics(t, degree(low[0]))
    # d/dt (C cos(k t) + S sin(k t)) = k S cos(k t) - k C sin(k t): derivatives need no sinusoids of their own.
    parts = [high, *low]
    rows = [_interleaved(part) for part in parts]
    if slopes:
        rows += [_interleaved(part, derivative=True) for part in parts]
    sizes = np.cumsum([len(row) for row in rows])[:-1]
    values = jnp.split(jnp.concatenate([_fit(row, len(below)) for row in rows]) @ below, sizes)
    highest = [_fit(row[:, len(below) :], len(above)) for row in rows[:: len(parts)]]
    for i, more in zip((0, len(parts)), jnp.split(jnp.concatenate(highest) @ above, len(highest)), strict=False):
        values[i] = values[i] + more
    constants = [value + part[:, :1] for value, part in zip(values, parts, strict=False)]
    return (constants[0], tuple(constants[1:])), values[len(parts) :], (below, above)


def _interleaved(coefficients: Float[Array, "R M2"], derivative: bool = False) -> Float[Array, "R K2"]:
    """Without the constant, a cosine and its sine in turn, like the rows of the tables."""
    num = degree(coefficients)
    cosines, sines = coefficients[:, 1 : num + 1], coefficients[:, num + 1 :]
    if derivative:
        k = np.arange(1, num + 1, dtype=coefficients.dtype)
        cosines, sines = k * sines, -k * cosines
    return jnp.stack([cosines, sines], axis=-1).reshape(len(coefficients), 2 * num)


def _fit(rows: Float[Array, "R K"], width: int) -> Float[Array, "R width"]:
    """Cut or filled up with zeros."""
    return jnp.pad(rows[:, :width], ((0, 0), (0, max(0, width - rows.shape[1]))))


def _forward(high, low, t):
    with_slopes, (high, low, t) = t.perturbed, jax.tree.map(lambda arg: arg.value, (high, low, t), is_leaf=_is_argument)
    values, slopes, tables = _values_and_slopes(high, low, t, with_slopes)
    return values, (tables, slopes, high.shape[1], t)


def _backward(saved, gradient):
    (below, above), slopes, size, t = saved
    gradient = jax.tree.map(_array, gradient, is_leaf=lambda g: isinstance(g, SymbolicZero))
    by_high, by_low = gradient
    num, parts = size // 4, [by_high, *by_low]
    everything = jnp.concatenate(parts)
    # The large table on the left: only the small factor has to be transposed.
    lower, upper = (below @ everything.T).T, (above @ by_high.T).T
    upper = jnp.pad(upper, ((0, len(everything) - len(by_high)), (0, 0)))
    sums = jnp.concatenate([lower, upper], axis=1).reshape(len(everything), -1, 2)
    constant = jnp.sum(everything, axis=-1, keepdims=True)
    found = [
        jnp.concatenate([constant[i:j], sums[i:j, :n, 0], sums[i:j, :n, 1]], axis=1)
        for i, j, n in zip(*_spans(parts), [2 * num] + [num] * len(by_low), strict=True)
    ]
    t_bar = sum((_small_dot(g, s) for g, s in zip(parts, slopes, strict=True)), jnp.zeros_like(t)) if slopes else jnp.zeros_like(t)
    return found[0], tuple(found[1:]), t_bar


def _spans(parts: list[Array]) -> tuple[np.ndarray, np.ndarray]:
    ends = np.cumsum([len(part) for part in parts])
    return ends - [len(part) for part in parts], ends


def _small_dot(a: Float[Array, "R N"], b: Float[Array, "R N"]) -> Float[Array, " N"]:
    """The sum of a * b over rows: a few of them are added up one by one, which is quicker than a reduction."""
    if len(a) > FEW:
        return jnp.sum(a * b, axis=0)
    return sum(x * y for x, y in zip(a, b, strict=True))


def _is_argument(leaf) -> bool:
    return hasattr(leaf, "perturbed")


def _array(gradient) -> Array:
    return jnp.zeros(gradient.shape, gradient.dtype) if isinstance(gradient, SymbolicZero) else gradient


evaluate.defvjp(_forward, _backward, symbolic_zeros=True)
