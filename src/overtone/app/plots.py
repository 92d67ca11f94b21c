"""Plot a fitted estimator on matplotlib axes. X holds inputs as the estimator takes them, an array or a frame."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from sklearn.base import is_classifier
from sklearn.calibration import calibration_curve
from sklearn.metrics import confusion_matrix

from overtone.app.curves import (
    curves,
    draw_bands,
    draw_legend,
    draw_sweep,
    inputs_of,
    label_dates,
    means,
    shortened,
    shown_outputs,
    targets,
    training_rows,
    with_column_names,
)
from overtone.app.loading import label_text
from overtone.app.sweeps import MAX_LEVELS, find_sweep, rows_between, table_columns, trend_column
from overtone.estimators.recent import is_series

RED, GREY, PALE = "#c8102e", "#777777", "#aaaaaa"
GRID_POINTS, SPECTRUM_POINTS = 300, 2048
DOT = 2.5  # the size of a row
MAX_UNITS, MAX_SHUFFLED, MAX_BARS = 6, 200, 12
MAX_GAP = 8  # median steps between rows, beyond which the line through dates is interrupted
MIN_BEFORE = 30  # training rows that are drawn before a forecast, or twice as many as the forecast has rows


def prediction(model: Any, X, y, ax: Axes | None = None, *, column: int | None = None, output=None) -> Axes:
    """Plot the predictive mean with one to three standard deviations, or class probabilities, and the data as dots.

    With several inputs, show the predictions for the rows of X against one `column`, by default the most relevant one.
    With several targets, show all of them or one `output`.
    """
    ax = plt.gca() if ax is None else ax
    frame, X = X, inputs_of(model, X)
    if X.shape[1] == 1:
        column, grid = 0, _sweep(X, 0, margin=0.05)
        draw_bands(ax, grid[:, 0], *_bands(model, grid, output))
    else:
        column = _most_relevant(model, frame) if column is None else column
        names, mean, bands = _bands(model, X, output)
        for i, name in enumerate(names):
            for low, high in bands[-1:]:
                ax.vlines(X[:, column], low[:, i], high[:, i], color=f"C{i}", alpha=0.25, linewidth=0.8)
            ax.plot(X[:, column], mean[:, i], ".", color=f"C{i}", markersize=DOT, label=name)
        draw_legend(ax, names)
    _draw_targets(ax, model, X[:, column], targets(model, y, output))
    return _limit_to_possible_values(ax, model)


def series(model: Any, X, y, ax: Axes | None = None, *, output: int | None = None) -> Axes:
    """Plot the predictions of rows along their date, or their only number, as a line with 50 and 95 % intervals.

    Where nothing else is an input, the line goes on between the rows, and the last training rows before them are shown
    in grey. Of counts with an exposure, y are those for an exposure of 1.
    """
    ax, X = plt.gca() if ax is None else ax, inputs_of(model, X)
    column, (i, *_) = trend_column(model) or table_columns(model)[0]
    order = np.argsort(X[:, i], kind="stable")
    rows, Y = X[order], targets(model, np.asarray(y)[order], output)
    shown = rows_between(column, rows) if is_series(model) else rows
    found, steps = curves(model, shown, output), np.diff(shown[:, i], append=shown[-1, i])
    is_gap = (steps > MAX_GAP * np.median(steps)) & (column.kind == "time" and not is_series(model))
    at = 1 + np.flatnonzero(is_gap)
    mean, *bounds = (np.insert(part, at, np.nan, axis=0) for part in (found.mean, *sum(found.bands, ())))
    bands = list(zip(bounds[::2], bounds[1::2], strict=True))
    draw_bands(ax, np.insert(shown[:, i], at, np.nan), found.names, mean, bands)
    x, before = training_rows(model, output)
    kept = np.flatnonzero(x < rows[0, i])[-max(MIN_BEFORE, 2 * len(rows)) :]
    for values in before[kept].T[: 1 if is_classifier(model) else None]:
        ax.plot(x[kept], values, ".", color=PALE, markersize=DOT, zorder=1)
    _draw_targets(ax, model, rows[:, i], Y)
    if column.kind == "time":
        label_dates(ax)
    return _limit_to_possible_values(ax, model)


def observed(model: Any, X, y, ax: Axes | None = None, *, output: int | None = None, **exposure) -> Axes:
    """Plot the targets of rows against their predictions, with 95 % intervals; on the diagonal, they are equal."""
    ax = plt.gca() if ax is None else ax
    found, Y = curves(model, inputs_of(model, X), output, **exposure), targets(model, y, output)
    for i, name in enumerate(found.names):
        mean = found.mean[:, i]
        for low, high in found.bands[:1]:  # as one path, which is shorter than many
            lines = np.stack([low[:, i], high[:, i], np.full(len(mean), np.nan)], axis=1)
            ax.plot(np.repeat(mean, 3), lines.ravel(), color=f"C{i}", alpha=0.3, linewidth=0.8)
        ax.plot(mean, Y[:, i], ".", color=f"C{i}" if i else RED, markersize=DOT, label=name)
    ends = [np.min(found.mean), np.max(found.mean)]
    ax.plot(ends, ends, color=GREY, linewidth=0.8)
    ax.set(xlabel="prediction", ylabel="value")
    return ax


def layer(model: Any, X, index: int, ax: Axes | None = None, *, column: int = 0) -> Axes:
    """Plot the marginals of a layer's first units along one input, in the model's units, others at their medians."""
    ax = plt.gca() if ax is None else ax
    rows = _sweep(inputs_of(model, X), column)
    mean, std = (part[:, :MAX_UNITS] for part in model.layer_marginals(with_column_names(model, rows))[index])
    draw_bands(ax, rows[:, column], [f"unit {i + 1}" for i in range(mean.shape[1])], mean, _widths(mean, std))
    return ax


def effect(model: Any, X, column: int | str, ax: Axes | None = None, *, output: int | None = None) -> Axes:
    """Plot the prediction along one input, with 50 and 95 % intervals; the others are those of a typical row.

    column: the name of a column of the table, of one of its inputs, such as "when: time of day", or the position of an
        input. A category has a dot for each of its levels, and the parts of a date have hours, weekdays and months.
    """
    ax = plt.gca() if ax is None else ax
    sweep = find_sweep(model, inputs_of(model, X), column)
    found = curves(model, sweep.rows, output)
    label = found.names[0] if len(found.names) == 1 else "probability" if is_classifier(model) else ""
    draw_sweep(ax, sweep, found, label)
    return _limit_to_possible_values(ax, model)


def relevance(model: Any, X) -> dict[str, float]:
    """Return for each column of the table how far predictions move if its cells are shuffled among the rows.

    It is the standard deviation of the column's effect, where effects of columns add up. With several targets, effects
    are in standard deviations of each target.
    """
    rng, X = np.random.default_rng(0), inputs_of(model, X)
    X = X[rng.permutation(len(X))[:MAX_SHUFFLED]]
    columns = table_columns(model)
    shuffled = np.repeat(X[None], 1 + len(columns), axis=0)
    for rows, (_, inputs) in zip(shuffled[1:], columns, strict=True):
        rows[:, inputs] = X[:, inputs][rng.permutation(len(X))]
    found = means(model, shuffled.reshape(-1, X.shape[1])).reshape(*shuffled.shape[:2], -1)
    if not is_classifier(model) and found.shape[2] > 1:
        found = found / model.y_spread_
    moved = np.sqrt(np.mean((found[1:] - found[0]) ** 2, axis=(1, 2)) / 2)
    return {column.name: float(value) for (column, _), value in zip(columns, moved, strict=True)}


def importance(model: Any, X, ax: Axes | None = None) -> Axes:
    """Plot the relevance of the columns of the table as bars, the largest ones first."""
    ax = plt.gca() if ax is None else ax
    ordered = sorted(relevance(model, X).items(), key=lambda pair: -pair[1])[:MAX_BARS]
    ax.barh([shortened(name) for name, _ in ordered], [value for _, value in ordered], color="C0", height=0.6)
    several = len(model.target_names) > 1
    unit = "probability" if is_classifier(model) else "standard deviations" if several else model.target_names[0]
    ax.set(xlabel=unit, ylim=(len(ordered) - 0.5, -0.5))
    return ax


def calibration(model: Any, X, y, ax: Axes | None = None, **exposure) -> Axes:
    """Plot the share of values inside the central interval of each level; on the diagonal, intervals are calibrated.

    For classes, plot the share of rows that belong to a class against the predicted probability of the class.
    """
    ax = plt.gca() if ax is None else ax
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.8)
    X = with_column_names(model, X)
    if is_classifier(model):
        probabilities, is_class = model.predict_proba(X)[:, shown_outputs(model)], targets(model, y)
        shares, probabilities = calibration_curve(is_class.ravel(), probabilities.ravel(), n_bins=10)
        ax.plot(probabilities, shares, "o-", color="C0", markersize=4, clip_on=False)
        labels = "predicted probability", "share of rows"
    else:
        cdf = np.ravel(model.predictive_cdf(X, y, **exposure))
        ax.ecdf(np.abs(2 * cdf[~np.isnan(cdf)] - 1), color="C0")  # the least levels of intervals with each value
        labels = "level of the interval", "share of values inside"
    ax.set(xlabel=labels[0], ylabel=labels[1], xlim=(0, 1), ylim=(0, 1))
    return ax


def confusion(model: Any, X, y, ax: Axes | None = None) -> Axes:
    """Plot how many rows of each class were predicted to be of each, as a table with the shares of rows as shades."""
    ax = plt.gca() if ax is None else ax
    counts = confusion_matrix(y, model.predict(with_column_names(model, X)), labels=model.classes_)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    ax.pcolormesh(shares, cmap="Blues", vmin=0, vmax=1, edgecolors="white", linewidth=1)
    for (i, j), count in np.ndenumerate(counts) if len(counts) <= MAX_LEVELS else ():
        color = "white" if shares[i, j] > 0.5 else "black"
        ax.text(j + 0.5, i + 0.5, str(count), ha="center", va="center", color=color)
    middles, names = np.arange(len(counts)) + 0.5, [shortened(label_text(label)) for label in model.classes_]
    ax.set_xticks(middles, names, rotation=0 if sum(map(len, names)) < 30 else 90)
    ax.set_yticks(middles, names)
    ax.set(xlabel="predicted", ylabel="true", ylim=(len(counts), 0))
    return ax


def residuals(model: Any, X, y, ax: Axes | None = None, **exposure) -> Axes:
    """Plot the residuals, in predictive standard deviations, against the predicted mean."""
    ax = plt.gca() if ax is None else ax
    mean, std = model.predict(with_column_names(model, X), return_std=True, **exposure)
    ax.axhspan(-2, 2, color="C0", alpha=0.12, linewidth=0)
    ax.plot(np.ravel(mean), np.ravel((np.reshape(y, mean.shape) - mean) / std), ".", color="C0", markersize=DOT)
    ax.set(xlabel="predicted mean", ylabel="residual in standard deviations")
    return ax


def spectrum(model: Any, X, ax: Axes | None = None, *, column: int = 0) -> Axes:
    """Plot the spectrum of the predicted mean along one input, with the others at their medians."""
    ax = plt.gca() if ax is None else ax
    mean = means(model, _sweep(inputs_of(model, X), column, SPECTRUM_POINTS))
    waves = np.fft.rfft(np.hanning(len(mean))[:, None] * (mean - mean.mean(axis=0)), axis=0)
    energy = np.sum(np.abs(waves) ** 2, axis=1)[1:]
    num_shown = 1 + np.max(np.nonzero(np.cumsum(energy) < 0.999 * energy.sum())[0], initial=9)
    shares = energy[:num_shown] / max(energy.sum(), 1e-300)
    ax.bar(np.arange(1, len(shares) + 1), shares, width=1.0, color="C0")
    ax.set(xlabel="frequency, in cycles over the range", ylabel="share of the energy")
    return ax


def _most_relevant(model: Any, X) -> int:
    """Return the position of the first input of the most relevant column."""
    found = relevance(model, X)
    return max(table_columns(model), key=lambda pair: found[pair[0].name])[1][0]


def _sweep(X: np.ndarray, column: int, num: int = GRID_POINTS, margin: float = 0.0) -> np.ndarray:
    """Return rows with values over the range of one input, and the other inputs at their medians."""
    values = np.unique(X[:, column])
    if len(values) > MAX_LEVELS:
        reach = margin * np.ptp(values)
        values = np.linspace(values[0] - reach, values[-1] + reach, num)
    rows = np.repeat(np.median(X, axis=0)[None], len(values), axis=0)
    rows[:, column] = values
    return rows


def _bands(model: Any, X: np.ndarray, output: int | None = None) -> tuple[list[str], np.ndarray, list[tuple]]:
    """Return names, means and bands of curves, of three, two and one standard deviations, or those of probabilities."""
    if is_classifier(model):
        found = curves(model, X)
        return found.names, found.mean, found.bands
    rows, shown = with_column_names(model, X), shown_outputs(model, output)
    mean, std = (part.reshape(len(X), -1)[:, shown] for part in model.predict(rows, return_std=True))
    return [model.target_names[i] for i in shown], mean, _widths(mean, std)


def _widths(mean: np.ndarray, std: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(mean - width * std, mean + width * std) for width in (3, 2, 1)]


def _draw_targets(ax: Axes, model: Any, x: np.ndarray, Y: np.ndarray) -> None:
    """Draw targets as dots, unless they are the zeros and ones of several classes, which overlap."""
    for i, values in enumerate(Y.T if Y.shape[1] == 1 or not is_classifier(model) else ()):
        ax.plot(x, values, ".", color=f"C{i}" if i else RED, markersize=DOT, zorder=3)


def _limit_to_possible_values(ax: Axes, model: Any) -> Axes:
    """Limit the axis to probabilities or counts, since bands of standard deviations go beyond them."""
    if is_classifier(model):
        ax.set_ylim(-0.03, 1.03)
    elif model.model_.likelihood.counts:
        ax.set_ylim(bottom=-0.02 * ax.get_ylim()[1])
    return ax
