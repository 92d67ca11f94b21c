"""Student's t: noise with outliers."""

import jax
import jax.numpy as jnp
import numpy as np

from overtone.gp.likelihoods.base import NOISE_FLOOR, START_NOISE, AbstractNoise, log_normal, start_noise
from overtone.numerics.params import Param

LEAST_DEGREES = 2.0  # so that there is a variance
GRID = np.linspace(-7.0, 3.5, 16)  # of log precisions, in their own standard deviations


class StudentT(AbstractNoise):
    """y = f + sqrt(scale) t, where t has Student's distribution: N(0, 1 / w) with w ~ Gamma(degrees/2, degrees/2)."""

    scale: Param = START_NOISE  # (P,), in units of y^2, or a number to start from
    degrees: Param = 5.0  # (P,)

    def initialised(self, y, num_features, dtype):
        scale = start_noise(self.scale, y.shape[1], NOISE_FLOOR, dtype)
        return StudentT(scale, start_noise(self.degrees, y.shape[1], LEAST_DEGREES, dtype))

    @property
    def reference(self):
        return self.scale

    def log_prob(self, y, f):
        return self._of_squares((y - f) ** 2)

    def _of_squares(self, squares):
        half = 0.5 * self.degrees
        constant = jax.lax.lgamma(half + 0.5) - jax.lax.lgamma(half) - 0.5 * jnp.log(2 * jnp.pi * half * self.scale)
        return constant - (half + 0.5) * jnp.log1p(squares / (self.degrees * self.scale))

    def sample(self, key, f):
        return f + jnp.sqrt(self.scale) * jax.random.t(key, self.degrees, f.shape, f.dtype)

    def expected_log_prob(self, y, mean, var):
        """Return a lower bound: -log(1 + u) is convex in u, the squared distance, so that its mean may take its place.

        Each row's site is then an observation of y with precision (degrees + 1) / (degrees scale + E[(y - f)^2]).
        """
        return self._of_squares((y - mean) ** 2 + var)

    def components(self, mean, var):
        """Integrate over w by the trapezoidal rule for log w, which is very good for such an integrand."""
        half = 0.5 * self.degrees
        log_w = jnp.asarray(GRID, mean.dtype).reshape(-1, *[1] * mean.ndim) / jnp.sqrt(half)
        log_weights = jax.nn.log_softmax(half * (log_w - jnp.exp(log_w)), axis=0)
        return jnp.broadcast_arrays(log_weights, mean, var + self.scale * jnp.exp(-log_w))

    def log_predictive(self, y, mean, var):
        """Apply the same rule on a grid from where w is a priori to where y, which may be an outlier, puts it."""
        half, squares = 0.5 * self.degrees, (y - mean) ** 2 / (self.scale + var)
        posterior = jnp.log((self.degrees + 1) / (self.degrees + squares))
        low = jnp.minimum(posterior, 0) + GRID[0] / jnp.sqrt(half)
        high = jnp.maximum(posterior, 0) + GRID[-1] / jnp.sqrt(half)
        share = jnp.asarray(np.linspace(0, 1, 2 * len(GRID)), mean.dtype).reshape(-1, *[1] * mean.ndim)
        log_w = low + (high - low) * share
        log_density = half * (log_w - jnp.exp(log_w) + jnp.log(half)) - jax.lax.lgamma(half)
        values = log_density + log_normal(y, mean, var + self.scale * jnp.exp(-log_w))
        return jax.nn.logsumexp(values, axis=0) + jnp.log((high - low) / (2 * len(GRID) - 1))
