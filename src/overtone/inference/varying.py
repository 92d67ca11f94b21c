"""Noise that varies with the inputs, from what a fitted layer leaves of its own rows.

Rows are left out of q one by one, in closed form. With the mean and the variance s of f at a row, and its noise n,
    r = (y - mean) / (1 - s / n)  ~  N(0, c + exp(h)),   c = n / (1 - s / n) - n,
where h(x), the log of the noise, is a number plus a GP that is known through the leading components of the layer's own
features: h = b + P z, with z ~ N(0, I). Fisher's scoring finds the most probable z, and Laplace's approximation of the
evidence how large and how smooth h is. Whether it is needed at all, rows say that are left out of h as well.
"""

from itertools import product
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray
from scipy.optimize import minimize_scalar

from overtone.gp.likelihoods import AbstractNoise, FlexibleNoise, Gaussian
from overtone.gp.model import DeepGP
from overtone.inference.output_layer import with_output_from_rows
from overtone.numerics.compiling import quickly_compiled
from overtone.numerics.params import unwrap

MAX_COMPONENTS = 100  # of the features, for the log of the noise
AMPLITUDES = (0.3, 0.6, 1.0, 1.5)  # standard deviations of h about its mean, a priori
POWERS = (1.0, 2.0)  # of the components' variances: as smooth as the layer's own functions, or smoother
LEVEL_DEVIATION = 2.0  # of b about the log of the mean square, a priori
MAX_STEPS, MAX_LEVERAGE, SHIFTS = 20, 0.99, (-1.0, 2.0)
ROUNDS = 3  # q and the noise depend on each other


class LogNoise(NamedTuple):
    """The most probable b and z, their log evidence, and the log noise that each row is expected to have by others."""

    level: float
    z: np.ndarray
    evidence: float
    expected: np.ndarray


def with_varying_noise(
    model: DeepGP,
    key: PRNGKeyArray,
    X: np.ndarray,
    y: np.ndarray,
    *,
    min_nats: float = 3.0,
    standard_errors: float = 2.5,
) -> tuple[DeepGP, np.ndarray]:
    """Return a model of one layer, known at these rows, with noise that varies if that pays, and the nats it gains.

    These are (N, P), of each row and output when it is left out. They have to add up to a least number and to some
    standard errors of their sum for all outputs together.
    """
    if len(model.layers) > 1 or not isinstance(model.likelihood, Gaussian) or np.isnan(y).any():
        raise TypeError("with_varying_noise needs one layer, a Gaussian likelihood and complete targets.")
    varied, nats = with_noise_of_rows(model, X, y)
    gains = np.sum(nats, axis=1)
    if np.sum(gains) < max(min_nats, standard_errors * np.std(gains) * len(gains) ** 0.5):
        return model, nats
    for _ in range(ROUNDS - 1):
        varied, _ = with_noise_of_rows(with_output_from_rows(varied, key, X, y), X, y)
    return with_output_from_rows(varied, key, X, y), nats


def with_noise_of_rows(model: DeepGP, X: np.ndarray, y: np.ndarray) -> tuple[DeepGP, np.ndarray]:
    """Return the model with the noise that its residuals suggest, and the nats (N, P) that rows gain by it."""
    features, mean, var, noise = (np.asarray(part, float) for part in quickly_compiled(_at_rows)(model, X))
    values, basis = np.linalg.eigh(features @ features.T)
    values, basis = values[: -MAX_COMPONENTS - 1 : -1], basis[:, : -MAX_COMPONENTS - 1 : -1]
    values = np.maximum(values, 1e-12 * values[0])
    components = features.T @ basis / np.sqrt(values)  # of length 1
    shapes = [
        amplitude * np.sqrt(len(y) * values**p / np.sum(values**p)) for amplitude, p in product(AMPLITUDES, POWERS)
    ]
    levels, weights, nats = [], [], []
    for target, *of_rows in zip(y.T, mean.T, var.T, noise.T, strict=True):
        left, spread = left_out(np.asarray(target, float), *of_rows)
        one = log_noise(components[:, :0], left, spread)
        tried = [(log_noise(components * shape, left, spread), shape) for shape in shapes]
        best, shape = max(tried, key=lambda each: each[0].evidence)
        shift = best_shift(best.expected, left, spread)
        levels.append(best.level + shift)
        weights.append(basis @ (shape * best.z / np.sqrt(values)))
        nats.append(log_density(best.expected + shift, left, spread) - log_density(one.expected, left, spread))
    likelihood = one_component(np.array(levels), np.array(weights), unwrap(model.output.q).mean.dtype)
    return eqx.tree_at(lambda m: m.likelihood, model, likelihood), np.stack(nats, axis=1)


