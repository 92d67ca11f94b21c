"""Noise that varies with the inputs, and noise with heavy tails, from what a fitted layer leaves of its own rows.

Rows are left out of q one by one, in closed form. With the mean and the variance s of f at a row, and its noise n,
    r = (y - mean) / (1 - s / n)  ~  N(0, c + exp(h)),   c = s / (1 - s / n),
where h(x), the log of the noise, is a number plus a GP that is known through the leading components of the layer's own
features: h = b + P z, with z ~ N(0, I). Fisher's scoring finds the most probable z, and Laplace's approximation of the
evidence how large and how smooth h is.

No h is known exactly, and noise may have heavier tails than a Gaussian: h + d e with e ~ N(0, 1), on the three nodes of
a Gauss-Hermite rule, makes three Gaussians of it. What is needed of all this, folds of rows decide that neither q nor h
has seen.
"""

from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from overtone.gp.likelihoods import FlexibleNoise, Gaussian
from overtone.gp.likelihoods.noise import NOISE_FLOOR
from overtone.gp.model import DeepGP
from overtone.inference.output_layer import with_output_from_rows
from overtone.numerics.compiling import quickly_compiled
from overtone.numerics.params import unwrap

MAX_COMPONENTS = 100  # of the features, for the log of the noise
Shapes = tuple[tuple[float, float], ...]  # of h a priori: its standard deviation, and a power of components' variances
SHAPES: Shapes = tuple(product((0.3, 0.6, 1.0, 1.5), (1.0, 2.0)))
LEVEL_DEVIATION = 2.0  # of b about the log of the mean square, a priori
MAX_STEPS, MAX_LEVERAGE, SHIFTS = 20, 0.99, (-1.0, 2.0)
ROUNDS = 3  # q and the noise depend on each other
NODES, WEIGHTS = np.sqrt(3.0) * np.array([-1.0, 0.0, 1.0]), np.array([1.0, 4.0, 1.0]) / 6  # of e
DEVIATIONS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5)  # d
NUM_FOLDS, MAX_FOLD_PRODUCTS = 5, 1e10  # folds that are tried, and multiplications that more than one may take


def with_varying_noise(
    model: DeepGP,
    key: PRNGKeyArray,
    X: np.ndarray,
    y: np.ndarray,
    *,
    refitted: Callable[[np.ndarray], DeepGP] | None = None,
    min_nats: float = 3.0,
    standard_errors: float = 2.5,  # outliers that lie together reach 2.3
) -> tuple[DeepGP, np.ndarray]:
    """Return a model of one layer, known at these rows, with the noise that they ask for, and the nats it gains.

    These are (R, P), of each output at rows that folds leave out. Noise that varies, or else tails heavier than those
    of a Gaussian, have to gain a least number, and some standard errors of their sum, for all outputs together.

    refitted: the model with the hyperparameters that some of the rows ask for. Without it, folds have those of all
        rows, which know the rows that are left out: few rows and many hyperparameters make the noise too small.
    """
    if len(model.layers) > 1 or not isinstance(model.likelihood, Gaussian) or np.isnan(y).any():
        raise TypeError("with_varying_noise needs one layer, a Gaussian likelihood and complete targets.")

    def pays(noises: list[Tested], others: list[Tested]) -> bool:
        gains = np.sum(gained(noises, others), axis=1)
        return bool(np.sum(gains) >= max(min_nats, standard_errors * np.std(gains) * len(gains) ** 0.5))

    layer = known_layer(model, X)
    targets = [np.asarray(target, float) for target in (y - layer.offset).T]
    several = NUM_FOLDS * len(X) * len(layer.A) ** 2 < MAX_FOLD_PRODUCTS
    order = np.argsort(targets[0], kind="stable")  # so that folds do not depend on the order of rows
    folds = []
    for first in range(NUM_FOLDS if several else 1):
        known = np.setdiff1d(order, left_out_rows := order[first::NUM_FOLDS])
        folds.append(Fold(known_layer(refitted(known), X) if refitted else layer, known, left_out_rows))
    constant, varying = (
        [tested(layer, target, output, folds, shapes) for output, target in enumerate(targets)]
        for shapes in ((), SHAPES)
    )
    # Tails first, so that no single outlier decides.
    noises, others = ([noise.with_tails(min_nats) for noise in each] for each in (varying, constant))
    if not pays(noises, others):
        noises = others if pays(others, constant) else constant
    if noises is not constant:
        model = with_output_from_rows(with_noises(model, noises), key, X, y)
    return model, gained(noises, constant)


