"""Deep Gaussian processes whose inducing variables live in the frequency domain.

The library's public names, each imported when it is first used: kernels, features, layers, likelihoods, objectives,
`fit`, `predict`, `save`, `load`. The scikit-learn estimators are in `overtone.sklearn`, pictures in `overtone.plots`.
"""

from importlib import import_module
from typing import Any

from overtone.version import __version__ as __version__

NAMES = {
    "gp.kernels": "Matern12 Matern32 Matern52 SquaredExponential RationalQuadratic Periodic Linear Sum Product "
    "Additive AbstractKernel AbstractStationary",
    "gp.features": "InducingPoints Fourier PinnedFourier BandLimited BSplines PerDimension AbstractInducingFeatures",
    "gp.variational": "Full Joint MeanField",
    "gp.maps": "Affine Projection Columns",
    "gp.layers": "Layer SumOfLayers AbstractLayer",
    "gp.likelihoods": "Gaussian StudentT Heteroscedastic FlexibleNoise Poisson NegativeBinomial Bernoulli Softmax "
    "AbstractFamily AbstractLikelihood AbstractNoise",
    "gp.model": "DeepGP draw draw_prior layer_marginals",
    "gp.neighbours": "NeighbourGP",
    "gp.predictive.mixture": "Corrected",
    "inference.objective": "AbstractObjective Elbo ImportanceWeighted PredictiveDensity KLWeights Rows",
    "inference.collapsed": "Collapsed",
    "inference.evidence": "Evidence LogNormal",
    "inference.natural": "NaturalGradient",
    "inference.loop": "fit",
    "inference.quasi_newton": "fit_quasi_newton",
    "inference.callbacks": "Callback Clock EarlyStopping ProgressBar Retreat StopWhen",
    "inference.checkpoints": "Checkpoint",
    "inference.schedules": "planned warm_up_and_decay",
    "inference.neighbours": "fit_neighbours from_neighbours with_tested_scale",
    "inference.predictions": "predict elbo sample_functions",
    "inference.updating": "with_more_points with_more_rows",
    "inference.varying": "with_varying_noise",
    "numerics.linalg": "AbstractPSDOperator Dense DiagonalPlusLowRank",
    "numerics.params": "Fixed Param Positive unwrap",
    "storage.structure": "save load",
    "app": "plots",
}
HOMES = {name: module for module, names in NAMES.items() for name in names.split()}
__all__ = [*HOMES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'overtone' has no attribute {name!r}")
    module = f"overtone.{HOMES[name]}"
    return import_module(f"{module}.{name}") if HOMES[name] == "app" else getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted([*HOMES, "__version__"])
