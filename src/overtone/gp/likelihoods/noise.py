"""Noise in the units of y: Gaussian, of one variance or a function of its own; Student's t; mixtures of Gaussians."""

from abc import abstractmethod
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from overtone.gp.likelihoods.base import NUM_NODES, AbstractFamily, AbstractLikelihood, at_nodes, start_noise
from overtone.gp.predictive.mixture import Mixture
from overtone.numerics.params import OptionalParam, Param

NOISE_FLOOR, START_NOISE = 1e-6, 0.1  # variances, for a target of variance 1
LEAST_DEGREES = 2.0  # so that there is a variance
GRID = np.linspace(-7.0, 3.5, 16)  # of log precisions, in their own standard deviations
START_SCALES = np.array([0.3, 0.6, 1.0, 2.0, 4.0])  # of the components' deviations
PRIOR_SCALES = np.array([1.0, 0.5, 1.0])  # of log weights, means in units of the target, log variances


def log_normal(y: Array, mean: Array, var: Array) -> Array:
    """Return log N(y; mean, var)."""
    return -0.5 * (jnp.log(2 * jnp.pi * var) + (y - mean) ** 2 / var)


class AbstractNoise(AbstractLikelihood):
    """A likelihood of y in the units of f, whose predictive distribution is a mixture of Gaussians."""

    @abstractmethod
    def components(self, mean: Float[Array, "S N F"], var: Float[Array, "S N F"]) -> Sequence[Array]:
        """Return y for f ~ N(mean, var) as a mixture of C Gaussians: log weights, means, variances (C, S, N, P)."""

    def log_predictive(self, y, mean, var):
        log_weights, means, variances = self.components(mean, var)
        return jax.nn.logsumexp(log_weights + log_normal(y, means, variances), axis=0)

    def predictive(self, mean, var):
        parts = self.components(mean, var)
        log_weights, means, variances = (part.reshape(-1, *part.shape[2:]) for part in parts)
        return Mixture(means, variances, jax.nn.log_softmax(log_weights, axis=0))


class Gaussian(AbstractNoise):
    """y = f + e, e ~ N(0, noise), one noise variance for each output."""

    noise: Param = START_NOISE  # (P,), or a number to start from
    least: float = eqx.field(static=True, default=NOISE_FLOOR)

    def initialised(self, y, num_features, dtype):
        return Gaussian(start_noise(self.noise, y.shape[1], self.least, dtype), self.least)

    @property
    def reference(self):
        return self.noise

    def log_prob(self, y, f):
        return log_normal(y, f, self.noise)

    def sample(self, key, f):
        return f + jnp.sqrt(self.noise) * jax.random.normal(key, f.shape, f.dtype)

    def components(self, mean, var):
        return jnp.zeros((1, *mean.shape), mean.dtype), mean[None], (var + self.noise)[None]

    def expected_log_prob(self, y, mean, var):
        return log_normal(y, mean, self.noise) - 0.5 * var / self.noise


class Heteroscedastic(AbstractNoise):
    """y = f + e, e ~ N(0, exp(base + h)): for P targets, the first P functions are f and the last P are h."""

    noise: float = eqx.field(static=True, default=START_NOISE)  # to start from
    base: OptionalParam = None  # (P,), the log of a usual noise variance

    def initialised(self, y, num_features, dtype):
        base = jax.device_put(np.full(y.shape[1], np.log(self.noise), dtype)) if self.base is None else self.base
        return Heteroscedastic(self.noise, base)

    def num_functions(self, y):
        return 2 * y.shape[1]

    @property
    def reference(self):
        return jnp.concatenate([jnp.exp(self.base), jnp.full_like(self.base, 2)])  # h has Fisher information 1/2

    @property
    def usual_noise(self):
        return jnp.exp(self.base)

    @property
    def reach(self):
        return jnp.concatenate([jnp.full_like(self.base, jnp.inf), jnp.ones_like(self.base)])

    def _noise(self, h):
        return NOISE_FLOOR + jnp.exp(self.base + h)

    def log_prob(self, y, f):
        f, h = jnp.split(f, 2, axis=-1)
        return log_normal(y, f, self._noise(h))

    def sample(self, key, f):
        f, h = jnp.split(f, 2, axis=-1)
        return f + jnp.sqrt(self._noise(h)) * jax.random.normal(key, f.shape, f.dtype)

    def expected_log_prob(self, y, mean, var):
        """Integrate over f in closed form, over h at the nodes of a rule."""
        (mean, h), (var, var_h) = (jnp.split(part, 2, axis=-1) for part in (mean, var))
        h, log_weights = at_nodes(h, var_h, False)
        values = log_normal(y, mean, self._noise(h)) - 0.5 * var / self._noise(h)
        return jnp.sum(jnp.exp(log_weights) * values, axis=0)

    def components(self, mean, var, num_nodes: int = 5):
        """Integrate over f in closed form, over h at the nodes of a rule."""
        (mean, h), (var, var_h) = (jnp.split(part, 2, axis=-1) for part in (mean, var))
        h, log_weights = at_nodes(h, var_h, False, num_nodes)
        return jnp.broadcast_arrays(log_weights, mean, var + self._noise(h))

    def log_predictive(self, y, mean, var):
        log_weights, mean, var = self.components(mean, var, NUM_NODES)
        return jax.nn.logsumexp(log_weights + log_normal(y, mean, var), axis=0)


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


