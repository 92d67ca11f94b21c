"""The output layer's posterior in closed form, from sums over rows.

Given draws of its inputs, the optimal q(v) of the last layer has, with G = A^T its whitened features,
    precision  Lam = I + mean_s G_s^T G_s / noise,      mean  Lam^-1 c,   c = mean_s G_s^T y / noise.
The condition number of Lam is about N / noise, so this one system is solved in double precision.

Other likelihoods than the Gaussian take sites in place of rows: around the q(v) of the moment each row acts on the
output layer like an observation with Gaussian noise. With E = E[log p(y | f)], f ~ N(mean, var),
    precision = -2 dE/dvar,    precision times value = dE/dmean + precision mean
(for Gaussian noise 1/noise and y). Where a likelihood says how far a row may reach, the precision is raised until the
site's value is no farther from the mean: Newton's steps would overshoot, and the optimum's mean is the same.
The best q depends on the data through two sums over sites, of precision a a^T and of precision value a.
"""

from functools import reduce
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from overtone.gp.layers import Layer
from overtone.gp.likelihoods import AbstractLikelihood, Gaussian
from overtone.gp.likelihoods.base import expected_log_prob
from overtone.gp.model import DeepGP
from overtone.gp.variational import Full, MeanField
from overtone.inference.devices import shared
from overtone.numerics.compiling import quickly_compiled
from overtone.numerics.linalg import cholesky_of_sums, one_by_one
from overtone.numerics.params import Fixed, unwrap

DRAWN_ROWS, CHUNK_ROWS = 8192, 2048  # rows times draws, at least, for the sums; rows at a time


def statistics(
    model: DeepGP, key: PRNGKeyArray, X: Float[Array, "N D"], y: Float[Array, "N P"], weights, num_samples: int
):
    """Return A A^T (M, M), A y (P, M), |y|^2 (P,) and the residual, sums over rows, averaged over the hidden draws."""
    model = unwrap(model)
    inputs = model.propagate(model.draw_noise(key, num_samples, X.shape[0]), X)[-1][0]
    return sums_over_rows(model, inputs, y, weights)


def sums_over_rows(model: DeepGP, inputs: Float[Array, "S N D"], y: Float[Array, "N P"], weights: Float[Array, " N"]):
    """Return the same for given inputs of the output layer of an unwrapped model."""
    layer, num_samples = model.output, len(inputs)
    weights = jnp.tile(weights.astype(jax.dtypes.canonicalize_dtype(jnp.float64)) / num_samples, num_samples)
    Z, H = layer.at(inputs.reshape(-1, inputs.shape[-1]))
    target = jnp.tile(y, (num_samples, 1)) - layer.mean_function(Z)
    gram, projected, left = layer.features.normal_equations(layer.kernel, H, target, weights)
    return gram, projected.T, weights @ target.astype(weights.dtype) ** 2, left


def optimum(gram: Float[Array, "M M"], projected: Float[Array, " M"]):
    """Return the mean and the covariance of the optimal q(v), for sums in units of the noise, and its divergence."""
    eye = jnp.eye(len(gram), dtype=gram.dtype)
    chol = jnp.linalg.cholesky(eye + gram)
    half = jax.scipy.linalg.solve_triangular(chol, eye, lower=True)
    covariance = half.T @ half
    mean = covariance @ projected
    log_det = 2 * jnp.sum(jnp.log(jnp.diagonal(chol)))
    return mean, covariance, 0.5 * (jnp.trace(covariance) + mean @ mean - len(mean) + log_det)


def without_output(model: DeepGP) -> DeepGP:
    """Return the model with the prior as q(v) of its output layer, not to be trained: sums over rows will say it."""
    layer = model.layers[-1]
    if not isinstance(layer, Layer):
        raise TypeError(f"the output layer in closed form must be a Layer, got {type(layer).__name__}; or use Elbo.")
    dtype, size = unwrap(layer.q).mean.dtype, layer.features.num_features
    prior = jax.tree.map(Fixed, MeanField.start((1, layer.num_outputs, size), 1.0, dtype))
    return eqx.tree_at(lambda m: m.layers[-1].q, model, prior)


def with_optimal_output(model: DeepGP, gram: Float[Array, "*P M M"], projected: Float[Array, "P M"]) -> DeepGP:
    """Return what `with_output` does, as a part of a larger program."""
    return eqx.tree_at(lambda m: m.layers[-1].q, model, optimal_output(model, gram, projected))


def with_output(model: DeepGP, gram: Array | np.ndarray, projected: Array | np.ndarray) -> DeepGP:
    """Return the model with the output layer's q(v) at its optimum for these sums."""
    return eqx.tree_at(lambda m: m.layers[-1].q, model, quickly_compiled(optimal_output)(model, gram, projected))


