"""Pinned Fourier features: the RKHS Fourier features, with the process pinned at both ends.

The sinusoids are periodic on [a, b], so on their own they miss p + 1 directions of the RKHS and leave a residual near
the ends, whatever their number. With the states s(a) and s(b), s = (f, f'/lam, ..., f^(p)/lam^p), as further inducing
variables the features are dense, and [a, b] may sit tight around the data. In order, each orthogonal to those before:
    1. s(a), of covariance P;
    2. u' = u - E[u | s(a)]: its covariance is diag(d) EXACTLY, its features psi_m(x) = phi_m(x) - c(x - a) B[:, m];
    3. what 1 and 2 leave of s(b), of covariance C. (Of s(b) + e, to be precise, where e is as small as rounding: C
       vanishes as M grows, and the noise e keeps its inverse root within what the precision can carry.)
Divided by their standard deviations they are the whitened variables v = (v1, v2, v3) themselves, so Kuu = I.

Everything below is for variance 1 on [0, 1]: variance only scales the features, and with x - a in units of b - a all
that is left of kernel and interval is one number, rho = lam (b - a).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from overtone.features.base import AbstractInducingFeatures, nonnegative
from overtone.features.fourier import edge, matern, sinusoids, spectral_diagonal
from overtone.kernels import AbstractMatern
from overtone.linalg import Identity, small_cholesky, small_inverse
from overtone.params import Param
from overtone.trigpoly import derivatives_at_zero, evaluate, quadratic_forms, sum_of_diagonal
from overtone.variational import AbstractGaussian


class Ends(eqx.Module):
    """What does not depend on x: O(M) numbers. F is the transition from a to b."""

    step: Float[Array, ""]  # of the frequencies, in units of lam
    amplitude: Float[Array, " M2"]  # diag(d)^-1/2, of the sinusoids
    B: Float[Array, "state M2"]  # B diag(d)^-1/2
    F: Float[Array, "state state"]
    gap: Float[Array, "state state"]  # I - F
    inverse_b: Float[Array, "state state"]  # of the Cholesky factor of C
    last: Float[Array, "state state"]  # cov(s(b), v3)


class PinnedFourierFeatures(AbstractInducingFeatures):
    """2M + 1 + 2(p + 1) features of a one-dimensional Matern process of order p."""

    a: Param
    b: Param
    num_frequencies: int = eqx.field(static=True)
    order: int = eqx.field(static=True)

    @property
    def num_features(self):
        return 2 * self.num_frequencies + 1 + 2 * (self.order + 1)

    def Kuu(self, kernel):
        return Identity(self.num_features)

    def Kuf(self, kernel, X):
        kernel = self._checked(kernel)
        position, beyond, rho = self._place(kernel, X[:, 0])
        unit, ends = _unit(kernel, rho.dtype), self._ends(kernel, rho)
        from_a, from_b = unit.extrapolation(rho * position), unit.extrapolation(rho * (1 - position))

        # Inside: 1. L^T c(x - a) with L L^T = P, 2. psi / sqrt(d), 3. what is left of s(b).
        L = _root(kernel, rho.dtype)
        phi = ends.amplitude[:, None] * sinusoids(2 * jnp.pi * jnp.arange(self.num_frequencies + 1), position)
        third = self._third(kernel, ends) @ jnp.concatenate([from_a, from_b, ends.B @ phi])
        within = jnp.concatenate([L.T @ from_a, phi - ends.B.T @ from_a, third])

        # Beyond an end, f is c(r) times the state there and something independent.
        outside = unit.extrapolation(rho * jnp.abs(beyond))
        at_a = jnp.pad(L.T * _signs(self.order), ((0, self.num_features - len(L)), (0, 0)))
        at_b = jnp.concatenate([(ends.F @ L).T, (ends.gap @ ends.B).T, ends.last.T])
        g = jnp.where(beyond > 0, at_b @ outside, jnp.where(beyond < 0, at_a @ outside, within))
        return jnp.sqrt(kernel.variance) * g

    def marginals(self, kernel, q, X):
        """The default's result in O(M) for each row: quadratic forms of the features as trigonometric polynomials.

        Inside [a, b],  v . g(x) = (amplitude v2) . phi(x) + [z1 - z2; z3] . [c(x - a); third(x)],
        before a it is z1 . c, after b (F z1 + gap z2 + last z3) . c, where z = (L v1, B v2, v3).
        """
        kernel, size = self._checked(kernel), self.order + 1
        position, beyond, rho = self._place(kernel, X[:, 0])
        unit, ends = _unit(kernel, rho.dtype), self._ends(kernel, rho)
        z_mean, mean, polynomials, crossed, grams = self._moments(kernel, ends, q)

        h = ends.B * ends.amplitude
        low = mean, h, crossed.reshape(-1, len(ends.amplitude))
        squares, (means, h, crossed) = evaluate(polynomials, low, 2 * jnp.pi * position)

        # The functions of x that z multiplies.
        inside = (beyond == 0).astype(rho.dtype)
        from_a, from_b, outside = (
            unit.extrapolation(rho * r) for r in (position, 1 - position, jnp.abs(beyond))
        )
        third = self._third(kernel, ends) @ jnp.concatenate([from_a, from_b, h])
        near = inside * jnp.concatenate([from_a, third])
        before, after = outside * (beyond < 0), outside * (beyond > 0)
        # z in the terms of these functions: near, before and after.
        zero, eye = jnp.zeros((size, size), rho.dtype), jnp.eye(size, dtype=rho.dtype)
        maps = (
            jnp.block([[eye, -eye, zero], [zero, zero, eye]]),
            jnp.block([[_signs(self.order)[:, None] * eye, zero, zero]]),
            jnp.concatenate([ends.F, ends.gap, ends.last], axis=1),
        )
        functions = near, before, after
        values = sum(_quadratic(T @ grams @ T.T, e) for T, e in zip(maps, functions, strict=True))
        mean = inside * means + sum((T @ z_mean).T @ e for T, e in zip(maps, functions, strict=True))
        spread = inside * squares + values[:-1] + 2 * _small_sum(crossed.reshape(-1, 2 * size, len(inside)), near)
        # |g|^2, where |amplitude phi|^2 is a constant, since a cosine and its sine have the same amplitude.
        density = ends.amplitude[: self.num_frequencies + 1] ** 2
        explained = inside * jnp.sum(density) + values[-1] - 2 * _small_sum(h[None], near[:size])[0]
        var = nonnegative(spread) + nonnegative(1 - explained)
        return (jnp.sqrt(kernel.variance) * mean).T, (kernel.variance * var).T

    def _moments(self, kernel: AbstractMatern, ends: Ends, q: AbstractGaussian):
        """Under q and, as the last of the Gram matrices, under the prior."""
        size, dtype, num = self.order + 1, ends.F.dtype, self.num_features
        L = np.linalg.cholesky(kernel.state_correlation)
        m1, m2, m3 = self._split(q.mean[0].T)
        z_mean = jnp.concatenate([L.astype(dtype) @ m1, ends.B @ m2, m3])
        mean = m2.T * ends.amplitude
        P = np.asarray(kernel.state_correlation, dtype)
        prior = _block_diagonal(jnp.asarray(P), ends.B @ ends.B.T, jnp.eye(size, dtype=dtype))[None]
        found = []
        if q.factor is not None:
            # z = scale * readout (amplitude U): L U1, values and derivatives at a of the polynomials, U3.
            readout = np.zeros((3 * size, num))
            readout[:size, :size] = L
            readout[size : 2 * size, size:-size] = derivatives_at_zero(self.num_frequencies, self.order)
            readout[2 * size :, -size:] = np.eye(size)
            one = jnp.ones(size, dtype)
            amplitude = jnp.concatenate([one, ends.amplitude, one])
            scale = jnp.concatenate([one, ends.step ** np.arange(size), one])
            squares, crossed = quadratic_forms(size, readout, amplitude, q.factor[1][0], q.factor[0][0])
            crossed = crossed * scale
            grams = jnp.einsum("ik,kpj->pij", readout.astype(dtype), crossed) * scale[:, None]
            crossed = jnp.moveaxis(crossed[size:-size], 0, -1)
            crossed = jnp.concatenate([crossed[:, :size] - crossed[:, size : 2 * size], crossed[:, 2 * size :]], axis=1)
            found.append((squares, crossed, grams))
        if q.variances is not None:
            s1, s2, s3 = self._split(q.variances[0].T)
            s2 = s2.T * ends.amplitude
            crossed = jnp.concatenate([-ends.B, jnp.zeros_like(ends.B)]) * s2[:, None]
            grams = jax.vmap(
                lambda s: _block_diagonal((L * s[:size]) @ L.T, (ends.B * s[size:-size]) @ ends.B.T, jnp.diag(s[-size:]))
            )(q.variances[0])
            found.append((sum_of_diagonal(s2 * ends.amplitude), crossed, grams.astype(dtype)))
        polynomials, crossed, grams = jax.tree.map(lambda *parts: sum(parts), *found)
        return z_mean, mean, polynomials, crossed, jnp.concatenate([grams, prior])

    def _third(self, kernel: AbstractMatern, ends: Ends) -> Float[Array, "state e"]:
        """Weights of c(x - a), c(b - x) and h(x) = B diag(d)^-1 phi(x) in the whitened features of v3."""
        P = np.asarray(kernel.state_correlation, ends.F.dtype)
        of_a = ends.gap @ (ends.B @ ends.B.T) - ends.F @ P
        return ends.inverse_b @ jnp.concatenate([of_a, jnp.asarray(P * _signs(self.order)), -ends.gap], axis=1)

    def _split(self, V: Float[Array, "K *R"]):
        """The rows of the three kinds of variables: s(a), u', what is left of s(b)."""
        size = self.order + 1
        return V[:size], V[size:-size], V[-size:]

    def _place(self, kernel: AbstractMatern, x: Float[Array, " N"]):
        """The position in [0, 1], the signed distance beyond it, both in units of b - a, and rho."""
        position = (x - self.a) / (self.b - self.a)
        inside = jnp.clip(position, 0, 1)
        return inside, position - inside, kernel.rate * (self.b - self.a)

    def _ends(self, kernel: AbstractMatern, rho: Float[Array, ""]) -> Ends:
        return _ends(type(kernel), self.num_frequencies, rho)

    def _checked(self, kernel) -> AbstractMatern:
        kernel = matern(kernel)
        if kernel.order != self.order:
            raise ValueError(
                f"these features pin {self.order} derivatives, but {type(kernel).__name__} has {kernel.order}; "
                f"make them with order={kernel.order}."
            )
        return kernel

    def outside(self, X):
        return (X < self.a) | (X > self.b)


