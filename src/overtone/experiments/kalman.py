"""The exact Matern-3/2 GP of a series in O(N), as a state-space model: the ceiling of shallow models of this kernel.

The state is s = (f, f') with stationary covariance P = diag(v, lam^2 v), lam = 3^1/2 / lengthscale; over a gap r,
    s' = F s + noise,   F = e^(-lam r) [[1 + lam r, r], [-lam^2 r, 1 - lam r]],   noise covariance Q = P - F P F^T.
A Kalman filter gives the evidence, the Rauch-Tung-Striebel smoother the predictions at all positions.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize


class Fit(NamedTuple):
    """The predictive mean and standard deviation of y at all positions, and the log evidence."""

    mean: np.ndarray
    std: np.ndarray
    log_evidence: float


def fit_matern32(t: np.ndarray, y: np.ndarray, known: np.ndarray, *, steps: int = 100) -> Fit:
    """Return the GP of the known values of y at increasing positions t, with the likeliest hyperparameters."""
    gaps = np.diff(t, prepend=t[0]) / (t[-1] - t[0])
    with jax.enable_x64(True):
        args = jnp.asarray(gaps), jnp.asarray(np.where(known, y, 0.0)), jnp.asarray(known)
        loss = jax.jit(jax.value_and_grad(lambda log: -_filter(log, *args)[0] / known.sum()))
        starts = [np.log([1.0, 20.0 * np.median(gaps), noise]) for noise in (1e-1, 1e-4)]
        bounds = [(-7.0, 7.0), (np.log(gaps[1:].min() + 1e-12), 3.0), (-20.0, 3.0)]
        options = {"maxiter": steps}
        found = [minimize(lambda x: _numpy(loss(x)), s, jac=True, bounds=bounds, options=options) for s in starts]
        best = min(found, key=lambda each: each.fun)
        mean, var = (np.asarray(part) for part in smooth(best.x, *args))
    return Fit(mean, np.sqrt(var + np.exp(best.x[2])), -best.fun * known.sum())


def _numpy(pair) -> tuple[float, np.ndarray]:
    return float(pair[0]), np.asarray(pair[1])


def _transitions(log, gaps):
    """Return F and Q of each gap, and P; `log` holds the logs of variance, lengthscale and noise."""
    variance, lam = jnp.exp(log[0]), 3**0.5 / jnp.exp(log[1])
    P = variance * jnp.diag(jnp.stack([jnp.ones(()), lam**2]))

    def of_gap(r):
        F = jnp.exp(-lam * r) * jnp.array([[1 + lam * r, r], [-(lam**2) * r, 1 - lam * r]])
        return F, P - F @ P @ F.T

    return (*jax.vmap(of_gap)(gaps), P)


def _filter(log, gaps, y, known):
    """Return the log evidence, and means and covariances of the state before and after each value is known."""
    F, Q, P = _transitions(log, gaps)

    def step(state, row):
        m, C = state
        F, Q, y, known = row
        m, C = F @ m, F @ C @ F.T + Q
        s, miss = C[0, 0] + jnp.exp(log[2]), y - m[0]
        gain = jnp.where(known, 1.0, 0.0) * C[:, 0] / s
        after = m + gain * miss, C - jnp.outer(gain, C[0])
        value = jnp.where(known, -0.5 * (jnp.log(2 * jnp.pi * s) + miss**2 / s), 0.0)
        return after, (value, (m, C), after)

    _, (values, before, after) = jax.lax.scan(step, (jnp.zeros(2), P), (F, Q, y, known))
    return jnp.sum(values), before, after


@jax.jit
def smooth(log, gaps, y, known):
    """Return mean and variance of f at all positions."""
    _, before, after = _filter(log, gaps, y, known)
    F = _transitions(log, gaps)[0]

    def step(later, row):
        (m_later, C_later), (F, m_before, C_before, m, C) = later, row
        gain = jnp.linalg.solve(C_before + 1e-14 * jnp.trace(C_before) * jnp.eye(2), F @ C).T
        m, C = m + gain @ (m_later - m_before), C + gain @ (C_later - C_before) @ gain.T
        return (m, C), (m[0], C[0, 0])

    last = after[0][-1], after[1][-1]
    rows = F[1:], before[0][1:], before[1][1:], after[0][:-1], after[1][:-1]
    _, (means, variances) = jax.lax.scan(step, last, rows, reverse=True)
    return jnp.append(means, last[0][0]), jnp.maximum(jnp.append(variances, last[1][0, 0]), 0.0)
