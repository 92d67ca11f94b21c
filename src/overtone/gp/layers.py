"""A layer: one sparse variational GP with P outputs, or a sum of several.

f(x) = m(z) + g(h) + noise, z = scaling(x), h = projection(z), where g is a zero-mean GP known through the whitened
inducing variables v of its features, and q(v) is free.
"""

from abc import abstractmethod
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from overtone.gp.features.base import AbstractInducingFeatures
from overtone.gp.kernels import AbstractKernel
from overtone.gp.maps import Affine, Identity, LinearMean, Projection, ZeroMean, linear_weight, unit_interval
from overtone.gp.variational import AbstractGaussian, Full
from overtone.numerics.params import Fixed, OptionalParam, Positive, as_parameters, unwrap

INNER_VARIANCE, OUTER_VARIANCE = 1e-5, 1.0  # of q(v) at the start, as in the paper
LAYER_NOISE = 1e-5  # variance between layers at the start, where inputs cover about [0, 1]


class AbstractLayer(eqx.Module):
    """A random function of inputs (N, D) with P outputs, known through its posterior."""

    @property
    @abstractmethod
    def num_outputs(self) -> int: ...

    @property
    @abstractmethod
    def main(self) -> "Layer":
        """The layer itself, or the first one of a sum."""

    @abstractmethod
    def __call__(self, X: Float[Array, "N D"]) -> tuple[Float[Array, "N P"], Float[Array, "N P"]]:
        """Return mean and variance of f(x) under q."""

    @abstractmethod
    def kl(self, addends: float = 1.0) -> Float[Array, ""]:
        """Return KL(q(v) || p(v)); those of a sum's further layers are multiplied by `addends`."""

    @abstractmethod
    def draw(self, key: PRNGKeyArray, row_key: PRNGKeyArray, X: Float[Array, "N D"]) -> Float[Array, "N P"]:
        """Return one function under q, at all rows together.

        `key` decides the part carried by the inducing variables, one coherent function A^T v; `row_key` the
        residual that they leave unexplained, drawn for each row on its own. Each row's marginal is exact.
        """

    @abstractmethod
    def draw_prior(self, key: PRNGKeyArray, X: Float[Array, "N D"]) -> Float[Array, "N P"]:
        """Return one function under the prior, at all rows together, exactly: O(N^3)."""

    @abstractmethod
    def with_noise(self, noise: Any) -> "AbstractLayer":
        """Return the layer with this noise variance."""

    @abstractmethod
    def initialised(
        self, H: np.ndarray, num_outputs: int, *, first: bool, last: bool, seed: int, dtype: Any
    ) -> "tuple[AbstractLayer, np.ndarray]":
        """Return the layer as training starts with it, and its mean at inputs H (N, D)."""


