"""Pictures of a fitted estimator with one input column: axes in, axes out."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from overtone.sklearn import DeepGPRegressor

BLUE, RED = "#1f5fa8", "#c8102e"


def prediction(model: DeepGPRegressor, X, y, ax: Axes | None = None) -> Axes:
    """The predictive mean of y with one to three standard deviations, over the data in red."""
    ax = plt.gca() if ax is None else ax
    X, grid = np.asarray(X, float), _grid(X)
    mean, std = model.predict(grid, return_std=True)
    _bands(ax, grid[:, 0], mean, std)
    ax.plot(X[:, 0], y, ".", color=RED, markersize=2.5, zorder=3)
    return ax


def layer(model: DeepGPRegressor, X, index: int, ax: Axes | None = None) -> Axes:
    """The distribution of a hidden layer's first unit, with its mean at the rows of X in red."""
    ax = plt.gca() if ax is None else ax
    X, grid = np.asarray(X, float), _grid(X)
    mean, std = model.layer_marginals(grid)[index]
    _bands(ax, grid[:, 0], mean[:, 0], std[:, 0])
    ax.plot(X[:, 0], model.layer_marginals(X)[index][0][:, 0], ".", color=RED, markersize=2.5, zorder=3)
    return ax


def _grid(X) -> np.ndarray:
    X = np.asarray(X, float)
    if X.shape[1] != 1:
        raise ValueError(f"this plot needs one input column; got {X.shape[1]}.")
    low, high = X.min(), X.max()
    margin = 0.05 * (high - low)
    return np.linspace(low - margin, high + margin, 500)[:, None]


def _bands(ax: Axes, x: np.ndarray, mean: np.ndarray, std: np.ndarray) -> None:
    for width in (3, 2, 1):
        ax.fill_between(x, mean - width * std, mean + width * std, color=BLUE, alpha=0.2, linewidth=0)
    ax.plot(x, mean, color=BLUE, linewidth=1.2)
