"""One self-contained page about a fitted model: inline pictures, no scripts, nothing from the network."""

import html
import io as streams
import re
import zlib
from collections.abc import Callable
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from overtone import __version__, plots
from overtone.sklearn import DeepGPClassifier

MOST_EFFECTS, MOST_ROWS = 8, 5000
ENOUGH_ROWS, FEW_STEPS, LARGE_RESIDUAL, OFF = 50, 100, 0.1, 0.05  # for a word of warning
NAMES = {
    "rows": "rows",
    "rmse": "root mean squared error",
    "standardised_rmse": "the same, in standard deviations of the training targets",
    "accuracy": "rows whose most probable class is right",
    "brier": "Brier score",
    "log_density": "mean log density, in nats",
    "crps": "continuous ranked probability score",
    "coverage_50": "values inside the 50 % interval",
    "coverage_80": "values inside the 80 % interval",
    "coverage_95": "values inside the 95 % interval",
}
SHARES = ("accuracy", "coverage_50", "coverage_80", "coverage_95")
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


def report(model: Any, X, y, *, names: list[str], target: str = "y", time: int | None = None, exposure=None) -> str:
    """The page as HTML, for rows X (N, D) and y with the model's input names; `time` is the column that is time."""
    X, y, counted = model.inputs(X), np.asarray(y), {} if exposure is None else {"exposure": np.asarray(exposure)}
    found, residual = model.evaluate(X, y, **counted), model.residual_fraction(X)
    several = plots.output_names(model, y.shape[1]) if y.ndim == 2 and y.shape[1] > 1 else []
    scores = model.evaluate_outputs(X, y, **counted) if several else [found]
    keep = np.sort(np.random.default_rng(0).permutation(len(X))[:MOST_ROWS])
    X, y, counted = X[keep], y[keep], {name: values[keep] for name, values in counted.items()}
    rates = (y.T / counted["exposure"]).T if counted else y  # predictions are for an exposure of 1
    moves = plots.relevance(model, X)
    order = [int(i) for i in np.argsort(-moves)][:MOST_EFFECTS]
    main, classes = time if time is not None else order[0], isinstance(model, DeepGPClassifier)
    what = "Probabilities" if classes else "Predictions"
    dots = "" if classes and len(model.classes_) > 2 else " and values (dots in red)"

    def prediction(ax: Axes, output: int | None, label: str) -> None:
        plots.prediction(model, X, rates, ax, column=main, output=output).set(xlabel=names[main], ylabel=label)
        if time is not None:
            ax.xaxis_date()  # days since 1970, as matplotlib counts them

    outputs, unit = list(enumerate(several)) or [(None, target)], " standard deviations" if several else ""
    figures = [
        *(
            _figure(
                lambda ax, output=output, label=label: prediction(ax, output, label),
                f"{what} of {label} (with their standard deviations){dots} against {names[main]}.",
                wide=True,
            )
            for output, label in outputs
        ),
        _figure(
            lambda ax: plots.calibration(model, X, y, ax, **counted),
            f"Calibration: on the diagonal, {'probabilities' if classes else 'intervals'} are honest.",
        ),
        _figure(lambda ax: plots.training(model, ax), "Training: the bound on the evidence at each step."),
        _figure(
            lambda ax: plots.spectrum(model, X, ax, column=main), f"Spectrum of the prediction along {names[main]}."
        ),
    ]
    if not classes:
        residuals = _figure(
            lambda ax: plots.residuals(model, X, y, ax, **counted), "Residuals: 19 of 20 belong into the band."
        )
        figures.insert(len(outputs) + 1, residuals)
    effects = [
        _figure(
            lambda ax, i=i, output=output, label=label: plots.effect(model, X, i, ax, output=output).set(
                xlabel=names[i], ylabel=label
            ),
            f"{names[i]}: moves the prediction by {moves[i]:.3g}{unit}{f'; here, {label}' if several else ''}.",
        )
        for i in order
        for output, label in outputs
    ]
    hidden = [
        _figure(
            lambda ax, i=i: plots.layer(model, X, i, ax, column=main).set(xlabel=names[main]),
            f"Layer {i + 1}, its units along {names[main]}.",
        )
        for i in range(len(model.model_.layers) - 1)
    ]
    config = model.config_
    variables = "frequencies" if config.fourier else "inducing points"
    about = {
        "target": target,
        "inputs": ", ".join(names),
        "model": f"{config.method}, {len(model.model_.layers)} layers, {config.n_inducing} {variables}",
        "kernel, noise": f"{config.kernel_name}, {config.likelihood}",
        "training": f"{len(model.history_.loss)} steps, {model.history_.seconds:.0f} s",
        "residual fraction of each layer": ", ".join(f"{share:.2g}" for share in residual),
        "Overtone": __version__,
    }
    metrics = {
        NAMES[name]: [f"{each[name]:.1%}" if name in SHARES else f"{each[name]:.6g}" for each in scores]
        for name in found
    }
    sections = [
        ("What to know", _notes(warnings_of(model, X, found, residual))),
        ("How good it is", _table(({"target": several} if several else {}) | metrics)),
        ("Pictures", _figures(figures)),
        ("The effect of each input, the others at their medians", _figures(effects)),
        ("Hidden layers", _figures(hidden)),
        ("What it is", _table({name: [value] for name, value in about.items()})),
    ]
    body = "".join(f"<h2>{title}</h2>{content}" for title, content in sections if content)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{_safe(target)}: a report</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<style>{STYLE}</style></head><body><h1>Predictions of {_safe(target)}</h1>{body}</body></html>\n"
    )


