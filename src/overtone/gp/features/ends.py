"""What pinned Fourier features are made of, apart from x: O(M) numbers.

For variance 1, and with x - a in units of b - a, all that is left of kernel and interval is one number,
    rho = lam (b - a).
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from overtone.gp.features.fourier import edge, spectral_diagonal
from overtone.gp.kernels import AbstractMatern
from overtone.numerics.linalg import small_cholesky, small_inverse


class Ends(eqx.Module):
    """F is the transition from a to b, C what s(a) and the sinusoids leave of the covariance P of s(b)."""

    step: Float[Array, ""]  # between frequencies, in units of lam
    amplitude: Float[Array, " M2"]  # diag(d)^-1/2, of the sinusoids
    B: Float[Array, "state M2"]  # B diag(d)^-1/2
    BB: Float[Array, "state state"]  # B diag(d)^-1 B^T
    third: Float[Array, "state three"]  # v3's whitened features, in terms of c(x - a), c(b - x), B diag(d)^-1 phi(x)
    after: Float[Array, "state three"]  # E[s(b) | v], in terms of z = (L v1, B v2, v3)


def ends(kind: type[AbstractMatern], num_frequencies: int, rho: Float[Array, ""], precision: Any) -> Ends:
    """In the widest precision that is on, since C is a small difference.

    `precision` is that of the model, as small as the noise of s(b).

    Many numbers of one argument: their derivative is cheapest by forward mode, along with the values.
    """
    dtype, widest = rho.dtype, jax.dtypes.canonicalize_dtype(jnp.float64)

    def values(rho):
        unit = unit_kernel(kind, rho.dtype)
        step = 2 * jnp.pi / rho
        w = step * jnp.arange(num_frequencies + 1)
        amplitude = 1 / jnp.sqrt(spectral_diagonal(unit, w, rho))
        B = edge(w, kind.order) * amplitude
        BB = B @ B.T
        F = unit.transition(rho[None])[0]
        gap = jnp.eye(kind.order + 1) - F
        P = np.asarray(kind.state_correlation)
        C = P - F @ P @ F.T - gap @ BB @ gap.T
        # Of s(b) + e, to be precise, with a noise e as small as rounding: C vanishes as M grows.
        noise = 8 * jnp.finfo(precision).eps * np.diag(np.diag(P))
        inverse = small_inverse(small_cholesky(jnp.asarray(C + noise)))
        third = inverse @ jnp.concatenate([gap @ BB - F @ P, P * signs(kind.order), -gap], axis=1)
        return Ends(step, amplitude, B, BB, third, jnp.concatenate([F, gap, (inverse @ C).T], axis=1))

    fixed = jax.lax.stop_gradient(rho)
    numbers, slopes = jax.jvp(values, (fixed.astype(widest),), (jnp.ones((), widest),))
    return jax.tree.map(lambda n, slope: n.astype(dtype) + slope.astype(dtype) * (rho - fixed), numbers, slopes)


def unit_kernel(kind: type[AbstractMatern], dtype) -> AbstractMatern:
    """The kernel with variance 1 and lam = 1."""
    make: Any = kind
    return make(jnp.ones((), dtype), jnp.asarray((2 * kind.order + 1) ** 0.5, dtype))


def signs(order: int) -> np.ndarray:
    """Seen backwards in time, odd derivatives change sign."""
    return np.asarray([(-1) ** i for i in range(order + 1)])
