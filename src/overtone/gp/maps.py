"""Maps of a layer's inputs: fixed affine ones, learned directions, and mean functions.

Every layer sees inputs that were mapped to about [0, 1]. The map is set once, from the training
inputs, and belongs to the model: a prediction never depends on the other rows of its batch.

Mean functions are linear and fixed inside the stack, zero at the output. Without them, compositions of GPs collapse
with depth (Duvenaud et al. 2014). As in Salimbeni and Deisenroth (2017) the weights are the identity between layers of
one width, the first principal directions of the layer's inputs where the width shrinks, and padding with zeros where
it grows.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from overtone.numerics.params import Fixed, Param, as_array


class Affine(eqx.Module):
    """x -> (x - shift) / scale, column by column. Works on NumPy and JAX arrays alike."""

    shift: Param | np.ndarray
    scale: Param | np.ndarray

    def __call__(self, X):
        return (X - self.shift) / self.scale

    def columns(self, X: np.ndarray, dtype) -> np.ndarray:
        """Map X in another precision, column by column, so that no copy of X in its own precision is made."""
        Z = np.empty(X.shape, dtype)
        for j in range(X.shape[1]):
            Z[:, j] = (X[:, j].astype(np.float64) - self.shift[j]) / self.scale[j]
        return Z

    def inverse(self, Z):
        return Z * self.scale + self.shift

    def fixed(self, dtype) -> "Affine":
        """Return the same map as an untrained part of a model."""
        return Affine(Fixed(np.asarray(self.shift, dtype)), Fixed(np.asarray(self.scale, dtype)))


class Identity(eqx.Module):
    """z -> z."""

    def __call__(self, Z):
        return Z

    def initialised(self, Z: np.ndarray, seed: int, dtype: Any) -> "Identity":
        return self


class Projection(eqx.Module):
    """z -> 1/2 + (z - 1/2) W: learned directions through the centre of the unit cube, one for each column of W.

    `Projection(17)` stands for 17 directions that are chosen when the model is initialised.
    """

    weight: Param  # (D, J), or their number J

    def __call__(self, Z):
        return 0.5 + (Z - 0.5) @ self.weight

    def initialised(self, Z: np.ndarray, seed: int, dtype: Any) -> "Projection":
        weight = directions(Z, self.weight, seed) if isinstance(self.weight, int) else self.weight
        return Projection(as_array(weight, dtype))


class Columns(eqx.Module):
    """z -> the chosen ones of its columns."""

    chosen: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, Z):
        return Z[:, list(self.chosen)]

    def initialised(self, Z: np.ndarray, seed: int, dtype: Any) -> "Columns":
        return self


def directions(Z: np.ndarray, num: int, seed: int) -> np.ndarray:
    """Return weights (D, J) to start from, on all of which Z stays in [0, 1]: the axes, then random directions.

    Where there are fewer directions than inputs, all are random, so that each sees all inputs.
    """
    dims = Z.shape[1]
    axes = np.eye(dims)[:, : dims if num >= dims else 0]
    random = np.random.default_rng(seed).standard_normal((dims, num - axes.shape[1]))
    reach = np.max(np.abs((Z - 0.5) @ random), axis=0, initial=0) if len(Z) else 1.0
    return np.concatenate([axes, random / np.maximum(2 * reach, 1e-12)], axis=1)


def unit_interval(X: np.ndarray) -> Affine:
    """Return the map of each column's range to [0, 1]; a constant column goes to 1/2."""
    low, high = (np.asarray(end(X, axis=0), np.float64) for end in (np.min, np.max))
    scale = _positive(high - low)
    return Affine(np.where(high > low, low, low - 0.5 * scale), scale)


def standardise(Y: np.ndarray) -> Affine:
    """Return the map of each column to mean 0 and standard deviation 1; a constant column goes to 0. NaN is skipped."""
    return Affine(np.nanmean(Y, axis=0), _positive(np.nanstd(Y, axis=0)))


def _positive(scale: np.ndarray) -> np.ndarray:
    return np.where(scale > 0, scale, 1.0)


class ZeroMean(eqx.Module):
    """m(x) = 0, of shape (N, P)."""

    num_outputs: int = eqx.field(static=True)

    def __call__(self, X):
        return jnp.zeros((X.shape[0], self.num_outputs), X.dtype)


class LinearMean(eqx.Module):
    """m(x) = x W."""

    weight: Param  # (D, P)

    def __call__(self, X):
        return X @ self.weight


def linear_weight(X: np.ndarray, num_outputs: int) -> np.ndarray:
    """Return the fixed weight (D, P) from inputs like X (N, D) to P hidden units."""
    num_inputs = X.shape[1]
    if num_outputs >= num_inputs:
        return np.eye(num_inputs, num_outputs)
    centred = X - X.mean(axis=0)
    _, directions = np.linalg.eigh(centred.T @ centred)  # D x D, in ascending order of variance
    return directions[:, ::-1][:, :num_outputs]
