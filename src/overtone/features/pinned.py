"""Pinned Fourier features: the RKHS Fourier features, with the process pinned at both ends.

The sinusoids are periodic on [a, b], so on their own they miss p + 1 directions of the RKHS and leave a residual near
the ends, whatever their number. With the states s(a) and s(b), s = (f, f'/lam, ..., f^(p)/lam^p), as further inducing
variables the features are dense, and [a, b] may sit tight around the data. In order, each orthogonal to those before:
    1. s(a), of covariance P = L L^T;
    2. u' = u - E[u | s(a)]: its covariance is diag(d) EXACTLY, its features psi_m(x) = phi_m(x) - c(x - a) B[:, m];
    3. what 1 and 2 leave of s(b), of covariance C.
Divided by their standard deviations they are the whitened variables v = (v1, v2, v3) themselves, so Kuu = I.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from overtone.features.base import AbstractInducingFeatures
from overtone.features.ends import ends, signs, unit_kernel
from overtone.features.fourier import matern, sinusoids
from overtone.features.pinned_marginals import Place, pinned_marginals
from overtone.kernels import AbstractMatern
from overtone.linalg import Identity
from overtone.params import Param


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
        kernel, size = self._checked(kernel), self.order + 1
        place = self._place(kernel, X[:, 0])
        position, beyond, rho = place.position, place.beyond, place.rho
        unit, known = unit_kernel(type(kernel), rho.dtype), ends(type(kernel), self.num_frequencies, rho)
        from_a, from_b, outside = (unit.extrapolation(rho * r) for r in (position, 1 - position, jnp.abs(beyond)))

        # Inside: 1. L^T c(x - a), 2. psi / sqrt(d), 3. what is left of s(b).
        L = jnp.asarray(np.linalg.cholesky(kernel.state_correlation), rho.dtype)
        waves = sinusoids(2 * jnp.pi * jnp.arange(self.num_frequencies + 1, dtype=rho.dtype), position)
        phi = known.amplitude[:, None] * waves
        third = known.third @ jnp.concatenate([from_a, from_b, known.B @ phi])
        within = jnp.concatenate([L.T @ from_a, phi - known.B.T @ from_a, third])

        # Beyond an end, f is c(r) times the state there and something independent.
        at_a = jnp.pad(L.T * signs(self.order), ((0, self.num_features - size), (0, 0)))
        F, gap, last = jnp.split(known.after, 3, axis=1)
        at_b = jnp.concatenate([F @ L, gap @ known.B, last], axis=1).T
        g = jnp.where(beyond > 0, at_b @ outside, jnp.where(beyond < 0, at_a @ outside, within))
        return jnp.sqrt(kernel.variance) * g

    def marginals(self, kernel, q, X):
        """The default's result in O(M) for each row: the features' quadratic forms are trigonometric polynomials."""
        kernel = self._checked(kernel)
        place = self._place(kernel, X[:, 0])
        known = ends(type(kernel), self.num_frequencies, place.rho)
        mean, var = pinned_marginals(type(kernel), known, place, q)
        return (jnp.sqrt(kernel.variance) * mean).T, (kernel.variance * var).T

    def _place(self, kernel: AbstractMatern, x: Float[Array, " N"]) -> Place:
        relative = (x - self.a) / (self.b - self.a)
        position = jnp.clip(relative, 0, 1)
        return Place(position, relative - position, kernel.rate * (self.b - self.a))

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
