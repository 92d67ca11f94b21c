"""The protocol of inducing features: two covariances, from which everything else follows.

Inducing variables u are any linear functionals of the layer's zero-mean process f. A new kind is
one class with `num_features`, `Kuu` and `Kuf`; nothing is registered anywhere.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from overtone.gp.kernels import AbstractKernel, Additive, additive, with_lengthscales
from overtone.gp.variational import AbstractGaussian
from overtone.numerics.linalg import AbstractPSDOperator, BlockDiagonal
from overtone.numerics.params import Fixed, as_array, as_parameters


class AbstractInducingFeatures(eqx.Module):
    """Inducing variables u, in `num_blocks` blocks of equal size that are independent a priori."""

    @property
    @abstractmethod
    def num_features(self) -> int:
        """The number of inducing variables, over all blocks."""

    @abstractmethod
    def Kuu(self, kernel: AbstractKernel) -> AbstractPSDOperator:
        """Return cov(u, u)."""

    @abstractmethod
    def Kuf(self, kernel: AbstractKernel, X: Float[Array, "N D"]) -> Float[Array, "M N"]:
        """Return cov(u, f(x)) for each row x."""

    def initialised(
        self, kernel: AbstractKernel, H: np.ndarray, *, first: bool, learned: bool, seed: int, dtype: Any
    ) -> "tuple[AbstractKernel, AbstractInducingFeatures]":
        """Return the kernel and these features for inputs like H (N, D), with all that was left open decided.

        first: is this the first layer, whose inputs stay where they are? learned: do the inputs move in training?
        """
        free = jax.tree.map(lambda leaf: as_array(leaf, dtype) if isinstance(leaf, np.ndarray) else leaf, self)
        return with_lengthscales(kernel, H.shape[1], dtype), as_parameters(free, dtype)

    @property
    def num_blocks(self) -> int:
        """The number of blocks: one, except for features of independent components."""
        return 1

    def outside(self, X: Float[Array, "N D"]) -> Bool[Array, "N D"]:
        """Return where inputs lie outside the interval that the features are made for, if there is one."""
        return jnp.zeros(X.shape, bool)

    def functionals(self, functions: Callable[[Array], Array]) -> Float[Array, "M K"]:
        """Return u of each of K functions, which map rows (N, D) to values (K, N), for draws of functions."""
        raise NotImplementedError(f"{type(self).__name__} cannot be applied to given functions.")

    def finer(self, least: int = 100) -> "AbstractInducingFeatures | None":
        """Return features of four times the frequencies, of at least so many, which contain these, or None.

        They leave next to nothing unexplained.
        """
        return None

    def from_finer(
        self, kernel: AbstractKernel, finer: "AbstractInducingFeatures", v: Float[Array, "*P K"]
    ) -> Float[Array, "*P M"]:
        """Return the whitened variables of these features, given those of the finer ones."""
        raise NotImplementedError(f"{type(self).__name__} has no finer features.")

    def prior_variance(self, kernel: AbstractKernel, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        """Return the variance of f(x) under the prior: the kernel's, unless the features limit the process."""
        return kernel.diag(X)

    def unexplained(self, kernel: AbstractKernel, A: Float[Array, "M N"], X: Float[Array, "N D"]) -> Float[Array, " N"]:
        """Return the prior variance of f(x) that inducing variables with whitened features A leave: the residual."""
        return jnp.maximum(self.prior_variance(kernel, X) - jnp.sum(A**2, axis=0), 0.0)

    def whitened(self, kernel: AbstractKernel, X: Float[Array, "N D"]) -> Float[Array, "M N"]:
        """Return A = R^-1 Kuf with R R^T = Kuu, the covariance of the whitened variables with f(x)."""
        return self.Kuu(kernel).whiten(self.Kuf(kernel, X))

    def basis(self, kernel: AbstractKernel, X: Float[Array, "N D"]) -> Float[Array, "K N"]:
        """Return functions that the whitened features are combinations of, and that are quicker to compute, if any."""
        return self.whitened(kernel, X)

    def in_basis(self, kernel: AbstractKernel, weights: Float[Array, "R M"]) -> Float[Array, "R K"]:
        """Return combinations of whitened features as combinations of the basis."""
        return weights

    def project(
        self, kernel: AbstractKernel, weights: Float[Array, "R M"], X: Float[Array, "N D"]
    ) -> Float[Array, "R N"]:
        """Return combinations of whitened features, weights A."""
        return self.in_basis(kernel, weights) @ self.basis(kernel, X)

    def marginals(
        self, kernel: AbstractKernel, q: AbstractGaussian, X: Float[Array, "N D"]
    ) -> tuple[Float[Array, "N P"], Float[Array, "N P"]]:
        """Return mean and variance of f(x) under q.

        mean = A^T m;  var = (k(x,x) - |A|^2) + |R^T A|^2, the residual clipped at its exact bound.
        """
        A = self.whitened(kernel, X)
        return q.project(A), self.unexplained(kernel, A, X)[:, None] + q.spread(A)

    def normal_equations(
        self, kernel: AbstractKernel, X: Float[Array, "N D"], Y: Float[Array, "N P"], weights: Float[Array, " N"]
    ) -> tuple[Float[Array, "M M"], Float[Array, "M P"], Float[Array, ""]]:
        """Return A W A^T, A W Y and the weighted sum of the unexplained variance, in the widest precision that is on.

        This is what regression on the features needs to know. Single rows are not clipped at zero: rounding that is
        clipped row by row would also lose its gradient.
        """
        widest = jax.dtypes.canonicalize_dtype(jnp.float64)
        A = self.whitened(kernel, X).astype(widest)
        weighted = A * weights
        gram = weighted @ A.T
        left = weights @ self.prior_variance(kernel, X).astype(widest) - jnp.trace(gram)
        return gram, weighted @ Y.astype(widest), left


