"""The protocol of inducing features: two covariances, from which everything else follows.

Inducing variables u are any linear functionals of the layer's zero-mean process f. A new kind is
one class with `Kuu` and `Kuf`; nothing is registered anywhere.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from overtone.kernels import AbstractKernel, Additive
from overtone.linalg import AbstractPSDOperator, BlockDiagonal
from overtone.variational import AbstractGaussian

QUICK = 50_000_000  # products, from which on a Gram matrix in O(NM) is worth its longer compilation


class AbstractInducingFeatures(eqx.Module):
    """Inducing variables u, in `num_blocks` blocks of equal size that are independent a priori."""

    @property
    @abstractmethod
    def num_features(self) -> int:
        """Number of inducing variables, over all blocks."""

    @abstractmethod
    def Kuu(self, kernel: AbstractKernel) -> AbstractPSDOperator:
        """cov(u, u)."""

    @abstractmethod
    def Kuf(self, kernel: AbstractKernel, X: Float[Array, "N D"]) -> Float[Array, "M N"]:
        """cov(u, f(x)) for each row x."""

    @property
    def num_blocks(self) -> int:
        """One, except for features of independent components."""
        return 1

    def outside(self, X: Float[Array, "N D"]) -> Bool[Array, "N D"]:
        """Where inputs lie outside the interval that the features are made for, if there is one."""
        return jnp.zeros(X.shape, bool)

    def functionals(self, functions: Callable[[Array], Array]) -> Float[Array, "M K"]:
        """u of each of K functions, which map rows (N, D) to values (K, N): what draws of functions need to know."""
        raise NotImplementedError(f"{type(self).__name__} cannot be applied to given functions.")

    def finer(self, least: int = 100) -> "AbstractInducingFeatures | None":
        """Features of four times the frequencies, of at least so many, and of which these are a part; None without any.

        They leave next to nothing unexplained.
        """
        return None

    def part_of(
        self, kernel: AbstractKernel, finer: "AbstractInducingFeatures", v: Float[Array, "*P K"]
    ) -> Float[Array, "*P M"]:
        """The whitened variables of these features, given those of the finer ones."""
        raise NotImplementedError(f"{type(self).__name__} has no finer features.")

    @property
    def band_limited(self) -> bool:
        """Is the process, where the features are made for it, nothing but them?"""
        return False

    def unexplained(self, kernel: AbstractKernel, A: Float[Array, "M N"], X: Float[Array, "N D"]) -> Float[Array, " N"]:
        """The prior variance of f(x) that the inducing variables, with whitened features A, leave: the residual."""
        return residual(kernel, A, X)

    def whitened(self, kernel: AbstractKernel, X: Float[Array, "N D"]) -> Float[Array, "M N"]:
        """A = R^-1 Kuf with R R^T = Kuu: covariance of the whitened variables with f(x)."""
        return self.Kuu(kernel).whiten(self.Kuf(kernel, X))

    def marginals(
        self, kernel: AbstractKernel, q: AbstractGaussian, X: Float[Array, "N D"]
    ) -> tuple[Float[Array, "N P"], Float[Array, "N P"]]:
        """Mean and variance of f(x) under q.

        mean = A^T m;  var = (k(x,x) - |A|^2) + |R^T A|^2, the residual clipped at its exact bound.
        """
        A = self.whitened(kernel, X)
        return q.project(A), self.unexplained(kernel, A, X)[:, None] + q.spread(A)

    def normal_equations(
        self, kernel: AbstractKernel, X: Float[Array, "N D"], Y: Float[Array, "N P"], weights: Float[Array, " N"]
    ) -> tuple[Float[Array, "M M"], Float[Array, "M P"]]:
        """A W A^T and A W Y, in the widest precision that is on: what regression on the features needs to know."""
        widest = jax.dtypes.canonicalize_dtype(jnp.float64)
        A = self.whitened(kernel, X).astype(widest)
        weighted = A * weights
        return weighted @ A.T, weighted @ Y.astype(widest)


def residual(kernel: AbstractKernel, A: Float[Array, "M N"], X: Float[Array, "N D"]) -> Float[Array, " N"]:
    """k(x,x) - |A|^2: the prior variance that the inducing variables leave unexplained."""
    return jnp.maximum(kernel.diag(X) - jnp.sum(A**2, axis=0), 0.0)


@jax.custom_jvp
def nonnegative(x: Float[Array, "*R"]) -> Float[Array, "*R"]:
    """max(x, 0) for what is negative by rounding alone: the derivative stays that of x."""
    return jnp.maximum(x, 0)


nonnegative.defjvps(lambda tangent, value, x: tangent)


class PerDimension(AbstractInducingFeatures):
    """The same kind of 1-D features for each input dimension of an `Additive` kernel.

    The components of an additive process are independent, so each dimension is a block of its own.
    The leaves of `parts` have a leading axis of length D.
    """

    parts: AbstractInducingFeatures
    num_dims: int = eqx.field(static=True)

    @property
    def num_features(self):
        return self.num_dims * self.parts.num_features

    @property
    def num_blocks(self):
        return self.num_dims

    @property
    def band_limited(self):
        return self.parts.band_limited

    def unexplained(self, kernel, A, X):
        if not self.band_limited:
            return residual(kernel, A, X)
        blocks = A.reshape(self.num_dims, -1, A.shape[1])
        each = jax.vmap(lambda f, k, a, x: f.unexplained(k, a, x[:, None]))(self.parts, _parts(kernel), blocks, X.T)
        return jnp.sum(each, axis=0)

    def Kuu(self, kernel):
        operators = jax.vmap(lambda f, k: f.Kuu(k))(self.parts, _parts(kernel))
        return BlockDiagonal(operators, self.num_dims)

    def Kuf(self, kernel, X):
        columns = X.T[:, :, None]
        Kuf = jax.vmap(lambda f, k, x: f.Kuf(k, x))(self.parts, _parts(kernel), columns)
        return Kuf.reshape(-1, X.shape[0])

    def marginals(self, kernel, q, X):
        if len(q.mean) != self.num_dims:
            return AbstractInducingFeatures.marginals(self, kernel, q, X)

        # Independent components: their means and variances add up.
        def one(features, kernel, q, x):
            return features.marginals(kernel, jax.tree.map(lambda leaf: leaf[None], q), x[:, None])

        mean, var = jax.vmap(one, in_axes=(0, 0, 0, 1))(self.parts, _parts(kernel), q, X)
        one_each = np.ones(self.num_dims, mean.dtype)  # a product, since sums over the first axis are slow
        return _gradient_once(jnp.tensordot(one_each, mean, 1)), _gradient_once(jnp.tensordot(one_each, var, 1))

    def normal_equations(self, kernel, X, Y, weights):
        small = len(X) * self.num_features**2 < QUICK
        if small or self.num_dims > 1:  # features of different dimensions have no structure in common
            return AbstractInducingFeatures.normal_equations(self, kernel, X, Y, weights)
        features, kernel = jax.tree.map(lambda leaf: leaf[0], (self.parts, _parts(kernel)))
        return features.normal_equations(kernel, X, Y, weights)

    def finer(self, least=100):
        parts = self.parts.finer(least)
        return None if parts is None else PerDimension(parts, self.num_dims)

    def part_of(self, kernel, finer: Any, v):
        blocks = jnp.moveaxis(v.reshape(*v.shape[:-1], self.num_dims, -1), -2, 0)
        parts = jax.vmap(lambda f, k, g, v: f.part_of(k, g, v))(self.parts, _parts(kernel), finer.parts, blocks)
        return jnp.moveaxis(parts, 0, -2).reshape(*v.shape[:-1], -1)

    def outside(self, X):
        return jax.vmap(lambda f, x: f.outside(x))(self.parts, X.T[:, :, None])[:, :, 0].T


@jax.custom_vjp
def _gradient_once(x: Float[Array, "N P"]) -> Float[Array, "N P"]:
    """x, with a gradient that is the result of a matrix product: compilers compute those once, and do not repeat
    all that leads to a gradient in each of the dimensions that it goes to."""
    return x


def _multiplied(_, gradient):
    return ((np.eye(gradient.shape[1], dtype=gradient.dtype) @ gradient.T).T,)


_gradient_once.defvjp(lambda x: (x, None), _multiplied)


def _parts(kernel: AbstractKernel) -> AbstractKernel:
    if not isinstance(kernel, Additive):
        raise TypeError(
            f"features of one input dimension each need an Additive kernel, got "
            f"{type(kernel).__name__}; wrap it as Additive(kernel)."
        )
    return kernel.parts