class MixtureNoise(AbstractNoise):
    """y = f + e, where e has C Gaussian components, which may differ from row to row: arrays are (C, ..., P)."""

    log_weights: Param
    means: Param
    variances: Param

    def initialised(self, y, num_features, dtype):
        return self

    @property
    def reference(self):
        """The harmonic mean of the variances."""
        return 1 / jnp.sum(jnp.exp(self.log_weights) / self.variances, axis=0)

    def log_prob(self, y, f):
        return self.log_predictive(y, f, jnp.zeros_like(f))

    def expected_log_prob(self, y, mean, var):
        """Return a lower bound: f is averaged in each component, which is as responsible for y as that makes it."""
        each = log_normal(y, mean + self.means, self.variances) - 0.5 * var / self.variances
        return jax.nn.logsumexp(self.log_weights + each, axis=0)

    def components(self, mean, var):
        return jnp.broadcast_arrays(self.log_weights, mean + self.means, var + self.variances)

    def sample(self, key, f):
        which_key, noise_key = jax.random.split(key)
        shape = (len(self.means), *f.shape)
        chosen = jax.random.categorical(which_key, jnp.broadcast_to(self.log_weights, shape), axis=0)
        means, variances = (
            jnp.take_along_axis(jnp.broadcast_to(part, shape), chosen[None], axis=0)[0]
            for part in (self.means, self.variances)
        )
        return f + means + jnp.sqrt(variances) * jax.random.normal(noise_key, f.shape, f.dtype)


class FlexibleNoise(AbstractFamily):
    """Mixture noise whose log weights, means and log variances vary with the inputs: heavy tails, skew, several modes.

    Each is a number plus a GP that is known through the output layer's features; its whitened variables w, N(0, I) a
    priori, are at their most probable values.
    """

    noise: float = eqx.field(static=True, default=START_NOISE)  # to start from
    base: OptionalParam = None  # (3, C, P)
    weight: OptionalParam = None  # (3, C, P, M)

    def initialised(self, y, num_features, dtype):
        if self.base is not None:
            return self
        log_variances = np.log(self.noise * START_SCALES**2)
        base = np.stack([0 * log_variances, 0 * log_variances, log_variances])
        base = np.repeat(base[:, :, None], y.shape[1], axis=2).astype(dtype)
        weight = np.zeros((*base.shape, num_features), dtype)
        return FlexibleNoise(self.noise, jax.device_put(base), jax.device_put(weight))

    @property
    def reference(self) -> Float[Array, " P"]:
        """The harmonic mean of the components' variances, where the features say nothing."""
        return 1 / jnp.sum(jax.nn.softmax(self.base[0], axis=0) * jnp.exp(-self.base[2]), axis=0)

    def at(self, project, shape):
        scales = jnp.asarray(PRIOR_SCALES, self.base.dtype)[:, None, None, None]
        projected = project(self.weight.reshape(-1, self.weight.shape[-1]))
        values = self.base[..., None] + scales * projected.reshape(*self.base.shape, -1)
        log_weights, means, log_variances = (jnp.moveaxis(v, 1, 2).reshape(len(v), *shape, -1) for v in values)
        return MixtureNoise(jax.nn.log_softmax(log_weights, axis=0), means, NOISE_FLOOR + jnp.exp(log_variances))

    def scaled(self, log_factor: float) -> "FlexibleNoise":
        """Return the same noise with all variances times a factor."""
        return FlexibleNoise(self.noise, self.base.at[2].add(np.asarray(log_factor, self.base.dtype)), self.weight)

    def kl(self) -> Float[Array, ""]:
        """Return what the prior takes off: -log N(w; 0, I), up to a constant."""
        return 0.5 * jnp.sum(self.weight**2)
