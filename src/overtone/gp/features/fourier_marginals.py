"""Marginals of a layer with the paper's Fourier features, in O(M) for each row.

With D = diag(d), U = D^-1/2 W and C C^T = I + U^T U (see `overtone.numerics.linalg.DiagonalPlusLowRank`), the whitened
features are T^-1 D^-1/2 phi(x) with T^-1 = I - U K U^T, K = (I + C)^-T C^-1. So with
    h(x) = U^T D^-1/2 phi(x),   g(x) = K h(x),   psi(x) = D^-1/2 phi(x),
    mean = m . psi - (U^T m) . g,
    q's variance = psi^T S psi - 2 (psi^T S U) g + g^T (U^T S U) g,
    explained = |psi|^2 - h^T (C C^T)^-1 h, where |psi|^2 is a constant.
psi^T S psi is a polynomial of degree 2M, h and psi^T S U are polynomials of degree M. Beyond an end, phi(x) = B^T e(x)
with as many extrapolations e as the state is long, and B D^-1/2 = s L U^T, where s^2 is the kernel's variance and
L L^T the correlation of the state: all depends on U^T v alone.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from overtone.gp.features.base import nonnegative
from overtone.gp.kernels import AbstractMatern
from overtone.gp.variational import AbstractGaussian
from overtone.numerics.linalg import small_cholesky, small_inverse
from overtone.numerics.quadratic import inner, quadratic, quadratic_forms, sum_of_diagonal
from overtone.numerics.trigpoly import evaluate


def fourier_marginals(
    kernel: AbstractMatern,
    diagonal: Float[Array, " M2"],
    step: Float[Array, ""],
    readout: np.ndarray,
    at: tuple[Float[Array, " N"], Bool[Array, " N"], Float[Array, "state N"]],
    q: AbstractGaussian,
) -> tuple[Float[Array, "P N"], Float[Array, "P N"], Float[Array, " N"]]:
    """Return the mean of f(x) under q, which has one block, its variance from q, and the prior variance left.

    diagonal: d; step: between frequencies, in units of lam; readout: B for frequencies 0, 1, 2, ...; at: positions in
    units of b - a, from a, which of them are inside, and extrapolations e from the nearer end for those that are not.
    """
    position, inside, e = at
    dtype, size = position.dtype, len(e)
    L = np.linalg.cholesky(kernel.state_correlation).astype(dtype)
    readout, eye, deviation = readout.astype(dtype), np.eye(size, dtype=dtype), jnp.sqrt(kernel.variance)
    amplitude, m = 1 / jnp.sqrt(diagonal), q.mean[0]
    # U^T = scale readout D^-1/2: the frequencies in B are those of readout times the step.
    scale = np.linalg.inv(L).astype(dtype) @ jnp.diag(step ** np.arange(size)) / deviation
    U = (scale @ readout) * amplitude
    G = U @ U.T
    C = small_cholesky(jnp.asarray(eye + G))
    C_inverse = small_inverse(C)
    K = small_inverse(jnp.asarray(eye + C)).T @ C_inverse

    squares, crossed = _forms(readout, amplitude, q)
    crossed = jnp.moveaxis(crossed @ scale.T, 0, -1)  # D^-1/2 S U
    grams = jnp.swapaxes(crossed @ readout.T @ scale.T, 1, 2)  # U^T S U
    low = m * amplitude, U * amplitude, crossed.reshape(-1, len(amplitude))
    squares, others = evaluate(squares, jnp.concatenate(low), position)
    means, h, crossed = jnp.split(others, np.cumsum([len(part) for part in low])[:-1])
    g, beyond, known = K @ h, deviation * (eye - K @ G) @ L.T @ e, m @ U.T  # T^-1 D^-1/2 B^T e = U beyond

    mean = jnp.where(inside, means - known @ g, known @ beyond)
    spread = squares - 2 * inner(crossed.reshape(len(m), size, -1), g) + quadratic(grams, g)
    spread = jnp.where(inside, spread, quadratic(grams, beyond))
    constant = jnp.sum(amplitude[: len(amplitude) // 2 + 1] ** 2)
    explained = constant - quadratic((C_inverse.T @ C_inverse)[None], h)[0]
    explained = jnp.where(inside, explained, quadratic(G[None], beyond)[0])
    return mean, nonnegative(spread), nonnegative(kernel.variance - explained)


def _forms(readout: np.ndarray, amplitude: Float[Array, " M2"], q: Any) -> tuple[Array, Array]:
    """Return the coefficients of psi^T S psi, and D^-1/2 S D^-1/2 readout^T, for each output."""
    if q.factor is not None:
        return quadratic_forms(0, readout, amplitude, q.variances[0], q.factor[0])
    weighted = q.variances[0] * amplitude**2
    return sum_of_diagonal(weighted), jnp.einsum("pk,ik->kpi", weighted, readout)
