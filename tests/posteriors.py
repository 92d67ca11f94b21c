"""Posteriors q(v) to test with: any point of each kind, and its covariance as a dense matrix."""

import jax
import numpy as np

from overtone.variational import Full, LowRank, MeanField, unfold


def low_rank(shape, variance, dtype):
    return LowRank.start(shape, variance, dtype, rank=3)


KINDS = {"full": Full.start, "mean-field": MeanField.start, "low-rank": low_rank}


def shaken(q, scale, rng):
    """The posterior with noise on every parameter."""
    return jax.tree.map(lambda leaf: leaf + (scale * rng.normal(size=leaf.shape)).astype(leaf.dtype), q)


def root(q, block, output):
    """A square root of the covariance of one block and output."""
    std = np.exp(q.log_diag[block, output])
    if isinstance(q, Full):
        return np.asarray(unfold(q.folded)[block, :, output] * std)
    directions = [np.asarray(q.directions[block, :, output])] if isinstance(q, LowRank) else []
    return np.concatenate([np.diag(std), *directions], axis=1)
