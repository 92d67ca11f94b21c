"""Pictures of a fitted estimator: axes in, axes out. X are the model's inputs, an array or a frame."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from overtone.sklearn import DeepGPRegressor

BLUE, RED, GREY = "#1f5fa8", "#c8102e", "#777777"
GRID, MOST_DOTS = 500, 1200
EFFECT_POINTS, WAVE_POINTS = 60, 2048


def prediction(model: DeepGPRegressor, X, y, ax: Axes | None = None, *, column: int | None = None) -> Axes:
    """The predictive mean of y with one to three standard deviations, over the data in red.

    With several inputs, against one `column` of them (by default the most relevant), at the rows of X.
    """
    ax = plt.gca() if ax is None else ax
    X, y = model.inputs(X), np.asarray(y)
    rows = _some_rows(len(X))
    if X.shape[1] == 1:
        grid = _grid(X)
        mean, std = model.predict(grid, return_std=True)
        _bands(ax, grid[:, 0], mean, std)
        column = 0
    else:
        column = int(np.argmax(relevance(model, X))) if column is None else column
        mean, std = model.predict(X[rows], return_std=True)
        ax.errorbar(X[rows, column], mean, std, fmt=".", color=BLUE, ecolor="#1f5fa840", markersize=2.5, linewidth=0.8)
    ax.plot(X[rows, column], y[rows], ".", color=RED, markersize=2.5, zorder=3)
    return ax


def layer(model: DeepGPRegressor, X, index: int, ax: Axes | None = None) -> Axes:
    """The distribution of a hidden layer's first unit, with its mean at the rows of X in red, for one input column."""
    ax = plt.gca() if ax is None else ax
    X = model.inputs(X)
    grid = _grid(X)
    mean, std = model.layer_marginals(grid)[index]
    _bands(ax, grid[:, 0], mean[:, 0], std[:, 0])
    ax.plot(X[:, 0], model.layer_marginals(X)[index][0][:, 0], ".", color=RED, markersize=2.5, zorder=3)
    return ax


def effect(model: DeepGPRegressor, X, column: int, ax: Axes | None = None) -> Axes:
    """The prediction along one input, with one and two standard deviations, while the others stay at their medians."""
    ax = plt.gca() if ax is None else ax
    values, mean, std = _effect(model, model.inputs(X), column)
    _bands(ax, values, mean, std, widths=(2, 1))
    return ax


def relevance(model: DeepGPRegressor, X) -> np.ndarray:
    """How much the prediction moves along each input: the standard deviation of its effect."""
    X = model.inputs(X)
    return np.array([np.std(_effect(model, X, column)[1]) for column in range(X.shape[1])])


def calibration(model: DeepGPRegressor, X, y, ax: Axes | None = None) -> Axes:
    """The share of values inside the central interval of each level: on the diagonal, intervals are honest."""
    ax = plt.gca() if ax is None else ax
    levels = np.linspace(0, 1, 101)
    inside = np.sort(2 * np.abs(model.predictive_cdf(X, y) - 0.5).ravel())
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.8)
    ax.plot(levels, np.searchsorted(inside, levels, side="right") / len(inside), color=BLUE)
    ax.set(xlabel="level of the interval", ylabel="share of values inside", xlim=(0, 1), ylim=(0, 1))
    return ax


def residuals(model: DeepGPRegressor, X, y, ax: Axes | None = None) -> Axes:
    """What is left of y, in predictive standard deviations, against the predicted mean."""
    ax = plt.gca() if ax is None else ax
    X, y = model.inputs(X), np.asarray(y)
    rows = _some_rows(len(X))
    mean, std = model.predict(X[rows], return_std=True)
    ax.axhspan(-2, 2, color=BLUE, alpha=0.12, linewidth=0)
    ax.plot(mean, (y[rows] - mean) / std, ".", color=BLUE, markersize=2.5)
    ax.set(xlabel="predicted mean", ylabel="standard deviations off")
    return ax


def training(model: DeepGPRegressor, ax: Axes | None = None) -> Axes:
    """The bound per row at each step, and its running mean."""
    ax = plt.gca() if ax is None else ax
    bound = -np.asarray(model.history_.loss)
    width = max(1, len(bound) // 50)
    ax.plot(bound, color=BLUE, alpha=0.3, linewidth=0.6)
    smooth = np.convolve(bound, np.full(width, 1 / width), "valid")
    ax.plot(np.arange(len(smooth)) + width / 2, smooth, color=BLUE)
    if len(bound) > 1:
        low, high = np.quantile(bound, [0.05, 1.0])
        margin = 0.1 * (high - low) + 1e-6
        ax.set_ylim(low - margin, high + margin)
    ax.set(xlabel="step", ylabel="bound per row")
    return ax


def spectrum(model: DeepGPRegressor, X, ax: Axes | None = None, *, column: int = 0) -> Axes:
    """The energy of the predicted mean along one input at each frequency, the others at their medians."""
    ax = plt.gca() if ax is None else ax
    X = model.inputs(X)
    low, high = X[:, column].min(), X[:, column].max()
    rows = np.repeat(np.median(X, axis=0)[None], WAVE_POINTS, axis=0)
    rows[:, column] = np.linspace(low, high, WAVE_POINTS)
    mean = np.asarray(model.predict(rows))
    energy = np.abs(np.fft.rfft(np.hanning(WAVE_POINTS) * (mean - mean.mean()))) ** 2
    shown = 1 + np.max(np.nonzero(np.cumsum(energy) < 0.999 * energy.sum())[0], initial=9)
    ax.bar(np.arange(1, shown + 1), energy[1 : shown + 1] / max(energy.sum(), 1e-300), width=1.0, color=BLUE)
    ax.set(xlabel="frequency, in cycles over the range", ylabel="share of the energy")
    return ax


def _effect(model: DeepGPRegressor, X: np.ndarray, column: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    values = np.unique(X[:, column])
    if len(values) > EFFECT_POINTS:
        values = np.linspace(values[0], values[-1], EFFECT_POINTS)
    rows = np.repeat(np.median(X, axis=0)[None], len(values), axis=0)
    rows[:, column] = values
    mean, std = model.predict(rows, return_std=True)
    return values, mean, std


def _some_rows(num: int) -> np.ndarray:
    """Enough of them for a picture."""
    return np.sort(np.random.default_rng(0).permutation(num)[:MOST_DOTS])


def _grid(X: np.ndarray) -> np.ndarray:
    if X.shape[1] != 1:
        raise ValueError(f"this plot needs one input column; got {X.shape[1]}.")
    low, high = X.min(), X.max()
    margin = 0.05 * (high - low)
    return np.linspace(low - margin, high + margin, GRID)[:, None]


def _bands(ax: Axes, x: np.ndarray, mean: np.ndarray, std: np.ndarray, widths: Sequence[int] = (3, 2, 1)) -> None:
    for width in widths:
        ax.fill_between(x, mean - width * std, mean + width * std, color=BLUE, alpha=0.2, linewidth=0)
    ax.plot(x, mean, color=BLUE, linewidth=1.2)
