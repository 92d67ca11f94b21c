"""Config -> model: the paper's recipes in one readable place.

Inner layers start with q(v) = N(0, 1e-5 I), almost deterministic copies of their linear mean functions;
the output layer with q(v) = N(0, I), its prior. Inducing points start at k-means centres.
"""

import warnings
from typing import Any

import equinox as eqx
import jax
import numpy as np
from scipy.cluster.vq import kmeans2

from overtone import kernels, likelihoods
from overtone.config import Config
from overtone.features import FourierFeatures, InducingPoints, PairProducts, PerDimension, PinnedFourierFeatures
from overtone.features.base import AbstractInducingFeatures
from overtone.features.fourier import these_of
from overtone.fine import FINE
from overtone.layers import GPLayer
from overtone.likelihoods.base import NOISE_FLOOR
from overtone.means import Linear, Zero, linear_weight
from overtone.model import DeepGP
from overtone.params import Fixed, Positive, unwrap
from overtone.scaling import Affine, Columns, Identity, Projection, WithWaves, directions, unit_interval
from overtone.spectrum import Start, noise_of_series, start_of_series
from overtone.variational import AbstractGaussian, Full, LowRank, MeanField

KERNELS = {
    "matern12": kernels.Matern12,
    "matern32": kernels.Matern32,
    "matern52": kernels.Matern52,
    "rbf": kernels.SquaredExponential,
}
LIKELIHOODS = {
    "gaussian": likelihoods.Gaussian,
    "flexible": likelihoods.FlexibleNoise,
    "student-t": likelihoods.StudentT,
    "heteroscedastic": likelihoods.Heteroscedastic,
    "poisson": likelihoods.Poisson,
    "bernoulli": likelihoods.Bernoulli,
    "softmax": likelihoods.Softmax,
}
INNER_VARIANCE, OUTER_VARIANCE = 1e-5, 1.0  # of q(v) at the start, as in the paper
LAYER_NOISE = 1e-5
MOST_DIRECTIONS, MOST_BLOCKS = 40, 200  # of a layer; blocks of a full covariance, one for each direction and unit
FEWEST_HIDDEN, MOST_HIDDEN, HIDDEN_EACH = 10, 16, 4  # units of a hidden layer; at most for each input
PAPER_INTERVAL = (-2.0, 3.0)
FIRST_INTERVAL, HIDDEN_INTERVAL = (-0.02, 1.02), (-0.5, 1.5)  # to start from; hidden layers move more
LENGTHSCALE, WAVES = 0.2, 4.0  # in units of the data's range, and of the shortest wave that the features carry
KMEANS_ROWS, START_ROWS = 20_000, 100_000  # at most, to find out where layers start
ADDED_VARIANCE = 0.1  # of functions with fine structure, and of pairs of inputs, at the start
PAIR_FREQUENCIES = 5  # along each input of a pair
RANK = 8  # of the correlated part of a low-rank covariance
LEAST_NOISE = 3e-9  # variance, of a series that is band-limited: the rounding of hundreds of waves in single precision
NOISE = 0.1  # variance, for a target of variance 1


