"""Mean functions of layers: linear and fixed inside the stack, zero at the output.

Without them, compositions of GPs collapse with depth (Duvenaud et al. 2014). As in Salimbeni and
Deisenroth (2017) the weights are the identity between layers of one width, the first principal
directions of the layer's inputs where the width shrinks, and padding with zeros where it grows.
"""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from overtone.numerics.params import Param


class AbstractMean(eqx.Module):
    """A mean function m(x), of shape (N, P)."""

    @abstractmethod
    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N P"]: ...


class ZeroMean(AbstractMean):
    """m(x) = 0."""

    num_outputs: int = eqx.field(static=True)

    def __call__(self, X):
        return jnp.zeros((X.shape[0], self.num_outputs), X.dtype)


class LinearMean(AbstractMean):
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
