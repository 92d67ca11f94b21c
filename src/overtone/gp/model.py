"""The deep GP: layers, likelihood, the evidence lower bound, prediction.

Doubly stochastic variational inference (Salimbeni and Deisenroth 2017): the posterior of each layer
depends on the layer below through its own row only, so a draw through the stack is
    h_l = mean_l(h_{l-1}) + sqrt(var_l(h_{l-1})) * eps_l,   eps_l ~ N(0, I),
and   ELBO = sum_n E[log p(y_n | f_n)] - sum_l KL(q(v_l) || p(v_l)).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.stats import qmc

from overtone.gp.layers import AbstractLayer, Layer
from overtone.gp.likelihoods.base import AbstractFamily, AbstractLikelihood, expected_log_prob
from overtone.gp.predictive.mixture import Mixture
from overtone.numerics.params import unwrap

START_ROWS = 100_000  # at most, to find out where layers start
VARIANCE_DRAWS = 4  # in prediction, for the variance of a joint posterior, which hardly differs from draw to draw


class PartKey(NamedTuple):
    """A key for some rows of a batch, which draws for them what they have as a part of the whole batch."""

    key: PRNGKeyArray
    first: Any  # of these rows
    batch_size: int  # of the whole


class DeepGP(eqx.Module):
    """A stack of GP layers under a likelihood. One layer is a shallow sparse variational GP.

    >>> import numpy as np, overtone as ot
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> layers = [ot.Layer(ot.Matern32(), ot.PinnedFourier(8)), ot.Layer(ot.Matern32(), ot.PinnedFourier(8))]
    >>> model = ot.DeepGP(layers, ot.Gaussian()).initialised(X, np.sign(X - 0.5))
    >>> len(model.layers), model.layers[0].num_outputs
    (2, 1)
    """

    layers: tuple[AbstractLayer, ...] = eqx.field(converter=tuple)
    likelihood: AbstractFamily

    def __check_init__(self):
        if not self.layers:
            raise ValueError("a DeepGP needs at least one layer.")

    @property
    def output(self) -> Layer:
        """The output layer, which is not a sum."""
        return self.layers[-1].main

    def initialised(self, X: np.ndarray, y: np.ndarray, *, seed: int = 0, dtype: Any = "float32") -> "DeepGP":
        """Return the model as training starts with it, for inputs X (N, D) and targets y (N,) or (N, Q).

        What was left open is filled in: scalings and mean functions from the inputs, pushed through the layers;
        shapes; parameters that were given as numbers; inducing points, intervals and directions.
        """
        X, y, dtype = np.asarray(X), columns(y), np.dtype(dtype)
        check_rows(X, y)
        rows = np.unique(np.concatenate([np.arange(0, len(X), 1 + len(X) // START_ROWS), X.argmin(0), X.argmax(0)]))
        num_functions, H, layers = self.likelihood.num_functions(y), np.asarray(X[rows], float), []
        if not np.all(np.isfinite(H)):
            raise ValueError("X must be finite numbers; got NaN or infinity.")
        with jax.enable_x64(True):
            for depth, layer in enumerate(self.layers):
                last = depth == len(self.layers) - 1
                num_outputs = num_functions if last else layer.main.outputs or H.shape[1]
                settings: Any = {"first": depth == 0, "last": last, "seed": seed + depth, "dtype": dtype}
                ready, H = layer.initialised(H, num_outputs, **settings)
                layers.append(ready)
            num_features = layers[-1].main.features.num_features
            return DeepGP(layers, self.likelihood.initialised(y, num_features, dtype))

    @property
    def hidden_widths(self) -> tuple[int, ...]:
        return tuple(layer.num_outputs for layer in self.layers[:-1])

    def draw_noise(self, key: PRNGKeyArray | PartKey, num_samples: int, num_rows: int) -> list[Array]:
        """Return independent standard normal draws for every sample, row and hidden unit."""
        key, first, batch_size = key if isinstance(key, PartKey) else PartKey(key, 0, num_rows)
        dtype = self.layers[0].main.q.mean.dtype
        whole = (
            jax.random.normal(jax.random.fold_in(key, i), (num_samples, batch_size, width), dtype)
            for i, width in enumerate(self.hidden_widths)
        )
        return [jax.lax.dynamic_slice_in_dim(draws, first, num_rows, axis=1) for draws in whole]

    def propagate(
        self, noise: Sequence[Float[Array, "S #N _"]], X: Float[Array, "N D"], variance_draws: int | None = None
    ) -> list[tuple[Float[Array, "#S N _"], Float[Array, "#S N _"], Float[Array, "#S N _"]]]:
        """Return each layer's inputs, drawn through the layers below, and its mean and variance there.

        noise[l] holds the standard normal draws for hidden layer l, for S samples and for each row, or
        with N = 1 the same draw for every row. With `variance_draws`, a joint posterior of the last layer, whose
        variance would take nearly all the time, has one variance for all draws of a row: the mean over the first ones.
        """
        H, marginals = X[None], []
        for layer, eps in zip(self.layers, (*noise, None), strict=True):
            flat = H.reshape(-1, H.shape[-1])
            if eps is None and variance_draws is not None and layer.main.is_joint:
                mean, (_, var) = layer.main.mean(flat), layer(flat[: variance_draws * X.shape[0]])
                mean, var = (m.reshape(-1, X.shape[0], m.shape[-1]) for m in (mean, var))
                var = jnp.broadcast_to(jnp.mean(var, axis=0), mean.shape)
            else:
                mean, var = (m.reshape(*H.shape[:2], -1) for m in layer(flat))
            marginals.append((H, mean, var))
            if eps is not None:
                H = mean + jnp.sqrt(var) * eps
        return marginals

    def likelihood_at(self, inputs: Float[Array, "S N D"]) -> AbstractLikelihood:
        """Return the likelihood of rows with these inputs of the output layer."""

        def project(weights: Float[Array, "K M"]) -> Float[Array, "K R"]:
            _, H = self.output.at(inputs.reshape(-1, inputs.shape[-1]))
            return self.output.features.project(self.output.kernel, weights, H) / jnp.sqrt(self.output.kernel.diag(H))

        return self.likelihood.at(project, inputs.shape[:-1])

    def likelihood_with(self, A: Float[Array, "M R"], H: Float[Array, "R J"]) -> AbstractLikelihood:
        """Return the likelihood of rows with these inputs and whitened features of the output layer."""
        return self.likelihood.at(lambda weights: weights @ A / jnp.sqrt(self.output.kernel.diag(H)), A.shape[1:])

    def kl(self) -> Float[Array, ""]:
        """Return the divergence of all layers and of the likelihood's own functions."""
        return jnp.sum(jnp.stack([layer.kl() for layer in self.layers])) + self.likelihood.kl()


