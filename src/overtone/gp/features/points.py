"""Inducing points: the value of f at M places, the local features of conventional deep GPs."""

import warnings

import jax.numpy as jnp
import numpy as np
from scipy.cluster.vq import kmeans2

from overtone.gp.features.base import AbstractInducingFeatures
from overtone.gp.kernels import with_lengthscales
from overtone.numerics.linalg import Dense
from overtone.numerics.params import Param, as_array, unwrap

KMEANS_ROWS = 20_000  # at most


class InducingPoints(AbstractInducingFeatures):
    """u_m = f(z_m) + e_m, with independent e_m of variance 4 M eps k(z, z).

    The small noise e belongs to the definition of u, so Kuu = K(Z, Z) + diag is exact and the bound
    stays a bound. It is as large as the rounding of a Cholesky factorisation of that size and precision.
    """

    Z: Param  # (M, D), or their number M, which are then chosen by k-means

    @property
    def num_features(self):
        return self.Z if isinstance(self.Z, int) else unwrap(self.Z).shape[0]

    def initialised(self, kernel, H, *, first, learned, seed, dtype):
        Z = kmeans_centres(H, self.Z, seed) if isinstance(self.Z, int) else self.Z
        if (shape := unwrap(Z).shape)[1:] != H.shape[1:]:
            raise ValueError(f"inducing points must be rows of {H.shape[1]} inputs; got an array of shape {shape}.")
        return with_lengthscales(kernel, H.shape[1], dtype), InducingPoints(as_array(Z, dtype))

    def Kuu(self, kernel):
        rounding = 4 * self.num_features * jnp.finfo(self.Z.dtype).eps
        return Dense(kernel.gram(self.Z, self.Z) + jnp.diag(rounding * kernel.diag(self.Z)))

    def functionals(self, functions):
        return functions(self.Z).T

    def Kuf(self, kernel, X):
        return kernel.gram(self.Z, X)


def kmeans_centres(X: np.ndarray, num: int, seed: int) -> np.ndarray:
    """Return `num` k-means centres of the rows of X, filled up by random rows where clusters come out empty."""
    rng = np.random.default_rng(seed)
    X = X[rng.permutation(len(X))[:KMEANS_ROWS]]
    start = X[rng.choice(len(X), num, replace=len(X) < num)]
    start = start + 1e-3 * rng.standard_normal(start.shape)  # no two centres are the same
    with warnings.catch_warnings(action="ignore"):  # about empty clusters, which are handled here
        centres, label = kmeans2(X, start, minit="matrix", missing="warn", iter=20)
    used = np.isin(np.arange(num), label)
    return np.where(used[:, None], centres, start)
