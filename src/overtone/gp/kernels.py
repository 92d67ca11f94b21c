"""Covariance functions.

A kernel is one class with one formula on single points. Half-integer Materns also know their
spectral density and their state s(x) = (f, f'/lam, ..., f^(p)/lam^p) at a point, which is all that Fourier
features need: in one dimension, f beyond a point depends on f before it only through that state.

Hyperparameters that are plain numbers become positive parameters when a model is initialised; inputs of a layer then
cover [0, 1], which is the unit of lengthscales. Kernels compose: `a + b` and `a * b` are kernels, for features that
work with every kernel, such as inducing points.
"""

from abc import abstractmethod
from collections.abc import Callable
from functools import reduce
from math import comb, factorial
from operator import add, mul
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from overtone.numerics.params import Param, as_parameters, is_wrapper

LENGTHSCALE = 0.2  # of the range of the inputs


class AbstractKernel(eqx.Module):
    """k(x, y) for points x, y of shape (D,)."""

    @abstractmethod
    def __call__(self, x: Float[Array, " D"], y: Float[Array, " D"]) -> Float[Array, ""]: ...

    @abstractmethod
    def diag(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        """Return k(x, x) for each row."""

    def gram(self, X: Float[Array, "N D"], Y: Float[Array, "M D"]) -> Float[Array, "N M"]:
        """Return k(x, y) for each pair of rows."""
        return jax.vmap(lambda x: jax.vmap(lambda y: self(x, y))(Y))(X)

    def __add__(self, other: "AbstractKernel") -> "Sum":
        return Sum((*_terms(self, Sum), *_terms(other, Sum)))

    def __mul__(self, other: "AbstractKernel") -> "Product":
        return Product((*_terms(self, Product), *_terms(other, Product)))


class AbstractStationary(AbstractKernel):
    """k(x, y) = variance * profile(r), r = |(x - y) / lengthscale|.

    A scalar lengthscale is shared; one of shape (D,) gives automatic relevance determination.
    """

    variance: Param = 1.0
    lengthscale: Param = LENGTHSCALE

    @abstractmethod
    def profile(self, r: Float[Array, "*S"]) -> Float[Array, "*S"]:
        """Return the correlation at each of some distances."""

    @abstractmethod
    def frequencies(self, key: PRNGKeyArray, shape: tuple[int, int]) -> Float[Array, "K D"]:
        """Return draws from the normalised spectral density."""

    def __call__(self, x, y):
        squared = jnp.sum(((x - y) / self.lengthscale) ** 2)
        return self.variance * self.profile(_root(squared))

    def gram(self, X, Y):
        """Return k(x, y) for each pair; in double precision, squared distances are the sums of one matrix product.

        Their rounding, which would matter in single precision, does not there, and gradients are many times quicker.
        """
        if X.dtype != jnp.float64:
            return AbstractKernel.gram(self, X, Y)
        X, Y = X / self.lengthscale, Y / self.lengthscale
        squared = jnp.sum(X**2, axis=1)[:, None] + jnp.sum(Y**2, axis=1) - 2 * X @ Y.T
        return self.variance * self.profile(_root(squared))

    def diag(self, X):
        return jnp.broadcast_to(self.variance, X.shape[:1])


class SquaredExponential(AbstractStationary):
    """k(r) = s2 exp(-r^2 / 2)."""

    def profile(self, r):
        return jnp.exp(-0.5 * r**2)

    def frequencies(self, key, shape):
        return jax.random.normal(key, shape, self.variance.dtype) / self.lengthscale


class AbstractMatern(AbstractStationary):
    """Matern of order nu = p + 1/2; lam = sqrt(2 nu) / l. The methods below are for D = 1."""

    order: ClassVar[int]  # p, the number of derivatives that f has

    @property
    def rate(self) -> Float[Array, ""]:
        """lam = sqrt(2 nu) / l."""
        return (2 * self.order + 1) ** 0.5 / self.lengthscale

    def spectral_density(self, w: Float[Array, " M"]) -> Float[Array, " M"]:
        """S(w) = integral of k(r) exp(-i w r) dr = c s2 / lam / (1 + (w / lam)^2)^(p+1), c = 2^(2p+1) p!^2 / (2p)!."""
        p, lam = self.order, self.rate
        c = 2 ** (2 * p + 1) * factorial(p) ** 2 / factorial(2 * p)
        return c * self.variance / lam / (1 + (w / lam) ** 2) ** (p + 1)

    # The covariance of the state s(x) = (f, f'/lam, ..., f^(p)/lam^p) for s2 = 1.
    state_correlation: ClassVar[tuple[tuple[float, ...], ...]]

    def frequencies(self, key, shape):
        """Student's t with 2 nu degrees of freedom."""
        keys, nu = jax.random.split(key), self.order + 0.5
        precision = jax.random.gamma(keys[0], nu, (shape[0], 1), self.variance.dtype) / nu
        return jax.random.normal(keys[1], shape, self.variance.dtype) / (jnp.sqrt(precision) * self.lengthscale)

    def transition(self, r: Float[Array, " N"]) -> Float[Array, "N state state"]:
        """F(r) with E[s(a + r) | s(a)] = F(r) s(a), r >= 0.

        (d/dx + lam)^(p+1) f is white noise, so the mean obeys s' = lam (K - I) s with K nilpotent, and
        F(r) = exp(-lam r) sum_k (lam r)^k K^k / k!,  k = 0..p.
        """
        return jnp.moveaxis(self._series(r, _nilpotent_powers(self.order)), -1, 0)

    def extrapolation(self, r: Float[Array, " N"]) -> Float[Array, "state N"]:
        """c(r) with E[f(a + r) | s(a)] = c(r) s(a), r >= 0: the first row of the transition."""
        return self._series(r, [power[0] for power in _nilpotent_powers(self.order)])

    def _series(self, r: Float[Array, " N"], terms: list[np.ndarray]) -> Float[Array, "*S N"]:
        z = self.rate * r
        return jnp.exp(-z) * sum(z**k * jnp.asarray(term, z.dtype)[..., None] for k, term in enumerate(terms))


def _nilpotent_powers(order: int) -> list[np.ndarray]:
    """K^k / k! for k = 0..p, where K - I is the companion matrix of (1 + z)^(p+1)."""
    size = order + 1
    companion = np.eye(size, k=1)
    companion[-1] -= [comb(size, i) for i in range(size)]
    return [np.linalg.matrix_power(companion + np.eye(size), k) / factorial(k) for k in range(size)]


class Matern12(AbstractMatern):
    """k(r) = s2 exp(-r)."""

    order = 0
    state_correlation = ((1.0,),)

    def profile(self, r):
        return jnp.exp(-r)


class Matern32(AbstractMatern):
    """k(r) = s2 (1 + sqrt(3) r) exp(-sqrt(3) r)."""

    order = 1
    state_correlation = ((1.0, 0.0), (0.0, 1.0))

    def profile(self, r):
        z = 3**0.5 * r
        return (1 + z) * jnp.exp(-z)


class Matern52(AbstractMatern):
    """k(r) = s2 (1 + sqrt(5) r + 5 r^2 / 3) exp(-sqrt(5) r)."""

    order = 2
    state_correlation = ((1.0, 0.0, -1 / 3), (0.0, 1 / 3, 0.0), (-1 / 3, 0.0, 1.0))

    def profile(self, r):
        z = 5**0.5 * r
        return (1 + z + z**2 / 3) * jnp.exp(-z)


class RationalQuadratic(AbstractStationary):
    """k(r) = s2 (1 + r^2 / (2 alpha))^-alpha: squared exponentials of many lengthscales at once."""

    alpha: Param = 1.0

    def profile(self, r):
        return (1 + 0.5 * r**2 / self.alpha) ** -self.alpha

    def frequencies(self, key, shape):
        """Normal, with a precision that has a Gamma(alpha, alpha) distribution."""
        keys, dtype = jax.random.split(key), self.variance.dtype
        scale = jnp.sqrt(jax.random.gamma(keys[0], self.alpha, (shape[0], 1), dtype) / self.alpha)
        return scale * jax.random.normal(keys[1], shape, dtype) / self.lengthscale


class Periodic(AbstractKernel):
    """k(x, y) = s2 exp(-2 sum_d sin^2(pi (x_d - y_d) / period_d) / lengthscale_d^2) (MacKay 1998)."""

    variance: Param = 1.0
    lengthscale: Param = 1.0
    period: Param = 1.0

    def __call__(self, x, y):
        waves = jnp.sin(jnp.pi * (x - y) / self.period) / self.lengthscale
        return self.variance * jnp.exp(-2 * jnp.sum(waves**2))

    def diag(self, X):
        return jnp.broadcast_to(self.variance, X.shape[:1])


class Linear(AbstractKernel):
    """k(x, y) = sum_d variance_d (x_d - 1/2) (y_d - 1/2): straight lines through the centre of the inputs' range."""

    variance: Param = 1.0

    def __call__(self, x, y):
        return jnp.sum(self.variance * (x - 0.5) * (y - 0.5))

    def gram(self, X, Y):
        return (self.variance * (X - 0.5)) @ (Y - 0.5).T

    def diag(self, X):
        return jnp.sum(self.variance * (X - 0.5) ** 2, axis=1)


class AbstractCombination(AbstractKernel):
    """Several kernels of the same points, combined number by number."""

    parts: tuple[AbstractKernel, ...]
    operation: ClassVar[Callable[[Array, Array], Array]]

    def __call__(self, x, y):
        return reduce(self.operation, (k(x, y) for k in self.parts))

    def gram(self, X, Y):
        return reduce(self.operation, (k.gram(X, Y) for k in self.parts))

    def diag(self, X):
        return reduce(self.operation, (k.diag(X) for k in self.parts))


class Sum(AbstractCombination):
    """k(x, y) = sum_i k_i(x, y)."""

    operation = staticmethod(add)


class Product(AbstractCombination):
    """k(x, y) = prod_i k_i(x, y)."""

    operation = staticmethod(mul)


class Additive(AbstractKernel):
    """k(x, y) = sum_d k_d(x_d, y_d): one 1-D kernel for each input dimension.

    `parts` is one kernel whose variance and lengthscale have shape (D,).
    """

    parts: AbstractStationary

    def __call__(self, x, y):
        return jnp.sum(jax.vmap(lambda k, s, t: k(s[None], t[None]))(self.parts, x, y))

    def diag(self, X):
        return jnp.broadcast_to(jnp.sum(self.parts.variance), X.shape[:1])


def with_lengthscales(kernel: AbstractKernel, num_dims: int, dtype: Any) -> AbstractKernel:
    """Return the kernel with its own lengthscale (and period) for each input, where one number was given for all."""

    def convert(path: tuple, leaf: Any) -> Any:
        each = getattr(path[-1], "name", "") in ("lengthscale", "period")
        return as_parameters(leaf, dtype, (num_dims,) if each else ())

    return jax.tree_util.tree_map_with_path(convert, kernel, is_leaf=is_wrapper)


def additive(kernel: AbstractKernel, num_dims: int, dtype: Any) -> AbstractKernel:
    """Return the kernel for features of single dimensions: its variance is shared out among the dimensions."""
    if isinstance(kernel, Additive) or not isinstance(kernel, AbstractStationary):
        return as_parameters(kernel, dtype)
    if isinstance(kernel.variance, (int, float)):
        kernel = eqx.tree_at(lambda k: k.variance, kernel, kernel.variance / num_dims)
    parts: Any = as_parameters(kernel, dtype, (num_dims,))
    return Additive(jax.tree.map(lambda a: jnp.broadcast_to(a, (num_dims,)) if a.ndim == 0 else a, parts))


def _terms(kernel: Any, kind: Any) -> tuple[AbstractKernel, ...]:
    """Return the parts of a kernel of this kind, so that sums of sums and products of products stay flat."""
    return kernel.parts if isinstance(kernel, kind) else (kernel,)


def _root(squared: Float[Array, "*S"]) -> Float[Array, "*S"]:
    """Return the square root, with a derivative at 0 that is large but finite: a profile's own limit there is 0."""
    return jnp.sqrt(jnp.maximum(squared, jnp.finfo(squared.dtype).tiny))
