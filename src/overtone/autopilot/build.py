"""A plan and data -> a model that is ready to be trained. It only builds: all was decided before."""

from typing import Any

import equinox as eqx
import jax
import numpy as np

from overtone.autopilot.names import COVARIANCES, FEATURES, KERNELS, LIKELIHOODS, OBJECTIVES, part
from overtone.autopilot.policies import BAND_LIMIT, FINE, START
from overtone.autopilot.record import Plan
from overtone.gp.features import BandLimited, PinnedFourier
from overtone.gp.layers import AbstractLayer, Layer, SumOfLayers
from overtone.gp.likelihoods import AbstractFamily, AbstractNoise, FlexibleNoise, Gaussian
from overtone.gp.maps import Affine, Columns, Identity, Projection
from overtone.gp.model import DeepGP
from overtone.gp.variational import MeanField
from overtone.inference.objective import AbstractObjective, KLWeights
from overtone.numerics.params import Positive


def build(plan: Plan, X: np.ndarray, y: np.ndarray) -> DeepGP:
    """Return the deepest model of a plan, initialised for inputs X (N, D) in [0, 1] and targets y (N, Q).

    These may be a part of the rows that it is for.
    """
    widths = X.shape[1], *[plan.hidden_width] * (plan.num_layers - 1)
    layers = [_layer(plan, depth, num_inputs) for depth, num_inputs in enumerate(widths)]
    return DeepGP(layers, _likelihood(plan)).initialised(X, y, seed=plan.seed, dtype=plan.dtype)


def _layer(plan: Plan, depth: int, num_inputs: int) -> AbstractLayer:
    last, num = depth == plan.num_layers - 1, plan.directions[min(depth, 1)]
    lengthscale, variance = plan.lengthscale, 1.0
    if last and plan.start:
        lengthscale, variance = plan.start.lengthscale, plan.start.variance * num
    layer = Layer(
        part(KERNELS, plan.kernel)(variance, lengthscale),
        _features(plan),
        None if last else plan.hidden_width,
        q=part(COVARIANCES, plan.covariance),
        scaling=None if depth else _no_scaling(num_inputs),
        projection=Identity() if num == num_inputs else Projection(num),
    )
    if depth or last or not plan.fine_inputs:
        return layer
    return SumOfLayers((layer, _fine_layer(plan, num_inputs)))


def _no_scaling(num_inputs: int) -> Affine:
    return Affine(np.zeros(num_inputs), np.ones(num_inputs))


def _features(plan: Plan) -> Any:
    kind, num = part(FEATURES, plan.features), plan.num_inducing
    if plan.features == "points":
        return kind(num)
    features = kind(num) if plan.interval is None else kind(num, a=plan.interval[0], b=plan.interval[1])
    return BandLimited(features) if plan.band_limited else features


def _fine_layer(plan: Plan, num_inputs: int) -> Layer:
    """Return the sum of functions of single inputs with many frequencies, which are added to the first layer."""
    kernel = part(KERNELS, plan.kernel)(FINE.variance, START.waves / FINE.frequencies)
    features, columns = PinnedFourier(FINE.frequencies), Columns(plan.fine_inputs)
    return Layer(kernel, features, q=MeanField, scaling=_no_scaling(num_inputs), projection=columns)


def _likelihood(plan: Plan) -> AbstractFamily:
    kind = part(LIKELIHOODS, plan.likelihood)
    if kind is Gaussian and plan.band_limited:
        return Gaussian(plan.noise, BAND_LIMIT.least_noise)
    noise = (plan.noise,) if issubclass(kind, AbstractNoise | FlexibleNoise) else ()
    return kind(*noise)


def objective(plan: Plan) -> AbstractObjective:
    """Return what a plan maximises."""
    return part(OBJECTIVES, plan.output)(plan.num_samples, KLWeights(plan.kl_anneal_steps, plan.kl_addends))


def deepened(deep: DeepGP, shallow: DeepGP) -> DeepGP:
    """Return a deep model whose output layer and noise start from those of a trained shallow one."""
    output, trained = deep.output, shallow.output

    def start_from(new, old):
        """Return the numbers of the trained array where it has any."""
        overlap = tuple(slice(min(sizes)) for sizes in zip(new.shape, old.shape, strict=True))
        values = np.array(new)
        values[overlap] = old[overlap]
        return jax.device_put(values)

    parts = jax.tree.map(start_from, (output.kernel, output.projection), (trained.kernel, trained.projection))
    deep = eqx.tree_at(lambda m: (m.layers[-1].kernel, m.layers[-1].projection), deep, parts)
    return eqx.tree_at(lambda m: m.likelihood, deep, jax.tree.map(start_from, deep.likelihood, shallow.likelihood))


def with_scales(model: DeepGP, scale: float, noise: np.ndarray) -> DeepGP:
    """Return a band-limited model with its kernel's variance times a factor, and with this noise."""
    variance: Positive = model.output.kernel.parts.variance  # type: ignore[attr-defined]
    scaled = Positive((scale * np.asarray(variance.unwrap())).astype(variance.log.dtype))
    likelihood = Gaussian(
        Positive(noise.astype(variance.log.dtype), lower=BAND_LIMIT.least_noise), BAND_LIMIT.least_noise
    )
    return eqx.tree_at(lambda m: (m.layers[0].kernel.parts.variance, m.likelihood), model, (scaled, likelihood))
