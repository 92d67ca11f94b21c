"""Pinned Fourier features: the RKHS Fourier features, with the process pinned at both ends.

The sinusoids are periodic on [a, b], so on their own they miss p + 1 directions of the RKHS and leave a residual near
the ends, whatever their number. With the states s(a) and s(b), s = (f, f'/lam, ..., f^(p)/lam^p), as further inducing
variables the features are dense, and [a, b] may sit tight around the data. In order, each orthogonal to those before:
    1. s(a), of covariance P;
    2. u' = u - E[u | s(a)]: its covariance is diag(d) EXACTLY, its features psi_m(x) = phi_m(x) - c(x - a) B[:, m];
    3. what 1 and 2 leave of s(b), of covariance C. (Of s(b) + e, to be precise, where e is as small as rounding: C
       vanishes as M grows, and the noise e keeps its inverse root within what the precision can carry.)
Divided by their standard deviations they are the whitened variables themselves, so Kuu = I.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from overtone.features.base import AbstractInducingFeatures
from overtone.features.fourier import edge, frequencies, matern, sinusoids, spectral_diagonal
from overtone.kernels import AbstractMatern
from overtone.linalg import Identity, small_cholesky, small_inverse
from overtone.params import Param


class Ends(eqx.Module):
    """What does not depend on x: O(M) numbers, computed once for all rows."""

    w: Float[Array, " M1"]
    scaled_B: Float[Array, "state M2"]  # B diag(d)^-1/2
    root_d: Float[Array, " M2"]
    chol_a: Float[Array, "state state"]  # of P
    far: Float[Array, "state K"]  # cov(s(b), whitened variables 1 and 2) = [F chol_a, (I - F) B diag(d)^-1/2]
    inverse_b: Float[Array, "state state"]  # of the Cholesky factor of C
    left_b: Float[Array, "state state"]  # C without the noise e


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
        kernel, x = matern(kernel), X[:, 0]
        ends, size = self.ends(kernel, x.dtype), self.order + 1
        inside = jnp.clip(x, self.a, self.b)
        from_a, from_b = kernel.extrapolation(inside - self.a), kernel.extrapolation(self.b - inside)
        # Seen backwards in time, odd derivatives change sign.
        sign = jnp.asarray([[(-1.0) ** i] for i in range(size)], x.dtype)

        # Inside: 1. chol_a^T c(x - a), 2. psi / sqrt(d), 3. [cov(s(b), f(x)) - far g(x)], whitened.
        first = ends.chol_a.T @ from_a
        second = sinusoids(ends.w, inside - self.a) / ends.root_d[:, None] - ends.scaled_B.T @ from_a
        both = jnp.concatenate([first, second])
        third = ends.inverse_b @ (ends.chol_a @ (ends.chol_a.T @ (sign * from_b)) - ends.far @ both)
        within = jnp.concatenate([both, third])

        # Beyond b, f is c(x - b) s(b) and something independent; before a, only s(a) matters.
        after = jnp.concatenate([ends.far.T, ends.inverse_b @ ends.left_b])
        after = after @ kernel.extrapolation(jnp.maximum(x - self.b, 0))
        before = ends.chol_a.T @ (sign * kernel.extrapolation(jnp.maximum(self.a - x, 0)))
        before = jnp.pad(before, ((0, self.num_features - size), (0, 0)))
        return jnp.where(x > self.b, after, jnp.where(x < self.a, before, within))

    def ends(self, kernel: AbstractMatern, dtype) -> Ends:
        """The constants of `Kuf`, computed in the widest precision that is on, since C is a small difference."""
        widest = jax.dtypes.canonicalize_dtype(jnp.float64)
        kernel, a, b = jax.tree.map(lambda leaf: leaf.astype(widest), (kernel, self.a, self.b))
        w = frequencies(a, b, self.num_frequencies)
        root_d = jnp.sqrt(spectral_diagonal(kernel, w, b - a))
        scaled_B = edge(w / kernel.rate, self.order) / root_d
        correlation = np.asarray(kernel.state_correlation)
        chol_a = jnp.sqrt(kernel.variance) * np.linalg.cholesky(correlation)
        F = kernel.transition((b - a)[None])[0]
        far = jnp.concatenate([F @ chol_a, scaled_B - F @ scaled_B], axis=1)
        left_b = kernel.variance * correlation - far @ far.T
        e = 8 * jnp.finfo(dtype).eps * kernel.variance * np.diag(np.diag(correlation))
        inverse_b = small_inverse(small_cholesky(left_b + e))
        ends = Ends(w, scaled_B, root_d, chol_a, far, inverse_b, left_b)
        return jax.tree.map(lambda leaf: leaf.astype(dtype), ends)

    def outside(self, X):
        return (X < self.a) | (X > self.b)
