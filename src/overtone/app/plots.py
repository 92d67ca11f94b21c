"""Plot a fitted estimator on matplotlib axes. X holds inputs as the estimator takes them, an array or a frame."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from sklearn.base import is_classifier
from sklearn.calibration import calibration_curve

RED, GREY = "#c8102e", "#777777"
GRID_POINTS, RELEVANCE_POINTS, SPECTRUM_POINTS = 300, 60, 2048
MAX_LEVELS = 12  # distinct values of an input, up to which plots show those rather than a grid
MAX_UNITS, NUM_DRAWS = 6, 32


def prediction(model: Any, X, y, ax: Axes | None = None, *, column: int | None = None, output=None) -> Axes:
    """Plot the predictive mean with one to three standard deviations, or class probabilities, and the data as dots.

    With several inputs, show the predictions for the rows of X against one `column`, by default the most relevant one.
    With several targets, show all of them or one `output`.
    """
    ax = plt.gca() if ax is None else ax
    frame, X = X, model.inputs(X)
    if X.shape[1] == 1:
        column, grid = 0, _sweep(X, 0, margin=0.05)
        _draw_curves(ax, grid[:, 0], *_curves(model, grid, output))
    else:
        column = int(np.argmax(relevance(model, frame))) if column is None else column
        names, mean, std = _curves(model, X, output)
        for i, name in enumerate(names):
            style: Any = {"fmt": ".", "color": f"C{i}", "ecolor": (f"C{i}", 0.25), "ms": 2.5, "lw": 0.8}
            ax.errorbar(X[:, column], mean[:, i], std[:, i], label=name, **style)
        _draw_legend(ax, names)
    targets = _targets(model, y, output)
    if not (is_classifier(model) and targets.shape[1] > 1):  # zeros and ones of several classes overlap
        for i, values in enumerate(targets.T):
            ax.plot(X[:, column], values, ".", color=f"C{i}" if i else RED, markersize=2.5, zorder=3)
    return _limit_to_possible_values(ax, model)


def layer(model: Any, X, index: int, ax: Axes | None = None, *, column: int = 0) -> Axes:
    """Plot the marginals of a layer's first units along one input, in the model's units, others at their medians."""
    ax = plt.gca() if ax is None else ax
    rows = _sweep(model.inputs(X), column)
    mean, std = (part[:, :MAX_UNITS] for part in model.layer_marginals(_with_column_names(model, rows))[index])
    _draw_curves(ax, rows[:, column], [f"unit {i + 1}" for i in range(mean.shape[1])], mean, std)
    return ax


def effect(model: Any, X, column: int, ax: Axes | None = None, *, output: int | None = None) -> Axes:
    """Plot the prediction along one input, with one to three standard deviations and the others at their medians."""
    ax = plt.gca() if ax is None else ax
    rows = _sweep(model.inputs(X), column)
    _draw_curves(ax, rows[:, column], *_curves(model, rows, output))
    return _limit_to_possible_values(ax, model)


def relevance(model: Any, X) -> np.ndarray:
    """Return the standard deviation of each input's effect on the prediction.

    With several targets, effects are in standard deviations of each target.
    """
    X = model.inputs(X)
    sweeps = [_sweep(X, column, RELEVANCE_POINTS) for column in range(X.shape[1])]
    variances = np.array([np.var(_curves(model, rows)[1], axis=0) for rows in sweeps])
    if not is_classifier(model) and variances.shape[1] > 1:
        variances = variances / model.y_spread_**2
    return np.sqrt(np.mean(variances, axis=1))


def calibration(model: Any, X, y, ax: Axes | None = None, **exposure) -> Axes:
    """Plot the share of values inside the central interval of each level; on the diagonal, intervals are calibrated.

    For classes, plot the share of rows that belong to a class against the predicted probability of the class.
    """
    ax = plt.gca() if ax is None else ax
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.8)
    if is_classifier(model):
        probabilities, is_class = model.predict_proba(X)[:, _shown(model)], _targets(model, y)
        shares, probabilities = calibration_curve(is_class.ravel(), probabilities.ravel(), n_bins=10)
        ax.plot(probabilities, shares, "o-", color="C0", markersize=4)
        labels = "predicted probability", "share of rows"
    else:
        cdf = np.ravel(model.predictive_cdf(X, y, **exposure))
        ax.ecdf(np.abs(2 * cdf[~np.isnan(cdf)] - 1), color="C0")  # the least levels of intervals with each value
        labels = "level of the interval", "share of values inside"
    ax.set(xlabel=labels[0], ylabel=labels[1], xlim=(0, 1), ylim=(0, 1))
    return ax


def residuals(model: Any, X, y, ax: Axes | None = None, **exposure) -> Axes:
    """Plot the residuals, in predictive standard deviations, against the predicted mean."""
    ax = plt.gca() if ax is None else ax
    mean, std = model.predict(X, return_std=True, **exposure)
    ax.axhspan(-2, 2, color="C0", alpha=0.12, linewidth=0)
    ax.plot(np.ravel(mean), np.ravel((np.reshape(y, mean.shape) - mean) / std), ".", color="C0", markersize=2.5)
    ax.set(xlabel="predicted mean", ylabel="residual in standard deviations")
    return ax


def spectrum(model: Any, X, ax: Axes | None = None, *, column: int = 0) -> Axes:
    """Plot the spectrum of the predicted mean along one input, with the others at their medians."""
    ax = plt.gca() if ax is None else ax
    mean = _curves(model, _sweep(model.inputs(X), column, SPECTRUM_POINTS))[1]
    waves = np.fft.rfft(np.hanning(len(mean))[:, None] * (mean - mean.mean(axis=0)), axis=0)
    energy = np.sum(np.abs(waves) ** 2, axis=1)[1:]
    num_shown = 1 + np.max(np.nonzero(np.cumsum(energy) < 0.999 * energy.sum())[0], initial=9)
    shares = energy[:num_shown] / max(energy.sum(), 1e-300)
    ax.bar(np.arange(1, len(shares) + 1), shares, width=1.0, color="C0")
    ax.set(xlabel="frequency, in cycles over the range", ylabel="share of the energy")
    return ax


def _sweep(X: np.ndarray, column: int, num: int = GRID_POINTS, margin: float = 0.0) -> np.ndarray:
    """Return rows with values over the range of one input, and the other inputs at their medians."""
    values = np.unique(X[:, column])
    if len(values) > MAX_LEVELS:
        reach = margin * np.ptp(values)
        values = np.linspace(values[0] - reach, values[-1] + reach, num)
    rows = np.repeat(np.median(X, axis=0)[None], len(values), axis=0)
    rows[:, column] = values
    return rows


def _curves(model: Any, X: np.ndarray, output: int | None = None) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return the names of the curves, their means, and their standard deviations; of probabilities, over draws of f."""
    named, shown = _with_column_names(model, X), _shown(model, output)
    if is_classifier(model):
        names = [f"P({label})" for label in model.classes_]
        mean, std = model.predict_proba(named), model.sample_functions(NUM_DRAWS)(named).std(axis=-1)
    else:
        names = model.target_names
        mean, std = (part.reshape(len(X), -1) for part in model.predict(named, return_std=True))
    return [names[i] for i in shown], mean[:, shown], std[:, shown]