def build(config: Config, X: np.ndarray, y: np.ndarray) -> DeepGP:
    """A model of the config, initialised for inputs X (N, D) and targets y (N, Q), standardised if they have units."""
    dtype = np.dtype(config.dtype)
    num_hidden = hidden_width(config, num_columns(config, X))
    start = series_start(config, X, y)
    likelihood = _likelihood(config, X, y, start, dtype)
    num_functions = jax.eval_shape(lambda: unwrap(likelihood).reference).shape[0]
    layers, H = [], np.asarray(X[:: 1 + len(X) // START_ROWS], float)
    for depth in range(config.num_layers):
        last = depth == config.num_layers - 1
        scaling = unit_interval(H if depth else X)
        if config.cycles and depth == 0:
            scaling = WithWaves(scaling, np.array(config.cycles))
        H = np.asarray(scaling(H))
        num_outputs = num_functions if last else num_hidden
        weight = linear_weight(H, num_outputs)
        mean = Zero(num_outputs) if last else Linear(Fixed(weight.astype(dtype)))
        num = num_directions(config, H.shape[1])
        features = _features(config, H, num, depth, dtype)
        layer = GPLayer(
            kernel=_kernel(config, num, start if last else None, dtype),
            features=features,
            q=_posterior(config, features, num_outputs, OUTER_VARIANCE if last else INNER_VARIANCE),
            mean_function=mean,
            scaling=scaling.fixed(dtype),
            noise=Fixed(np.zeros((), dtype)) if last else Positive(np.asarray(LAYER_NOISE, dtype)),
            projection=_projection(config, H, num, depth, dtype),
            added=_added(config, scaling.fixed(dtype), num_outputs, dtype) if depth == 0 and not last else None,
        )
        layers.append(layer)
        H = H @ weight
    return DeepGP(tuple(layers), likelihood)


def _added(config: Config, scaling: Affine | WithWaves, num_outputs: int, dtype: np.dtype) -> GPLayer | None:
    """What the first of several layers adds: functions of single inputs with fine structure, and of pairs of inputs."""
    kind, added = KERNELS[config.kernel_name], None

    def process(kernel: kernels.AbstractKernel, features: AbstractInducingFeatures, columns: tuple[int, ...]):
        shape = (features.num_blocks, num_outputs, features.num_features // features.num_blocks)
        q, noise = MeanField.start(shape, INNER_VARIANCE, dtype), Fixed(np.zeros((), dtype))
        return GPLayer(kernel, features, q, Zero(num_outputs), scaling, noise, Columns(columns), added)

    def waves(shape: tuple[int, ...], num: int) -> PinnedFourierFeatures:
        a, b = (Fixed(jax.device_put(np.full(shape, edge, dtype))) for edge in FIRST_INTERVAL)
        return PinnedFourierFeatures(a, b, num, kind.order)

    if num := len(config.pairs):
        one = Fixed(jax.device_put(np.ones((num, 2), dtype)))
        parts = kind(one, Positive(np.full((num, 2), LENGTHSCALE, dtype)))
        kernel = kernels.Products(Positive(np.full(num, ADDED_VARIANCE / num, dtype)), parts)
        columns = tuple(j for pair in config.pairs for j in pair)
        added = process(kernel, PairProducts(waves((num, 2), PAIR_FREQUENCIES), num), columns)
    if num := len(config.fine):
        variance, scale = (Positive(np.full(num, value, dtype)) for value in (ADDED_VARIANCE / num, WAVES / FINE))
        features = PerDimension(waves((num,), FINE), num)
        added = process(kernels.Additive(kind(variance, scale)), features, config.fine)
    return added


def _likelihood(config: Config, X: np.ndarray, y: np.ndarray, start: Start | None, dtype: np.dtype):
    noise = start.noise if start else NOISE
    if X.shape[1] == 1 and not start:
        noise = min(NOISE, max(*(noise_of_series(X[:, 0], target) for target in seen(config, y).T), 1e-4))
    kind, least = LIKELIHOODS[config.likelihood_name], LEAST_NOISE if config.limited else NOISE_FLOOR
    noise = max(noise, 1.1 * least)  # a spectrum without any noise asks for less than likelihoods can have
    if config.limited and kind is likelihoods.Gaussian:
        return likelihoods.Gaussian(Positive(np.full(y.shape[1], noise, dtype), lower=LEAST_NOISE))
    return kind.start(y, noise, num_features(config, num_columns(config, X)), dtype)


def seen(config: Config, y: np.ndarray) -> np.ndarray:
    """What can be seen in the targets of how fast the functions vary: columns of about unit variance, with gaps."""
    return LIKELIHOODS[config.likelihood_name].view(y)


def deepened(deep: DeepGP, shallow: DeepGP) -> DeepGP:
    """A deep model whose output layer and noise start from those of a trained shallow one."""
    output, trained = deep.layers[-1], shallow.layers[-1]

    def start_from(new, old):
        """The numbers of the trained array where it has any."""
        part = tuple(slice(min(sizes)) for sizes in zip(new.shape, old.shape, strict=True))
        values = np.array(new)
        values[part] = old[part]
        return jax.device_put(values)

    found = jax.tree.map(start_from, (output.kernel, output.projection), (trained.kernel, trained.projection))
    deep = eqx.tree_at(lambda m: (m.layers[-1].kernel, m.layers[-1].projection), deep, found)
    return eqx.tree_at(lambda m: m.likelihood, deep, jax.tree.map(start_from, deep.likelihood, shallow.likelihood))


def enlarged(larger: DeepGP, trained: DeepGP) -> DeepGP:
    """A model with more frequencies in each layer, otherwise alike, which starts from a trained one.

    Further waves start as they would anyway, and so does the output layer's q(v). What the waves leave of s(b) keeps
    its variables, although more waves leave less of it.
    """
    layers: Any = trained.layers[-1], larger.layers[-1]
    few, many = (layer.features.parts for layer in layers)
    ends = np.arange(few.order + 1)
    places = np.concatenate([ends, len(ends) + these_of(few, many), many.num_features - len(ends) + ends])

    def index(new: int, old: int) -> np.ndarray:
        """The trained numbers' places along an axis: of features, for one input or one after the other, or not."""
        first = many.num_features * np.arange(old // few.num_features)
        return np.arange(old) if new == old else (first[:, None] + places).ravel()

    def start_from(new, old):
        values = np.array(new)
        values[np.ix_(*map(index, new.shape, old.shape))] = old
        return jax.device_put(values)

    trained = eqx.tree_at(lambda m: m.layers[-1].q, trained, larger.layers[-1].q)
    leaves, structure = jax.tree.flatten(larger)
    return jax.tree.unflatten(structure, list(map(start_from, leaves, jax.tree.leaves(trained))))


def skeleton(config: Config, num_inputs: int, y: np.ndarray) -> DeepGP:
    """A model with the structure and shapes of one that was trained with a resolved config, for targets like y."""
    X = np.random.default_rng(0).random((len(y), num_inputs)).astype(config.dtype)
    model = build(config, X, y.astype(config.dtype))
    if config.output == "adam":
        return model
    output = model.layers[-1]
    joint = (1, output.num_outputs, output.features.num_features)  # as the closed form leaves it
    return eqx.tree_at(lambda m: m.layers[-1].q, model, Full.start(joint, OUTER_VARIANCE, np.dtype(config.dtype)))


def num_columns(config: Config, X: np.ndarray) -> int:
    """Of the first layer: the inputs, and a cosine and a sine of each wave of several of them."""
    return X.shape[1] + 2 * len(config.cycles)


def num_directions(config: Config, num_inputs: int) -> int:
    if config.fourier and config.n_projections is not None:
        return config.n_projections
    if not config.fourier or config.preset == "paper" or num_inputs == 1:
        return num_inputs
    return min(2 * num_inputs + 1, MOST_DIRECTIONS)


def hidden_width(config: Config, num_inputs: int) -> int:
    """Where directions are learned, as many units as can have full covariances, within limits."""
    if config.hidden_width is not None:
        return config.hidden_width
    if not config.pinned or num_inputs == 1:
        return min(num_inputs, FEWEST_HIDDEN)
    full = MOST_BLOCKS // num_directions(config, num_inputs)
    return min(HIDDEN_EACH * num_inputs, max(FEWEST_HIDDEN, min(full, MOST_HIDDEN)))


def num_features(config: Config, num_inputs: int) -> int:
    """Of the output layer."""
    if not config.fourier:
        return int(config.n_inducing)
    width = num_inputs if config.num_layers == 1 else hidden_width(config, num_inputs)
    ends = 0 if config.preset == "paper" else 2 * (KERNELS[config.kernel_name].order + 1)
    return num_directions(config, width) * (2 * int(config.n_inducing) + 1 + ends)


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
            return PerDimension(FourierFeatures(a, b, int(config.n_inducing)), num_dims)
        order = KERNELS[config.kernel_name].order
        return PerDimension(PinnedFourierFeatures(a, b, int(config.n_inducing), order, config.limited), num_dims)
    centres = kmeans_centres(H, int(config.n_inducing), config.random_state)
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


def series_start(config: Config, X: np.ndarray, y: np.ndarray) -> Start | None:
    """Where training should start, if the spectrum of a series can tell."""
    if X.shape[1] > 1 or not config.pinned:
        return None
    kind, num = KERNELS[config.kernel_name], int(config.n_inducing)
    return start_of_series(X[:, 0], seen(config, y), kind.order, num, config.limited)


def _kernel(config: Config, num_dims: int, start: Start | None, dtype: np.dtype) -> kernels.AbstractKernel:
    kind, lengthscale, variance = KERNELS[config.kernel_name], LENGTHSCALE, 1 / num_dims
    if start:
        lengthscale, variance = start.lengthscale, start.variance
    elif config.pinned:
        lengthscale = min(LENGTHSCALE, WAVES / int(config.n_inducing))
    lengthscales = Positive(np.full(num_dims, lengthscale, dtype))
    if config.fourier:
        return kernels.Additive(kind(Positive(np.full(num_dims, variance, dtype)), lengthscales))
    return kind(Positive(np.ones((), dtype)), lengthscales)
