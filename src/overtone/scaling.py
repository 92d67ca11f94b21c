"""Fixed affine maps: of the user's columns, and between layers.

Every layer sees inputs that were mapped to about [0, 1]. The map is set once, from the training
inputs, and belongs to the model: a prediction never depends on the other rows of its batch.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from overtone.params import Fixed, Param


class Affine(eqx.Module):
    """x -> (x - shift) / scale, column by column. Works on NumPy and JAX arrays alike."""

    shift: Param | np.ndarray
    scale: Param | np.ndarray

    def __call__(self, X):
        return (X - self.shift) / self.scale

    def columns(self, X: np.ndarray, dtype) -> np.ndarray:
        """The same in another precision, column by column: no copy of X in its own precision."""
        Z = np.empty(X.shape, dtype)
        for j in range(X.shape[1]):
            Z[:, j] = (X[:, j].astype(np.float64) - self.shift[j]) / self.scale[j]
        return Z

    def inverse(self, Z):
        return Z * self.scale + self.shift

    def fixed(self, dtype) -> "Affine":
        """The same map as an untrained part of a model."""
        return Affine(Fixed(np.asarray(self.shift, dtype)), Fixed(np.asarray(self.scale, dtype)))


class WithWaves(eqx.Module):
    """x -> its columns, mapped, then the cosines and sines of waves along several of them, in [0, 1] too."""

    columns: Affine
    cycles: Param | np.ndarray  # (K, D)

    def __call__(self, X):
        Z = self.columns(X)
        phase = 2 * np.pi * Z @ self.cycles.T
        return jnp.concatenate([Z, 0.5 + 0.5 * jnp.cos(phase), 0.5 + 0.5 * jnp.sin(phase)], axis=1)

    def fixed(self, dtype) -> "WithWaves":
        return WithWaves(self.columns.fixed(dtype), Fixed(np.asarray(self.cycles, dtype)))


class Identity(eqx.Module):
    """z -> z."""

    def __call__(self, Z):
        return Z


class Projection(eqx.Module):
    """z -> 1/2 + (z - 1/2) W: directions through the centre of the unit cube, one for each column of W."""

    weight: Param  # (D, J)

    def __call__(self, Z):
        return 0.5 + (Z - 0.5) @ self.weight


class Columns(eqx.Module):
    """z -> some of its columns."""

    chosen: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, Z):
        return Z[:, list(self.chosen)]


def directions(Z: np.ndarray, num: int, seed: int) -> np.ndarray:
    """Weights (D, J) to start from, on all of which Z stays in [0, 1]: the axes, then random directions.

    Where there are fewer directions than inputs, all are random, so that each sees all inputs.
    """
    dims = Z.shape[1]
    axes = np.eye(dims)[:, : dims if num >= dims else 0]
    random = np.random.default_rng(seed).standard_normal((dims, num - axes.shape[1]))
    reach = np.max(np.abs((Z - 0.5) @ random), axis=0, initial=0) if len(Z) else 1.0
    return np.concatenate([axes, random / np.maximum(2 * reach, 1e-12)], axis=1)


def unit_interval(X: np.ndarray) -> Affine:
    """Map each column's range to [0, 1]; a constant column to 1/2."""
    low, high = (np.asarray(end(X, axis=0), np.float64) for end in (np.min, np.max))
    scale = _positive(high - low)
    return Affine(np.where(high > low, low, low - 0.5 * scale), scale)


def standardise(Y: np.ndarray) -> Affine:
    """Map each column to mean 0 and standard deviation 1; a constant column to 0. NaN is no value."""
    return Affine(np.nanmean(Y, axis=0), _positive(np.nanstd(Y, axis=0)))


def _positive(scale: np.ndarray) -> np.ndarray:
    return np.where(scale > 0, scale, 1.0)
