"""What each command does, given its arguments. Heavy imports wait until they are needed."""

import argparse
import json
import logging
import signal
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from overtone.config import Config

log = logging.getLogger("overtone")
BOUNDS = (0.025, 0.975)  # of the columns lower and upper
MOST_INPUTS = 1000


def fit(chosen: argparse.Namespace) -> None:
    import numpy as np
    import polars as pl

    from overtone.encoding import Encoder, is_label
    from overtone.tables import TableError, read_table, some

    if chosen.resume and not chosen.checkpoint:
        raise ValueError("--resume needs --checkpoint FOLDER, where the training to resume has left its checkpoint.")
    if chosen.checkpoint and not chosen.resume and any(Path(chosen.checkpoint).glob("*.checkpoint")):
        raise ValueError(f"{chosen.checkpoint}: there is a checkpoint already; add --resume, or choose another folder.")
    if not Path(chosen.out).absolute().parent.is_dir():
        raise ValueError(f"{chosen.out}: there is no such folder to write to.")
    if not 0 <= chosen.validate < 1:
        raise ValueError(f"--validate must be a share of the rows, from 0 to below 1; got {chosen.validate}.")
    settings = {f.name: getattr(chosen, f.name) for f in fields(Config)}
    Config(**settings).validate()
    frame = read_table(chosen.table)
    targets = [chosen.target] if chosen.target in frame.columns else chosen.target.split(",")
    known = [*targets, *filter(None, [chosen.exposure])]
    inputs = chosen.inputs.split(",") if chosen.inputs else [name for name in frame.columns if name not in known]
    absent = [name for name in (*known, *inputs) if name not in frame.columns]
    if absent or not inputs:
        there = some(frame.columns, 20)
        raise TableError(f"{chosen.table}: there is no column {some(absent) or 'to predict from'}, but {there}.")
    if len(inputs) > MOST_INPUTS:
        raise TableError(
            f"{chosen.table}: {len(inputs)} columns to predict from, but a model takes at most {MOST_INPUTS}; choose "
            f"some of them with --inputs."
        )
    if twice := [name for i, name in enumerate(targets) if name in targets[:i]]:
        raise ValueError(f"--target names {some(twice)} more than once.")
    try:
        classes = [name for name in targets if is_label(frame[name], chosen.likelihood)]
        if classes and len(targets) > 1:
            raise TableError(f"the target {classes[0]!r} holds classes, which can only be predicted one at a time.")
        if classes and chosen.exposure:
            raise TableError(f"an exposure belongs to counts, and the target {chosen.target!r} holds classes.")
        y, there = _targets(frame, targets, bool(classes))
        if not there.all():
            log.info("%d rows without a target are left out", np.sum(~there))
        frame, y = frame.filter(pl.Series(there)), y[there]
        encoder = Encoder.fit(frame.select(inputs), missing=chosen.missing, calendar=chosen.calendar)
        X, exposure = _encoded(encoder, frame, chosen.exposure)
    except TableError as error:
        raise TableError(f"{chosen.table}: {error}") from None
    kept = ~np.isnan(X).any(axis=1)
    if not kept.all():
        log.info("%d rows with missing inputs are left out", np.sum(~kept))
    X, y, exposure = X[kept], y[kept], None if exposure is None else exposure[kept]
    if len(y) < 2:
        raise TableError(f"{chosen.table}: {len(y)} complete rows; a fit needs at least 2.")
    log.info("%d rows, target %s, inputs: %s", len(y), ", ".join(targets), some(encoder.inputs, 20))
    if chosen.held_out == "last":
        if times := _times(encoder):
            in_time = np.argsort(X[:, times[0]], kind="stable")
            X, y, exposure = X[in_time], y[in_time], None if exposure is None else exposure[in_time]
        order = np.arange(len(y))[::-1]
    else:
        order = np.random.default_rng(chosen.random_state).permutation(len(y))
    held_out, rows = np.split(order, [round(chosen.validate * len(y)) if len(y) >= 20 else 0])

    from overtone.sklearn import DeepGPClassifier, DeepGPRegressor

    kind: Any = DeepGPClassifier if classes else DeepGPRegressor
    model, stopped, rows = kind(**settings, verbose=not chosen.quiet), _Stop(), np.sort(rows)
    with stopped:
        model.fit(X[rows], y[rows], **_of_rows(exposure, rows), checkpoint=chosen.checkpoint, stop=stopped)
    model.encoder_, model.exposure_ = encoder, chosen.exposure
    model.target_ = targets if len(targets) > 1 else targets[0]
    model.save(chosen.out)
    if model.history_.message:
        log.info("%s", model.history_.message)
    print(f"{len(rows)} rows, {len(model.history_.loss)} steps, {model.history_.seconds:.0f} s")
    if classes:
        held_out = held_out[np.isin(y[held_out], model.classes_)]  # a rare class may be among these rows alone
    if len(held_out):
        print("\nOn the held-out rows:")
        _print_table(_scores(model, X[held_out], y[held_out], _of_rows(exposure, held_out)))
    shares = ", ".join(f"{share:.2g}" for share in model.residual_fraction(X[rows[:2000]]))
    print(f"\nResidual fraction of each layer (near 0, the frequencies are enough): {shares}")
    print(f"Written: {chosen.out}")