class Layer(AbstractLayer):
    """Kernel x features x q(v) x mean function.

    Only kernel and features must be given. By default inputs are scaled to [0, 1] and not projected, the mean is
    linear (zero at the output), q(v) has a full covariance for each block of features, and hidden layers have as many
    outputs as inputs and a little noise. `q` may be a class such as `MeanField` instead of a posterior.
    """

    kernel: AbstractKernel
    features: AbstractInducingFeatures
    outputs: int | None = eqx.field(static=True, default=None)
    q: Any = Full
    mean_function: Any = None  # of scaled inputs (N, D), with values (N, P)
    scaling: Any = None  # an Affine
    projection: Any = Identity()  # or a Projection, or Columns
    noise: OptionalParam = None  # variance added between layers; 0 at the output

    @property
    def num_outputs(self):
        return self.q.mean.shape[1] if self.outputs is None else self.outputs

    @property
    def main(self):
        return self

    def at(self, X: Float[Array, "N D"]) -> tuple[Float[Array, "N D"], Float[Array, "N J"]]:
        """Return the inputs as the mean function sees them, and as the features do."""
        if self.scaling is None:
            raise ValueError("this layer is not initialised; call DeepGP(...).initialised(X, y) first.")
        widths = np.shape(self.scaling.shift) if isinstance(self.scaling, Affine) else ()
        if widths and X.shape[1:] != widths:
            raise ValueError(f"the model has {widths[0]} inputs; got rows of shape {X.shape[1:]}.")
        Z = self.scaling(X)
        return Z, self.projection(Z)

    def __call__(self, X):
        Z, H = self.at(X)
        mean, var = self.features.marginals(self.kernel, self.q, H)
        return mean + self.mean_function(Z), var + self.noise

    @property
    def is_joint(self) -> bool:
        """Whether q has one covariance over several blocks of features."""
        return len(self.q.mean) < self.features.num_blocks

    def mean(self, X: Float[Array, "N D"]) -> Float[Array, "N P"]:
        """Return the mean of f(x) under q."""
        Z, H = self.at(X)
        weights = jnp.swapaxes(self.q.mean, 0, 1).reshape(self.num_outputs, -1)
        return self.features.project(self.kernel, weights, H).T + self.mean_function(Z)

    def kl(self, addends=1.0):
        return self.q.kl()

    def draw(self, key, row_key, X):
        Z, H = self.at(X)
        v = jnp.swapaxes(self.q.sample(key), 0, 1).reshape(self.num_outputs, -1)
        A = self.features.whitened(self.kernel, H)
        std = jnp.sqrt(self.features.unexplained(self.kernel, A, H) + self.noise)
        eps = jax.random.normal(row_key, (X.shape[0], self.num_outputs), H.dtype)
        return self.mean_function(Z) + A.T @ v.T + std[:, None] * eps

    def draw_prior(self, key, X):
        Z, H = self.at(X)
        widest = jax.dtypes.canonicalize_dtype(jnp.float64)
        noise = self.noise + 4 * X.shape[0] * jnp.finfo(widest).eps * self.kernel.diag(H)
        K = (self.kernel.gram(H, H) + jnp.diag(noise)).astype(widest)
        eps = jax.random.normal(key, (X.shape[0], self.num_outputs), H.dtype)
        return self.mean_function(Z) + jnp.linalg.cholesky(K).astype(H.dtype) @ eps

    def with_noise(self, noise):
        return replace(self, noise=noise)

    def initialised(self, H, num_outputs, *, first, last, seed, dtype):
        scaling = unit_interval(H) if self.scaling is None else unwrap(self.scaling)
        Z = np.asarray(scaling(H))
        mean = self.mean_function
        if mean is None:
            mean = ZeroMean(num_outputs) if last else LinearMean(Fixed(linear_weight(Z, num_outputs).astype(dtype)))
        projection = self.projection.initialised(Z, seed, dtype)
        learned = not first or isinstance(projection, Projection)
        kernel, features = self.features.initialised(
            self.kernel, np.asarray(projection(Z)), first=first, learned=learned, seed=seed, dtype=dtype
        )
        q = self.q
        if not isinstance(q, AbstractGaussian):
            shape = (features.num_blocks, num_outputs, features.num_features // features.num_blocks)
            q = q.start(shape, OUTER_VARIANCE if last else INNER_VARIANCE, dtype)
        noise = self.noise
        if noise is None:
            noise = Fixed(np.zeros((), dtype)) if last else Positive(np.asarray(LAYER_NOISE, dtype))
        parts = kernel, features, num_outputs, q, mean, scaling.fixed(dtype), projection, as_parameters(noise, dtype)
        mean_at: Any = unwrap(mean)
        return Layer(*parts), np.asarray(mean_at(Z))


class SumOfLayers(AbstractLayer):
    """f(x) = f_1(x) + f_2(x) + ..., independent processes of the same inputs; the first has the noise."""

    parts: tuple[AbstractLayer, ...]

    @property
    def num_outputs(self):
        return self.parts[0].num_outputs

    @property
    def main(self):
        return self.parts[0].main

    def __call__(self, X):
        return reduce(lambda one, other: (one[0] + other[0], one[1] + other[1]), (part(X) for part in self.parts))

    def kl(self, addends=1.0):
        return self.parts[0].kl(addends) + addends * sum(part.kl(addends) for part in self.parts[1:])

    def draw(self, key, row_key, X):
        keys = (jax.random.split(k, len(self.parts)) for k in (key, row_key))
        return reduce(add, (part.draw(*pair, X) for part, *pair in zip(self.parts, *keys, strict=True)))

    def draw_prior(self, key, X):
        keys = jax.random.split(key, len(self.parts))
        return reduce(add, (part.draw_prior(key, X) for part, key in zip(self.parts, keys, strict=True)))

    def with_noise(self, noise):
        return SumOfLayers((self.parts[0].with_noise(noise), *self.parts[1:]))

    def initialised(self, H, num_outputs, *, first, last, seed, dtype):
        settings: Any = {"first": first, "last": last, "seed": seed, "dtype": dtype}
        first_part, mean = self.parts[0].initialised(H, num_outputs, **settings)
        zero = Fixed(np.zeros((), dtype))
        addends = [replace(part, mean_function=ZeroMean(num_outputs), noise=zero) for part in self.parts[1:]]
        addends = [part.initialised(H, num_outputs, **settings)[0] for part in addends]
        return SumOfLayers((first_part, *addends)), mean
