"""The output layer in closed form at every step, for full-batch regression with Gaussian noise.

Given draws of its inputs, the optimal q(v) = N(m, S) of the last layer (see `overtone.inference.output_layer`) has
    S = (I + gram / noise)^-1,   m = S projected / noise,
and its bound for rows with other draws depends on these through their sums alone (per output; N rows):
    -N/2 log(2 pi noise) - (|y|^2 - 2 m^T projected + m^T gram m + tr(S gram) + residual)/(2 noise) - KL(q) - KL(inner).
With one layer there are no draws, and this is Titsias' bound. With more, each draw is scored by the q of the others. A
q that is scored by its own draws would explain noise by how hidden units happened to be drawn, row by row, and the
bound would be none. At its optimum q has no gradient of its own, so none is taken.
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
    optimum,
    reference_noise,
    sums_over_rows,
    with_output_from_rows,
    without_output,
)
from overtone.numerics.linalg import one_by_one
from overtone.numerics.params import unwrap


class Collapsed(AbstractObjective):
    """The bound over all rows, where the q(v) of the output layer is optimal for other draws of the hidden layers."""

    num_samples: int = eqx.field(static=True, default=2)  # at least two where there are hidden layers
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
        num_samples = max(2, self.num_samples) if model.hidden_widths else 1
        inputs = model.propagate(model.draw_noise(key, num_samples, X.shape[0]), X)[-1][0]
        kl = self.kl.hidden(model, state, X.dtype)
        return (kl - collapsed_fit(model, inputs, y)) / state.num_data, state.next()

    def finish(self, model, state, key, data=None):
        if data is None:
            raise ValueError("Collapsed keeps no sums over rows; give finish the rows to make the output layer of.")
        return with_output_from_rows(model, key, *data)


def collapsed_fit(model: DeepGP, inputs: Float[Array, "S N D"], y: Float[Array, "N P"]) -> Float[Array, ""]:
    """Return the bound of an unwrapped model for these inputs of its output layer, without the hidden layers' KL."""
    noise, num_draws = reference_noise(model), len(inputs)
    gram, projected, squares, left = jax.lax.map(
        lambda each: sums_over_rows(model, each[None], y, jnp.ones(len(y))), inputs
    )

    def others(each: Float[Array, "S ..."]) -> Float[Array, "S ..."]:
        """Return the mean over the other draws, of each draw."""
        return (jnp.sum(each, axis=0) - each) / (num_draws - 1) if num_draws > 1 else each

    def of_draw(known_gram, known_projected, gram, projected, squares, left):
        def of_output(noise, known_projected, projected, squares):
            mean, covariance, kl = jax.lax.stop_gradient(optimum(known_gram / noise, known_projected / noise))
            spread = jnp.sum((covariance + jnp.outer(mean, mean)) * gram)
            misfit = squares - 2 * mean @ projected + spread + left
            return -0.5 * (len(y) * jnp.log(2 * jnp.pi * noise) + misfit / noise) - kl

        return jnp.sum(one_by_one(of_output)(noise, known_projected, projected, squares))

    sums = gram, projected, squares, left
    return jnp.mean(one_by_one(of_draw)(others(gram), others(projected), *sums)).astype(inputs.dtype)


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
