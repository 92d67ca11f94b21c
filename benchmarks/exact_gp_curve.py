"""Fit an exact GP with a Matern-5/2 or RBF kernel and a lengthscale for each input, for tables of few thousand rows.

The marginal likelihood log N(y; 0, K + noise I) is maximised by L-BFGS in double precision, from several lengthscales
and noises. With more than MANY_ROWS rows there is one noise to start from, all starts take a few steps, and the best
one of each kernel goes on. The likeliest model of all predicts.
"""

import json
from itertools import product
from time import perf_counter
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize

from benchmarks.curve import case, mixture_metrics

LENGTHSCALES, NOISES = (0.03, 0.1, 0.3, 1.0, 3.0), (1e-2, 1e-1, 1e-3)  # the former times the root of their number
MANY_ROWS, FEW_STEPS, STEPS = 500, 10, 200
BOUNDS = {"lengthscale": (1e-3, 1e4), "variance": (1e-4, 1e4), "noise": (1e-8, 10.0)}


class Start(NamedTuple):
    """A kernel, and the logarithms of its lengthscales, its variance and the noise, with their loss."""

    kernel: str
    parameters: np.ndarray
    loss: float = np.inf


def gram(kernel: str, parameters: torch.Tensor, X: torch.Tensor, Z: torch.Tensor) -> torch.Tensor:
    """Return the covariances of the rows of X with those of Z."""
    X, Z = X / parameters[:-2].exp(), Z / parameters[:-2].exp()
    squared = (X.square().sum(1)[:, None] + Z.square().sum(1) - 2 * X @ Z.T).clamp(min=1e-14)
    if kernel == "rbf":
        return (parameters[-2] - squared / 2).exp()
    distance = (5 * squared).sqrt()
    return (1 + distance + distance.square() / 3) * (parameters[-2] - distance).exp()


def factor(start: Start, parameters: torch.Tensor, X: torch.Tensor) -> torch.Tensor:
    """Return L with L L^T = K + noise I."""
    noise = parameters[-1].exp() * torch.eye(len(X), dtype=X.dtype)
    return torch.linalg.cholesky(gram(start.kernel, parameters, X, X) + noise)


def fitted(start: Start, X: torch.Tensor, y: torch.Tensor, steps: int) -> Start:
    """Return what a number of steps of L-BFGS make of a start."""

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        parameters = torch.tensor(values, requires_grad=True)
        try:
            chol = factor(start, parameters, X)
        except torch.linalg.LinAlgError:  # not positive definite: the line search steps back
            return 1e10, np.zeros_like(values)
        half = torch.linalg.solve_triangular(chol, y[:, None], upper=False)
        value = (half.square().sum() / 2 + chol.diagonal().log().sum()) / len(y) + np.log(2 * np.pi) / 2
        value.backward()
        return value.item(), parameters.grad.numpy()

    names = ["lengthscale"] * X.shape[1] + ["variance", "noise"]
    bounds = [tuple(np.log(BOUNDS[name])) for name in names]
    best = minimize(loss, start.parameters, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": steps})
    return Start(start.kernel, best.x, best.fun)


def best_fit(X: torch.Tensor, y: torch.Tensor) -> Start:
    """Return the likeliest of all fits."""
    num, noises = X.shape[1], NOISES[:1] if len(X) > MANY_ROWS else NOISES[1:]
    starts = [
        Start(kernel, np.log([lengthscale * num**0.5] * num + [1.0, noise]))
        for kernel, lengthscale, noise in product(("matern52", "rbf"), LENGTHSCALES, noises)
    ]
    if len(X) > MANY_ROWS:
        tried = [fitted(start, X, y, FEW_STEPS) for start in starts]
        starts = [min((t for t in tried if t.kernel == k), key=lambda t: t.loss) for k in ("matern52", "rbf")]
    return min((fitted(start, X, y, STEPS) for start in starts), key=lambda each: each.loss)


def main() -> None:
    """Fit the GP of a case, and print its figures."""
    _, arrays = case()
    X, y, X_test = (torch.from_numpy(arrays[name].astype(float)) for name in ("X", "y", "X_test"))
    began = perf_counter()
    best = best_fit(X, y)
    seconds = perf_counter() - began
    parameters = torch.from_numpy(best.parameters)
    chol, cross = factor(best, parameters, X), gram(best.kernel, parameters, X, X_test)
    half = torch.linalg.solve_triangular(chol, torch.column_stack([y[:, None], cross]), upper=False)
    mean = half[:, 1:].T @ half[:, 0]
    variance = parameters[-2:].exp().sum() - half[:, 1:].square().sum(0)
    figures = mixture_metrics(arrays["y_test"], np.zeros(1), mean.numpy()[None], variance.numpy()[None])
    print(json.dumps({"seconds": seconds, "kernel": best.kernel, "evidence": -best.loss, **figures}), flush=True)


if __name__ == "__main__":
    main()
