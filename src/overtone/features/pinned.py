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
from overtone.trigpoly import evaluate, linear_coefficients, quadratic_coefficients

MANY_ROWS = 2048  # with fewer, the generic path is about as fast, and compiles in half the time


class Ends(eqx.Module):
    """What does not depend on x: O(M) numbers, computed once for all rows."""

    w: Float[Array, " M1"]
    scaled_B: Float[Array, "state M2"]  # B diag(d)^-1/2
    root_d: Float[Array, " M2"]
    chol_a: Float[Array, "state state"]  # of P
    far: Float[Array, "state K"]  # cov(s(b), whitened variables 1 and 2) = [F chol_a, (I - F) B diag(d)^-1/2]
    inverse_b: Float[Array, "state state"]  # of the Cholesky factor of C
    left_b: Float[Array, "state state"]  # C without the noise e

    def pull_back(self, V: Float[Array, "*R K r"]) -> Float[Array, "*R K r"]:
        """T^T V, where inside [a, b] the whitened features are T [phi(x); c(x - a); third(x)]."""
        size = len(self.chol_a)
        V1, V2, V3 = V[..., :size, :], V[..., size:-size, :], V[..., -size:, :]
        return jnp.concatenate([V2 / self.root_d[:, None], self.chol_a @ V1 - self.scaled_B @ V2, V3], axis=-2)

    def third(self, from_a: Float[Array, "state N"], from_b: Float[Array, "state N"], far_phi: Float[Array, "state N"]):
        """[cov(s(b), f(x)) - far g(x)] whitened, where far_phi is the part of far g(x) that comes from phi(x)."""
        size = len(self.chol_a)
        by_a = self.far[:, :size] @ self.chol_a.T - self.far[:, size:] @ self.scaled_B.T
        return self.inverse_b @ (self.chol_a @ (self.chol_a.T @ from_b) - by_a @ from_a - far_phi)

    def beyond(self) -> tuple[Float[Array, "K state"], Float[Array, "K state"]]:
        """Covariances of the whitened variables with s(a) and with s(b): all that counts before a and after b."""
        at_b = jnp.concatenate([self.far.T, self.inverse_b @ self.left_b])
        at_a = jnp.pad(self.chol_a.T, ((0, len(at_b) - len(self.chol_a)), (0, 0)))
        return at_a, at_b


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
        ends = self.ends(kernel, x.dtype)
        inside, from_a, from_b, outside = self._extrapolations(kernel, x)

        # Inside: 1. chol_a^T c(x - a), 2. psi / sqrt(d), 3. what is left of s(b).
        phi = sinusoids(ends.w, inside - self.a) / ends.root_d[:, None]
        third = ends.third(from_a, from_b, ends.far[:, self.order + 1 :] @ phi)
        within = jnp.concatenate([ends.chol_a.T @ from_a, phi - ends.scaled_B.T @ from_a, third])

        # Beyond an end, f is c(r) times the state there and something independent.
        at_a, at_b = ends.beyond()
        return jnp.where(x > self.b, at_b @ outside, jnp.where(x < self.a, at_a @ outside, within))

    def marginals(self, kernel, q, X):
        """The default's result in O(M) for each row: quadratic forms of the features as trigonometric polynomials."""
        if len(X) < MANY_ROWS:
            return AbstractInducingFeatures.marginals(self, kernel, q, X)
        kernel, x = matern(kernel), X[:, 0]
        ends, num_outputs, num_sinusoids = self.ends(kernel, x.dtype), len(q.mean), 2 * self.num_frequencies + 1
        inside, from_a, from_b, outside = self._extrapolations(kernel, x)

        # |R^T g|^2 for the root R of each output, and |g|^2 for the residual: R R^T and I in the basis [phi; e].
        m = q.mean[:, 0]
        roots = jnp.concatenate([q.sqrt()[:, 0], jnp.eye(self.num_features, dtype=x.dtype)[None]])
        mean, pulled = ends.pull_back(m[..., None])[..., 0], ends.pull_back(roots)
        Q = pulled @ jnp.swapaxes(pulled, -1, -2)
        crossed = Q[:, num_sinusoids:, :num_sinusoids]
        far = ends.far[:, self.order + 1 :] / ends.root_d
        polynomials = jnp.concatenate([mean[:, :num_sinusoids], crossed.reshape(-1, num_sinusoids), far])
        squares, products = evaluate(
            quadratic_coefficients(Q[:, :num_sinusoids, :num_sinusoids]),
            linear_coefficients(polynomials),
            2 * jnp.pi * (inside - self.a) / (self.b - self.a),
        )
        e = jnp.concatenate([from_a, ends.third(from_a, from_b, products[-self.order - 1 :])])
        f = products[:num_outputs] + mean[:, num_sinusoids:] @ e
        crossed = products[num_outputs : -self.order - 1].reshape(num_outputs + 1, *e.shape)
        squares = squares + jnp.sum((2 * crossed + Q[:, num_sinusoids:, num_sinusoids:] @ e) * e, axis=1)

        # Beyond the ends, O(1) for each row.
        for at, there in zip(ends.beyond(), (x < self.a, x > self.b), strict=True):
            rooted = jnp.swapaxes(roots, -1, -2) @ at
            form = jnp.swapaxes(rooted, -1, -2) @ rooted
            f = jnp.where(there, m @ at @ outside, f)
            squares = jnp.where(there, jnp.sum((form @ outside) * outside, axis=1), squares)
        spread, explained = jnp.maximum(squares[:-1], 0), squares[-1]
        return f.T, (spread + jnp.maximum(kernel.variance - explained, 0)).T

    def _extrapolations(self, kernel: AbstractMatern, x: Float[Array, " N"]):
        """x clipped to [a, b]; c(x - a) and c(b - x) there; c of the distance to [a, b] beyond it."""
        inside = jnp.clip(x, self.a, self.b)
        # Seen backwards in time, odd derivatives change sign.
        sign = jnp.asarray([[(-1.0) ** i] for i in range(self.order + 1)], x.dtype)
        outside = kernel.extrapolation(jnp.abs(x - inside))
        return (
            inside,
            kernel.extrapolation(inside - self.a),
            sign * kernel.extrapolation(self.b - inside),
            jnp.where(x < inside, sign * outside, outside),
        )

    def ends(self, kernel: AbstractMatern, dtype) -> Ends:
        """The constants of `Kuf`, computed in the widest precision that is on, since C is a small difference."""
        if kernel.order != self.order:
            raise ValueError(
                f"these features pin {self.order} derivatives, but {type(kernel).__name__} has {kernel.order}; "
                f"make them with order={kernel.order}."
            )
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