def predict(chosen: argparse.Namespace) -> None:
    import numpy as np
    import polars as pl

    from overtone.sklearn import load
    from overtone.tables import TableError, TableWriter, read_chunks, some

    model: Any = load(chosen.model)
    encoder = _encoder(model, chosen.model)
    _check_usable(model, chosen.model)
    levels = _levels(chosen.quantiles) if chosen.quantiles else []
    writer = TableWriter(chosen.out)
    total = 0
    with writer:
        for part, chunk in enumerate(read_chunks(chosen.table)):
            try:
                X, exposure = _encoded(encoder, chunk, model.exposure_)
            except TableError as error:
                raise TableError(f"{chosen.table}, from row {total + 1} on: {error}") from None
            gaps = pl.Series(np.asarray(np.isnan(X).any(axis=1)))
            given = _of_rows(exposure, slice(None))
            found = _predicted(model, np.nan_to_num(X), levels, chosen.samples, part, given)
            if taken := [name for name in found if name in chunk.columns]:
                raise TableError(f"{chosen.table}: {some(taken)} would be replaced by predictions; rename it.")
            columns = [pl.Series(name, value).set(gaps, None) for name, value in found.items()]
            if chosen.out.endswith(".parquet"):
                chunk = encoder.typed(chunk, *filter(None, [model.exposure_]))
            writer.add(chunk.with_columns(columns))
            total += len(X)
    print(f"{total} rows\nWritten: {chosen.out}")


def _predicted(model: Any, X, levels: list[float], num_samples: int, seed: int, exposure: dict) -> dict[str, Any]:
    """The columns that `predict` adds."""
    import numpy as np

    if len(_labels(model)):
        if levels:
            raise ValueError("--quantiles are of numbers, and this model predicts classes.")
        found = model.predict_proba(X)
        words = model.classes_.dtype.kind in "OU"
        columns = {"prediction": (model.classes_.astype(str) if words else model.classes_)[np.argmax(found, axis=1)]}
        columns |= {f"probability_{name}": found[:, i] for i, name in enumerate(model.classes_)}
    else:
        names = ["mean", "std", "lower", "upper", *(f"quantile_{level:g}" for level in levels)]
        bounds = model.predict_quantiles(X, [*BOUNDS, *levels], **exposure)
        columns = dict(zip(names, [*model.predict(X, return_std=True, **exposure), *bounds], strict=True))
    draws = np.moveaxis(model.sample_y(X, num_samples, random_state=seed, **exposure), -1, 0) if num_samples else []
    columns |= {f"sample_{i + 1}": draw for i, draw in enumerate(draws)}
    if not isinstance(targets := model.target_, list):
        return columns
    heads = [f"{target}_" for target in targets] if len(targets) > 1 else [""]
    return {f"{head}{name}": values[:, i] for i, head in enumerate(heads) for name, values in columns.items()}


