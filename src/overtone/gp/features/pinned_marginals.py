"""Marginals of a layer with pinned Fourier features, in O(M) for each row, for variance 1 on [0, 1].

With z = (L v1, B v2, v3), the function that the whitened variables v stand for is
    inside:    (amplitude v2) . phi(x) + (z1 - z2) . c(x - a) + z3 . third(x),
    before a:  z1 . c(a - x), odd derivatives with the other sign,
    after b:   E[s(b) | v] . c(x - b).
So under q its mean is a trigonometric polynomial plus a few extrapolations e(x) = (c, third), and its variance a
polynomial of twice the degree, polynomials times e, and a quadratic form of e. With x - a in units of b - a, all that
is left of kernel and interval is one number, rho = lam (b - a).
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import block_diag
from jaxtyping import Array, Float

from overtone.gp.features.base import nonnegative
from overtone.gp.features.fourier import edge, spectral_diagonal
from overtone.gp.kernels import AbstractMatern
from overtone.gp.variational import AbstractGaussian
from overtone.numerics.linalg import small_cholesky, small_inverse
from overtone.numerics.quadratic import inner, quadratic, quadratic_forms, sum_of_diagonal
from overtone.numerics.trigpoly import evaluate


class Ends(eqx.Module):
    """What the features are made of, apart from x: O(M) numbers.

    F is the transition from a to b, C what s(a) and the sinusoids leave of the covariance P of s(b).
    """

    step: Float[Array, ""]  # between frequencies, in units of lam
    amplitude: Float[Array, " M2"]  # diag(d)^-1/2, of the sinusoids
    B: Float[Array, "state M2"]  # B diag(d)^-1/2
    BB: Float[Array, "state state"]  # B diag(d)^-1 B^T
    third: Float[Array, "state three"]  # v3's whitened features, in terms of c(x - a), c(b - x), B diag(d)^-1 phi(x)
    after: Float[Array, "state three"]  # E[s(b) | v], in terms of z = (L v1, B v2, v3)


def ends(kind: type[AbstractMatern], num_frequencies: int, rho: Float[Array, ""], precision: Any) -> Ends:
    """In the widest precision that is on, since C is a small difference.

    `precision` is that of the model, as small as the noise of s(b).

    Many numbers of one argument: their derivative is cheapest by forward mode, along with the values.
    """
    dtype, widest = rho.dtype, jax.dtypes.canonicalize_dtype(jnp.float64)

    def values(rho):
        unit = unit_kernel(kind, rho.dtype)
        step = 2 * jnp.pi / rho
        w = step * jnp.arange(num_frequencies + 1)
        amplitude = 1 / jnp.sqrt(spectral_diagonal(unit, w, rho))
        B = edge(w, kind.order) * amplitude
        BB = B @ B.T
        F = unit.transition(rho[None])[0]
        gap = jnp.eye(kind.order + 1) - F
        P = np.asarray(kind.state_correlation)
        C = P - F @ P @ F.T - gap @ BB @ gap.T
        # Of s(b) + e, to be precise, with a noise e as small as rounding: C vanishes as M grows.
        noise = 8 * jnp.finfo(precision).eps * np.diag(np.diag(P))
        inverse = small_inverse(small_cholesky(jnp.asarray(C + noise)))
        third = inverse @ jnp.concatenate([gap @ BB - F @ P, P * signs(kind.order), -gap], axis=1)
        return Ends(step, amplitude, B, BB, third, jnp.concatenate([F, gap, (inverse @ C).T], axis=1))

    @jax.custom_vjp
    def numbers(rho):
        return forward(rho)[0]

    def forward(rho):
        rho = rho.astype(widest)
        pair = jax.jvp(values, (rho,), (jnp.ones_like(rho),))
        return jax.tree.map(lambda leaf: leaf.astype(dtype), pair)

    def backward(slopes, gradient):
        return (sum(jnp.sum(s * g) for s, g in zip(*map(jax.tree.leaves, (slopes, gradient)), strict=True)),)

    numbers.defvjp(forward, backward)
    return numbers(rho)


def unit_kernel(kind: type[AbstractMatern], dtype) -> AbstractMatern:
    """The kernel with variance 1 and lam = 1."""
    make: Any = kind
    return make(jnp.ones((), dtype), jnp.asarray((2 * kind.order + 1) ** 0.5, dtype))


def signs(order: int) -> np.ndarray:
    """Seen backwards in time, odd derivatives change sign."""
    return np.asarray([(-1) ** i for i in range(order + 1)])


class Positions(eqx.Module):
    """Where inputs lie in [0, 1], and how far beyond it, both in units of b - a; rho = lam (b - a)."""

    position: Float[Array, " N"]
    beyond: Float[Array, " N"]
    rho: Float[Array, ""]


class Forms(eqx.Module):
    """A covariance of v, for each output, in the terms of the above."""

    squares: Float[Array, "P M4"]  # of amplitude v2: a polynomial
    crossed: Float[Array, "P e M2"]  # of amplitude v2 with (z1 - z2, z3), or with z1 - z2 alone: polynomials
    gram: Float[Array, "P three three"]  # of z


def pinned_marginals(
    kind: type[AbstractMatern], ends: Ends, positions: Positions, q: AbstractGaussian
) -> tuple[Float[Array, "P N"], Float[Array, "P N"], Float[Array, " N"]]:
    """Return the mean of f(x) under q, which has one block, its variance from q, and the prior variance left."""
    size, dtype = kind.order + 1, positions.rho.dtype
    L = np.linalg.cholesky(kind.state_correlation).astype(dtype)
    m1, m2, m3 = _split(q.mean[0].T, size)
    mean = jnp.concatenate([L @ m1, ends.B @ m2, m3])
    forms = _forms_of_diagonal(L, ends, q) if q.factor is None else _forms_of_factor(L, ends, q)

    low = m2.T * ends.amplitude, ends.B * ends.amplitude, forms.crossed.reshape(-1, len(ends.amplitude))
    squares, others = evaluate(forms.squares, jnp.concatenate(low), positions.position)
    means, h, crossed = jnp.split(others, np.cumsum([len(part) for part in low])[:-1])

    # The extrapolations, and the maps from z to their coefficients.
    inside = (positions.beyond == 0).astype(dtype)
    near, before, after = extrapolations(kind, ends, positions, h)
    eye, zero = np.eye(size, dtype=dtype), np.zeros((size, size), dtype)
    first = np.block([[signs(kind.order)[:, None].astype(dtype) * eye, zero, zero]])
    parts = (np.block([[eye, -eye, zero], [zero, zero, eye]]), near), (first, before), (ends.after, after)

    # Under q and, as the last of the forms, under the prior.
    prior = block_diag(L @ L.T, ends.BB, eye)
    grams = jnp.concatenate([forms.gram, prior[None]])
    none = jnp.zeros((), dtype)
    values = sum((quadratic(T @ grams @ T.T, e) for T, e in parts), start=none)
    crossed = crossed.reshape(len(squares), -1, len(inside))
    spread = inside * squares + values[:-1] + 2 * inner(crossed, near[: crossed.shape[1]])
    # |amplitude phi|^2 is a constant, since a cosine and its sine have the same amplitude.
    constant = jnp.sum(ends.amplitude[: len(ends.amplitude) // 2 + 1] ** 2)
    explained = inside * constant + values[-1] - 2 * inner(h[None], near[:size])[0]
    mean = inside * means + sum(((T @ mean).T @ e for T, e in parts), start=none)
    return mean, nonnegative(spread), nonnegative(1 - explained)


def extrapolations(
    kind: type[AbstractMatern], ends: Ends, positions: Positions, h: Float[Array, "state N"]
) -> tuple[Float[Array, "two N"], Float[Array, "state N"], Float[Array, "state N"]]:
    """Return c(x - a) and v3's features inside, c(a - x) before, c(x - b) after; each is zero elsewhere.

    h is B diag(d)^-1 phi(x).
    """
    position, beyond, unit = positions.position, positions.beyond, unit_kernel(kind, positions.rho.dtype)
    from_a, from_b, outside = (unit.extrapolation(positions.rho * r) for r in (position, 1 - position, jnp.abs(beyond)))
    near = jnp.concatenate([from_a, ends.third @ jnp.concatenate([from_a, from_b, h])])
    return near * (beyond == 0), outside * (beyond < 0), outside * (beyond > 0)


def _forms_of_factor(L: np.ndarray, ends: Ends, q: Any) -> Forms:
    """S = U diag(variances) U^T."""
    size, num = len(L), q.mean.shape[-1]
    # z = scale * readout (amplitude U), where the frequencies in B are 0, 1, 2, ... times the step.
    readout = np.zeros((3 * size, num), L.dtype)
    readout[:size, :size] = L
    readout[size : 2 * size, size:-size] = edge(np.arange((num - 2 * size) // 2 + 1, dtype=L.dtype), size - 1)
    readout[2 * size :, -size:] = np.eye(size)
    one = np.ones(size, L.dtype)
    amplitude = jnp.concatenate([one, ends.amplitude, one])
    scale = jnp.concatenate([one, ends.step ** np.arange(size), one])
    squares, crossed = quadratic_forms(size, readout, amplitude, q.variances[0], q.factor[0])
    crossed = crossed * scale
    gram = jnp.einsum("ik,kpj->pij", readout, crossed) * scale[:, None]
    with_1, with_2, with_3 = jnp.split(jnp.moveaxis(crossed[size:-size], 0, -1), 3, axis=1)
    return Forms(squares, jnp.concatenate([with_1 - with_2, with_3], axis=1), gram)


def _forms_of_diagonal(L: np.ndarray, ends: Ends, q: AbstractGaussian) -> Forms:
    """S = diag(variances). As v3 is independent of the rest, it has no part in `crossed`."""
    s1, s2, s3 = (part.T for part in _split(q.variances[0].T, len(L)))
    weighted = s2 * ends.amplitude
    gram = jax.vmap(lambda s1, s2, s3: block_diag((L * s1) @ L.T, (ends.B * s2) @ ends.B.T, jnp.diag(s3)))
    return Forms(sum_of_diagonal(weighted * ends.amplitude), -ends.B * weighted[:, None], gram(s1, s2, s3))


def _split(V: Float[Array, "K *R"], size: int):
    """The rows of v1, v2 and v3."""
    return V[:size], V[size : len(V) - size], V[len(V) - size :]
