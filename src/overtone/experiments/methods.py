"""The methods that are compared, and what is measured of each.

ID-DGP comes in three ways: `paper`, the paper's mode; `features`, the paper's model with our inference; `ours`, the
defaults. The conventional deep GP and the shallow models are in the paper's mode, unless their name says otherwise.
"""

import warnings
from typing import Any

import numpy as np

PAPER, FEATURES, OURS = "ID-DGP, paper", "ID-DGP, features", "ID-DGP, ours"
DGP, VFF, SVGP = "DGP", "VFF", "SVGP"
METHODS: dict[str, dict[str, Any]] = {
    PAPER: {"method": "id-dgp", "preset": "paper"},
    FEATURES: {
        "method": "id-dgp",
        "features": "fourier",
        "interval": (-2.0, 3.0),
        "n_layers": 2,
        "likelihood": "gaussian",
        "neighbours": "no",
    },
    OURS: {"method": "id-dgp"},
    DGP: {"method": "dgp", "preset": "paper"},
    VFF: {"method": "vff", "preset": "paper"},
    SVGP: {"method": "svgp", "preset": "paper"},
}
QUICK_METHODS = PAPER, SVGP
WARM_UP = {"max_time": 20.0, "max_steps": 2}
warmed_up: set[tuple] = set()  # fits whose programs this process has compiled
LEVELS = 50, 80, 95


def fitted(method: str, X: np.ndarray, y: np.ndarray, seed: int, **settings: Any) -> Any:
    """Return a fitted estimator; settings that are None are left to the method.

    A time limit is to be spent on training: the programs of such a fit are compiled before, by a fit of two steps.
    """
    from overtone.sklearn import DeepGPRegressor

    given = {name: value for name, value in settings.items() if value is not None}
    what = method, X.shape, str(given)
    if "max_time" in given and "max_steps" not in given and what not in warmed_up:
        warmed_up.add(what)
        fitted(method, X, y, seed, **{**settings, **WARM_UP})
    with warnings.catch_warnings(action="ignore"):  # about few frequencies, which are the experiment's
        return DeepGPRegressor(**{**METHODS[method], **given}, random_state=seed).fit(X, y)


def measured(model: Any, X: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Return what a record says of a model and test rows, in units of a target that was standardised."""
    with warnings.catch_warnings(action="ignore"):  # about rows outside the range
        scores = model.evaluate(X, y)
    variables = [layer.main.features.num_features for layer in model.model_.layers]
    return {
        "log_density": scores["log_density"],
        "rmse": scores["standardised_rmse"],
        "crps": scores["crps"],
        **{f"coverage_{level}": scores[f"coverage_{level}"] for level in LEVELS},
        "seconds": round(model.history_.seconds, 2),
        "steps": len(model.history_.loss),
        "test_rows": scores["rows"],
        "inducing_inputs": model.plan_.num_inducing,
        "inducing_variables": variables,
        "layers": len(model.model_.layers),
    }


def standardised(y: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return a target in units of its standard deviation over some rows, from their mean."""
    return (y - y[rows].mean()) / (y[rows].std() or 1.0)


def gaussian_scores(y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> dict[str, float]:
    """Return the same scores for Gaussian predictions of other models."""
    from scipy.stats import norm

    z = (y - mean) / std
    crps = std * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))
    central = np.abs(norm.cdf(z) - 0.5)
    return {
        "log_density": float(np.mean(norm.logpdf(z) - np.log(std))),
        "rmse": float(np.sqrt(np.mean((y - mean) ** 2))),
        "crps": float(np.mean(crps)),
        **{f"coverage_{level}": float(np.mean(central < level / 200)) for level in LEVELS},
    }
