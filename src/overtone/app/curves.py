"""What a fitted estimator predicts at rows of inputs, in the form that pictures take, and how it is drawn."""

import textwrap
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from matplotlib import dates, ticker
from matplotlib.axes import Axes
from sklearn.base import is_classifier

from overtone.app.loading import label_text
from overtone.app.sweeps import MAX_LEVELS, Sweep
from overtone.estimators.recent import is_series

BOUNDS = (0.025, 0.975, 0.25, 0.75)  # of the intervals of 95 % and of 50 %
NUM_DRAWS, MAX_LABEL, MAX_UPRIGHT, MAX_ACROSS = 32, 20, 24, 3  # characters of a label and of all under an axis, names


@dataclass(frozen=True)
class Curves:
    """Hold means (N, curves) and bands, pairs of bounds (N, curves) of intervals of 95 % and of 50 %.

    They are those of targets, or of the probability of a class; with several classes, bands would hide each other.
    """

    names: list[str]
    mean: np.ndarray
    bands: list[tuple[np.ndarray, np.ndarray]]


def curves(model: Any, X: np.ndarray, output: int | None = None, **exposure: Any) -> Curves:
    """Return what is predicted at rows of X; of several targets, all or one `output`."""
    rows, shown = with_column_names(model, X), shown_outputs(model, output)
    if is_classifier(model):
        names, mean = [f"P({label_text(label)})" for label in model.classes_], model.predict_proba(rows)
        single = len(shown) == 1
        bounds = np.quantile(model.sample_functions(NUM_DRAWS)(rows), BOUNDS, axis=-1) if single else mean[:0]
    else:
        names, mean = model.target_names, model.predict(rows, **exposure).reshape(len(X), -1)
        bounds = model.predict_quantiles(rows, BOUNDS, **exposure).reshape(len(BOUNDS), len(X), -1)
    bounds = bounds[..., shown]
    return Curves([names[i] for i in shown], mean[:, shown], list(zip(bounds[::2], bounds[1::2], strict=True)))


def means(model: Any, X: np.ndarray) -> np.ndarray:
    """Return the means (N, curves) alone."""
    rows = with_column_names(model, X)
    values = model.predict_proba(rows) if is_classifier(model) else model.predict(rows).reshape(len(X), -1)
    return values[:, shown_outputs(model)]


def targets(model: Any, y: Any, output: int | None = None) -> np.ndarray:
    """Return the targets (N, curves), which are zeros and ones for classes."""
    y = np.reshape(y, (len(y), -1))
    return np.asarray(y == model.classes_ if is_classifier(model) else y, float)[:, shown_outputs(model, output)]


def shown_outputs(model: Any, output: int | None = None) -> list[int]:
    """Return which outputs or classes have curves: of two classes the second, since the first would repeat it."""
    if is_classifier(model):
        return [1] if len(model.classes_) == 2 else list(range(len(model.classes_)))
    return list(range(len(model.y_spread_))) if output is None else [output]


