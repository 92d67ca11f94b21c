"""Sparse GP regression in dense NumPy, from the textbook formulas."""

import numpy as np


def log_normal(y, mean, cov):
    """log N(y; mean, cov)."""
    chol = np.linalg.cholesky(cov)
    z = np.linalg.solve(chol, y - mean)
    return -0.5 * z @ z - np.log(np.diag(chol)).sum() - 0.5 * len(y) * np.log(2 * np.pi)


def titsias(Kuu, Kuf, kff_diag, y, noise):
    """The collapsed bound log N(y; 0, Q + noise I) - sum(k - q) / (2 noise)."""
    Q = Kuf.T @ np.linalg.solve(Kuu, Kuf)
    bound = log_normal(y, np.zeros(len(y)), Q + noise * np.eye(len(y)))
    return bound - np.sum(kff_diag - np.diag(Q)) / (2 * noise)


def kl(mean_q, cov_q, mean_p, cov_p):
    """KL(N(mean_q, cov_q) || N(mean_p, cov_p))."""
    difference = mean_p - mean_q
    trace = np.trace(np.linalg.solve(cov_p, cov_q))
    quadratic = difference @ np.linalg.solve(cov_p, difference)
    log_dets = np.linalg.slogdet(cov_p)[1] - np.linalg.slogdet(cov_q)[1]
    return 0.5 * (trace + quadratic - len(mean_q) + log_dets)


def svgp_elbo(Kuu, Kuf, kff_diag, mean_u, cov_u, y, noise):
    """E_q[log p(y | f)] - KL(q(u) || p(u)) with q(u) = N(mean_u, cov_u), not whitened."""
    projection = np.linalg.solve(Kuu, Kuf).T
    mean = projection @ mean_u
    var = kff_diag - np.sum(projection * Kuf.T, axis=1) + np.sum((projection @ cov_u) * projection, axis=1)
    fit = -0.5 * np.log(2 * np.pi * noise) - 0.5 * ((y - mean) ** 2 + var) / noise
    return fit.sum() - kl(mean_u, cov_u, np.zeros_like(mean_u), Kuu)
