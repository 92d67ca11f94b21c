"""RKHS Fourier features on [a, b] (Hensman, Durrande, Solin 2018), the features of the paper.

u_m = <phi_m, f> in the RKHS of a half-integer Matern kernel on [a, b], with
    phi = [1, cos(w_m (x - a)), sin(w_m (x - a))],  w_m = 2 pi m / (b - a),  m = 1..M.
By the reproducing property cov(u_m, f(x)) = phi_m(x) on [a, b], and for every order
    Kuu = diag(d) + B^T Pinf^-1 B,   d_0 = (b - a) / S(0),  d_m = (b - a) / (2 S(w_m)),
where B[i, m] = phi_m^(i)(a) / lam^i: the low-rank part is what the state s(a), of covariance Pinf, knows.
Beyond an edge, f depends on [a, b] only through the state there, so Kuf is c(r) B at distance r.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from overtone.gp.features.base import AbstractInducingFeatures, per_dimension
from overtone.gp.features.fourier_marginals import fourier_marginals
from overtone.gp.kernels import AbstractKernel, AbstractMatern
from overtone.numerics.linalg import DiagonalPlusLowRank
from overtone.numerics.params import OptionalParam
from overtone.numerics.trigpoly import sinusoids

PAPER_INTERVAL = (-2.0, 3.0)  # around data in [0, 1]


class Fourier(AbstractInducingFeatures):
    """2M + 1 Fourier features of a one-dimensional Matern process; [a, b] is the paper's [-2, 3] unless it is given."""

    num_frequencies: int = eqx.field(static=True)
    a: OptionalParam = None
    b: OptionalParam = None

    def initialised(self, kernel, H, *, first, learned, seed, dtype):
        return per_dimension(matern(kernel), self, PAPER_INTERVAL, H.shape[1], dtype)

    @property
    def num_features(self):
        return 2 * self.num_frequencies + 1

    def Kuu(self, kernel):
        kernel = matern(kernel)
        w = frequencies(self.a, self.b, self.num_frequencies)
        # W W^T = B^T Pinf^-1 B: W = B^T L^-T with Pinf = L L^T, a constant for the scaled state but for s2.
        L = np.linalg.cholesky(kernel.state_correlation)
        B = edge(w / kernel.rate, kernel.order)
        W = (jnp.asarray(np.linalg.inv(L), B.dtype) @ B / jnp.sqrt(kernel.variance)).T
        return DiagonalPlusLowRank(spectral_diagonal(kernel, w, self.b - self.a), W)

    def Kuf(self, kernel, X):
        kernel = matern(kernel)
        w = frequencies(self.a, self.b, self.num_frequencies)
        position, inside, e = self._at(kernel, X[:, 0])
        beyond = edge(w / kernel.rate, kernel.order).T @ e
        return jnp.where(inside, sinusoids(position, self.num_frequencies), beyond)

    def _at(self, kernel: AbstractMatern, x: Float[Array, " N"]) -> tuple[Array, Array, Array]:
        """Return where inputs lie in [0, 1] or at its nearer end, which lie inside, and extrapolations from there."""
        nearest = jnp.clip(x, self.a, self.b)
        # phi and its derivatives are the same at both edges; going left, odd derivatives change sign.
        distance, sign = jnp.abs(x - nearest), jnp.where(x < nearest, -1.0, 1.0).astype(x.dtype)
        signs = sign ** jnp.arange(kernel.order + 1)[:, None]
        return (nearest - self.a) / (self.b - self.a), x == nearest, signs * kernel.extrapolation(distance)

    def marginals(self, kernel, q, X):
        """Return the default's result in O(M) for each row: quadratic forms are trigonometric polynomials."""
        kernel = matern(kernel)
        w = frequencies(self.a, self.b, self.num_frequencies)
        diagonal = spectral_diagonal(kernel, w, self.b - self.a)
        readout = edge(np.arange(self.num_frequencies + 1.0), kernel.order)
        mean, spread, left = fourier_marginals(
            kernel, diagonal, w[1] / kernel.rate, readout, self._at(kernel, X[:, 0]), q
        )
        return mean.T, (spread + left).T

    def finer(self, least=100):
        return Fourier(max(4 * self.num_frequencies, least), self.a, self.b)

    def from_finer(self, kernel, finer, v):
        """cov(v, v') = R^-1 Kuu'[these, :] R'^-T, and v' is white."""
        Kuu = finer.Kuu(kernel)
        covariance = Kuu.whiten(self.Kuu(kernel).whiten(Kuu.dense()[shared_frequencies(self, finer)]).T).T
        return v @ covariance.T

    def outside(self, X):
        return (X < self.a) | (X > self.b)


def shared_frequencies(features: Any, finer: Any) -> np.ndarray:
    """Return the indices of the features' sinusoids among those of finer ones."""
    m = np.arange(features.num_frequencies + 1)
    return np.concatenate([m, finer.num_frequencies + m[1:]])


def frequencies(a: Float[Array, ""], b: Float[Array, ""], num: int) -> Float[Array, " M1"]:
    """Return w_m = 2 pi m / (b - a), m = 0..M."""
    m = jnp.arange(num + 1, dtype=jnp.result_type(a, b))
    return 2 * jnp.pi * m / (b - a)


def spectral_diagonal(kernel: AbstractMatern, w: Float[Array, " M1"], length: Float[Array, ""]) -> Float[Array, " M2"]:
    """Return d_0 = (b - a) / S(0), d_m = (b - a) / (2 S(w_m)), for cosines and sines."""
    d = length / (jnp.where(w > 0, 2, 1) * kernel.spectral_density(w))
    return jnp.concatenate([d, d[1:]])


def edge(w: Any, order: int) -> Any:
    """Return B[i, m] = phi_m^(i)(a) for i = 0..order: cosines 1, 0, -w^2; sines 0, w, 0. Scaled states take w / lam.

    An array of NumPy for one of NumPy, an array of JAX for one of JAX.
    """
    xp = np if isinstance(w, np.ndarray) else jnp
    zero = xp.zeros_like(w)
    cosines = [xp.ones_like(w), zero, -(w**2)]
    sines = [zero, w, zero]
    rows = [xp.concatenate([c, s[1:]]) for c, s in zip(cosines, sines, strict=True)]
    return xp.stack(rows[: order + 1])


def matern(kernel: AbstractKernel) -> AbstractMatern:
    """Return the kernel, if it is one that Fourier features know."""
    if not isinstance(kernel, AbstractMatern):
        raise TypeError(
            f"these features need a one-dimensional Matern12, Matern32 or Matern52 kernel, got "
            f"{type(kernel).__name__}; for several inputs use PerDimension features and an Additive kernel."
        )
    return kernel
