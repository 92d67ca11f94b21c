"""Products of 1-D features for pairs of inputs (Hensman, Durrande, Solin 2018, on separable kernels).

With a kernel k(x, y) = s2 k_1(x_1, y_1) k_2(x_2, y_2), and v_1, v_2 the whitened variables of 1-D features with
covariances A_1(x_1), A_2(x_2), the M^2 variables of covariance sqrt(s2) A_1(x_1) x A_2(x_2) are white again. Unlike
functions of a projection, they can say that one input matters only where the other one has a certain value.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from overtone.features.base import AbstractInducingFeatures
from overtone.linalg import Identity


class PairProducts(AbstractInducingFeatures):
    """For a `Products` kernel: columns 0 and 1 are a pair, 2 and 3 the next; each pair is a block of its own."""

    parts: AbstractInducingFeatures  # of one input; its leaves have leading axes (num_pairs, 2)
    num_pairs: int = eqx.field(static=True)

    @property
    def num_features(self):
        return self.num_pairs * self.parts.num_features**2

    @property
    def num_blocks(self):
        return self.num_pairs

    def Kuu(self, kernel):
        return Identity(self.num_features)

    def Kuf(self, kernel: Any, X):
        columns = X.T.reshape(self.num_pairs, 2, -1, 1)
        whitened = jax.vmap(jax.vmap(lambda f, k, x: f.whitened(k, x)))(self.parts, kernel.parts, columns)
        first, second = whitened[:, 0], whitened[:, 1] * jnp.sqrt(kernel.variance)[:, None, None]
        return (first[:, :, None] * second[:, None]).reshape(-1, len(X))

    def outside(self, X):
        columns = X.T.reshape(self.num_pairs, 2, -1, 1)
        return jax.vmap(jax.vmap(lambda f, x: f.outside(x)))(self.parts, columns).reshape(-1, len(X)).T

    def finer(self, least=0):
        """Products of four times as many frequencies; of a hundred each, there would be too many."""
        parts = self.parts.finer(least)
        return None if parts is None else PairProducts(parts, self.num_pairs)

    def part_of(self, kernel: Any, finer: Any, v):
        size = finer.parts.num_features

        def one(parts, kernels, finer, v):
            for i in (1, 0):  # the last axis belongs to the second input, then to the first
                f, k, g = jax.tree.map(lambda leaf, i=i: leaf[i], (parts, kernels, finer))
                v = jnp.swapaxes(f.part_of(k, g, v), -1, -2)
            return v

        blocks = jnp.moveaxis(v.reshape(*v.shape[:-1], self.num_pairs, size, size), -3, 0)
        found = jax.vmap(one)(self.parts, kernel.parts, finer.parts, blocks)
        return jnp.moveaxis(found, 0, -3).reshape(*v.shape[:-1], -1)
