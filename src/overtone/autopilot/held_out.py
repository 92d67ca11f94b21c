"""Rows that training does not see: which ones, what they say, and the noise that they find best."""

from typing import Any

import equinox as eqx
import numpy as np
from scipy.optimize import minimize_scalar

from overtone.autopilot.policies import HOLD_OUT, NOISE
from overtone.autopilot.record import Plan
from overtone.gp.likelihoods import FlexibleNoise
from overtone.gp.model import DeepGP
from overtone.inference.objective import Rows
from overtone.inference.predictions import log_density, over_rows
from overtone.numerics.shuffle import shuffled


def hold_out(plan: Plan, num: int) -> np.ndarray:
    """Return which of so many rows tell when to stop."""
    if plan.held_out_last:
        return np.arange(num - plan.held_out, num)
    return np.sort(shuffled(np.arange(plan.held_out), num, plan.seed))


def with_tested_noise(model: DeepGP, key: Any, held_out: Rows) -> DeepGP:
    """Return the model with the variance of flexible noise times the factor that held-out rows find best.

    Training makes it too small where the model is overfitted.
    """
    noise = model.likelihood
    if not isinstance(noise, FlexibleNoise) or not len(held_out.X):
        return model

    def scaled(log_factor: float) -> DeepGP:
        return eqx.tree_at(lambda m: m.likelihood, model, noise.scaled(log_factor))

    def loss(log_factor: float) -> float:
        value = held_out_density(scaled(log_factor), key, held_out)
        return -value if np.isfinite(value) else np.inf

    options = {"xatol": NOISE.precision, "maxiter": NOISE.evaluations}
    best: Any = minimize_scalar(loss, bounds=NOISE.log_factors, method="bounded", options=options)
    return scaled(best.x if best.fun < loss(0.0) else 0.0)


def held_out_densities(model: DeepGP, key: Any, rows: Rows) -> np.ndarray:
    """Return the log predictive density of each of some rows that training has not seen."""
    (densities,) = over_rows(lambda *chunk: log_density(model, key, HOLD_OUT.draws, *chunk), *rows)
    missing = np.isnan(rows.y[:, : densities.shape[1]])
    return np.sum(np.where(missing, 0, densities), axis=1)


def held_out_density(model: DeepGP, key: Any, rows: Rows) -> float:
    """Return their mean."""
    return float(np.mean(held_out_densities(model, key, rows)))
