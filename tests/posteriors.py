"""Posteriors q(v) to test with: any point of each kind, and its covariance as a dense matrix."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from overtone.gp.variational import Full, MeanField

KINDS = {"full": Full.start, "mean-field": MeanField.start}


def shaken(q, scale, rng):
    """The posterior with noise on every parameter that is free: of a unit triangular matrix, what is below the ones."""
    noisy = jax.tree.map(lambda leaf: np.asarray(leaf) + scale * rng.normal(size=leaf.shape).astype(leaf.dtype), q)
    if not isinstance(q, Full):
        return jax.tree.map(jnp.asarray, noisy)
    size = q.mean.shape[-1]
    below = np.arange(size)[:, None, None] > np.arange(size)
    return jax.tree.map(jnp.asarray, eqx.tree_at(lambda q: q.unit, noisy, np.where(below, noisy.unit, q.unit)))


def root(q, block, output):
    """A square root of the covariance of one block and output."""
    std = np.exp(np.asarray(q.log_diag)[block, output])
    if isinstance(q, Full):
        return np.asarray(q.unit)[block, :, output] * std
    return np.diag(std)