def _at_rows(model: DeepGP, X):
    """Return features of variance 1 (M, N), the mean and variance of f, and the noise (N, P)."""
    model = unwrap(model)
    layer, likelihood = model.output, cast(AbstractNoise, model.likelihood_at(X[None]))
    _, H = layer.at(X)
    A = layer.features.whitened(layer.kernel, H) / jnp.sqrt(layer.kernel.diag(H))
    mean, var = layer(X)
    _, _, noise = likelihood.components(mean[None], jnp.zeros_like(var)[None])
    return A, mean, var, noise[0, 0]


def left_out(y: np.ndarray, mean: np.ndarray, var: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the residuals r of rows that are left out of q, and the variances c of f there."""
    share = np.clip(1 - var / noise, 1 - MAX_LEVERAGE, 1)
    return (y - mean) / share, noise / share - noise


def log_density(log_noise: np.ndarray, left: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Return log N(r; 0, c + exp(h)) of each row."""
    total = spread + np.exp(log_noise)
    return -0.5 * (np.log(2 * np.pi * total) + left**2 / total)


def best_shift(log_noise: np.ndarray, left: np.ndarray, spread: np.ndarray) -> float:
    """Return the number that should be added to the log noise of all rows."""

    def loss(shift: float) -> float:
        return -np.sum(log_density(log_noise + shift, left, spread))

    best: Any = minimize_scalar(loss, bounds=SHIFTS, method="bounded")
    return best.x


def log_noise(P: Float[np.ndarray, "N K"], left: np.ndarray, spread: np.ndarray) -> LogNoise:
    """Return the most probable b and z of r ~ N(0, c + exp(b + P z)), by Fisher's scoring."""
    start = np.log(max(np.mean(left**2), np.finfo(float).tiny))
    design = np.column_stack([np.full(len(left), LEVEL_DEVIATION), P])

    def value(w: np.ndarray) -> float:
        return np.sum(log_density(start + design @ w, left, spread)) - 0.5 * w @ w

    def derivatives(w: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return slopes and Fisher informations of the rows, and the precision of w."""
        noise = np.exp(start + design @ w)
        share = noise / (spread + noise)
        slopes, informations = 0.5 * share * (left**2 / (spread + noise) - 1), 0.5 * share**2
        return slopes, informations, np.eye(len(w)) + design.T @ (informations[:, None] * design)

    w = np.zeros(design.shape[1])
    current = value(w)
    for _ in range(MAX_STEPS):
        slopes, _, precision = derivatives(w)
        step, size = np.linalg.solve(precision, design.T @ slopes - w), 1.0
        while (found := value(w + size * step)) < current and size > 1e-3:
            size *= 0.5
        if found <= current + 1e-6:
            break
        w, current = w + size * step, found
    slopes, informations, precision = derivatives(w)
    variances = np.sum(design * np.linalg.solve(precision, design.T).T, axis=1)
    # What a row adds to its own h is its slope times the variance that h has without it.
    expected = start + design @ w - slopes * variances / np.maximum(1 - variances * informations, 1 - MAX_LEVERAGE)
    evidence = current - 0.5 * np.linalg.slogdet(precision)[1]
    return LogNoise(start + LEVEL_DEVIATION * w[0], w[1:], evidence, expected)


def one_component(level: np.ndarray, weight: np.ndarray, dtype: Any) -> FlexibleNoise:
    """Return noise with one Gaussian, whose log variance is level (P,) plus weight (P, M) times the features."""
    base, weights = (np.stack([0 * part, 0 * part, part])[:, None].astype(dtype) for part in (level, weight))
    return FlexibleNoise(base=jax.device_put(base), weight=jax.device_put(weights))
