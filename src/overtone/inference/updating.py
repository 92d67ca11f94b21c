"""A model takes in new rows without seeing the old ones again.

The q(v) = N(m, S) of an output layer in closed form is all that it knows of its rows: S^-1 is I plus a sum over rows,
and S^-1 m is another one (see `overtone.inference.output_layer`). New rows add theirs, and hidden layers stay.

Inducing points may be added first. Whitened variables come from a triangular factor, so those of earlier points stay as
they are; those of new points are N(0, I), and rows that lie on earlier points say nothing about them.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray
from scipy.linalg import block_diag, solve_triangular

from overtone.gp.features import InducingPoints
from overtone.gp.likelihoods import FlexibleNoise
from overtone.gp.model import DeepGP
from overtone.gp.variational import Full
from overtone.inference.objective import rows_of
from overtone.inference.output_layer import output_sums, reference_noise, with_output
from overtone.numerics.compiling import one_blas_thread
from overtone.numerics.params import Fixed, unwrap


def with_more_rows(model: DeepGP, X: np.ndarray, y: np.ndarray, *, key: PRNGKeyArray) -> DeepGP:
    """Return the model with an output layer that knows these rows (N, D) and targets (N, Q) too."""
    with jax.enable_x64(True), one_blas_thread():
        mean, root = joint_posterior(model)
        noise = np.asarray(reference_noise(unwrap(model)))[:, None]
        sums = output_sums(model, key, *rows_of(model, (X, y)))
        half = np.stack([solve_triangular(each, np.eye(len(each)), lower=True) for each in root])
        precision = np.swapaxes(half, 1, 2) @ half
        gram = noise[:, None] * (precision - np.eye(mean.shape[1]))
        projected = noise * (precision @ mean[..., None])[..., 0]
        return with_output(model, gram + np.asarray(sums[0]), projected + np.asarray(sums[1]))


def with_more_points(model: DeepGP, Z: np.ndarray) -> DeepGP:
    """Return the model with further inducing points (M, D) in its output layer; it predicts what it did before."""
    layer = model.output
    if not isinstance(layer.features, InducingPoints):
        raise TypeError(f"with_more_points needs inducing points, got {type(layer.features).__name__}.")
    with jax.enable_x64(True):
        mean, root = joint_posterior(model)
        points, dtype = np.asarray(unwrap(layer.features).Z), unwrap(layer.q).mean.dtype
        mean = np.concatenate([mean, np.zeros((len(mean), len(Z)))], axis=1)
        root = np.array([block_diag(each, np.eye(len(Z))) for each in root])
        diagonal = np.diagonal(root, axis1=1, axis2=2)
        parts = mean, np.log(diagonal), np.moveaxis(root / diagonal[:, None], 0, 1)
        q = Full(*(jax.device_put(part[None].astype(dtype)) for part in parts))
        features = InducingPoints(Fixed(jax.device_put(np.concatenate([points, Z]).astype(points.dtype))))
        likelihood = model.likelihood
        if isinstance(likelihood, FlexibleNoise):  # which is a function of the same features, and learns nothing new
            weight = jnp.pad(likelihood.weight, [(0, 0)] * (likelihood.weight.ndim - 1) + [(0, len(Z))])
            likelihood = eqx.tree_at(lambda noise: noise.weight, likelihood, weight)
    parts = features, q, likelihood
    return eqx.tree_at(lambda m: (m.layers[-1].features, m.layers[-1].q, m.likelihood), model, parts)


def joint_posterior(model: DeepGP) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean (P, M) of q(v) and a root (P, M, M) of its covariance, in double precision."""
    q = unwrap(model).output.q
    if not isinstance(q, Full) or len(q.mean) > 1:
        raise TypeError("only an output layer whose q(v) is joint over all features takes in new rows; fit again.")
    mean, log_diagonal, unit = (np.asarray(part, float)[0] for part in (q.mean, q.log_diag, q.unit))
    return mean, np.moveaxis(unit, 1, 0) * np.exp(log_diagonal)[:, None]
