"""The best that so many inducing variables can do: the Karhunen-Loeve expansion, by Gauss-Legendre quadrature."""

import numpy as np

from tests.reference.matern import Matern, gauss_legendre


def optimal_residual(kernel: Matern, low: float, high: float, num_variables: int) -> float:
    """The mean residual variance over [low, high] that the best `num_variables` linear functionals leave."""
    x, weight = gauss_legendre(np.linspace(low, high, 61))
    root = np.sqrt(weight)
    eigenvalues = np.linalg.eigvalsh(root[:, None] * kernel.gram(x, x) * root)[::-1]
    # The trace is known exactly; the tail of the spectrum is what the largest eigenvalues leave of it.
    return kernel.variance - np.sum(eigenvalues[:num_variables]) / (high - low)