def nonnegative(x: Float[Array, "*R"]) -> Float[Array, "*R"]:
    """Return max(x, 0) for what is negative by rounding alone: the derivative stays that of x."""
    return x + jax.lax.stop_gradient(jnp.maximum(-x, 0))


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

    def prior_variance(self, kernel, X):
        each = jax.vmap(lambda f, k, x: f.prior_variance(k, x[:, None]))(self.parts, _parts(kernel), X.T)
        return jnp.sum(each, axis=0)

    def Kuu(self, kernel):
        operators = jax.vmap(lambda f, k: f.Kuu(k))(self.parts, _parts(kernel))
        return BlockDiagonal(operators, self.num_dims)

    def Kuf(self, kernel, X):
        columns = X.T[:, :, None]
        Kuf = jax.vmap(lambda f, k, x: f.Kuf(k, x))(self.parts, _parts(kernel), columns)
        return Kuf.reshape(-1, X.shape[0])

    def basis(self, kernel, X):
        parts = jax.vmap(lambda f, k, x: f.basis(k, x[:, None]))(self.parts, _parts(kernel), X.T)
        return parts.reshape(-1, X.shape[0])

    def in_basis(self, kernel, weights):
        blocks = jnp.moveaxis(weights.reshape(len(weights), self.num_dims, -1), 1, 0)
        parts = jax.vmap(lambda f, k, w: f.in_basis(k, w))(self.parts, _parts(kernel), blocks)
        return jnp.moveaxis(parts, 0, 1).reshape(len(weights), -1)

    def marginals(self, kernel, q, X):
        if len(q.mean) != self.num_dims:
            return AbstractInducingFeatures.marginals(self, kernel, q, X)

        # Independent components: their means and variances add up.
        def one(features, kernel, q, x):
            return features.marginals(kernel, jax.tree.map(lambda leaf: leaf[None], q), x[:, None])

        mean, var = jax.vmap(one, in_axes=(0, 0, 0, 1))(self.parts, _parts(kernel), q, X)
        one_each = np.ones(self.num_dims, mean.dtype)  # a product, since sums over the first axis are slow
        return jnp.tensordot(one_each, mean, 1), jnp.tensordot(one_each, var, 1)

    def normal_equations(self, kernel, X, Y, weights):
        if self.num_dims > 1:  # features of different dimensions have no structure in common
            return AbstractInducingFeatures.normal_equations(self, kernel, X, Y, weights)
        features, kernel = jax.tree.map(lambda leaf: leaf[0], (self.parts, _parts(kernel)))
        return features.normal_equations(kernel, X, Y, weights)

    def finer(self, least=100):
        parts = self.parts.finer(least)
        return None if parts is None else PerDimension(parts, self.num_dims)

    def from_finer(self, kernel, finer: Any, v):
        blocks = jnp.moveaxis(v.reshape(*v.shape[:-1], self.num_dims, -1), -2, 0)
        parts = jax.vmap(lambda f, k, g, v: f.from_finer(k, g, v))(self.parts, _parts(kernel), finer.parts, blocks)
        return jnp.moveaxis(parts, 0, -2).reshape(*v.shape[:-1], -1)

    def outside(self, X):
        return jax.vmap(lambda f, x: f.outside(x))(self.parts, X.T[:, :, None])[:, :, 0].T


def per_dimension(
    kernel: AbstractKernel, features: Any, start: tuple[float, float], num_dims: int, dtype: Any, learned: bool = False
) -> tuple[AbstractKernel, PerDimension]:
    """Return an additive kernel, and features of each of its dimensions, on their [a, b] or on one to start from.

    An interval that was given is a fixed part of the model.
    """
    given = features.a is not None and features.b is not None
    stored = jax.device_put if learned and not given else Fixed
    a, b = (stored(np.full(num_dims, end, dtype)) for end in ((features.a, features.b) if given else start))
    return additive(kernel, num_dims, dtype), PerDimension(replace(features, a=a, b=b), num_dims)


def _parts(kernel: AbstractKernel) -> AbstractKernel:
    if not isinstance(kernel, Additive):
        raise TypeError(
            f"features of one input dimension each need an Additive kernel, got "
            f"{type(kernel).__name__}; wrap it as Additive(kernel)."
        )
    return kernel.parts
