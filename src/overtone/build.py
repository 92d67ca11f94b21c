"""Config -> model and training: the paper's recipes in one readable place.

Inner layers start with q(v) = N(0, 1e-5 I), almost deterministic copies of their linear mean functions;
the output layer with q(v) = N(0, I), its prior. Inducing points start at k-means centres.
"""

import warnings
from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.tree_util import Partial
from scipy.cluster.vq import kmeans2

from overtone import kernels
from overtone.collapsed import collapsed_elbo, with_optimal_output
from overtone.config import Config
from overtone.data import Batches
from overtone.features import FourierFeatures, InducingPoints, PerDimension, PinnedFourierFeatures
from overtone.features.base import AbstractInducingFeatures
from overtone.fit import History, fit
from overtone.layers import GPLayer
from overtone.likelihoods import Gaussian
from overtone.means import Linear, Zero, linear_weight
from overtone.model import DeepGP, elbo
from overtone.params import Fixed, Positive, unwrap
from overtone.scaling import unit_interval
from overtone.variational import AbstractGaussian, Full, LowRank, MeanField

KERNELS = {
    "matern12": kernels.Matern12,
    "matern32": kernels.Matern32,
    "matern52": kernels.Matern52,
    "rbf": kernels.SquaredExponential,
}
INNER_VARIANCE, OUTER_VARIANCE = 1e-5, 1.0  # of q(v) at the start, as in the paper
LAYER_NOISE = 1e-5
OUTPUT_DRAWS = 16  # of the hidden layers, to fix the closed-form output layer after training
MAX_HIDDEN = 30
PAPER_INTERVAL = (-2.0, 3.0)
FIRST_INTERVAL, HIDDEN_INTERVAL = (-0.02, 1.02), (-0.5, 1.5)  # to start from; hidden layers move more
LENGTHSCALE = 0.2  # in units of the data's range
KMEANS_ROWS, START_ROWS = 20_000, 100_000  # at most, to find out where layers start
RANK = 8  # of the correlated part of a low-rank covariance
NOISE, NOISE_FLOOR = 0.1, 1e-6  # of the likelihood, for a target of variance 1


