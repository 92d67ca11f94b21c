"""Pictures of a fitted estimator: axes in, axes out. X are the model's inputs, an array or a frame."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from matplotlib.axes import Axes

from overtone.estimator import DeepGPEstimator
from overtone.sklearn import DeepGPClassifier, DeepGPRegressor

BLUE, RED, GREY = "#1f5fa8", "#c8102e", "#777777"
GRID, MOST_DOTS = 500, 1200
EFFECT_POINTS, WAVE_POINTS = 60, 2048
COLOURS = (BLUE, "#e08a00", "#3a9b4b", "#8b3fa8", "#7a5230", "#0f9b9b")  # of several outputs or classes
DRAWS, BINS, MOST_UNITS = 32, 10, 6


def prediction(
    model: DeepGPEstimator, X, y, ax: Axes | None = None, *, column: int | None = None, output: int | None = None
) -> Axes:
    """The predictive mean of y with one to three standard deviations, over the data in red; of classes, probabilities.

    With several inputs, against one `column` of them (by default the most relevant), at the rows of X. Of several
    targets, all of them or one `output`.
    """
    ax = plt.gca() if ax is None else ax
    frame, X, y = X, model.inputs(X), np.asarray(y)
    rows = _some_rows(len(X))
    if X.shape[1] == 1:
        grid = _grid(X)
        _curves(ax, grid[:, 0], *_predicted(model, grid, output))
        column = 0
    else:
        column = int(np.argmax(relevance(model, frame))) if column is None else column
        names, mean, std = _predicted(model, X[rows], output)
        for i, name in enumerate(names):
            colour, at = COLOURS[i % len(COLOURS)], X[rows, column]
            ax.errorbar(
                at, mean[:, i], std[:, i], fmt=".", color=colour, ecolor=f"{colour}40", ms=2.5, lw=0.8, label=name
            )
        _legend(ax, names)
    observed = _observed(model, y[rows])
    observed = observed if output is None else observed[:, [output]]
    if not (isinstance(model, DeepGPClassifier) and observed.shape[1] > 1):  # which would cover one another
        for i, values in enumerate(observed.T):
            colour = RED if i == 0 else COLOURS[i % len(COLOURS)]
            ax.plot(X[rows, column], values, ".", color=colour, markersize=2.5, zorder=3)
    return _limited(ax, model)


def layer(model: DeepGPEstimator, X, index: int, ax: Axes | None = None, *, column: int = 0) -> Axes:
    """The distributions of a layer's first units along one input, in the model's own units.

    With one input, red dots are the first unit's means at the rows of X; with several, the others are at their medians.
    """
    ax = plt.gca() if ax is None else ax
    X = model.inputs(X)
    values, rows = (_grid(X)[:, 0], _grid(X)) if X.shape[1] == 1 else _along(X, column)
    mean, std = (part[:, :MOST_UNITS] for part in model.layer_marginals(rows)[index])
    _curves(ax, values, [f"unit {i + 1}" for i in range(mean.shape[1])], mean, std)
    if X.shape[1] == 1:
        ax.plot(X[:, 0], model.layer_marginals(X)[index][0][:, 0], ".", color=RED, markersize=2.5, zorder=3)
    return ax


def effect(model: DeepGPEstimator, X, column: int, ax: Axes | None = None, *, output: int | None = None) -> Axes:
    """The prediction along one input, with one and two standard deviations, while the others stay at their medians."""
    ax = plt.gca() if ax is None else ax
    X = model.inputs(X)
    values, rows = _along(X, column)
    _curves(ax, values, *_predicted(model, rows, output), widths=(2, 1))
    return _limited(ax, model)


def relevance(model: DeepGPEstimator, X) -> np.ndarray:
    """How much the prediction moves along each input: the standard deviation of its effect.

    Of several targets, in standard deviations of each.
    """
    X = model.inputs(X)
    moves = np.array([np.var(_mean(model, _along(X, column)[1]), axis=0) for column in range(X.shape[1])])
    if isinstance(model, DeepGPRegressor) and moves.shape[1] > 1:
        moves = moves / model.y_spread_**2
    return np.sqrt(np.mean(moves, axis=1))


def calibration(model: DeepGPEstimator, X, y, ax: Axes | None = None, **exposure) -> Axes:
    """On the diagonal, predictions are honest: the share of values inside the central interval of each level; or, where
    classes are predicted, the share of rows that are of a class, against the probability it was given."""
    ax = plt.gca() if ax is None else ax
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.8)
    if isinstance(model, DeepGPClassifier):
        given, right = model.predict_proba(X), np.asarray(y).reshape(-1, 1) == model.classes_
        given, right = (part[:, 1:].ravel() if len(model.classes_) == 2 else part.ravel() for part in (given, right))
        place = np.minimum((BINS * given).astype(int), BINS - 1)
        used = np.flatnonzero(np.bincount(place, minlength=BINS))
        mean = np.array([[part[place == i].mean() for i in used] for part in (given, right)])
        ax.plot(*mean, "o-", color=BLUE, markersize=4)
        ax.set(xlabel="predicted probability", ylabel="share of rows", xlim=(0, 1), ylim=(0, 1))
        return ax
    levels = np.linspace(0, 1, 101)
    below = np.ravel(_regressor(model).predictive_cdf(X, y, **exposure))
    inside = np.sort(2 * np.abs(below[~np.isnan(below)] - 0.5))
    ax.plot(levels, np.searchsorted(inside, levels, side="right") / len(inside), color=BLUE)
    ax.set(xlabel="level of the interval", ylabel="share of values inside", xlim=(0, 1), ylim=(0, 1))
    return ax


def residuals(model: DeepGPRegressor, X, y, ax: Axes | None = None, **exposure) -> Axes:
    """What is left of y, in predictive standard deviations, against the predicted mean."""
    ax = plt.gca() if ax is None else ax
    X, y = model.inputs(X), np.asarray(y)
    rows = _some_rows(len(X))
    given = {name: np.asarray(values)[rows] for name, values in exposure.items()}
    mean, std = _regressor(model).predict(_named(model, X[rows]), return_std=True, **given)
    ax.axhspan(-2, 2, color=BLUE, alpha=0.12, linewidth=0)
    ax.plot(np.ravel(mean), np.ravel((y[rows].reshape(mean.shape) - mean) / std), ".", color=BLUE, markersize=2.5)
    ax.set(xlabel="predicted mean", ylabel="standard deviations off")
    return ax


def training(model: DeepGPEstimator, ax: Axes | None = None) -> Axes:
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


def spectrum(model: DeepGPEstimator, X, ax: Axes | None = None, *, column: int = 0) -> Axes:
    """The energy of the predicted mean along one input at each frequency, the others at their medians."""
    ax = plt.gca() if ax is None else ax
    X = model.inputs(X)
    low, high = X[:, column].min(), X[:, column].max()
    rows = np.repeat(np.median(X, axis=0)[None], WAVE_POINTS, axis=0)
    rows[:, column] = np.linspace(low, high, WAVE_POINTS)
    mean = _mean(model, rows)
    window = np.hanning(WAVE_POINTS)[:, None]
    energy = np.sum(np.abs(np.fft.rfft(window * (mean - mean.mean(axis=0)), axis=0)) ** 2, axis=1)
    shown = 1 + np.max(np.nonzero(np.cumsum(energy) < 0.999 * energy.sum())[0], initial=9)
    ax.bar(np.arange(1, shown + 1), energy[1 : shown + 1] / max(energy.sum(), 1e-300), width=1.0, color=BLUE)
    ax.set(xlabel="frequency, in cycles over the range", ylabel="share of the energy")
    return ax


def _along(X: np.ndarray, column: int) -> tuple[np.ndarray, np.ndarray]:
    """Values of one input over its range, and rows that have them, the other inputs at their medians."""
    values = np.unique(X[:, column])
    if len(values) > EFFECT_POINTS:
        values = np.linspace(values[0], values[-1], EFFECT_POINTS)
    rows = np.repeat(np.median(X, axis=0)[None], len(values), axis=0)
    rows[:, column] = values
    return values, rows


def _mean(model: DeepGPEstimator, X: np.ndarray) -> np.ndarray:
    """Predictions (N, curves): a curve for each output, or for each class (for two, the second alone)."""
    if isinstance(model, DeepGPClassifier):
        return _shown(model, model.predict_proba(_named(model, X)))
    return np.asarray(_regressor(model).predict(_named(model, X))).reshape(len(X), -1)


def _named(model: DeepGPEstimator, X: np.ndarray) -> Any:
    """Inputs under the names of the numeric frame that the model was fitted to, if it was."""
    names = getattr(model, "feature_names_in_", None)
    return X if names is None or model.encoder_ is not None else pl.DataFrame(X, schema=list(names))


def _predicted(
    model: DeepGPEstimator, X: np.ndarray, output: int | None = None
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """The names of the curves, their means, and their standard deviations; of probabilities, over functions drawn."""
    if isinstance(model, DeepGPClassifier):
        names, draws = [f"P({label})" for label in model.classes_], model.sample_functions(DRAWS)(_named(model, X))
        return _shown(model, names), _mean(model, X), _shown(model, draws.std(axis=-1))
    mean, std = (part.reshape(len(X), -1) for part in _regressor(model).predict(_named(model, X), return_std=True))
    names = output_names(model, mean.shape[1])
    return (names, mean, std) if output is None else ([names[output]], mean[:, [output]], std[:, [output]])


def output_names(model: DeepGPEstimator, num: int) -> list[str]:
    return model.target_ if isinstance(model.target_, list) else [f"output {i + 1}" for i in range(num)]


def _observed(model: DeepGPEstimator, y: np.ndarray) -> np.ndarray:
    """The targets (N, curves) in the units of the curves."""
    if isinstance(model, DeepGPClassifier):
        return _shown(model, (y.reshape(-1, 1) == model.classes_).astype(float))
    return y.reshape(len(y), -1)


def _shown(model: DeepGPClassifier, of_classes: Any) -> Any:
    """Of two classes, the second says it all."""
    if len(model.classes_) > 2:
        return of_classes
    return of_classes[1:] if isinstance(of_classes, list) else of_classes[:, 1:]


def _regressor(model: DeepGPEstimator) -> DeepGPRegressor:
    if not isinstance(model, DeepGPRegressor):
        raise TypeError(f"this picture is of numbers; got a {type(model).__name__}.")
    return model


def _some_rows(num: int) -> np.ndarray:
    """Enough of them for a picture."""
    return np.sort(np.random.default_rng(0).permutation(num)[:MOST_DOTS])


def _grid(X: np.ndarray) -> np.ndarray:
    if X.shape[1] != 1:
        raise ValueError(f"this plot needs one input column; got {X.shape[1]}.")
    low, high = X.min(), X.max()
    margin = 0.05 * (high - low)
    return np.linspace(low - margin, high + margin, GRID)[:, None]


def _curves(ax: Axes, x: np.ndarray, names: list[str], mean: np.ndarray, std: np.ndarray, widths=(3, 2, 1)) -> None:
    for i, name in enumerate(names):
        _bands(ax, x, mean[:, i], std[:, i], widths, COLOURS[i % len(COLOURS)], name)
    _legend(ax, names)


def _limited(ax: Axes, model: DeepGPEstimator) -> Axes:
    """Probabilities and counts have bounds that standard deviations do not know."""
    if isinstance(model, DeepGPClassifier):
        ax.set_ylim(-0.05, 1.05)
    elif model.config_.likelihood == "poisson":
        ax.set_ylim(bottom=-0.02 * ax.get_ylim()[1])
    return ax


def _legend(ax: Axes, names: list[str]) -> None:
    if len(names) > 1:
        ax.legend(fontsize="small", frameon=False)


def _bands(ax: Axes, x: np.ndarray, mean: np.ndarray, std: np.ndarray, widths=(3, 2, 1), colour=BLUE, name="") -> None:
    for width in widths:
        ax.fill_between(x, mean - width * std, mean + width * std, color=colour, alpha=0.2, linewidth=0)
    ax.plot(x, mean, color=colour, linewidth=1.2, label=name)