def _encoded(encoder, frame, exposure: str | None):
    """The inputs of a table's rows, NaN where a row is to be left out, and their exposures, if the model has any."""
    import numpy as np

    from overtone.encoding import numbers_of
    from overtone.tables import TableError

    X = encoder.encode(frame)
    if exposure is None:
        return X, None
    if exposure not in frame.columns:
        raise TableError(f"there is no column {exposure!r}, the exposure that the model was fitted with.")
    values = numbers_of(frame[exposure])
    gaps = np.isnan(values)
    if gaps.any() and encoder.missing != "drop":
        raise TableError(f"the exposure {exposure!r} is missing in {gaps.sum()} rows; leave them out: --missing drop.")
    if len(bad := np.flatnonzero((values <= 0) | np.isinf(values))):
        raise TableError(f"the exposure {exposure!r} must be positive; row {bad[0] + 1} has {values[bad[0]]:g}.")
    return np.where(gaps[:, None], np.nan, X), np.where(gaps, 1.0, values)


def _of_rows(exposure, rows) -> dict[str, Any]:
    return {} if exposure is None else {"exposure": exposure[rows]}


def evaluate(chosen: argparse.Namespace) -> None:
    model, _, X, y, exposure = _model_and_rows(chosen)
    found = _scores(model, X, y, exposure)
    if chosen.json:
        print(json.dumps(found))
    else:
        _print_table(found)


def report(chosen: argparse.Namespace) -> None:
    if not Path(chosen.out).absolute().parent.is_dir():
        raise ValueError(f"{chosen.out}: there is no such folder to write to.")
    model, encoder, X, y, exposure = _model_and_rows(chosen)
    from overtone.io import replace_file
    from overtone.report import report as make

    times = _times(encoder)
    target = ", ".join(_names(model))
    page = make(model, X, y, names=encoder.inputs, target=target, time=times[0] if times else None, **exposure)
    replace_file(chosen.out, page.encode())
    print(f"Written: {chosen.out}")


def _times(encoder) -> list[int]:
    """Which of the model's inputs are dates or times."""
    return [encoder.inputs.index(column.inputs[0]) for column in encoder.columns if column.kind == "time"]


def _model_and_rows(chosen: argparse.Namespace):
    """A model, what it makes of tables, and the complete rows of one that has the target too."""
    import numpy as np

    from overtone.encoding import same_label
    from overtone.sklearn import load
    from overtone.tables import TableError, read_table, some

    model: Any = load(chosen.model)
    frame = read_table(chosen.table)
    encoder = _encoder(model, chosen.model)
    if model.target_ is None:
        raise ValueError(f"{chosen.model}: this model does not know the name of its target; use it from Python.")
    if absent := [name for name in _names(model) if name not in frame.columns]:
        raise TableError(f"{chosen.table}: there is no column {some(absent)}, which the model predicts.")
    _check_usable(model, chosen.model)
    classes = {same_label(label): label for label in _labels(model)}
    try:
        X, exposure = _encoded(encoder, frame, model.exposure_)
        y, there = _targets(frame, _names(model), bool(classes))
        if unknown := [word for word in y if classes and word is not None and same_label(word) not in classes]:
            raise TableError(f"the target {model.target_!r} has {unknown[0]!r}, a class that the model does not know.")
    except TableError as error:
        raise TableError(f"{chosen.table}: {error}") from None
    kept = ~np.isnan(X).any(axis=1) & there
    if not kept.any():
        raise TableError(f"{chosen.table}: there is no complete row.")
    y = np.array([classes[same_label(word)] for word in y[kept]]) if classes else y[kept]
    return model, encoder, X[kept], y, _of_rows(exposure, kept)


