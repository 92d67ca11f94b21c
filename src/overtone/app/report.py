"""Render one self-contained HTML page about a fitted model: inline figures, no scripts, nothing from the network."""

import io
import re
import zlib
from collections.abc import Callable
from functools import partial
from html import escape
from itertools import product
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.base import is_classifier

from overtone.app import plots
from overtone.app.loading import LEVELS, MIN_ROWS, TOLERANCE, coverage_warnings, describe

MAX_EFFECTS, MAX_ROWS = 8, 1200
MIN_STEPS, MAX_RESIDUAL, MAX_ERROR = 100, 0.1, 0.95  # beyond which the page warns
METRICS = {
    "rows": "rows",
    "rmse": "root mean squared error",
    "standardised_rmse": "the same, in standard deviations of the training targets",
    "accuracy": "rows whose most probable class is right",
    "brier": "Brier score",
    "log_density": "mean log density, in nats",
    "crps": "continuous ranked probability score",
    **{f"coverage_{level}": f"values inside the {level}% interval" for level in LEVELS},
}
STYLE = """
:root { color-scheme: light; font-family: system-ui, sans-serif; line-height: 1.5; color: #1a1a1a; }
body { max-width: 60rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2rem; border-bottom: 1px solid #ddd; }
table { border-collapse: collapse; } td { padding: .15rem 1rem .15rem 0; vertical-align: top; }
td:last-child { font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr)); gap: 1rem; }
.wide { grid-column: 1 / -1; } figure { margin: 0; break-inside: avoid; } svg { width: 100%; height: auto; }
figcaption { font-size: .9rem; color: #444; }
.warning { background: #fff4e0; border-left: .3rem solid #e08a00; padding: .4rem .8rem; margin: .4rem 0; }
.good { background: #eaf6ec; border-left: .3rem solid #3a9b4b; padding: .4rem .8rem; }
"""


def render_report(model: Any, X, y, *, names: list[str], target="y", time: int | None = None, **exposure) -> str:
    """Return a page about rows X (N, D) and y as HTML; `names` are those of the inputs, `time` is the one of dates."""
    X, y = model.inputs(X), np.asarray(y)
    metrics, residual = model.evaluate(X, y, **exposure), model.residual_fraction(X)
    several = model.target_names if len(model.target_names) > 1 else []
    columns = model.evaluate_outputs(X, y, **exposure) if several else [metrics]
    scores: dict[str, list[str]] = {"target": several} if several else {}
    scores |= {METRICS[name]: [_metric(name, column[name]) for column in columns] for name in metrics}
    shown = np.sort(np.random.default_rng(0).permutation(len(X))[:MAX_ROWS])
    X, y, exposure = X[shown], y[shown], {name: np.asarray(values)[shown] for name, values in exposure.items()}
    relevance = plots.relevance(model, X)
    order = [int(i) for i in np.argsort(-relevance)][:MAX_EFFECTS]
    main, outputs = order[0] if time is None else time, list(enumerate(several)) or [(None, target)]
    effects = []
    for i, (output, label) in product(order, outputs):
        change = f"{relevance[i]:.3g} standard deviations; here, {label}" if several else f"{relevance[i]:.3g}"
        plot = partial(plots.effect, model, X, i, output=output)
        effects.append(_figure(plot, f"{names[i]}: moves the prediction by {change}.", xlabel=names[i], ylabel=label))
    about = describe(model, names, target)
    about["residual fraction of each layer"] = ", ".join(f"{share:.2g}" for share in residual)
    sections = {
        "What to know first": _paragraphs(model_warnings(model, X, metrics, residual)),
        "How good the predictions are": _table(scores),
        "Figures": _grid(_figures(model, X, y, exposure, main, names[main], outputs, time is not None)),
        "The effect of each input, with the others at their medians": _grid(effects),
        "What was decided, and why": _table({name: [reason] for name, reason in model.plan_.reasons.items()}),
        "The model": _table({name: [text] for name, text in about.items()}),
    }
    body = "".join(f"<h2>{title}</h2>{content}" for title, content in sections.items() if content)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(target)}: a report</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<style>{STYLE}</style></head><body><h1>Predictions of {escape(target)}</h1>{body}</body></html>\n"
    )


