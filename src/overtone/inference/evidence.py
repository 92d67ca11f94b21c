"""The evidence itself, for one layer with Gaussian noise: no features, no bound, in O(N^3) for N rows.

    log p(y) = log N(y; m(X), K + noise I) = -(N log(2 pi) + |L^-1 (y - m)|^2)/2 - log|L|,   L L^T = K + noise I,
summed over outputs. Few rows leave hyperparameters open, and the likeliest of them explain noise away; so priors of
their logarithms may be added, and what is maximised is then the posterior density of the hyperparameters.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from overtone.gp.kernels import AbstractKernel, Product, Sum
from overtone.gp.likelihoods import FlexibleNoise, Gaussian
from overtone.gp.model import DeepGP
from overtone.inference.objective import AbstractObjective, Progress
from overtone.inference.output_layer import reference_noise, with_output_from_rows, without_output
from overtone.numerics.linalg import one_by_one
from overtone.numerics.params import AbstractWrapper, Fixed, Positive, is_wrapper, unwrap


class LogNormal(eqx.Module):
    """A prior of positive numbers: log x ~ N(log median, spread^2)."""

    median: float = eqx.field(static=True)
    spread: float = eqx.field(static=True)

    def log_density(self, value: Array) -> Float[Array, ""]:
        """Return log N(log value; ...), up to a constant, summed over all numbers."""
        return -0.5 * jnp.sum((jnp.log(value / self.median) / self.spread) ** 2)


class Evidence(AbstractObjective):
    """The log evidence, plus the log densities of `priors`: pairs of the name of a parameter and a `LogNormal`.

    A name such as "lengthscale" or "noise" stands for all parameters of the kernel and the likelihood that have it.
    """

    priors: tuple[tuple[str, LogNormal], ...] = ()
    full_batch = True

    def init(self, model, data):
        if len(model.layers) > 1 or not isinstance(model.likelihood, Gaussian) or np.isnan(data.y).any():
            raise TypeError(
                "Evidence needs one layer, a Gaussian likelihood and complete targets; use NaturalGradient."
            )
        model = without_output(model)
        features = jax.tree.map(
            lambda leaf: leaf if is_wrapper(leaf) else Fixed(leaf), model.output.features, is_leaf=is_wrapper
        )
        return eqx.tree_at(lambda m: m.layers[0].features, model, features), Progress.start(data)

    def loss(self, model, state, key, batch):
        plain, (X, y) = unwrap(model), batch
        prior = sum(
            (prior.log_density(value) for name, prior in self.priors for value in named(plain, name)), start=0.0
        )
        return -(log_evidence(plain, X, y) + prior) / state.num_data, state.next()

    def finish(self, model, state, key, data=None):
        if data is None:
            raise ValueError("Evidence keeps no sums over rows; give finish the rows to make the output layer of.")
        return with_output_from_rows(model, key, *data)


def log_evidence(model: DeepGP, X: Float[Array, "N D"], y: Float[Array, "N P"]) -> Float[Array, ""]:
    """Return log p(y) of an unwrapped model of one layer."""
    Z, H = model.output.at(X)
    K, left = model.output.kernel.gram(H, H), y - model.output.mean_function(Z)

    def of_output(noise: Float[Array, ""], left: Float[Array, " N"]):
        chol = jnp.linalg.cholesky(K + noise * jnp.eye(len(K), dtype=K.dtype))
        half = jax.scipy.linalg.solve_triangular(chol, left, lower=True)
        return -0.5 * (len(K) * jnp.log(2 * jnp.pi) + half @ half) - jnp.sum(jnp.log(jnp.diagonal(chol)))

    return jnp.sum(one_by_one(of_output)(reference_noise(model), left.T))


def named(model: DeepGP, name: str) -> list[Any]:
    """Return all parameters of this name in the kernel and the likelihood of a model of one layer."""
    return _parameters((model.output.kernel, model.likelihood), name)


def _parameters(tree: Any, name: str) -> list[Any]:
    """Return all parameters of this name in a part of a model."""
    pairs, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=is_wrapper)
    return [leaf for path, leaf in pairs if getattr(path[-1], "name", "") == name]


def freedom(model: DeepGP, num_rows: int, least: float = 0.25) -> float:
    """Return the factor of the variances that allows for the hyperparameters that were fitted to the same rows.

    Each takes one degree of freedom of N: the factor is N / (N - their number), where at least a share of the rows is
    left. With all variances raised by it, the mean stays as it is, and intervals become wider.
    """
    parameters = [*named(model, "lengthscale"), *variances(model)]
    fitted = sum(unwrap(leaf).size for leaf in parameters if not isinstance(leaf, Fixed))
    return num_rows / max(num_rows - fitted, least * num_rows)


def with_variances_times(model: DeepGP, factor: float) -> DeepGP:
    """Return a model of one layer with all its variances times a factor: its mean stays, its intervals do not."""

    def scaled(leaf: Any) -> Any:
        value = np.asarray(unwrap(leaf))
        raised = (factor * value).astype(value.dtype)
        if isinstance(leaf, AbstractWrapper):
            return Fixed(raised) if isinstance(leaf, Fixed) else Positive(raised, getattr(leaf, "lower", 0.0))
        return jax.device_put(raised)

    model = eqx.tree_at(variances, model, list(map(scaled, variances(model))), is_leaf=is_wrapper)
    noise = model.likelihood
    if not isinstance(noise, FlexibleNoise):
        return model
    return eqx.tree_at(lambda m: m.likelihood, model, noise.scaled(np.log(factor)))


def variances(model: DeepGP) -> list[Any]:
    """Return the variances of a model of one layer that, all times a factor, raise its covariances by that factor."""
    return [*_amplitudes(model.output.kernel), *_parameters(model.likelihood, "noise")]


def _amplitudes(kernel: AbstractKernel) -> list[Any]:
    """Return the variances of all parts of a sum, but of one factor of a product."""
    if isinstance(kernel, Sum):
        return [leaf for part in kernel.parts for leaf in _amplitudes(part)]
    if isinstance(kernel, Product):
        return next(filter(None, map(_amplitudes, kernel.parts)), [])
    return _parameters(kernel, "variance")
