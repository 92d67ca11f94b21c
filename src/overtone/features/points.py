"""Inducing points: the value of f at M places, the local features of conventional deep GPs."""

import jax.numpy as jnp

from overtone.features.base import AbstractInducingFeatures
from overtone.linalg import Dense
from overtone.params import Param


class InducingPoints(AbstractInducingFeatures):
    """u_m = f(z_m) + e_m, with independent e_m of variance 4 M eps k(z, z).

    The small noise e belongs to the definition of u, so Kuu = K(Z, Z) + diag is exact and the bound
    stays a bound. It is as large as the rounding of a Cholesky factorisation of that size and precision.
    """

    Z: Param  # (M, D)

    @property
    def num_features(self):
        return self.Z.shape[0]

    def Kuu(self, kernel):
        rounding = 4 * self.num_features * jnp.finfo(self.Z.dtype).eps
        return Dense(kernel.gram(self.Z, self.Z) + jnp.diag(rounding * kernel.diag(self.Z)))

    def functionals(self, functions):
        return functions(self.Z).T

    def Kuf(self, kernel, X):
        return kernel.gram(self.Z, X)
