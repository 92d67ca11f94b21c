"""Plot a fitted estimator on matplotlib axes. X holds inputs as the estimator takes them, an array or a frame."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from matplotlib.axes import Axes

from overtone.estimators.base import DeepGPEstimator
from overtone.sklearn import DeepGPClassifier, DeepGPRegressor

BLUE, RED, GREY = "#1f5fa8", "#c8102e", "#777777"
COLOURS = (BLUE, "#e08a00", "#3a9b4b", "#8b3fa8", "#7a5230", "#0f9b9b")  # of outputs or classes
GRID_POINTS, EFFECT_POINTS, SPECTRUM_POINTS = 500, 60, 2048
MAX_ROWS, MAX_UNITS = 1200, 6
NUM_DRAWS, NUM_BINS = 32, 10
Curves = tuple[list[str], np.ndarray, np.ndarray]


def prediction(
    model: DeepGPEstimator, X, y, ax: Axes | None = None, *, column: int | None = None, output: int | None = None
) -> Axes:
    """Plot the predictive mean with one to three standard deviations, or class probabilities, and the data as dots.

    With several inputs, show the predictions for the rows of X against one `column`, by default the most relevant one.
    With several targets, show all of them or one `output`.
    """
    ax = plt.gca() if ax is None else ax
    frame, X, y = X, model.inputs(X), np.asarray(y)
    rows = _subsample(len(X))
    if X.shape[1] == 1:
        grid = _grid(X)
        _draw_curves(ax, grid[:, 0], *_predict_curves(model, grid, output))
        column = 0
    else:
        column = int(np.argmax(relevance(model, frame))) if column is None else column
        names, mean, std = _predict_curves(model, X[rows], output)
        for i, name in enumerate(names):
            style = {"fmt": ".", "color": _colour(i), "ecolor": f"{_colour(i)}40", "ms": 2.5, "lw": 0.8}
            ax.errorbar(X[rows, column], mean[:, i], std[:, i], label=name, **style)
        _draw_legend(ax, names)
    targets = _targets_of_curves(model, y[rows])
    targets = targets if output is None else targets[:, [output]]
    if not (isinstance(model, DeepGPClassifier) and targets.shape[1] > 1):  # zeros and ones of several classes overlap
        for i, values in enumerate(targets.T):
            ax.plot(X[rows, column], values, ".", color=_colour(i) if i else RED, markersize=2.5, zorder=3)
    return _limit_to_possible_values(ax, model)


def layer(model: DeepGPEstimator, X, index: int, ax: Axes | None = None, *, column: int = 0) -> Axes:
    """Plot the marginals of a layer's first units along one input, in the model's own units.

    With one input, red dots mark the first unit's mean at the rows of X; with several, the others are at their medians.
    """
    ax = plt.gca() if ax is None else ax
    X = model.inputs(X)
    values, rows = (_grid(X)[:, 0], _grid(X)) if X.shape[1] == 1 else _sweep(X, column)
    mean, std = (part[:, :MAX_UNITS] for part in model.layer_marginals(rows)[index])
    _draw_curves(ax, values, [f"unit {i + 1}" for i in range(mean.shape[1])], mean, std)
    if X.shape[1] == 1:
        ax.plot(X[:, 0], model.layer_marginals(X)[index][0][:, 0], ".", color=RED, markersize=2.5, zorder=3)
    return ax


def effect(model: DeepGPEstimator, X, column: int, ax: Axes | None = None, *, output: int | None = None) -> Axes:
    """Plot the prediction along one input, with one and two standard deviations and the others at their medians."""
    ax = plt.gca() if ax is None else ax
    values, rows = _sweep(model.inputs(X), column)
    _draw_curves(ax, values, *_predict_curves(model, rows, output), widths=(2, 1))
    return _limit_to_possible_values(ax, model)


def relevance(model: DeepGPEstimator, X) -> np.ndarray:
    """Return the standard deviation of each input's effect on the prediction.

    With several targets, effects are in standard deviations of each target.
    """
    X = model.inputs(X)
    variances = np.array([np.var(_predict_mean(model, _sweep(X, i)[1]), axis=0) for i in range(X.shape[1])])
    if isinstance(model, DeepGPRegressor) and variances.shape[1] > 1:
        variances = variances / model.y_spread_**2
    return np.sqrt(np.mean(variances, axis=1))


def calibration(model: DeepGPEstimator, X, y, ax: Axes | None = None, **exposure) -> Axes:
    """Plot the share of values inside the central interval of each level; on the diagonal, intervals are calibrated.

    For classes, plot the share of rows that belong to a class against the predicted probability of the class.
    """
    ax = plt.gca() if ax is None else ax
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.8)
    if isinstance(model, DeepGPClassifier):
        probabilities = _shown_classes(model, model.predict_proba(X)).ravel()
        is_class = _targets_of_curves(model, np.asarray(y)).ravel()
        bins = np.minimum((NUM_BINS * probabilities).astype(int), NUM_BINS - 1)
        used = np.unique(bins)
        means = np.array([[part[bins == i].mean() for i in used] for part in (probabilities, is_class)])
        ax.plot(*means, "o-", color=BLUE, markersize=4)
        ax.set(xlabel="predicted probability", ylabel="share of rows", xlim=(0, 1), ylim=(0, 1))
        return ax
    levels = np.linspace(0, 1, 101)
    cdf = np.ravel(_check_regressor(model).predictive_cdf(X, y, **exposure))
    least_levels = np.sort(2 * np.abs(cdf[~np.isnan(cdf)] - 0.5))  # of the intervals that contain each value
    ax.plot(levels, np.searchsorted(least_levels, levels, side="right") / len(least_levels), color=BLUE)
    ax.set(xlabel="level of the interval", ylabel="share of values inside", xlim=(0, 1), ylim=(0, 1))
    return ax


def residuals(model: DeepGPRegressor, X, y, ax: Axes | None = None, **exposure) -> Axes:
    """Plot the residuals, in predictive standard deviations, against the predicted mean."""
    ax = plt.gca() if ax is None else ax
    X, y = model.inputs(X), np.asarray(y)
    rows = _subsample(len(X))
    exposure = {name: np.asarray(values)[rows] for name, values in exposure.items()}
    mean, std = _check_regressor(model).predict(_with_column_names(model, X[rows]), return_std=True, **exposure)
    ax.axhspan(-2, 2, color=BLUE, alpha=0.12, linewidth=0)
    ax.plot(np.ravel(mean), np.ravel((y[rows].reshape(mean.shape) - mean) / std), ".", color=BLUE, markersize=2.5)
    ax.set(xlabel="predicted mean", ylabel="residual in standard deviations")
    return ax


def training(model: DeepGPEstimator, ax: Axes | None = None) -> Axes:
    """Plot the bound per row at each step, and its running mean."""
    ax = plt.gca() if ax is None else ax
    bound = -np.asarray(model.history_.loss)
    width = max(1, len(bound) // 50)
    ax.plot(bound, color=BLUE, alpha=0.3, linewidth=0.6)
    running_mean = np.convolve(bound, np.full(width, 1 / width), "valid")
    ax.plot(np.arange(len(running_mean)) + width / 2, running_mean, color=BLUE)
    if len(bound) > 1:  # without the first steps, which would flatten all others
        low, high = np.quantile(bound, [0.05, 1.0])
        margin = 0.1 * (high - low) + 1e-6
        ax.set_ylim(low - margin, high + margin)
    ax.set(xlabel="step", ylabel="bound per row")
    return ax


def spectrum(model: DeepGPEstimator, X, ax: Axes | None = None, *, column: int = 0) -> Axes:
    """Plot the spectrum of the predicted mean along one input, with the others at their medians."""
    ax = plt.gca() if ax is None else ax
    X = model.inputs(X)
    values = np.linspace(X[:, column].min(), X[:, column].max(), SPECTRUM_POINTS)
    mean = _predict_mean(model, _rows_with(X, column, values))
    window = np.hanning(SPECTRUM_POINTS)[:, None]
    energy = np.sum(np.abs(np.fft.rfft(window * (mean - mean.mean(axis=0)), axis=0)) ** 2, axis=1)
    shown = 1 + np.max(np.nonzero(np.cumsum(energy) < 0.999 * energy.sum())[0], initial=9)
    ax.bar(np.arange(1, shown + 1), energy[1 : shown + 1] / max(energy.sum(), 1e-300), width=1.0, color=BLUE)
    ax.set(xlabel="frequency, in cycles over the range", ylabel="share of the energy")
    return ax


def _sweep(X: np.ndarray, column: int) -> tuple[np.ndarray, np.ndarray]:
    """Return values over the range of one input, and rows with those values and the other inputs at their medians."""
    values = np.unique(X[:, column])
    if len(values) > EFFECT_POINTS:
        values = np.linspace(values[0], values[-1], EFFECT_POINTS)
    return values, _rows_with(X, column, values)


def _rows_with(X: np.ndarray, column: int, values: np.ndarray) -> np.ndarray:
    rows = np.repeat(np.median(X, axis=0)[None], len(values), axis=0)
    rows[:, column] = values
    return rows


def _predict_mean(model: DeepGPEstimator, X: np.ndarray) -> np.ndarray:
    """Return predictions (N, curves), with one curve for each output or shown class."""
    if isinstance(model, DeepGPClassifier):
        return _shown_classes(model, model.predict_proba(_with_column_names(model, X)))
    return np.asarray(_check_regressor(model).predict(_with_column_names(model, X))).reshape(len(X), -1)


def _with_column_names(model: DeepGPEstimator, X: np.ndarray) -> Any:
    """Return inputs as a frame if the model was fitted to a numeric frame, since scikit-learn checks the names."""
    names = getattr(model, "feature_names_in_", None)
    return X if names is None or model.encoder_ is not None else pl.DataFrame(X, schema=list(names))


def _predict_curves(model: DeepGPEstimator, X: np.ndarray, output: int | None = None) -> Curves:
    """Return the names of the curves, their means, and their standard deviations; of probabilities, over draws of f."""
    named = _with_column_names(model, X)
    if isinstance(model, DeepGPClassifier):
        names, draws = [f"P({label})" for label in model.classes_], model.sample_functions(NUM_DRAWS)(named)
        return _shown_classes(model, names), _predict_mean(model, X), _shown_classes(model, draws.std(axis=-1))
    mean, std = (part.reshape(len(X), -1) for part in _check_regressor(model).predict(named, return_std=True))
    names = output_names(model, mean.shape[1])
    return (names, mean, std) if output is None else ([names[output]], mean[:, [output]], std[:, [output]])


def output_names(model: DeepGPEstimator, num: int) -> list[str]:
    """Return the names of the targets, or numbers where they have none."""
    return model.target_ if isinstance(model.target_, list) else [f"output {i + 1}" for i in range(num)]


def _targets_of_curves(model: DeepGPEstimator, y: np.ndarray) -> np.ndarray:
    """Return the targets (N, curves), which are zeros and ones for classes."""
    if isinstance(model, DeepGPClassifier):
        return _shown_classes(model, (y.reshape(-1, 1) == model.classes_).astype(float))
    return y.reshape(len(y), -1)


def _shown_classes(model: DeepGPClassifier, values: Any) -> Any:
    """Return the values of all classes, or of the second of two classes, since the first would repeat it."""
    if len(model.classes_) > 2:
        return values
    return values[1:] if isinstance(values, list) else values[:, 1:]


def _check_regressor(model: DeepGPEstimator) -> DeepGPRegressor:
    if not isinstance(model, DeepGPRegressor):
        raise TypeError(f"this plot needs a regressor; got a {type(model).__name__}.")
    return model


def _subsample(num_rows: int) -> np.ndarray:
    """Return the indices of at most as many rows as a plot can show."""
    return np.sort(np.random.default_rng(0).permutation(num_rows)[:MAX_ROWS])


def _grid(X: np.ndarray) -> np.ndarray:
    margin = 0.05 * (X.max() - X.min())
    return np.linspace(X.min() - margin, X.max() + margin, GRID_POINTS)[:, None]


def _draw_curves(ax: Axes, x, names: list[str], mean: np.ndarray, std: np.ndarray, widths=(3, 2, 1)) -> None:
    """Draw each curve with a band for each width, in standard deviations."""
    for i, name in enumerate(names):
        for width in widths:
            low, high = mean[:, i] - width * std[:, i], mean[:, i] + width * std[:, i]
            ax.fill_between(x, low, high, color=_colour(i), alpha=0.2, linewidth=0)
        ax.plot(x, mean[:, i], color=_colour(i), linewidth=1.2, label=name)
    _draw_legend(ax, names)


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def _draw_legend(ax: Axes, names: list[str]) -> None:
    if len(names) > 1:
        ax.legend(fontsize="small", frameon=False)


def _limit_to_possible_values(ax: Axes, model: DeepGPEstimator) -> Axes:
    """Limit the axis to probabilities or counts, since bands of standard deviations go beyond them."""
    if isinstance(model, DeepGPClassifier):
        ax.set_ylim(-0.05, 1.05)
    elif model.likelihood_.counts:
        ax.set_ylim(bottom=-0.02 * ax.get_ylim()[1])
    return ax
