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

from overtone.app import plots
from overtone.sklearn import DeepGPClassifier
from overtone.version import __version__

MAX_EFFECTS, MAX_ROWS = 8, 5000
MIN_ROWS, MIN_STEPS, MAX_RESIDUAL, TOLERANCE = 50, 100, 0.1, 0.05  # beyond which the page warns
METRICS = {
    "rows": "rows",
    "rmse": "root mean squared error",
    "standardised_rmse": "the same, in standard deviations of the training targets",
    "accuracy": "rows whose most probable class is right",
    "brier": "Brier score",
    "log_density": "mean log density, in nats",
    "crps": "continuous ranked probability score",
    "coverage_50": "values inside the 50% interval",
    "coverage_80": "values inside the 80% interval",
    "coverage_95": "values inside the 95% interval",
}
PERCENTAGES = ("accuracy", "coverage_50", "coverage_80", "coverage_95")
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
@media print { body { max-width: none; } h2 { break-after: avoid; } }
"""


def render_report(model: Any, X, y, *, names: list[str], target="y", time: int | None = None, exposure=None) -> str:
    """Return a page about rows X (N, D) and y as HTML; `names` are those of the inputs, `time` is the one of dates."""
    X, y = model.inputs(X), np.asarray(y)
    keywords = {} if exposure is None else {"exposure": np.asarray(exposure)}
    metrics, residual = model.evaluate(X, y, **keywords), model.residual_fraction(X)
    several = plots.output_names(model, y.shape[1]) if y.ndim == 2 and y.shape[1] > 1 else []
    columns = model.evaluate_outputs(X, y, **keywords) if several else [metrics]
    scores = {
        METRICS[name]: [f"{column[name]:.1%}" if name in PERCENTAGES else f"{column[name]:.6g}" for column in columns]
        for name in metrics
    }
    shown = np.sort(np.random.default_rng(0).permutation(len(X))[:MAX_ROWS])
    X, y, keywords = X[shown], y[shown], {name: values[shown] for name, values in keywords.items()}
    relevance = plots.relevance(model, X)
    order = [int(i) for i in np.argsort(-relevance)][:MAX_EFFECTS]
    main, outputs = order[0] if time is None else time, list(enumerate(several)) or [(None, target)]
    predictions = _prediction_figures(model, X, y, keywords, names[main], main, outputs, dates=time is not None)
    effects, hidden_layers = [], []
    for i, (output, label) in product(order, outputs):
        change = f"{relevance[i]:.3g} standard deviations; here, {label}" if several else f"{relevance[i]:.3g}"
        plot = partial(plots.effect, model, X, i, output=output)
        effects.append(_figure(plot, f"{names[i]}: moves the prediction by {change}.", xlabel=names[i], ylabel=label))
    for i in range(len(model.model_.layers) - 1):
        plot, caption = partial(plots.layer, model, X, i, column=main), f"Layer {i + 1}: its units along {names[main]}."
        hidden_layers.append(_figure(plot, caption, xlabel=names[main]))
    sections = [
        ("What to know first", _paragraphs(model_warnings(model, X, metrics, residual))),
        ("How good the predictions are", _table(({"target": several} if several else {}) | scores)),
        ("Figures", _grid(predictions)),
        ("The effect of each input, with the others at their medians", _grid(effects)),
        ("Hidden layers", _grid(hidden_layers)),
        ("What was decided, and why", _table({name: [reason] for name, reason in model.plan_.reasons.items()})),
        ("The model", _table(_description(model, names, target, residual))),
    ]
    body = "".join(f"<h2>{title}</h2>{content}" for title, content in sections if content)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(target)}: a report</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<style>{STYLE}</style></head><body><h1>Predictions of {escape(target)}</h1>{body}</body></html>\n"
    )


def _prediction_figures(model: Any, X, y, keywords: dict, name: str, column: int, outputs, dates: bool) -> list[str]:
    """Return figures of the predictions against one column, and of calibration, residuals, training and spectrum."""
    classes = isinstance(model, DeepGPClassifier)
    values, calibrated = ("Probabilities", "probabilities") if classes else ("Predictions", "intervals")
    dots = "" if classes and len(model.classes_) > 2 else " and data (red dots)"
    rates = (y.T / keywords["exposure"]).T if keywords else y  # since predictions are for an exposure of 1
    figures = []
    for output, label in outputs:
        plot = partial(plots.prediction, model, X, rates, column=column, output=output)
        caption = f"{values} of {label} (with standard deviations){dots} against {name}."
        figures.append(_figure(plot, caption, wide=True, dates=dates, xlabel=name, ylabel=label))
    caption = f"Calibration: on the diagonal, {calibrated} are as reliable as they claim."
    figures.append(_figure(partial(plots.calibration, model, X, y, **keywords), caption))
    if not classes:
        caption = "Residuals: 19 of 20 should lie in the band."
        figures.append(_figure(partial(plots.residuals, model, X, y, **keywords), caption))
    figures.append(_figure(partial(plots.training, model), "Training: the evidence lower bound at each step."))
    caption = f"Spectrum of the prediction along {name}."
    return [*figures, _figure(partial(plots.spectrum, model, X, column=column), caption)]


def _description(model: Any, names: list[str], target: str, residual: list[float]) -> dict[str, list[str]]:
    plan, history = model.plan_, model.history_
    variables = "inducing points" if model.plan_.features == "points" else "frequencies"
    return {
        "target": [target],
        "inputs": [", ".join(names)],
        "model": [f"{plan.method}, {len(model.model_.layers)} layers, {plan.num_inducing} {variables}"],
        "kernel, likelihood": [f"{plan.kernel}, {plan.likelihood}"],
        "training": [f"{len(history.loss)} steps, {history.seconds:.0f} s"],
        "residual fraction of each layer": [", ".join(f"{share:.2g}" for share in residual)],
        "Overtone": [__version__],
    }


def model_warnings(model: Any, X: np.ndarray, metrics: dict[str, float], residual: list[float]) -> list[str]:
    """Return what a user should know before trusting the predictions, in plain words."""
    rows, num_steps = metrics["rows"], len(model.history_.loss)
    warnings = [model.history_.message] if model.history_.message else []
    if rows < MIN_ROWS:
        warnings.append(f"There are only {rows} rows here: the metrics below are rough.")
    if num_steps < MIN_STEPS:
        warnings.append(f"Training took only {num_steps} steps: give it more time.")
    for level in (50, 80, 95) if rows >= MIN_ROWS and "coverage_50" in metrics else ():
        share = metrics[f"coverage_{level}"]
        if abs(share - level / 100) > TOLERANCE + 0.5 / rows**0.5:
            fault = "narrow: the model is too sure" if share < level / 100 else "wide: the model is not sure enough"
            warnings.append(f"{share:.0%} of the values lie inside the {level}% intervals, which are too {fault}.")
    if max(residual) > MAX_RESIDUAL:
        share = f"{max(residual):.0%} of the variance of its kernel"
        warnings.append(f"The features of a layer miss {share}: more frequencies, or more time, would help.")
    if metrics.get("standardised_rmse", 0) > 0.95:
        warnings.append("The predictions are hardly better than the target's mean: the inputs may say little about it.")
    low, high = model.x_scaling_.shift, model.x_scaling_.shift + model.x_scaling_.scale
    outside = float(np.mean(np.any((X < low - 1e-9) | (X > high + 1e-9), axis=1)))
    if outside > TOLERANCE:
        warnings.append(f"{outside:.0%} of the rows lie outside the range of the training data: take those as guesses.")
    return warnings


def _paragraphs(warnings: list[str]) -> str:
    if not warnings:
        return '<p class="good">Nothing unusual was found.</p>'
    return "".join(f'<p class="warning">{escape(warning)}</p>' for warning in warnings)


def _table(rows: dict[str, list[str]]) -> str:
    cells = {name: "".join(f"<td>{escape(value)}</td>" for value in values) for name, values in rows.items()}
    lines = (f"<tr><td>{escape(name)}</td>{values}</tr>" for name, values in cells.items())
    return f"<table>{''.join(lines)}</table>" if rows else ""


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
    svg = stream.getvalue()
    svg = _with_unique_ids(svg[svg.index("<svg") :], caption)
    attributes, text = ' class="wide"' if wide else "", escape(caption)
    return f'<figure{attributes} role="img" aria-label="{text}">{svg}<figcaption>{text}</figcaption></figure>'


def _with_unique_ids(svg: str, caption: str) -> str:
    """Return the SVG with a prefix for all ids, which must be unique on the page."""
    prefix = f"f{zlib.crc32(caption.encode()):x}-"
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}\1"', svg)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{prefix}", svg)
