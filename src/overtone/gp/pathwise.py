"""Draws of whole functions: the same draw gives the same values wherever and whenever it is evaluated.

A draw from the prior of a layer is f = phi(x)^T w with w ~ N(0, I), where phi are finer features than the layer's own,
so fine that what is left unexplained is next to nothing; for features without finer ones, random waves. The layer's
whitened variables of that draw are R w, and Matheron's rule (Wilson et al. 2020) makes of it a draw from the posterior,
    f(x) = A(x)^T (v - R w) + phi(x)^T w,   v ~ q(v).
What is left, and the noise between layers, is white: a number for each x, drawn from a hash of its digits.
"""

from functools import reduce
from operator import add
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from overtone.gp.features.base import AbstractInducingFeatures
from overtone.gp.kernels import AbstractKernel, AbstractStationary, Linear, Sum
from overtone.gp.layers import AbstractLayer, SumOfLayers
from overtone.gp.model import DeepGP
from overtone.numerics.linalg import Identity
from overtone.numerics.params import unwrap

WAVES, DRAWS_AT_ONCE = 2000, 8


class RandomFunctions(AbstractInducingFeatures):
    """Functions phi with E[phi(x)^T phi(y)] = k(x, y), for each part of a kernel that may be a sum.

    Of a stationary part they are random Fourier features, sqrt(variance / K) (cos(w x), sin(w x)) with K frequencies w
    from the spectral density; a linear one has finitely many functions, sqrt(variance_d) (x_d - 1/2).
    """

    frequencies: list[Float[Array, "K J"] | None]  # of each part, if it is stationary
    num_dims: int = eqx.field(static=True)

    @property
    def num_features(self):
        return sum(self.num_dims if w is None else 2 * len(w) for w in self.frequencies)

    def Kuu(self, kernel):
        return Identity(self.num_features)

    def Kuf(self, kernel, X):
        def of_part(part: Any, w: Array | None) -> Array:
            if w is None:
                return (jnp.sqrt(part.variance) * (X - 0.5)).T
            return jnp.sqrt(part.variance / len(w)) * jnp.concatenate([jnp.cos(w @ X.T), jnp.sin(w @ X.T)])

        return jnp.concatenate(list(map(of_part, _parts(kernel), self.frequencies)))


def random_functions(kernel: AbstractKernel, key: PRNGKeyArray, num_dims: int) -> RandomFunctions:
    """Return functions for draws from the prior of a kernel."""
    parts = _parts(kernel)
    if unknown := [part for part in parts if not isinstance(part, AbstractStationary | Linear)]:
        raise TypeError(f"functions of a {type(unknown[0]).__name__} kernel need features that have finer ones.")
    pairs = zip(parts, jax.random.split(key, len(parts)), strict=True)
    waves = [k.frequencies(key, (WAVES, num_dims)) if isinstance(k, AbstractStationary) else None for k, key in pairs]
    return RandomFunctions(waves, num_dims)


def _parts(kernel: AbstractKernel) -> list[AbstractKernel]:
    return [part for each in kernel.parts for part in _parts(each)] if isinstance(kernel, Sum) else [kernel]


class LayerPath(eqx.Module):
    """A draw of a layer's P functions."""

    basis: AbstractInducingFeatures
    v: Float[Array, "P M"]
    w: Float[Array, "P K"]
    key: PRNGKeyArray

    def __call__(self, layer: Any, X: Float[Array, "N D"]) -> Float[Array, "N P"]:
        Z, H = layer.at(X)
        A, phi = layer.features.whitened(layer.kernel, H), self.basis.whitened(layer.kernel, H)
        std = jnp.sqrt(self.basis.unexplained(layer.kernel, phi, H) + layer.noise)
        return layer.mean_function(Z) + (self.v @ A + self.w @ phi).T + std[:, None] * self._white(X)

    def _white(self, X: Float[Array, "N D"]) -> Float[Array, "N P"]:
        """Return standard normal numbers that depend on nothing but the rows themselves."""
        digits = jax.lax.bitcast_convert_type((X + 0.0).astype(jnp.float32), jnp.uint32)  # 0.0 makes no -0.0

        def one(row):
            key, _ = jax.lax.scan(lambda key, digit: (jax.random.fold_in(key, digit), None), self.key, row)
            return jax.random.normal(key, (len(self.v),), X.dtype)

        return jax.vmap(one)(digits)


class SumOfPaths(eqx.Module):
    """Draws of all layers of a sum."""

    parts: tuple[Any, ...]

    def __call__(self, layer: Any, X: Float[Array, "N D"]) -> Float[Array, "N P"]:
        return reduce(add, (path(part, X) for path, part in zip(self.parts, layer.parts, strict=True)))


def draw_path(layer: AbstractLayer, key: PRNGKeyArray, prior: bool) -> LayerPath | SumOfPaths:
    """Return a draw from the posterior of an unwrapped layer, or from its prior."""
    if isinstance(layer, SumOfLayers):
        keys = jax.random.split(key, len(layer.parts))
        return SumOfPaths(tuple(draw_path(part, k, prior) for part, k in zip(layer.parts, keys, strict=True)))
    layer = layer.main
    basis_key, v_key, w_key, row_key = jax.random.split(key, 4)
    features, kernel, num_outputs = layer.features, layer.kernel, layer.num_outputs
    basis = finer = features.finer()
    if basis is None:
        basis = random_functions(kernel, basis_key, features.functionals(lambda X: X.T).shape[1])
    w = jax.random.normal(w_key, (num_outputs, basis.num_features), layer.q.mean.dtype)
    if finer is not None:
        of_w = features.from_finer(kernel, finer, w)
    else:
        of_w = w @ features.Kuu(kernel).whiten(features.functionals(lambda X: basis.Kuf(kernel, X))).T
    v = of_w if prior else jnp.swapaxes(layer.q.sample(v_key), 0, 1).reshape(num_outputs, -1)
    return LayerPath(basis, v - of_w, w, row_key)


def draw_paths(model: DeepGP, key: PRNGKeyArray, num: int, prior: bool) -> list[Any]:
    """Return draws of the functions of all layers; arrays have a leading axis of length `num`."""
    model, keys = unwrap(model), jax.random.split(key, (len(model.layers), num))
    return [
        eqx.filter_vmap(lambda k, layer=layer: draw_path(layer, k, prior))(layer_keys)
        for layer, layer_keys in zip(model.layers, keys, strict=True)
    ]


def follow(model: DeepGP, paths: list[Any], X: Float[Array, "N D"]) -> tuple[Array, list[Array]]:
    """Return what each draw expects of y, and its values in each layer: (..., draws, N, units)."""
    model = unwrap(model)

    def one(paths):
        values, inputs, H = [], X, X
        for layer, path in zip(model.layers, paths, strict=True):
            inputs, H = H, path(layer, H)
            values.append(H)
        expected = model.likelihood_at(inputs[None]).predictive(H[None], jnp.zeros_like(H[None]))
        return expected.mean(), values

    arrays, static = eqx.partition(paths, eqx.is_array)
    return jax.lax.map(lambda given: one(eqx.combine(given, static)), arrays, batch_size=DRAWS_AT_ONCE)
