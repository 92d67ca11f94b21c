"""Config -> model and training: the paper's recipes in one readable place.

Inner layers start with q(v) = N(0, 1e-5 I), almost deterministic copies of their linear mean functions;
the output layer with q(v) = N(0, I), its prior. Inducing points start at k-means centres.
"""

import warnings
from functools import lru_cache, reduce

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.tree_util import Partial
from scipy.cluster.vq import kmeans2

from overtone import kernels
from overtone.collapsed import collapsed_elbo, statistics, with_optimal_output
from overtone.config import Config
from overtone.data import Batches
from overtone.features import FourierFeatures, InducingPoints, PerDimension, PinnedFourierFeatures
from overtone.features.base import AbstractInducingFeatures
from overtone.fit import History, fit
from overtone.layers import GPLayer
from overtone.likelihoods import Gaussian
from overtone.means import Linear, Zero, linear_weight
from overtone.model import DeepGP, elbo
from overtone.natural import OutputMemory, natural_elbo
from overtone.params import Fixed, Positive, unwrap
from overtone.scaling import Identity, Projection, directions, unit_interval
from overtone.variational import AbstractGaussian, Full, LowRank, MeanField

KERNELS = {
    "matern12": kernels.Matern12,
    "matern32": kernels.Matern32,
    "matern52": kernels.Matern52,
    "rbf": kernels.SquaredExponential,
}
INNER_VARIANCE, OUTER_VARIANCE = 1e-5, 1.0  # of q(v) at the start, as in the paper
LAYER_NOISE = 1e-5
OUTPUT_ROWS, FINISH_ROWS = 8192, 2048  # rows times draws, at least, to fix the output layer; rows at a time
MOST_FEATURES = 3000  # whose joint covariance is still affordable
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
        num_directions = _num_directions(config, H.shape[1])
        features = _features(config, H, num_directions, depth, dtype)
        layer = GPLayer(
            kernel=_kernel(config, num_directions, dtype),
            features=features,
            q=_posterior(config, features, num_outputs, OUTER_VARIANCE if last else INNER_VARIANCE),
            mean_function=Zero(num_outputs) if last else Linear(Fixed(weight.astype(dtype))),
            scaling=scaling.fixed(dtype),
            noise=Fixed(np.zeros((), dtype)) if last else Positive(np.asarray(LAYER_NOISE, dtype)),
            projection=_projection(config, H, num_directions, depth, dtype),
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
    model, memory, output = build(config, X, y), None, config.output
    if output == "auto":
        many = model.layers[-1].features.num_features > MOST_FEATURES
        by_steps = "adam" if many or config.preset == "paper" else "natural"
        output = "collapsed" if len(X) <= config.batch_size else by_steps
    if output == "collapsed":
        loss = Partial(negative_collapsed, num_samples=config.n_samples)
    elif output == "natural":
        loss = Partial(negative_natural, num_data=len(X), num_samples=config.n_samples)
        memory = OutputMemory.start(model)
    else:
        loss = Partial(negative_elbo, num_data=len(X), num_samples=config.n_samples)
    key = jax.random.key(config.random_state)
    model, history = fit(
        model,
        loss,
        Batches(X, y, batch_size=len(X) if output == "collapsed" else config.batch_size, seed=config.random_state),
        key=key,
        optim=adam(config.rate, config.max_steps),
        steps=config.max_steps,
        memory=memory,
        describe=_describe,
        progress=progress,
    )
    if output != "adam":
        model = _finish(model, key, X, y)
    return model, history


def negative_elbo(model: DeepGP, memory: None, key, X, y, *, num_data: int, num_samples: int):
    """The loss: minus the evidence lower bound per row."""
    return -elbo(model, key, X, y, num_data=num_data, num_samples=num_samples) / num_data, memory


def negative_collapsed(model: DeepGP, memory: None, key, X, y, *, num_samples: int):
    """The loss with the output layer in closed form."""
    return -collapsed_elbo(model, key, X, y, num_samples=num_samples) / len(X), memory


def negative_natural(model: DeepGP, memory: OutputMemory, key, X, y, *, num_data: int, num_samples: int):
    """The loss with the output layer by natural gradients."""
    bound, memory = natural_elbo(model, memory, key, X, y, num_data=num_data, num_samples=num_samples)
    return -bound / num_data, memory


def _finish(model: DeepGP, key, X: np.ndarray, y: np.ndarray) -> DeepGP:
    """The output layer's q(v) in closed form, from all rows and many draws of the hidden layers."""
    rows, draws = min(len(X), FINISH_ROWS), max(1, OUTPUT_ROWS // len(X))

    def sums(first: int):
        place = np.arange(first, first + rows)  # the last chunk is filled up with rows of weight 0
        chunk = (a[np.minimum(place, len(X) - 1)] for a in (X, y))
        return _output_sums(model, jax.random.fold_in(key, first), tuple(chunk), (place < len(X)).astype(float), draws)

    return eqx.filter_jit(with_optimal_output)(
        model, *reduce(lambda a, b: jax.tree.map(np.add, a, b), map(sums, range(0, len(X), rows)))
    )


@eqx.filter_jit
def _output_sums(model: DeepGP, key, rows: tuple, weights, num_samples: int):
    X, y = rows
    return statistics(model, key, X, y, weights, num_samples=num_samples)[:2]


def _describe(model: DeepGP, loss: float) -> dict[str, str]:
    at_zero = jnp.zeros((1, model.layers[-1].num_outputs))
    _, noise = unwrap(model.likelihood).moments(at_zero, at_zero)
    return {"ELBO/N": f"{-loss:.3f}", "noise": f"{np.sqrt(np.mean(noise)):.3f}"}


@lru_cache(maxsize=64)  # one object for each setting, so that the compiled training loop is shared
def adam(learning_rate: float, steps: int) -> optax.GradientTransformation:
    """Adam with a short warm-up and a cosine decay to a hundredth."""
    schedule = optax.warmup_cosine_decay_schedule(0.0, learning_rate, min(100, steps // 10), steps, learning_rate / 100)
    return optax.adam(schedule)


def _num_directions(config: Config, num_inputs: int) -> int:
    if config.fourier and config.n_projections is not None:
        return config.n_projections
    return 2 * num_inputs + 1 if config.fourier and config.preset != "paper" and num_inputs > 1 else num_inputs


def _projection(config: Config, H: np.ndarray, num: int, depth: int, dtype: np.dtype) -> Identity | Projection:
    if num == H.shape[1]:
        return Identity()
    return Projection(jax.device_put(directions(H, num, config.random_state + depth).astype(dtype)))


def _features(config: Config, H: np.ndarray, num_dims: int, depth: int, dtype: np.dtype) -> AbstractInducingFeatures:
    if config.fourier:
        paper = config.preset == "paper"
        interval = config.interval or (PAPER_INTERVAL if paper else FIRST_INTERVAL if depth == 0 else HIDDEN_INTERVAL)
        a, b = (jax.device_put(np.full(num_dims, edge, dtype)) for edge in interval)
        if config.interval or paper or (depth == 0 and num_dims == H.shape[1]):
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
