"""Render one self-contained HTML page about a fitted model: inline figures, no scripts, nothing from the network."""

from collections.abc import Callable
from datetime import date
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from overtone.app import plots
from overtone.app.curves import inputs_of, training_rows, with_column_names
from overtone.app.judging import judge
from overtone.app.loading import LEVELS, MIN_ROWS, TOLERANCE, coverage_warnings, describe, label_text
from overtone.app.page import figure, grid, page, paragraph, paragraphs, shown, table
from overtone.app.sweeps import level_names, sweeps, table_columns, trained_range, trend_column
from overtone.estimators.unseen import replaced
from overtone.tables.gaps import number_of
from overtone.tables.notices import clock

MAX_EFFECTS, MAX_ROWS, MAX_SERIES, MAX_IN_SERIES, NUM_WORST = 12, 500, 6, 250, 8
MIN_STEPS, MAX_RESIDUAL, MAX_ERROR = 100, 0.1, 0.95  # beyond which the page warns
METRICS = {
    "rows": "rows",
    "rmse": "root mean squared error",
    "standardised_rmse": "the same, in standard deviations of the training targets",
    "r2": "share of the variance that is explained",
    "accuracy": "rows whose most probable class is right",
    "brier": "Brier score",
    "log_density": "mean log density, in nats",
    "crps": "continuous ranked probability score",
    **{f"coverage_{level}": f"values inside the {level}% interval" for level in LEVELS},
}
SERIES = "Lines: predictions. Red dots: rows of the table."
OBSERVED = "Dots: rows of the table. Lines: 95% intervals. On the diagonal, values are as predicted."
CONFUSION = (
    "How many rows of each class were predicted to be of which; shades are shares of the rows of the true class."
)
EFFECTS = "Effects: one input varies, and the others are those of a typical row."
INTERVALS = "Bands and bars: 50% and 95% intervals."
IMPORTANCE = "Importance: how far predictions move if the cells of a column are shuffled among the rows."
CALIBRATION = (
    "The share of values inside intervals should be their level, and 19 of 20 residuals should lie in the band."
)
WORST = "The rows with the least log density: mistakes in the table, or what the model does not know."
OF_CLASSES = "Of the rows that get a certain probability of a class, this share should be of the class."


def render_report(
    model: Any, X, y, *, table_name: str = "", place: Callable[[int], str] | None = None, **exposure
) -> str:
    """Return a page about rows X (N, D) and y as HTML.

    table_name: the name of the table that the rows are from. place: says in words where in it a row is.
    """
    X, y, exposure = inputs_of(model, X), np.asarray(y), {name: np.asarray(v) for name, v in exposure.items()}
    named = with_column_names(model, X)
    judged, residual = judge(model, named, y, **exposure), model.residual_fraction(named)
    target = ", ".join(model.target_names)
    columns, first = {name: each.metrics for name, each in judged.items()}, next(iter(judged.values()))
    metrics = model.evaluate(named, y, **exposure) if len(judged) > 1 else first.metrics
    columns |= first.baselines if len(judged) == 1 else {}
    scores = [[METRICS[name], *(_metric(name, each[name]) for each in columns.values())] for name in metrics]
    verdicts = [f"{name}: {each.verdict}" if len(judged) > 1 else each.verdict for name, each in judged.items()]
    about = describe(model, [column.name for column, _ in table_columns(model)], target)
    about["residual fraction of each layer"] = ", ".join(f"{share:.2g}" for share in residual)
    title, pictures = _predictions(model, X, y, exposure)
    sections = {
        "What to know first": paragraphs(model_warnings(model, X, metrics, residual)),
        "How good the predictions are": "".join(map(paragraph, verdicts)) + table(scores, ["", *columns], "rows"),
        title: pictures,
        "Which inputs matter": _effects(model, _first(X, y, {})[0]),
        "Whether the uncertainty is right": _checks(model, X, y, exposure),
        "The rows that surprise most": _worst(model, X, y, place or (lambda row: f"row {row + 1}"), exposure),
        "What was decided, and why": table(list(model.plan_.reasons.items()), kind="words"),
        "The model": table(list(about.items()), kind="words"),
    }
    return page(f"{target}: a report", f"Predictions of {target}", _about(model, X, table_name), sections)


def _about(model: Any, X: np.ndarray, table_name: str) -> list[str]:
    """Return whose rows these are, and from when, and from when those are that the model was trained on."""
    rows, training = f"{len(X):,} rows{f' of {table_name}' * bool(table_name)}", ""
    for column, (i, *_) in [pair for pair in table_columns(model) if pair[0].kind == "time"][:1]:
        zone, spans = " UTC" * bool(column.zone), (np.stack([X[:, i].min(), X[:, i].max()]), trained_range(model)[:, i])
        told = [f", {column.name} from {clock(low)} to {clock(high)}{zone}" for low, high in spans]
        rows, training = rows + told[0], "Trained on rows" + told[1].replace(",", " with", 1) + ". "
    return [f"{rows}.", f"{training}Written on {date.today()}."]