def optimal_output(model: DeepGP, gram: Float[Array, "*P M M"], projected: Float[Array, "P M"]) -> Full:
    """Return the optimal q(v) of the output layer for these sums, jointly over all features.

    Where rows differ in precision, it is relative to that of the usual noise, and outputs have their own matrices.
    """

    def optimum(Lam: Float[Array, "M M"], c: Float[Array, " M"]):
        """Return the mean, and the Cholesky factor of the covariance."""
        # Lam^-1 = J (J Lam J)^-1 J with J the reversal of rows: L^-T reversed twice is lower triangular.
        flipped = cholesky_of_sums(Lam[::-1, ::-1], rounding)
        root = jax.scipy.linalg.solve_triangular(flipped, eye, lower=True, trans=1)[::-1, ::-1]
        return root @ (root.T @ c), root

    model = unwrap(model)
    dtype = model.output.q.mean.dtype
    rounding = float(jnp.finfo(dtype).eps)  # of the features, and so of their products
    noise, eye = reference_noise(model), jnp.eye(gram.shape[-1], dtype=gram.dtype)
    mean, root = one_by_one(optimum)(eye + gram / noise[:, None, None], projected / noise[:, None])
    diagonal = jnp.diagonal(root, axis1=-2, axis2=-1)
    unit = jnp.swapaxes(root / diagonal[:, None], 0, 1)
    return Full(*(part[None].astype(dtype) for part in (mean, jnp.log(diagonal), unit)))


def with_output_from_rows(model: DeepGP, key: PRNGKeyArray, X: np.ndarray, y: np.ndarray) -> DeepGP:
    """Return the model with the output layer's q(v) in closed form from these rows and many draws of their inputs."""
    return with_output(model, *output_sums(model, key, X, y))


def output_sums(model: DeepGP, key: PRNGKeyArray, X: np.ndarray, y: np.ndarray) -> tuple:
    """Return what the output layer's q(v) needs to know of the rows, from many draws of the hidden layers."""
    rows, draws = min(len(X), CHUNK_ROWS), max(1, DRAWN_ROWS // len(X))
    exact = isinstance(model.likelihood, Gaussian) and not np.isnan(y).any()

    def sums(first: int):
        index = np.arange(first, first + rows)  # the last chunk is filled up with rows of weight 0
        chunk = tuple(a[np.minimum(index, len(X) - 1)] for a in (X, y))
        weights = (index < len(X)).astype(float)
        return _sums_of_chunk(model, jax.random.fold_in(key, first), *shared((chunk, weights)), draws, exact)

    return reduce(lambda a, b: jax.tree.map(jnp.add, a, b), map(sums, range(0, len(X), rows)))


@quickly_compiled
def _sums_of_chunk(model: DeepGP, key: PRNGKeyArray, rows: tuple, weights, num_samples: int, exact: bool):
    X, y = rows
    if exact:
        return statistics(model, key, X, y, weights, num_samples)[:2]
    return site_sums(model, key, X, y, weights, num_samples)


def sites(
    likelihood: AbstractLikelihood, y: Array, mean: Float[Array, "N F"], var: Float[Array, "N F"], offset: Any = 0.0
) -> tuple[Float[Array, "N F"], Float[Array, "N F"]]:
    """Return the precision of each row's site, and precision times value, for functions N(offset + mean, var)."""

    def total(mean, var):
        return jnp.sum(expected_log_prob(likelihood, y, mean + offset, var))

    by_mean, by_var = jax.grad(total, argnums=(0, 1))(mean, var)
    precision = jnp.maximum(-2 * by_var, jnp.abs(by_mean) / likelihood.reach)
    return precision, by_mean + precision * mean


def site_sums(
    model: DeepGP, key: PRNGKeyArray, X: Float[Array, "N D"], y: Float[Array, "N Q"], weights, num_samples: int
) -> tuple[Float[Array, "P M M"], Float[Array, "P M"]]:
    """Return both sums over the sites of these rows, in units of the usual noise, averaged over hidden draws."""
    model = unwrap(model)
    layer, noise = model.output, reference_noise(model)

    def one(key):
        inputs, mean, var = (part[0] for part in model.propagate(model.draw_noise(key, 1, X.shape[0]), X)[-1])
        Z, H = layer.at(inputs)
        offset = layer.mean_function(Z)
        A = layer.features.whitened(layer.kernel, H)
        of_rows = sites(model.likelihood_with(A, H), y, mean - offset, var, offset)
        precision, projected = ((noise * weights[:, None] * part).T for part in of_rows)
        return A.astype(noise.dtype), precision / num_samples, projected / num_samples

    num_samples = num_samples if len(model.layers) > 1 else 1
    draws = jax.lax.map(one, jax.random.split(key, num_samples))
    A, precision, projected = (jnp.moveaxis(part, 0, 1).reshape(part.shape[1], -1) for part in draws)  # rows of all
    return jax.lax.map(lambda each: (A * each) @ A.T, precision), projected @ A.T


def reference_noise(model: DeepGP) -> Float[Array, " P"]:
    """Return the usual noise variance of each output, in the widest precision that is switched on."""
    return model.likelihood.reference.astype(jax.dtypes.canonicalize_dtype(jnp.float64))