def _targets(frame, names: list[str], classes: bool):
    """Labels or numbers (N,), or the numbers (N, P) of several targets, and which rows have any."""
    import numpy as np

    from overtone.encoding import labels_of, target_of

    if classes:
        y = labels_of(frame[names[0]])
        return y, np.array([label is not None for label in y])
    Y = np.column_stack([target_of(frame[name]) for name in names])
    return Y if len(names) > 1 else Y[:, 0], ~np.asarray(np.isnan(Y).all(axis=1))


def _scores(model: Any, X, y, exposure: dict) -> dict[str, Any]:
    """What `evaluate` says; of several targets, for each by its name."""
    if len(names := _names(model)) == 1:
        return model.evaluate(X, y, **exposure)
    return dict(zip(names, model.evaluate_outputs(X, y, **exposure), strict=True))


def _names(model: Any) -> list[str]:
    """Of the targets."""
    return model.target_ if isinstance(model.target_, list) else [str(model.target_)]


def _check_usable(model: Any, path: str) -> None:
    """Several targets have names, and exposures too."""
    if not getattr(model, "single_output_", True) and model.target_ is None:
        raise ValueError(f"{path}: this model predicts several targets that have no names; use it from Python.")
    if model.exposed_ and model.exposure_ is None:
        raise ValueError(f"{path}: this model has an exposure whose column has no name; use it from Python.")


def _labels(model: Any) -> Any:
    """The classes of a model, if it has any."""
    return getattr(model, "classes_", ())


def info(chosen: argparse.Namespace) -> None:
    from overtone.sklearn import load

    model: Any = load(chosen.model)
    config, history = model.config_, model.history_
    variables = "frequencies" if config.fourier else "points"
    print(f"{chosen.model}: {config.method}, {len(model.model_.layers)} layers, {config.n_inducing} {variables}")
    of_classes = f" ({', '.join(map(str, _labels(model)))})" if len(_labels(model)) else ""
    print(f"target: {', '.join(_names(model))}{of_classes}\ninputs: {', '.join(_encoder(model, chosen.model).inputs)}")
    print(f"trained for {len(history.loss)} steps, {history.seconds:.0f} s. {history.message}")
    for field in fields(Config):
        print(f"    {field.name}: {getattr(config, field.name)}")


def demo(chosen: argparse.Namespace) -> None:
    from overtone.demo import main as run_demo

    run_demo(Path(chosen.out))


class _Stop:
    """Ctrl-C once: training stops and the model is saved. Twice: the program stops."""

    def __init__(self):
        self.asked = False

    def __call__(self) -> bool:
        return self.asked

    def __enter__(self):
        self.before = signal.signal(signal.SIGINT, self._ask)
        return self

    def _ask(self, *_):
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        print("\novertone: stopping; the best model so far will be saved. Ctrl-C again to give up.", file=sys.stderr)

    def __exit__(self, *_):
        signal.signal(signal.SIGINT, self.before)


def _encoder(model, path: str):
    """What the model makes of a table: as it was told, or numbers by the names of its inputs."""
    from overtone.encoding import Column, Encoder

    names = list(map(str, getattr(model, "feature_names_in_", [])))
    if model.encoder_ is None and not names:
        raise ValueError(f"{path}: this model was fitted to arrays without names of columns; use it from Python.")
    means = () if model.means_ is None else tuple(model.means_.tolist())
    return model.encoder_ or Encoder(tuple(Column(name, "number") for name in names), model.config_.missing, means)


def _print_table(found: dict[str, Any]) -> None:
    """Metrics, in a column for each target if there are several."""
    several = all(isinstance(values, dict) for values in found.values())
    columns = list(found.values()) if several else [found]
    if several:
        print(f"    {'':20} " + " ".join(f"{name:>14}" for name in found))
    for name in columns[0]:
        values = [f"{column[name]:.6g}" for column in columns]
        print(f"    {name.replace('_', ' '):20} " + " ".join(f"{value:>14}" if several else value for value in values))


def _levels(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--quantiles must be numbers separated by commas; got {text!r}.") from None