def _predictions(model: Any, X: np.ndarray, y: np.ndarray, exposure: dict) -> tuple[str, str]:
    """Return a title and pictures of the predictions: of a series, of the largest ones of a panel, or of a table."""
    classes, trend = is_classifier(model), trend_column(model)
    confusion = [figure(partial(plots.confusion, model, X, y), "Classes, true and predicted")] if classes else []
    outputs = list(enumerate(model.target_names)) if len(model.target_names) > 1 else [(None, model.target_names[0])]
    if trend is None and classes:
        return "Predictions", grid(CONFUSION, confusion)
    if trend is None:
        rows, values, exposure = _first(X, y, exposure)
        plot = partial(plots.observed, model, rows, values, **exposure)
        text = "{}, predicted and as it is"
        figures = [figure(partial(plot, output=i), text.format(name), wide=True, ylabel=name) for i, name in outputs]
        return "Predictions", grid(OBSERVED, figures)
    y = (y.T / exposure["exposure"]).T if exposure else y  # since lines are for an exposure of 1
    column, (i, *_) = trend
    panel, figures = _series_of_panel(model, X), []
    for output, label in outputs:
        for name, member in panel[:MAX_SERIES] if len(panel) > 1 else [("", np.arange(len(X)))]:
            rows, values, _ = _first(X[member], y[member], {}, i, MAX_IN_SERIES if name else MAX_ROWS)
            text = ", ".join([name] * bool(name) + [label] * (not name or len(outputs) > 1))
            text += ", " + f"the first {len(rows):,} of " * (len(member) > len(rows)) + f"{len(member):,} rows"
            labels = {"xlabel": "" if name else column.name, "ylabel": "probability" if classes else label}
            plot = partial(plots.series, model, rows, values, output=output)
            figures.append(figure(plot, text, wide=not name, **labels))
    has_before = bool(np.any(training_rows(model)[0] < X[:, i].min()))
    note = SERIES + " Grey dots: the last training rows." * has_before + _intervals(model)
    largest = f", of the largest {MAX_SERIES} of {len(panel)} series" * (len(panel) > MAX_SERIES)
    return f"Predictions along {column.name}{largest}", grid(note + f" {CONFUSION}" * classes, figures + confusion)


def _first(X: np.ndarray, y: np.ndarray, exposure: dict, column: int | None = None, num: int = MAX_ROWS) -> tuple:
    """Return the first rows along one input, or without one random rows, with their exposures."""
    order = np.random.default_rng(0).permutation(len(X)) if column is None else np.argsort(X[:, column], kind="stable")
    return X[order[:num]], y[order[:num]], {name: values[order[:num]] for name, values in exposure.items()}


def _intervals(model: Any) -> str:
    """Return what the bands of pictures are, which those of several classes do not have."""
    return "" if is_classifier(model) and len(model.classes_) > 2 else " " + INTERVALS


