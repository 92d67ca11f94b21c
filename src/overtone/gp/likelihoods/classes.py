"""Two classes, or several. Targets are one column of numbers 0, 1, 2, ..."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from overtone.gp.likelihoods.base import AbstractLikelihood, at_nodes
from overtone.gp.predictive.discrete import Classes
from overtone.numerics.params import OptionalParam

REACH = 4.0  # units of log odds


class AbstractClasses(AbstractLikelihood):
    """Classes whose log odds are `base` plus the functions."""

    classes = True
    base: eqx.AbstractVar[OptionalParam]

    @property
    def reference(self):
        return jnp.full_like(self.base, 4)

    @property
    def reach(self):
        return jnp.full_like(self.base, REACH)


class Bernoulli(AbstractClasses):
    """P(y = 1) = 1 / (1 + exp(-base - f))."""

    base: OptionalParam = None  # (1,)

    @staticmethod
    def rough_functions(y):
        return 2.0 * y - 1.0

    def initialised(self, y, num_features, dtype):
        ones = np.sum(y, axis=0) + 0.5
        start = np.log(ones / (len(y) + 1 - ones)).astype(dtype)
        return Bernoulli(jax.device_put(start) if self.base is None else self.base)

    def log_prob(self, y, f):
        return jax.nn.log_sigmoid((2 * y - 1) * (self.base + f))

    def sample(self, key, f):
        return jax.random.bernoulli(key, jax.nn.sigmoid(self.base + f)).astype(f.dtype)

    def predictive(self, mean, var):
        f, log_weights = at_nodes(mean, var, self.joint)
        one = jnp.mean(jnp.sum(jnp.exp(log_weights) * jax.nn.sigmoid(self.base + f), axis=0), axis=0)
        return Classes(jnp.concatenate([1 - one, one], axis=-1))


class Softmax(AbstractClasses):
    """P(y = c) = exp(base_c + f_c) / sum_d exp(base_d + f_d), a function for each class."""

    base: OptionalParam = None  # (C,)
    joint = True

    @staticmethod
    def rough_functions(y):
        return 2.0 * (y == np.arange(1 + y.max())) - 1.0

    def initialised(self, y, num_features, dtype):
        counts = np.sum(y == np.arange(1 + y.max()), axis=0) + 0.5
        start = np.log(counts / counts.sum()).astype(dtype)
        return Softmax(jax.device_put(start) if self.base is None else self.base)

    def num_functions(self, y):
        return 1 + int(y.max())

    def log_prob(self, y, f):
        log_probs = jax.nn.log_softmax(self.base + f, axis=-1)
        return jnp.sum(jnp.where(y == jnp.arange(len(self.base)), log_probs, 0), axis=-1, keepdims=True)

    def sample(self, key, f):
        return jax.random.categorical(key, self.base + f, axis=-1)[..., None].astype(f.dtype)

    def predictive(self, mean, var):
        f, log_weights = at_nodes(mean, var, self.joint)
        each = jnp.sum(jnp.exp(log_weights) * jax.nn.softmax(self.base + f, axis=-1), axis=0)
        return Classes(jnp.mean(each, axis=0))