def _ends(kind: type[AbstractMatern], num_frequencies: int, rho: Float[Array, ""]) -> Ends:
    """In the widest precision that is on, since C is a small difference; all functions of one number, rho.

    A derivative along with the values (forward mode) is the cheapest rule for functions of one number.
    """

    def values(rho):
        unit = _unit(kind, rho.dtype)
        w = 2 * jnp.pi * jnp.arange(num_frequencies + 1) / rho  # of the sinusoids, in units of lam
        amplitude = jnp.sqrt(1 / spectral_diagonal(unit, w, rho))
        B = edge(w, kind.order) * amplitude
        F = unit.transition(rho[None])[0]
        gap = jnp.eye(kind.order + 1) - F
        P = np.asarray(kind.state_correlation)
        explained = gap @ B
        C = P - F @ P @ F.T - explained @ explained.T
        inverse_b = small_inverse(small_cholesky(C + 8 * jnp.finfo(dtype).eps * np.diag(np.diag(P))))
        return Ends(2 * jnp.pi / rho, amplitude, B, F, gap, inverse_b, (inverse_b @ C).T)

    dtype, widest = rho.dtype, jax.dtypes.canonicalize_dtype(jnp.float64)

    @jax.custom_vjp
    def ends(rho):
        return forward(rho)[0]

    def forward(rho):
        rho = rho.astype(widest)
        pair = jax.jvp(values, (rho,), (jnp.ones_like(rho),))
        return jax.tree.map(lambda leaf: leaf.astype(dtype), pair)

    def backward(slopes, gradient):
        products = jax.tree.map(lambda s, g: jnp.sum(s * g), slopes, gradient)
        return (sum(jax.tree.leaves(products)),)

    ends.defvjp(forward, backward)
    return ends(rho)