def elbo(
    model: DeepGP, key: PRNGKeyArray, X: Float[Array, "N D"], y: Float[Array, "N Q"], *, num_data: Any, num_samples=1
) -> Float[Array, ""]:
    """Return an unbiased estimate of the evidence lower bound of `num_data` rows from a minibatch of N."""
    model = unwrap(model)
    noise = model.draw_noise(key, num_samples, X.shape[0])
    inputs, mean, var = model.propagate(noise, X)[-1]
    fit = jnp.sum(jnp.mean(expected_log_prob(model.likelihood_at(inputs), y, mean, var), axis=0))
    return num_data / X.shape[0] * fit - model.kl()


def layer_marginals(model: DeepGP, key: PRNGKeyArray, X: Float[Array, "N D"], *, num_samples: int) -> list[Mixture]:
    """Return the predictive distribution of every layer's function; the last is that of f itself."""
    return [Mixture(mean, var) for _, mean, var in _shared_passes(unwrap(model), key, X, num_samples)]


def _shared_passes(model: DeepGP, key: PRNGKeyArray, X: Float[Array, "N D"], num_samples: int) -> list[tuple]:
    """Draw through the layers for prediction.

    All rows share the hidden draws of a sample, so the result at a row depends neither on the other
    rows nor on their order, and is smooth in x. Each row sees S quasi-random draws.
    """
    widths = model.hidden_widths
    eps = quasi_normal(key, num_samples if widths else 1, sum(widths), X.dtype)
    return model.propagate(jnp.split(eps[:, None], np.cumsum(widths, dtype=int), axis=-1)[:-1], X, VARIANCE_DRAWS)


