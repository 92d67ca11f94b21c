"""The output layer in closed form at every step, for full-batch regression with Gaussian noise.

The optimal q(v) of the last layer (see `overtone.inference.output_layer`), put into the bound, leaves (per output,
summed over outputs; N rows)
    -N/2 log(2 pi noise) - |y|^2/(2 noise) + c^T Lam^-1 c/2 - log|Lam|/2 - sum residual/(2 noise) - KL(inner).
With fewer rows than features the same is computed from the matrix of the rows, G G^T.
For one layer this is Titsias' bound. For more it is slightly optimistic, since q adapts to the draws: `finish` sets q
from many draws, and the ELBO of that model with fresh draws is the honest one.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from overtone.gp.likelihoods import Gaussian
from overtone.gp.model import DeepGP
from overtone.inference.objective import AbstractObjective, KLWeights, Progress
from overtone.inference.output_layer import (
    natural_parameters,
    output_rows,
    sums_over_rows,
    with_output_from_rows,
    without_output,
)
from overtone.inference.sites import reference_noise
from overtone.numerics.linalg import one_by_one
from overtone.numerics.params import unwrap


class Collapsed(AbstractObjective):
    """The bound with the optimal q(v) of the output layer for the hidden draws of each step, over all rows."""

    num_samples: int = eqx.field(static=True, default=1)
    kl: KLWeights = KLWeights()
    full_batch = True

    def init(self, model, data):
        if not isinstance(model.likelihood, Gaussian) or np.isnan(data.y).any():
            kind = type(model.likelihood).__name__
            raise TypeError(
                f"Collapsed needs a Gaussian likelihood and complete targets, got {kind}; use NaturalGradient."
            )
        return without_output(model), Progress.start(data)

    def loss(self, model, state, key, batch):
        model, (X, y) = unwrap(model), batch
        inputs = model.propagate(model.draw_noise(key, self.num_samples, X.shape[0]), X)[-1][0]
        kl = self.kl.hidden(model, state.step, X.dtype)
        return (kl - collapsed_fit(model, inputs, y)) / state.num_data, state.next()

    def finish(self, model, state, key, data=None):
        if data is None:
            raise ValueError("Collapsed keeps no sums over rows; give finish the rows to make the output layer of.")
        return with_output_from_rows(model, key, *data)


def collapsed_fit(model: DeepGP, inputs: Float[Array, "S N D"], y: Float[Array, "N P"]) -> Float[Array, ""]:
    """Return the bound of an unwrapped model for these inputs of its output layer, without the hidden layers' KL."""
    noise, by_rows = reference_noise(model), inputs.shape[0] * len(y) < model.output.features.num_features
    misfit, volume, left = (_by_rows if by_rows else _by_features)(model, noise, inputs, y)
    fit = -0.5 * (len(y) * jnp.log(2 * jnp.pi * noise) + misfit + volume + left / noise)
    return jnp.sum(fit).astype(inputs.dtype)


def _by_features(model: DeepGP, noise: Float[Array, " P"], inputs: Float[Array, "S N D"], y: Float[Array, "N P"]):
    """Return |y|^2/noise - c^T Lam^-1 c, log|Lam| and the residual."""
    gram, projected, squares, left = sums_over_rows(model, inputs, y, jnp.ones(len(y)))

    def terms(Lam: Float[Array, "M M"], c: Float[Array, " M"]):
        chol = jnp.linalg.cholesky(Lam)
        return _square(chol, c), _log_det(chol)

    explained, volume = one_by_one(terms)(*natural_parameters(gram, projected, noise))
    return squares / noise - explained, volume, left


def _by_rows(model: DeepGP, noise: Float[Array, " P"], inputs: Float[Array, "S N D"], y: Float[Array, "N P"]):
    """Return the same from the covariances K = G G^T of the rows: y^T (noise + K)^-1 y, log|1 + K/noise|, residual."""
    layer, num_samples = model.output, len(inputs)
    H, target = output_rows(model, inputs, y)
    A = layer.features.whitened(layer.kernel, H)
    G, target = (part.astype(noise.dtype) / num_samples**0.5 for part in (A.T, target))
    K, eye = G @ G.T, jnp.eye(len(G), dtype=noise.dtype)

    def terms(noise: Float[Array, ""], y: Float[Array, " R"]):
        chol = jnp.linalg.cholesky(eye + K / noise)
        return _square(chol, y) / noise, _log_det(chol)

    variance = layer.features.prior_variance(layer.kernel, H).astype(noise.dtype)
    left = jnp.sum(variance) / num_samples - jnp.trace(K)
    return *one_by_one(terms)(noise, target.T), left


def _square(chol: Float[Array, "M M"], c: Float[Array, " M"]) -> Float[Array, ""]:
    """Return c^T (L L^T)^-1 c."""
    half = jax.scipy.linalg.solve_triangular(chol, c, lower=True)
    return half @ half


def _log_det(chol: Float[Array, "M M"]) -> Float[Array, ""]:
    return 2 * jnp.sum(jnp.log(jnp.diagonal(chol)))


def best_scales(
    gram: np.ndarray, projected: np.ndarray, squares: np.ndarray, num_data: int, noises: np.ndarray, scales: np.ndarray
) -> tuple[float, np.ndarray]:
    """Return the factor of the kernel's variance, and the noise of each output, with the largest bound of those given.

    Without a residual the bound depends on both through the eigenvalues e of A A^T alone; with b = Q^T A y it is
        -N/2 log(2 pi noise) - (|y|^2 - sum scale b^2 / (noise + scale e))/(2 noise) - sum log(1 + scale e / noise)/2.
    """
    e, Q = np.linalg.eigh(gram)
    e, b = np.maximum(e, 0)[:, None], Q.T @ projected.T  # (M, 1), (M, P)
    candidates = []
    for scale in scales:
        explained = np.stack([np.sum(scale * b**2 / (noise + scale * e), axis=0) for noise in noises], axis=1)  # (P, K)
        misfit = np.maximum(squares[:, None] - explained, 0)
        volume = np.sum(np.log1p(scale * e / noises), axis=0)
        bound = -0.5 * (num_data * np.log(2 * np.pi * noises) + misfit / noises + volume)
        candidates.append((np.sum(np.max(bound, axis=1)), scale, noises[np.argmax(bound, axis=1)]))
    _, scale, noise = max(candidates, key=lambda each: each[0])
    return float(scale), noise