def _series_of_panel(model: Any, X: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Return the name and the rows of each series that columns of categories tell apart, the largest ones first."""
    names, counts = np.unique(keys := _categories(model, X), return_counts=True)
    return [(name, np.flatnonzero(keys == name)) for name in names[np.argsort(-counts, kind="stable")]]


def _categories(model: Any, X: np.ndarray) -> np.ndarray:
    """Return the categories of each row in words."""
    words = [level_names(column, X[:, inputs]) for column, inputs in table_columns(model) if column.kind == "category"]
    return np.array([", ".join(row) for row in zip(*words, strict=True)] or [""] * len(X))


def _effects(model: Any, X: np.ndarray) -> str:
    """Return pictures of the importance of columns, if there are several, and of the effects of the first ones."""
    relevance = plots.relevance(model, X)
    several, targets = len(relevance) > 1, model.target_names
    figures = [figure(partial(plots.importance, model, X), "Importance")] * several
    for sweep in sorted(sweeps(model, X), key=lambda sweep: -relevance[sweep.column])[:MAX_EFFECTS]:
        for output in range(len(targets)) if len(targets) > 1 else [None]:
            label = sweep.name if output is None else f"{sweep.name}, on {targets[output]}"
            figures.append(
                figure(partial(plots.effect, model, X, sweep.inputs[0], output=output), f"Effect of {label}")
            )
    return grid(f"{IMPORTANCE} " * several + EFFECTS + _intervals(model), figures)


def _checks(model: Any, X: np.ndarray, y: np.ndarray, exposure: dict) -> str:
    """Return pictures of calibration and, of numbers, of residuals and, of one input, of the spectrum."""
    rows, values, exposure = _first(X, y, exposure)
    classes, name = is_classifier(model), model.input_names[0]
    figures = [figure(partial(plots.calibration, model, rows, values, **exposure), "Calibration")]
    if not classes:
        figures.append(figure(partial(plots.residuals, model, rows, values, **exposure), "Residuals"))
    if X.shape[1] == 1:
        figures.append(figure(partial(plots.spectrum, model, rows), f"Spectrum of the prediction along {name}"))
    return grid(OF_CLASSES if classes else CALIBRATION, figures)


def _worst(model: Any, X: np.ndarray, y: np.ndarray, place: Callable[[int], str], exposure: dict) -> str:
    """Return a table of the rows with the least log density: where they are, and what was predicted of them."""
    density = model.log_predictive_density(with_column_names(model, X), y, **exposure)
    rows = np.argsort(density)[:NUM_WORST]
    named, exposure = with_column_names(model, X[rows]), {name: values[rows] for name, values in exposure.items()}
    keys = [
        ", ".join(filter(None, parts))
        for parts in zip(_dates(model, X[rows]), _categories(model, X[rows]), strict=True)
    ]
    where = [place(int(row)) + f"\n{key}" * bool(key) for row, key in zip(rows, keys, strict=True)]
    if is_classifier(model):
        chances = model.predict_proba(named)
        best, true = np.argmax(chances, axis=1), np.searchsorted(model.classes_, y[rows])
        lines = [
            [
                where[i],
                label_text(model.classes_[true[i]]),
                label_text(model.classes_[best[i]]),
                float(chances[i, best[i]]),
                float(chances[i, true[i]]),
            ]
            for i in range(len(rows))
        ]
        return paragraph(WORST) + table(
            lines, ["row", "true class", "predicted", "with probability", "that of the true class"], "rows"
        )
    mean, low, high = (
        np.reshape(part, (len(rows), -1))
        for part in (model.predict(named, **exposure), *model.predict_quantiles(named, [0.025, 0.975], **exposure))
    )
    y = np.reshape(y[rows], mean.shape)
    lines = []
    for i, output in np.argwhere(~np.isnan(y)):
        name = [model.target_names[output]] if mean.shape[1] > 1 else []
        cells = [float(part[i, output]) for part in (y, mean, low, high)]
        lines.append([where[i], *name, *cells, float(density[rows[i]])])
    names = ["target"] if mean.shape[1] > 1 else []
    return paragraph(WORST) + table(
        lines, ["row", *names, "value", "prediction", "95%: from", "to", "log density"], "rows"
    )


def _dates(model: Any, X: np.ndarray) -> list[str]:
    """Return the first date of each row in words, if there is one."""
    dates = [(column, inputs[0]) for column, inputs in table_columns(model) if column.kind == "time"][:1]
    return [clock(day) + " UTC" * bool(column.zone) for column, i in dates for day in X[:, i]] or [""] * len(X)


def _metric(name: str, value: float) -> str:
    return f"{value:.1%}" if name.startswith(("accuracy", "coverage")) else shown(value)


def model_warnings(model: Any, X: np.ndarray, metrics: dict[str, float], residual: list[float]) -> list[str]:
    """Return what a user should know before trusting the predictions, in plain words."""
    rows, num_steps, missed = metrics["rows"], len(model.history_.loss), max(residual)
    exact = model.plan_.is_exact(model.model_)
    named, error = with_column_names(model, X), metrics.get("standardised_rmse", 0)
    outside, unseen = np.mean(model.is_outside(named).any(axis=1)), replaced(model, named)
    num_unseen = 0 if unseen is None else int(unseen.rows.sum())
    checks = [
        (model.history_.message, model.history_.message),
        (rows < MIN_ROWS, f"Only {number_of(rows, 'row')} here: the metrics below are rough."),
        (num_steps < MIN_STEPS and not exact, f"Training took only {num_steps} steps: give it more time."),
        (missed > MAX_RESIDUAL, f"A layer's features miss {missed:.0%} of its variance: more frequencies would help."),
        (error > MAX_ERROR, "The predictions are hardly better than the target's mean: the inputs may say little."),
        (outside > TOLERANCE, f"{outside:.0%} of the rows are outside the training data: take those as guesses."),
        (num_unseen > 0, f"Rows with categories that no training row has: {num_unseen}. Trust their predictions less."),
    ]
    return [text for is_due, text in checks if is_due] + coverage_warnings(metrics)