def build(config: Config, X: np.ndarray, y: np.ndarray) -> DeepGP:
    """A model of the config, initialised for inputs X (N, D) and standardised targets y (N, P)."""
    dtype = np.dtype(config.dtype)
    num_hidden = config.hidden_width or min(X.shape[1], MAX_HIDDEN)
    layers, H = [], np.asarray(X[:: 1 + len(X) // START_ROWS], float)
    for depth in range(config.num_layers):
        last = depth == config.num_layers - 1
        scaling = unit_interval(H if depth else X)
        H = scaling(H)
        num_outputs = y.shape[1] if last else num_hidden
        weight = linear_weight(H, num_outputs)
        features = _features(config, H, depth, dtype)
        layer = GPLayer(
            kernel=_kernel(config, H.shape[1], dtype),
            features=features,
            q=_posterior(config, features, num_outputs, OUTER_VARIANCE if last else INNER_VARIANCE),
            mean_function=Zero(num_outputs) if last else Linear(Fixed(weight.astype(dtype))),
            scaling=scaling.fixed(dtype),
            noise=Fixed(np.zeros((), dtype)) if last else Positive(np.asarray(LAYER_NOISE, dtype)),
        )
        layers.append(layer)
        H = H @ weight
    noise = Positive(np.full(y.shape[1], NOISE, dtype), lower=NOISE_FLOOR)
    return DeepGP(tuple(layers), Gaussian(noise))


def train(config: Config, X: np.ndarray, y: np.ndarray, *, progress: bool = False) -> tuple[DeepGP, History]:
    """Build the config's model and fit it to X (N, D) and standardised y (N, P).

    Call it under `jax.enable_x64(True)`: arrays keep the config's precision, and the closed-form output
    layer can use double precision for its one linear system.
    """
    X, y = (np.asarray(values, config.dtype) for values in (X, y))
    collapsed = config.output == "collapsed" or (config.output == "auto" and len(X) <= config.batch_size)
    if collapsed:
        loss = Partial(negative_collapsed, num_samples=config.n_samples)
    else:
        loss = Partial(negative_elbo, num_data=len(X), num_samples=config.n_samples)
    key = jax.random.key(config.random_state)
    model, history = fit(
        build(config, X, y),
        loss,
        Batches(X, y, batch_size=len(X) if collapsed else config.batch_size, seed=config.random_state),
        key=key,
        optim=adam(config.learning_rate, config.max_steps),
        steps=config.max_steps,
        describe=_describe,
        progress=progress,
    )
    if collapsed:
        model = _finish(model, key, X, y)
    return model, history


def negative_elbo(model: DeepGP, key, X, y, *, num_data: int, num_samples: int):
    """The loss: minus the evidence lower bound per row."""
    return -elbo(model, key, X, y, num_data=num_data, num_samples=num_samples) / num_data


def negative_collapsed(model: DeepGP, key, X, y, *, num_samples: int):
    """The loss with the output layer in closed form."""
    return -collapsed_elbo(model, key, X, y, num_samples=num_samples) / len(X)


@eqx.filter_jit
def _finish(model: DeepGP, key, X, y) -> DeepGP:
    return with_optimal_output(model, key, X, y, num_samples=OUTPUT_DRAWS)


def _describe(model: DeepGP, loss: float) -> dict[str, str]:
    at_zero = jnp.zeros((1, model.layers[-1].num_outputs))
    _, noise = unwrap(model.likelihood).moments(at_zero, at_zero)
    return {"ELBO/N": f"{-loss:.3f}", "noise": f"{np.sqrt(np.mean(noise)):.3f}"}


@lru_cache(maxsize=64)  # one object for each setting, so that the compiled training loop is shared
def adam(learning_rate: float, steps: int) -> optax.GradientTransformation:
    """Adam with a short warm-up and a cosine decay to a hundredth."""
    schedule = optax.warmup_cosine_decay_schedule(0.0, learning_rate, min(100, steps // 10), steps, learning_rate / 100)
    return optax.adam(schedule)


def _features(config: Config, H: np.ndarray, depth: int, dtype: np.dtype) -> AbstractInducingFeatures:
    num_dims = H.shape[1]
    if config.fourier:
        paper = config.preset == "paper"
        interval = config.interval or (PAPER_INTERVAL if paper else FIRST_INTERVAL if depth == 0 else HIDDEN_INTERVAL)
        a, b = (jax.device_put(np.full(num_dims, edge, dtype)) for edge in interval)
        if config.interval or paper or depth == 0:
            a, b = Fixed(a), Fixed(b)
        if paper:
            return PerDimension(FourierFeatures(a, b, config.n_inducing), num_dims)
        order = KERNELS[config.kernel_name].order
        return PerDimension(PinnedFourierFeatures(a, b, config.n_inducing, order), num_dims)
    centres = kmeans_centres(H, config.n_inducing, config.random_state)
    return InducingPoints(jax.device_put(centres.astype(dtype)))


def _posterior(
    config: Config, features: AbstractInducingFeatures, num_outputs: int, variance: float
) -> AbstractGaussian:
    num_blocks = 1 if config.covariance == "joint" else features.num_blocks
    shape = (num_blocks, num_outputs, features.num_features // num_blocks)
    dtype = np.dtype(config.dtype)
    if config.covariance == "low-rank":
        return LowRank.start(shape, variance, dtype, RANK)
    return (MeanField if config.covariance == "mean-field" else Full).start(shape, variance, dtype)


def kmeans_centres(X: np.ndarray, num: int, seed: int) -> np.ndarray:
    """`num` k-means centres of the rows of X, filled up by random rows where clusters come out empty."""
    rng = np.random.default_rng(seed)
    X = X[rng.permutation(len(X))[:KMEANS_ROWS]]
    start = X[rng.choice(len(X), num, replace=len(X) < num)]
    start = start + 1e-3 * rng.standard_normal(start.shape)  # no two centres are the same
    with warnings.catch_warnings(action="ignore"):  # about empty clusters, which are handled here
        centres, label = kmeans2(X, start, minit="matrix", missing="warn", iter=20)
    used = np.isin(np.arange(num), label)
    return np.where(used[:, None], centres, start)


def _kernel(config: Config, num_dims: int, dtype: np.dtype) -> kernels.AbstractKernel:
    kind = KERNELS[config.kernel_name]
    lengthscale = Positive(np.full(num_dims, LENGTHSCALE, dtype))
    if config.fourier:
        return kernels.Additive(kind(Positive(np.full(num_dims, 1 / num_dims, dtype)), lengthscale))
    return kind(Positive(np.ones((), dtype)), lengthscale)