def _unit(kernel, dtype) -> AbstractMatern:
    """The kernel with variance 1 and lam = 1."""
    kind = kernel if isinstance(kernel, type) else type(kernel)
    return kind(jnp.ones((), dtype), jnp.asarray((2 * kind.order + 1) ** 0.5, dtype))


def _root(kernel, dtype) -> Array:
    return jnp.asarray(np.linalg.cholesky(kernel.state_correlation), dtype)


def _signs(order: int) -> np.ndarray:
    """Seen backwards in time, odd derivatives change sign."""
    return np.float32(-1) ** np.arange(order + 1, dtype=np.float32)


@jax.custom_vjp
def _quadratic(form: Float[Array, "R e e"], e: Float[Array, "e N"]) -> Float[Array, "R N"]:
    """e^T form e for symmetric forms."""
    return _quadratic_forward(form, e)[0]


def _quadratic_forward(form, e):
    applied = (form.reshape(-1, len(e)) @ e).reshape(len(form), *e.shape)
    return _small_sum(applied, e), (applied, e)


def _quadratic_backward(saved, g):
    applied, e = saved
    by_form = ((g[:, None] * e).reshape(-1, e.shape[1]) @ e.T).reshape(len(g), len(e), len(e))
    return by_form, 2 * sum(g[i] * applied[i] for i in range(len(g)))


_quadratic.defvjp(_quadratic_forward, _quadratic_backward)


@jax.custom_vjp
def _small_sum(a: Float[Array, "P e N"], b: Float[Array, "e N"]) -> Float[Array, "P N"]:
    return sum(a[:, i] * b[i] for i in range(len(b)))


def _small_sum_backward(saved, g):
    a, b = saved
    return g[:, None] * b, sum(g[i] * a[i] for i in range(len(g)))


_small_sum.defvjp(lambda a, b: (_small_sum(a, b), (a, b)), _small_sum_backward)


def _block_diagonal(*blocks):
    return jax.scipy.linalg.block_diag(*blocks)