def _targets(model: Any, y, output: int | None = None) -> np.ndarray:
    """Return the targets (N, curves), which are zeros and ones for classes."""
    y = np.reshape(y, (len(y), -1))
    return np.asarray(y == model.classes_ if is_classifier(model) else y, float)[:, _shown(model, output)]


def _shown(model: Any, output: int | None = None) -> list[int]:
    """Return which outputs or classes have curves: of two classes the second, since the first would repeat it."""
    if is_classifier(model):
        return [1] if len(model.classes_) == 2 else list(range(len(model.classes_)))
    return list(range(len(model.y_spread_))) if output is None else [output]


def _with_column_names(model: Any, X: np.ndarray) -> Any:
    """Return inputs as a frame if the model was fitted to a numeric frame, since scikit-learn checks the names."""
    names = getattr(model, "feature_names_in_", None)
    return X if names is None or model.encoder_ is not None else pl.DataFrame(X, schema=list(names))


def _draw_curves(ax: Axes, x: np.ndarray, names: list[str], mean: np.ndarray, std: np.ndarray) -> None:
    """Draw each curve with bands of one to three standard deviations."""
    for i, name in enumerate(names):
        for width in (3, 2, 1):
            low, high = mean[:, i] - width * std[:, i], mean[:, i] + width * std[:, i]
            ax.fill_between(x, low, high, color=f"C{i}", alpha=0.2, linewidth=0)
        ax.plot(x, mean[:, i], color=f"C{i}", linewidth=1.2, label=name)
    _draw_legend(ax, names)


def _draw_legend(ax: Axes, names: list[str]) -> None:
    if len(names) > 1:
        ax.legend(fontsize="small", frameon=False)


def _limit_to_possible_values(ax: Axes, model: Any) -> Axes:
    """Limit the axis to probabilities or counts, since bands of standard deviations go beyond them."""
    if is_classifier(model):
        ax.set_ylim(-0.05, 1.05)
    elif model.model_.likelihood.counts:
        ax.set_ylim(bottom=-0.02 * ax.get_ylim()[1])
    return ax