def training_rows(model: Any, output: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the last inputs (n,) of a series in training and their targets (n, curves), for an exposure of 1."""
    if model.recent_ is None or not is_series(model):
        return np.zeros(0), np.zeros((0, 1))
    x, Y = model.recent_[:, 0], model.recent_[:, 1:]
    if is_classifier(model):
        return x, targets(model, model.classes_[Y[:, 0].astype(int)])
    num = len(model.y_spread_)
    rates = np.exp(-Y[:, num:]) if model.model_.likelihood.counts else 1.0
    return x, (model.y_scaling_.inverse(Y[:, :num]) * rates)[:, shown_outputs(model, output)]


def inputs_of(model: Any, X: Any) -> np.ndarray:
    """Return inputs (N, D) as the model sees them, of an array or a frame."""
    return model.inputs(with_column_names(model, X))


def with_column_names(model: Any, X: Any) -> Any:
    """Return inputs as a frame if the model was fitted to a numeric frame, since scikit-learn checks the names."""
    if model.encoder_ is not None or hasattr(X, "columns") or not hasattr(model, "feature_names_in_"):
        return X
    return pl.DataFrame(np.asarray(X), schema=list(model.feature_names_in_))


def draw_bands(ax: Axes, x: np.ndarray, names: list[str], mean: np.ndarray, bands: list[tuple]) -> None:
    """Draw each curve with its bands, pairs of lower and upper bounds (N, curves)."""
    for i, name in enumerate(names):
        for low, high in bands:
            ax.fill_between(x, low[:, i], high[:, i], color=f"C{i}", alpha=0.2, linewidth=0)
        ax.plot(x, mean[:, i], color=f"C{i}", linewidth=1.2, label=name)
    draw_legend(ax, names)


def draw_sweep(ax: Axes, sweep: Sweep, found: Curves, label: str) -> None:
    """Draw what is predicted along a sweep: lines with bands, or a dot with intervals for each of a few values."""
    if len(sweep.values) > MAX_LEVELS:
        draw_bands(ax, sweep.values, found.names, found.mean, found.bands)
        _label_axis(ax, sweep)
        ax.set_ylabel(label)
        return
    lying = sweep.axis == "levels" and sum(map(len, sweep.labels)) > MAX_UPRIGHT  # so that names do not overlap
    step = np.min(np.diff(sweep.values), initial=1.0)
    for i, name in enumerate(found.names):
        places = sweep.values + 0.12 * step * (i - (len(found.names) - 1) / 2)
        for (low, high), width in zip(found.bands, (1.2, 3.5), strict=False):
            lines = ax.hlines if lying else ax.vlines
            lines(places, low[:, i], high[:, i], color=f"C{i}", alpha=0.6, linewidth=width)
        dots = (found.mean[:, i], places) if lying else (places, found.mean[:, i])
        ax.plot(*dots, "o", color=f"C{i}", markersize=5, label=name)
    draw_legend(ax, found.names)
    if lying:
        ax.set_yticks(sweep.values, [shortened(level) for level in sweep.labels])
        ax.set(ylim=(len(sweep.values) - 0.5, -0.5), xlabel=label)
    else:
        _label_axis(ax, sweep)
        ax.set_ylabel(label)


def _label_axis(ax: Axes, sweep: Sweep) -> None:
    """Label the horizontal axis in the units of a sweep: numbers, levels, dates, hours or months."""
    ax.set_xlabel("\n".join(textwrap.wrap(sweep.name, 2 * MAX_LABEL)))
    if sweep.axis == "levels":
        ax.set_xticks(sweep.values, sweep.labels)
        ax.set_xlim(-0.6, len(sweep.values) - 0.4)
    elif sweep.axis == "hours":
        ax.xaxis.set_major_locator(ticker.MaxNLocator(6, steps=[1, 2, 3, 4, 6], integer=True))
        ax.xaxis.set_major_formatter("{x:02.0f}:00")
    elif sweep.axis in ("date", "year"):
        label_dates(ax, "%b" if sweep.axis == "year" else "")


def label_dates(ax: Axes, date_format: str = "") -> None:
    """Label the horizontal axis, which has days since 1970 as matplotlib has, with dates."""
    locator = dates.AutoDateLocator(minticks=3, maxticks=6)
    ax.xaxis.set_major_locator(locator)
    formatter = dates.DateFormatter(date_format) if date_format else dates.ConciseDateFormatter(locator)
    ax.xaxis.set_major_formatter(formatter)


def draw_legend(ax: Axes, names: list[str]) -> None:
    """Name the curves if there are several."""
    if len(names) > 1:
        above: Any = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": min(len(names), MAX_ACROSS)}
        ax.legend(frameon=False, borderpad=0, columnspacing=1, handlelength=1, **above)


def shortened(name: str) -> str:
    """Return a name that fits beside an axis."""
    return name if len(name) <= MAX_LABEL else name[: MAX_LABEL - 1] + "…"