class KnownLayer(NamedTuple):
    """What a layer says of N rows before it has seen any: features, mean function, and variance that they leave.

    `components` are the leading K of the features when all variances are 1, of length 1; `basis` and `values` are their
    directions and squared lengths.
    """

    A: Float[np.ndarray, "M N"]
    offset: Float[np.ndarray, "N P"]
    residual: Float[np.ndarray, " N"]
    components: Float[np.ndarray, "N K"]
    basis: Float[np.ndarray, "M K"]
    values: Float[np.ndarray, " K"]
    log_noise: Float[np.ndarray, " P"]  # to start from

    def scales(self, deviation: float, power: float) -> Float[np.ndarray, " K"]:
        """Return by how much each component may change h."""
        powers = self.values**power
        return deviation * np.sqrt(len(self.components) * powers / np.sum(powers))

    def posterior(self, target: np.ndarray, noise: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean of f at all rows, and its variance within the features, if some are known with this noise."""
        A = self.A[:, known]
        gram = (A / noise[known]) @ A.T
        rounding = np.finfo(float).eps * np.trace(gram)
        factor, lower = cho_factor(gram + (1 + rounding) * np.eye(len(A)), lower=True, overwrite_a=True)
        mean = self.A.T @ cho_solve((factor, lower), A @ (target[known] / noise[known]))
        return mean, np.sum(solve_triangular(factor, self.A, lower=True) ** 2, axis=0)


class Fold(NamedTuple):
    """What the layer says if some rows are not known, which rows are known, and which are left out."""

    layer: KnownLayer
    known: np.ndarray
    left_out: np.ndarray


def known_layer(model: DeepGP, X: np.ndarray) -> KnownLayer:
    """Return what the layer of a model says of rows before it has seen any."""
    return KnownLayer(*(np.asarray(part, float) for part in quickly_compiled(_before_rows)(model, X)))


def _before_rows(model: DeepGP, X):
    """Return the parts of a `KnownLayer`."""
    model = unwrap(model)
    layer = model.output
    Z, H = layer.at(X)
    A, variance = layer.features.whitened(layer.kernel, H), layer.kernel.diag(H)
    unit = (A / jnp.sqrt(variance)).astype(float)
    num_components = min(MAX_COMPONENTS, *A.shape)
    values, basis = jnp.linalg.eigh(unit @ unit.T)
    values, basis = values[: -num_components - 1 : -1], basis[:, : -num_components - 1 : -1]
    values = jnp.maximum(values, 1e-12 * values[0])
    residual = jnp.maximum(variance - jnp.sum(A**2, axis=0), 0)
    components = unit.T @ basis / jnp.sqrt(values)
    return A, layer.mean_function(Z), residual, components, basis, values, jnp.log(model.likelihood.reference)


class Tested(NamedTuple):
    """The noise of one output, and rows that folds left out: the log noise expected there, residuals, variances of f.

    The log noise is the level plus the weight times features of variance 1.
    """

    level: float
    weight: Float[np.ndarray, " M"]
    expected: Float[np.ndarray, " R"]
    left: Float[np.ndarray, " R"]
    spread: Float[np.ndarray, " R"]
    deviation: float = 0.0

    @property
    def nats(self) -> Float[np.ndarray, " R"]:
        """The log density of each row."""
        return log_density(self.expected, self.left, self.spread, self.deviation)

    def shifted(self, deviation: float = 0.0) -> "Tested":
        """Return the noise with this deviation, and with the level that the rows find best."""

        def loss(shift: float) -> float:
            return -np.sum(log_density(self.expected + shift, self.left, self.spread, deviation))

        shift = cast(Any, minimize_scalar(loss, bounds=SHIFTS, method="bounded")).x
        return self._replace(level=self.level + shift, expected=self.expected + shift, deviation=deviation)

    def with_tails(self, min_nats: float) -> "Tested":
        """Return the noise with the likeliest deviation, or with none if no other gains so much."""
        gaussian = self.shifted()
        best = max(map(self.shifted, DEVIATIONS), key=lambda noise: np.sum(noise.nats))
        return best if np.sum(best.nats - gaussian.nats) > min_nats else gaussian


def gained(noises: list[Tested], others: list[Tested]) -> Float[np.ndarray, "R P"]:
    """Return the nats by which rows prefer the first to the others."""
    return np.stack([noise.nats - other.nats for noise, other in zip(noises, others, strict=True)], axis=1)


def tested(layer: KnownLayer, target: np.ndarray, output: int, folds: list[Fold], shapes: Shapes) -> Tested:
    """Return the noise that all rows ask for, and what folds say of it; without shapes it is one number, the start."""
    rows, everything = [], np.arange(len(target))
    level, weight, _, shapes = noise_of(layer, target, layer.log_noise[output], everything, shapes)
    for own, known, left_out_rows in folds:
        expected = noise_of(own, target, own.log_noise[output], known, shapes)[2]
        mean, var = own.posterior(target, NOISE_FLOOR + np.exp(expected), known)
        rows.append([part[left_out_rows] for part in (expected, target - mean, var + own.residual)])
    expected, left, spread = map(np.concatenate, zip(*rows, strict=True))
    return Tested(level, weight, expected, left, spread)


def noise_of(
    layer: KnownLayer, target: np.ndarray, start: float, known: np.ndarray, shapes: Shapes
) -> tuple[float, Float[np.ndarray, " M"], Float[np.ndarray, " N"], Shapes]:
    """Return the log noise that known rows ask for: its level, its weight, its values at all rows, and its shape."""
    level, weight, of_rows, chosen = start, np.zeros(len(layer.A)), np.full(len(target), start), shapes
    for _ in range(ROUNDS if shapes else 0):
        noise = NOISE_FLOOR + np.exp(of_rows)
        mean, var = layer.posterior(target, noise, known)
        left, spread = left_out(*(part[known] for part in (target, mean, var, noise, layer.residual)))
        scales = [layer.scales(*shape) for shape in shapes]
        tried = [log_noise(layer.components[known] * scale, left, spread) for scale in scales]
        best = int(np.argmax([found.evidence for found in tried]))
        z, level, chosen = scales[best] * tried[best].z, tried[best].level, (shapes[best],)
        weight, of_rows = layer.basis @ (z / np.sqrt(layer.values)), level + layer.components @ z
    return level, weight, of_rows, chosen


def left_out(y: np.ndarray, mean: np.ndarray, var: np.ndarray, noise: np.ndarray, residual: np.ndarray):
    """Return the residuals r of rows that are left out of q, and the variances of f there."""
    share = np.clip(1 - var / noise, 1 - MAX_LEVERAGE, 1)
    return (y - mean) / share, var / share + residual


def log_density(log_noise: np.ndarray, left: np.ndarray, spread: np.ndarray, deviation: float = 0.0) -> np.ndarray:
    """Return log E[N(r; 0, c + exp(h + d e))] of each row."""
    nodes, weights = (NODES, WEIGHTS) if deviation else (NODES[1:2], np.ones(1))
    total = spread + NOISE_FLOOR + np.exp(log_noise + deviation * nodes[:, None])
    each = -0.5 * (np.log(2 * np.pi * total) + left**2 / total)
    return np.asarray(logsumexp(each, axis=0, b=weights[:, None]))


class LogNoise(NamedTuple):
    """The most probable b and z, and their log evidence."""

    level: float
    z: np.ndarray
    evidence: float


def log_noise(P: Float[np.ndarray, "N K"], left: np.ndarray, spread: np.ndarray) -> LogNoise:
    """Return the most probable b and z of r ~ N(0, c + exp(b + P z)), by Fisher's scoring."""
    start = np.log(max(np.mean(left**2), NOISE_FLOOR))
    design = np.column_stack([np.full(len(left), LEVEL_DEVIATION), P])

    def value(w: np.ndarray) -> float:
        return np.sum(log_density(start + design @ w, left, spread)) - 0.5 * w @ w

    def derivatives(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the slopes of the rows, and the precision of w by their Fisher information."""
        noise = np.exp(start + design @ w)
        total = spread + NOISE_FLOOR + noise
        share = noise / total
        precision = np.eye(len(w)) + design.T @ (0.5 * share[:, None] ** 2 * design)
        return 0.5 * share * (left**2 / total - 1), precision

    w = np.zeros(design.shape[1])
    current = value(w)
    for _ in range(MAX_STEPS):
        slopes, precision = derivatives(w)
        step, size = np.linalg.solve(precision, design.T @ slopes - w), 1.0
        while (found := value(w + size * step)) < current and size > 1e-3:
            size *= 0.5
        if found <= current + 1e-6:
            break
        w, current = w + size * step, found
    evidence = current - 0.5 * np.linalg.slogdet(derivatives(w)[1])[1]
    return LogNoise(start + LEVEL_DEVIATION * w[0], w[1:], evidence)


def with_noises(model: DeepGP, noises: list[Tested]) -> DeepGP:
    """Return the model with these noises: one Gaussian each, or one for each node of the rule."""
    nodes, weights = (NODES, WEIGHTS) if any(noise.deviation for noise in noises) else (NODES[1:2], np.ones(1))
    levels = np.stack([noise.level + noise.deviation * nodes for noise in noises], axis=1)  # (C, P)
    base = np.stack([np.tile(np.log(weights)[:, None], len(noises)), 0 * levels, levels])
    of_variances = np.tile([noise.weight for noise in noises], (len(nodes), 1, 1))  # (C, P, M)
    weight, dtype = np.stack([0 * of_variances, 0 * of_variances, of_variances]), unwrap(model.output.q).mean.dtype
    likelihood = FlexibleNoise(base=jax.device_put(base.astype(dtype)), weight=jax.device_put(weight.astype(dtype)))
    return eqx.tree_at(lambda m: m.likelihood, model, likelihood)