def predict(
    model: DeepGP, key: PRNGKeyArray, X: Float[Array, "N D"], *, num_samples: int, offset: Array | float = 0.0
) -> Any:
    """Return the predictive distribution of y: a `Mixture`, `Counts` or `Classes`.

    An offset (N, 1) is added to the functions, such as the log of an exposure.
    """
    model = unwrap(model)
    inputs, mean, var = _shared_passes(model, key, X, num_samples)[-1]
    return model.likelihood_at(inputs).predictive(mean + offset, var)


def log_density(
    model: DeepGP, key: PRNGKeyArray, X: Float[Array, "N D"], y: Float[Array, "N Q"], *, num_samples: int
) -> Float[Array, "N P"]:
    """Return log p(y) for each row and output: logsumexp over draws of the hidden layers; NaN where y is missing."""
    model = unwrap(model)
    inputs, mean, var = _shared_passes(model, key, X, num_samples)[-1]
    each = model.likelihood_at(inputs).log_predictive(jnp.nan_to_num(y), mean, var)
    whole = jax.nn.logsumexp(each, axis=0) - jnp.log(each.shape[0])
    return jnp.where(jnp.isnan(y[:, : whole.shape[1]]), jnp.nan, whole)


def draw(model: DeepGP, key: PRNGKeyArray, row_key: PRNGKeyArray, X: Float[Array, "N D"]) -> list[tuple]:
    """Return one function through all layers, under the posterior: the inputs and the values of each layer.

    Calls with the same `key` share the function; `row_key` is for what is drawn row by row.
    """
    keys = (jax.random.split(k, len(model.layers)) for k in (key, row_key))
    return _through(unwrap(model), X, lambda layer, H, keys: layer.draw(*keys, H), zip(*keys, strict=True))


def draw_prior(model: DeepGP, key: PRNGKeyArray, X: Float[Array, "N D"]) -> list[tuple]:
    """Return one function through all layers, under the prior: the inputs and the values of each layer."""
    keys = jax.random.split(key, len(model.layers))
    return _through(unwrap(model), X, lambda layer, H, key: layer.draw_prior(key, H), keys)


def _through(model: DeepGP, H: Float[Array, "N D"], draw_layer: Callable, keys: Iterable) -> list[tuple]:
    passes = []
    for layer, key in zip(model.layers, keys, strict=True):
        passes.append((H, draw_layer(layer, H, key)))
        H = passes[-1][1]
    return passes


def quasi_normal(key: PRNGKeyArray, num: int, dim: int, dtype) -> Float[Array, "num dim"]:
    """Return even standard normal draws: a Sobol sequence with a random digital shift, and its mirror image.

    With two draws for each dimension or more, their mean is 0 and their covariance I, so that the mean of whatever is
    quadratic in them is exact.
    """
    if dim == 0:
        return jnp.zeros((num, 0), dtype)
    distinct = num if dim == 1 else -(-num // 2)  # on a line, mirror images may fall on one another
    sobol = qmc.Sobol(dim, scramble=False, bits=30).random_base2((distinct - 1).bit_length())[:distinct]
    digits = jnp.asarray((sobol * 2**30).astype(np.uint32))
    shift = jax.random.bits(key, (dim,), jnp.uint32) >> 2
    uniform = ((digits ^ shift).astype(dtype) + 0.5) / 2**30
    edge = jnp.finfo(dtype).eps
    eps = jax.scipy.special.ndtri(jnp.clip(uniform, edge, 1 - edge))
    if dim > 1:
        eps = jnp.stack([eps, -eps], axis=1).reshape(-1, dim)[:num]
    return eps if num < 2 * dim else num**0.5 * jnp.linalg.qr(eps - jnp.mean(eps, axis=0))[0]


def check_rows(X: Any, y: Any, name: str = "y") -> None:
    """Raise an error unless X is rows (N, D), at least one of them, and y has as many."""
    if len(X.shape) != 2:
        raise ValueError(f"X must have rows and columns, got shape {X.shape}; one column is X[:, None].")
    if len(X) == 0:
        raise ValueError("X has no rows.")
    if len(X) != len(y):
        raise ValueError(f"X and {name} must have the same rows; got {len(X)} in X and {len(y)} in {name}.")


def columns(y: Any) -> np.ndarray:
    """Return targets as an array (N, Q)."""
    y = np.asarray(y)
    return y[:, None] if y.ndim == 1 else y
