"""The names that estimators and the command line give to parts of the library.

A new kernel, feature or likelihood gets a name by one line here, with the public name of its class.
"""

from typing import Any

KERNELS = {"matern12": "Matern12", "matern32": "Matern32", "matern52": "Matern52", "rbf": "SquaredExponential"}
FEATURES = {"pinned": "PinnedFourier", "fourier": "Fourier", "bsplines": "BSplines", "points": "InducingPoints"}
LIKELIHOODS = {
    "gaussian": "Gaussian",
    "flexible": "FlexibleNoise",
    "student-t": "StudentT",
    "heteroscedastic": "Heteroscedastic",
    "poisson": "Poisson",
    "negative-binomial": "NegativeBinomial",
    "bernoulli": "Bernoulli",
    "softmax": "Softmax",
}
COVARIANCES = {"block": "Full", "joint": "Joint", "mean-field": "MeanField"}
OBJECTIVES = {"collapsed": "Collapsed", "natural": "NaturalGradient", "adam": "Elbo"}


def part(table: dict[str, str], name: str) -> Any:
    """Return the class that a name stands for, imported now."""
    import overtone

    return getattr(overtone, table[name])