def warnings_of(model: Any, X: np.ndarray, found: dict[str, float], residual: list[float]) -> list[str]:
    """What a user should know before trusting the predictions, in plain words."""
    notes = [model.history_.message] if model.history_.message else []
    if found["rows"] < ENOUGH_ROWS:
        notes.append(f"There are only {found['rows']} rows here: the figures below are rough.")
    if len(model.history_.loss) < FEW_STEPS:
        notes.append(f"Training had {len(model.history_.loss)} steps only: give it more time.")
    for level in (50, 80, 95) if found["rows"] >= ENOUGH_ROWS and "coverage_50" in found else ():
        share = found[f"coverage_{level}"]
        if abs(share - level / 100) > OFF + 0.5 / found["rows"] ** 0.5:
            how = "narrow: the model is too sure" if share < level / 100 else "wide: the model is better than it thinks"
            notes.append(f"{share:.0%} of the values lie inside the {level} % intervals, which are too {how}.")
    if max(residual) > LARGE_RESIDUAL:
        notes.append(
            f"The features of a layer miss {max(residual):.0%} of what its kernel could express: more frequencies, or "
            f"more time, would help."
        )
    if found.get("standardised_rmse", 0) > 0.95:
        notes.append("The predictions are hardly better than the target's mean: the inputs may not tell much about it.")
    low, high = model.x_scaling_.shift, model.x_scaling_.shift + model.x_scaling_.scale
    outside = float(np.mean(np.any((X < low - 1e-9) | (X > high + 1e-9), axis=1)))
    if outside > OFF:
        notes.append(f"{outside:.0%} of the rows lie outside the range of the training data: take those as guesses.")
    return notes


def _notes(notes: list[str]) -> str:
    if not notes:
        return '<p class="good">Nothing unusual was found.</p>'
    return "".join(f'<p class="warning">{_safe(note)}</p>' for note in notes)


def _table(rows: dict[str, list[str]]) -> str:
    cells = {name: "".join(f"<td>{_safe(value)}</td>" for value in values) for name, values in rows.items()}
    lines = (f"<tr><td>{_safe(name)}</td>{values}</tr>" for name, values in cells.items())
    return f"<table>{''.join(lines)}</table>"


def _figures(figures: list[str]) -> str:
    return f'<div class="figures">{"".join(figures)}</div>' if figures else ""


def _figure(draw: Callable[[Axes], object], caption: str, wide: bool = False) -> str:
    settings: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": caption,
        "font.family": "sans-serif",
        "axes.spines.top": False,
    }
    with matplotlib.rc_context({**settings, "axes.spines.right": False}):
        figure = Figure(figsize=(9, 3.4) if wide else (4.4, 3.0), layout="constrained")
        draw(figure.subplots())
        stream = streams.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None})
    svg = stream.getvalue()
    svg = _own_names(svg[svg.index("<svg") :], caption)
    kind, text = ' class="wide"' if wide else "", _safe(caption)
    return f'<figure{kind} role="img" aria-label="{text}">{svg}<figcaption>{text}</figcaption></figure>'


def _own_names(svg: str, caption: str) -> str:
    """Names inside one picture must not be those of another on the same page."""
    prefix = f"f{zlib.crc32(caption.encode()):x}-"
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}\1"', svg)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{prefix}", svg)


def _safe(text: str) -> str:
    return html.escape(str(text), quote=True)
