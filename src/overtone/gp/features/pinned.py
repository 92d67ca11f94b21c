"""Pinned Fourier features: the RKHS Fourier features, with the process pinned at both ends.

The sinusoids are periodic on [a, b], so on their own they miss p + 1 directions of the RKHS and leave a residual near
the ends, whatever their number. With the states s(a) and s(b), s = (f, f'/lam, ..., f^(p)/lam^p), as further inducing
variables the features are dense, and [a, b] may sit tight around the data. In order, each orthogonal to those before:
    1. s(a), of covariance P = L L^T;
    2. u' = u - E[u | s(a)]: its covariance is diag(d) EXACTLY, its features psi_m(x) = phi_m(x) - c(x - a) B[:, m];
    3. what 1 and 2 leave of s(b), of covariance C.
Divided by their standard deviations they are the whitened variables v = (v1, v2, v3) themselves, so Kuu = I.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from overtone.gp.features.base import AbstractInducingFeatures, per_dimension
from overtone.gp.features.fourier import matern, shared_frequencies
from overtone.gp.features.pinned_marginals import Ends, Positions, ends, extrapolations, pinned_marginals, signs
from overtone.gp.kernels import AbstractMatern
from overtone.gp.variational import AbstractGaussian
from overtone.numerics.linalg import Identity
from overtone.numerics.params import OptionalParam
from overtone.numerics.quadratic import gram_of_sums
from overtone.numerics.trigpoly import evaluate, sinusoids, sum_over_chunks, sums

LEAST_WIDTH = 0.01  # of [a, b]: ends that are learned could meet otherwise
FIRST_INTERVAL, HIDDEN_INTERVAL = (-0.02, 1.02), (-0.5, 1.5)  # to start from; hidden layers move more
WORTH_COMPILING = 50_000_000  # products, from which on a Gram matrix in O(NM) is worth its longer compilation


class PinnedFourier(AbstractInducingFeatures):
    """2M + 1 + 2(p + 1) features of a Matern process of order p on the line, for [a, b] or at least [a, a + 0.01].

    Unless it is given, [a, b] sits tight around the data in the first layer and is learned in hidden ones. The order is
    that of the kernel that the features are initialised with.
    """

    num_frequencies: int = eqx.field(static=True)
    a: OptionalParam = None
    b: OptionalParam = None
    order: int | None = eqx.field(static=True, default=None)

    def initialised(self, kernel, H, *, first, learned, seed, dtype):
        kernel, start = matern(kernel), FIRST_INTERVAL if first else HIDDEN_INTERVAL
        sized = PinnedFourier(self.num_frequencies, self.a, self.b, kernel.order)
        return per_dimension(kernel, sized, start, H.shape[1], dtype, learned)

    @property
    def num_features(self):
        return 2 * self.num_frequencies + 1 + 2 * self.num_states

    @property
    def num_states(self) -> int:
        """The length of the state at an end, p + 1."""
        if self.order is None:
            raise ValueError("the number of pinned features depends on the kernel; initialise the model first.")
        return self.order + 1

    @property
    def end(self):
        return jnp.maximum(self.b, self.a + LEAST_WIDTH)

    @property
    def width(self):
        return self.end - self.a

    def Kuu(self, kernel):
        return Identity(self.num_features)

    def Kuf(self, kernel, X):
        return self.features(kernel, X[:, 0], self.a.dtype)

    def features(self, kernel, x: Float[Array, " N"], precision) -> Float[Array, "M N"]:
        """Return g(x) of a model in this precision, which decides what v3 is where next to nothing is left of s(b)."""
        kernel = self._checked(kernel)
        positions = self._at(kernel, x)
        constants = ends(type(kernel), self.num_frequencies, positions.rho, precision)
        return self._combined(kernel, constants, self._parts(kernel, constants, positions))

    def basis(self, kernel, X):
        kernel = self._checked(kernel)
        return self._parts(kernel, self._constants(kernel), self._at(kernel, X[:, 0]))

    def in_basis(self, kernel, weights):
        kernel, num_parts = self._checked(kernel), 2 * self.num_frequencies + 1 + 4 * self.num_states
        return weights @ self._combined(kernel, self._constants(kernel), jnp.eye(num_parts, dtype=weights.dtype))

    def _constants(self, kernel: AbstractMatern) -> Ends:
        return ends(type(kernel), self.num_frequencies, kernel.rate * self.width, self.a.dtype)

    def _parts(self, kernel: AbstractMatern, constants: Ends, positions: Positions) -> Float[Array, "K N"]:
        """Return sinusoids and extrapolations, of which the features are combinations."""
        waves: Any = sinusoids(positions.position, self.num_frequencies)
        e = extrapolations(type(kernel), constants, positions, (constants.B * constants.amplitude) @ waves)
        return jnp.concatenate([waves * (positions.beyond == 0), *e])

    def _combined(self, kernel: AbstractMatern, constants: Ends, parts: Float[Array, "K R"]) -> Float[Array, "M R"]:
        """Return the features, or anything linear in them, from the same of sinusoids and extrapolations.

        Inside: 1. L^T c(x - a), 2. psi / sqrt(d), 3. what is left of s(b).
        Beyond an end, f is c(r) times the state there and something independent.
        """
        size = self.num_states
        waves, (from_a, third, before, after) = parts[: -4 * size], jnp.split(parts[-4 * size :], 4)
        L = jnp.asarray(np.linalg.cholesky(kernel.state_correlation), parts.dtype)
        F, gap, last = jnp.split(constants.after, 3, axis=1)
        first = L.T @ (from_a + signs(self.num_states - 1)[:, None] * before + F.T @ after)
        second = constants.amplitude[:, None] * waves + constants.B.T @ (gap.T @ after - from_a)
        return jnp.sqrt(kernel.variance) * jnp.concatenate([first, second, third + last.T @ after])

    def finer(self, least=100):
        return PinnedFourier(max(4 * self.num_frequencies, least), self.a, self.b, self.order)

    def from_finer(self, kernel, finer: Any, v):
        """v1 and v2 are among the finer ones; v3 is what the further sinusoids and the finer v3 say of s(b)."""
        kernel, size = self._checked(kernel), self.num_states
        rho = kernel.rate * self.width
        constants, more_known = (ends(type(kernel), f.num_frequencies, rho, self.a.dtype) for f in (self, finer))
        first, second, third = v[..., :size], v[..., size:-size], v[..., -size:]
        shared = shared_frequencies(self, finer)
        further = second.at[..., shared].set(0)
        _, gap, last = jnp.split(more_known.after, 3, axis=1)
        left = further @ (gap @ more_known.B).T + third @ last.T  # of s(b)
        P = np.asarray(kernel.state_correlation) * signs(self.num_states - 1)
        whiten = constants.third[:, size : 2 * size] @ jnp.asarray(np.linalg.inv(P), v.dtype)
        return jnp.concatenate([first, second[..., shared], left @ whiten.T], axis=-1)

    def normal_equations(self, kernel, X, Y, weights):
        """Take O(M) for each row: products of two sinusoids are sums of two, so 4M + 1 sums over rows say it all."""
        precision, widest = self.a.dtype, jax.dtypes.canonicalize_dtype(jnp.float64)
        given = self, self._checked(kernel), X[:, 0], Y, weights
        wide, kernel, x, Y, weights = jax.tree.map(lambda leaf: leaf.astype(widest), given)
        if len(X) * self.num_features**2 < WORTH_COMPILING:
            A = wide.features(kernel, x, precision)
            gram = (A * weights) @ A.T
            return gram, (A * weights) @ Y, jnp.sum(weights) * kernel.variance - jnp.trace(gram)
        constants = ends(type(kernel), wide.num_frequencies, kernel.rate * wide.width, precision)
        low, none = constants.B * constants.amplitude, jnp.zeros((1, 4 * wide.num_frequencies + 1), widest)

        def of_rows(x, Y, weights, is_row):
            positions, weights = wide._at(kernel, x), weights * is_row
            h = evaluate(none, low, positions.position)[1]
            e = jnp.concatenate(extrapolations(type(kernel), constants, positions, h))
            inside, we = weights * (positions.beyond == 0), weights * e
            num = 2 * wide.num_states
            factors = jnp.concatenate([we[:num], inside * Y.T])
            found: Any = sums(inside[None], factors, positions.position, wide.num_frequencies)
            squares, crossed, with_Y = found[0][0], found[1][:num], found[1][num:]
            return squares, jnp.pad(crossed, ((0, len(e) - num), (0, 0))), with_Y, we @ e.T, we @ Y

        squares, crossed, with_Y, ee, eY = sum_over_chunks(of_rows, x, Y, weights)
        parts = jnp.block([[gram_of_sums(squares), crossed.T], [crossed, ee]])
        gram = wide._combined(kernel, constants, wide._combined(kernel, constants, parts).T)
        left = jnp.sum(weights) * kernel.variance - jnp.trace(gram)
        return gram, wide._combined(kernel, constants, jnp.concatenate([with_Y.T, eY])), left

    def marginals(self, kernel, q, X):
        """Return the default's result in O(M) for each row: quadratic forms are trigonometric polynomials."""
        mean, spread, left = self.marginals_by_parts(kernel, q, X)
        return mean, spread + left[:, None]

    def marginals_by_parts(
        self, kernel, q: AbstractGaussian, X: Float[Array, "N 1"]
    ) -> tuple[Float[Array, "N P"], Float[Array, "N P"], Float[Array, " N"]]:
        """Return the mean of f(x) under q, the variance that comes from q, and the variance that is unexplained."""
        kernel = self._checked(kernel)
        positions = self._at(kernel, X[:, 0])
        constants = self._constants(kernel)
        mean, spread, left = pinned_marginals(type(kernel), constants, positions, q)
        return (jnp.sqrt(kernel.variance) * mean).T, (kernel.variance * spread).T, kernel.variance * left

    def _at(self, kernel: AbstractMatern, x: Float[Array, " N"]) -> Positions:
        relative = (x - self.a) / self.width
        position = jnp.clip(relative, 0, 1)
        return Positions(position, relative - position, kernel.rate * self.width)

    def _checked(self, kernel) -> AbstractMatern:
        kernel = matern(kernel)
        if kernel.order != self.order:
            raise ValueError(
                f"these features pin {self.order} derivatives, but {type(kernel).__name__} has {kernel.order}; "
                f"make them with order={kernel.order}."
            )
        return kernel

    def outside(self, X):
        return (X < self.a) | (X > self.end)
