"""What the neighbours of a row know: a nearest-neighbour GP of normal scores.

A predictive distribution with distribution function F gives each row a score z = Phi^-1(F(y)). Under a perfect model
scores are independent and N(0, 1); on real tables neighbours have similar ones. So
    z(x) = r(x) + e,   cov(r(x), r(x')) = share exp(-|x - x'|),   e ~ N(0, 1 - share),
with |.| in units of a lengthscale for each input. Given the scores of the rows nearest to x (Vecchia 1988; Datta et al.
2016), z(x) is N(m, s), in closed form. Far from all rows it is N(0, 1), and the predictive distribution is as it was.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from overtone.gp.predictive.mixture import Mixture
from overtone.numerics.params import Param

TINY = 1e-14  # squared distances that are rounding, at 0, where their root has no slope


class NeighbourGP(eqx.Module):
    """A GP of scores, the rows where they are known, and how far to trust them.

    Scores of rows that a model was trained on are too narrow, and some rows are unlike their neighbours. Rows that it
    has not seen tell the `gain` by which m is multiplied, two `scales` of s, and the `weight` of the second. Scales are
    1 where neighbours say nothing.
    """

    inputs: Param  # (N, D)
    scores: Param  # (N,)
    lengthscales: Param  # (D,)
    share: Param
    gain: Param = 1.0
    scales: tuple[Param, Param] = (1.0, 1.0)
    weight: Param = 0.5

    def trusted(self, mean: Float[Array, " B"], var: Float[Array, " B"]) -> tuple[Float[Array, " B"], ...]:
        """Return the mean of new rows' scores and two variances, from what their neighbours say."""
        narrow, wide = (var * scale ** (1 - var) for scale in self.scales)
        return self.gain * mean, narrow, wide


def mixed(mean: Any, narrow: Any, wide: Any, weight: Any) -> Mixture:
    """Return (1 - weight) N(mean, narrow) + weight N(mean, wide), from arrays of one shape."""
    mean, narrow, wide, weight = jnp.broadcast_arrays(*map(jnp.asarray, (mean, narrow, wide, weight)))
    log_weights = jnp.stack([jnp.log1p(-weight), jnp.log(weight)])
    return Mixture(jnp.stack([mean, mean]), jnp.stack([narrow, wide]), log_weights)


def conditional(
    share: Float[Array, ""], x: Float[Array, "B D"], near: Float[Array, "B K D"], scores: Float[Array, "B K"]
) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
    """Return mean and variance of the scores at x, given those of the rows near each, all in lengthscales.

    Derivatives are those of m = k^T K^-1 z and s = 1 - k^T K^-1 k with w = K^-1 k and a = K^-1 z held fixed,
        dm = dk^T a - w^T dK a,   ds = -2 dk^T w + w^T dK w,
    so that nothing is differentiated through the factorisation.
    """
    squares = jnp.sum(near**2, axis=-1)
    between = squares[:, :, None] + squares[:, None] - 2 * jnp.einsum("bid,bjd->bij", near, near)
    to_x = jnp.sum((near - x[:, None]) ** 2, axis=-1)
    noise = (1 - share) * jnp.eye(near.shape[1], dtype=x.dtype)
    K = share * jnp.exp(-_root(between)) + noise
    k = share * jnp.exp(-_root(to_x))
    fixed, right = jax.lax.stop_gradient((K, jnp.stack([k, scores], axis=-1)))
    solved = jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(fixed), True), right)
    w, a = solved[..., 0], solved[..., 1]
    mean = jax.lax.stop_gradient(jnp.sum(w * scores, axis=-1))
    change = jnp.sum(k * a, axis=-1) - jnp.einsum("bi,bij,bj->b", w, K, a)
    var = 1 - 2 * jnp.sum(k * w, axis=-1) + jnp.einsum("bi,bij,bj->b", w, K, w)
    return mean + change - jax.lax.stop_gradient(change), var


def _root(squares: Float[Array, "..."]) -> Float[Array, "..."]:
    return jnp.where(squares < TINY, 0, jnp.sqrt(jnp.maximum(squares, TINY)))