def _figures(model: Any, X, y, exposure: dict, column: int, name: str, outputs, dates: bool) -> list[str]:
    """Return figures of the predictions against one column, and of calibration, residuals and spectrum."""
    classes = is_classifier(model)
    dots = "" if classes and len(model.classes_) > 2 else " and data (red dots)"
    rates = (y.T / exposure["exposure"]).T if exposure else y  # since predictions are for an exposure of 1
    figures = []
    for output, label in outputs:
        plot = partial(plots.prediction, model, X, rates, column=column, output=output)
        caption = f"Predictions of {label} (with standard deviations){dots} against {name}."
        figures.append(_figure(plot, caption, wide=True, dates=dates, xlabel=name, ylabel=label))
    rows = model, X, y
    panels = [
        (partial(plots.calibration, *rows, **exposure), "Calibration: the closer to the diagonal, the better."),
        (partial(plots.residuals, *rows, **exposure), "Residuals: 19 of 20 should lie in the band."),
        (partial(plots.spectrum, model, X, column=column), f"Spectrum of the prediction along {name}."),
    ]
    if classes:
        del panels[1]  # a class has no residual
    return figures + [_figure(plot, caption) for plot, caption in panels]


def _metric(name: str, value: float) -> str:
    return f"{value:.1%}" if name.startswith(("accuracy", "coverage")) else f"{value:.6g}"


def model_warnings(model: Any, X: np.ndarray, metrics: dict[str, float], residual: list[float]) -> list[str]:
    """Return what a user should know before trusting the predictions, in plain words."""
    rows, num_steps, missed = metrics["rows"], len(model.history_.loss), max(residual)
    exact = model.plan_.is_exact(model.model_)
    low, high = model.x_scaling_.shift, model.x_scaling_.shift + model.x_scaling_.scale
    outside, error = np.mean(np.any((X < low - 1e-9) | (X > high + 1e-9), axis=1)), metrics.get("standardised_rmse", 0)
    checks = [
        (model.history_.message, model.history_.message),
        (rows < MIN_ROWS, f"There are only {rows} rows here: the metrics below are rough."),
        (num_steps < MIN_STEPS and not exact, f"Training took only {num_steps} steps: give it more time."),
        (missed > MAX_RESIDUAL, f"A layer's features miss {missed:.0%} of its variance: more frequencies would help."),
        (error > MAX_ERROR, "The predictions are hardly better than the target's mean: the inputs may say little."),
        (outside > TOLERANCE, f"{outside:.0%} of the rows are outside the training data: take those as guesses."),
    ]
    return [text for is_due, text in checks if is_due] + coverage_warnings(metrics)


def _paragraphs(warnings: list[str]) -> str:
    if not warnings:
        return '<p class="good">Nothing unusual was found.</p>'
    return "".join(f'<p class="warning">{escape(warning)}</p>' for warning in warnings)


def _table(rows: dict[str, list[str]]) -> str:
    lines = ("".join(f"<td>{escape(cell)}</td>" for cell in (name, *values)) for name, values in rows.items())
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>" if rows else ""


def _grid(figures: list[str]) -> str:
    return f'<div class="figures">{"".join(figures)}</div>' if figures else ""


def _figure(plot: Callable[..., Axes], caption: str, *, wide: bool = False, dates: bool = False, **labels: str) -> str:
    """Return a figure of one plot as inline SVG."""
    style: Any = {"svg.fonttype": "none", "svg.hashsalt": caption, "font.family": "sans-serif"}
    with matplotlib.rc_context({**style, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(9, 3.4) if wide else (4.4, 3.0), layout="constrained")
        ax = plot(ax=figure.subplots())
        ax.set(**labels)
        if dates:
            ax.xaxis_date()  # matplotlib, too, counts days since 1970
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None})
    # Ids must be unique on the page.
    prefix, svg = f"f{zlib.crc32(caption.encode()):x}-", stream.getvalue()
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}", svg[svg.index("<svg") :])
    attributes, text = ' class="wide"' if wide else "", escape(caption)
    return f'<figure{attributes} role="img" aria-label="{text}">{svg}<figcaption>{text}</figcaption></figure>'
