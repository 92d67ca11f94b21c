"""Two classes, or several. Targets are one column of numbers 0, 1, 2, ..."""

from abc import abstractmethod

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from overtone.gp.likelihoods.base import AbstractLikelihood, at_nodes
from overtone.gp.predictive.discrete import Classes
from overtone.numerics.params import OptionalParam

REACH = 4.0  # units of log odds


class AbstractClasses(AbstractLikelihood):
    """Classes whose log odds are `base` plus the functions."""

    classes = True
    base: OptionalParam = None  # (F,)

    @abstractmethod
    def start(self, y: np.ndarray) -> np.ndarray:
        """Return the base for which the classes are as frequent as in targets y, where the functions are zero."""

    @abstractmethod
    def logits(self, f: Float[Array, "*S N F"]) -> Float[Array, "*S N C"]:
        """Return log P(y = c) for each class, up to a number that all share."""

    def initialised(self, y, num_features, dtype):
        return self if self.base is not None else type(self)(jax.device_put(self.start(y).astype(dtype)))

    @property
    def reference(self):
        return jnp.full_like(self.base, 4)

    @property
    def reach(self):
        return jnp.full_like(self.base, REACH)

    def log_prob(self, y, f):
        log_probs = jax.nn.log_softmax(self.logits(f), axis=-1)
        return jnp.sum(jnp.where(y == jnp.arange(log_probs.shape[-1]), log_probs, 0), axis=-1, keepdims=True)

    def sample(self, key, f):
        return jax.random.categorical(key, self.logits(f), axis=-1)[..., None].astype(f.dtype)

    def predictive(self, mean, var):
        f, log_weights = at_nodes(mean, var, self.joint)
        each = jnp.sum(jnp.exp(log_weights) * jax.nn.softmax(self.logits(f), axis=-1), axis=0)
        return Classes(jnp.mean(each, axis=0))


class Bernoulli(AbstractClasses):
    """P(y = 1) = 1 / (1 + exp(-base - f))."""

    @staticmethod
    def rough_functions(y):
        return 2.0 * y - 1.0

    def start(self, y):
        ones = np.nansum(y, axis=0) + 0.5
        return np.log(ones / (np.sum(~np.isnan(y)) + 1 - ones))

    def num_functions(self, y):
        if (num := num_classes(y)) > 2:
            raise ValueError(f"Bernoulli has two classes, 0 and 1; got {num - 1}. For several classes use Softmax.")
        return 1

    def logits(self, f):
        return jnp.concatenate([jnp.zeros_like(f), self.base + f], axis=-1)


class Softmax(AbstractClasses):
    """P(y = c) = exp(base_c + f_c) / sum_d exp(base_d + f_d), a function for each class."""

    joint = True

    @staticmethod
    def rough_functions(y):
        return 2.0 * (y == np.arange(1 + y.max())) - 1.0

    def start(self, y):
        counts = np.sum(y == np.arange(num_classes(y)), axis=0) + 0.5
        return np.log(counts / counts.sum())

    def num_functions(self, y):
        return num_classes(y)

    def logits(self, f):
        return self.base + f


def num_classes(y: np.ndarray) -> int:
    """Return how many classes 0, 1, 2, ... there are in targets, some of which may be missing (NaN)."""
    labels = y[~np.isnan(y)]
    if y.shape[1] != 1 or labels.size == 0 or np.any((labels < 0) | (labels != np.floor(labels))):
        raise ValueError(
            f"targets of classes must be one column of numbers 0, 1, 2, ...; got {y.shape[1]} columns "
            f"with values such as {', '.join(map(str, np.unique(labels)[:3]))}."
        )
    return 1 + int(labels.max())
