"""Pinned Fourier features of a process that has no waves beyond its last frequency, such as filtered sound.

Given the states at both ends, what happens inside [a, b] is independent of what happens outside. So a process may be
band-limited: inside [a, b] it is g(x) . v and nothing else, outside it is the Matern's.
"""

from typing import Any

import jax.numpy as jnp

from overtone.gp.features.base import AbstractInducingFeatures, PerDimension
from overtone.gp.features.pinned import PinnedFourier
from overtone.numerics.linalg import Identity


class BandLimited(AbstractInducingFeatures):
    """The process of pinned features with no variance inside [a, b] but theirs."""

    inner: PinnedFourier

    @property
    def num_features(self):
        return self.inner.num_features

    def initialised(self, kernel, H, **settings):
        kernel, features = self.inner.initialised(kernel, H, **settings)
        inner: Any = features.parts
        return kernel, PerDimension(BandLimited(inner), features.num_dims)

    def Kuu(self, kernel):
        return Identity(self.num_features)

    def Kuf(self, kernel, X):
        return self.inner.Kuf(kernel, X)

    def prior_variance(self, kernel, X):
        explained = jnp.sum(self.Kuf(kernel, X) ** 2, axis=0)
        return jnp.where(self.outside(X)[:, 0], self.inner.prior_variance(kernel, X), explained)

    def marginals(self, kernel, q, X):
        mean, spread, left = self.inner.marginals_by_parts(kernel, q, X)
        return mean, spread + jnp.where(self.outside(X)[:, 0], left, 0)[:, None]

    def normal_equations(self, kernel, X, Y, weights):
        """Return the sums for rows inside [a, b], where nothing is unexplained."""
        gram, projected, left = self.inner.normal_equations(kernel, X, Y, weights)
        return gram, projected, 0 * left

    def finer(self, least=100):
        return self

    def from_finer(self, kernel, finer, v):
        return v

    def outside(self, X):
        return self.inner.outside(X)
