"""Turn the rows of a table into the inputs, targets and exposures of a model, and score its predictions."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import polars as pl

from overtone.tables.columns import Column
from overtone.tables.encode import Encoder
from overtone.tables.read import TableError, quoted_list, read_table
from overtone.tables.targets import canonical_label, class_labels, numeric_target


@dataclass(frozen=True)
class Rows:
    """Hold inputs (N, D), targets (N,) or (N, P) and, for counts, their exposures (N,)."""

    X: np.ndarray
    y: np.ndarray
    exposure: np.ndarray | None

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: np.ndarray) -> Self:
        return type(self)(self.X[index], self.y[index], None if self.exposure is None else self.exposure[index])

    @property
    def keywords(self) -> dict[str, np.ndarray]:
        """Return the exposures as the keyword argument that estimators take, if there are any."""
        return {} if self.exposure is None else {"exposure": self.exposure}


def load_model(path: str, *, for_tables: bool = True) -> tuple[Any, Encoder]:
    """Load a model and the encoder of its inputs, which are numbers by name if it was fitted to a numeric frame.

    With `for_tables`, refuse a model whose several targets or exposure have no names to find in a table.
    """
    from overtone.sklearn import load  # imports JAX, for which a wrong argument of `fit` should not have to wait

    model: Any = load(path)
    names = list(map(str, getattr(model, "feature_names_in_", [])))
    if model.encoder_ is None and not names:
        raise ValueError(f"{path}: this model was fitted to arrays without column names; use it from Python.")
    if for_tables and model.target_ is None and not getattr(model, "single_output_", True):
        raise ValueError(f"{path}: this model predicts several targets without names; use it from Python.")
    if for_tables and model.exposure_ is None and model.exposed_:
        raise ValueError(f"{path}: this model needs an exposure without a column name; use it from Python.")
    means = () if model.means_ is None else tuple(model.means_.tolist())
    numbers = tuple(Column(name, "number") for name in names)
    return model, model.encoder_ or Encoder(numbers, model.config_.missing, means)


def load_model_and_rows(model_path: str, table_path: str) -> tuple[Any, Encoder, Rows]:
    """Load a model, its encoder, and the complete rows of a table that contains the target."""
    model, encoder = load_model(model_path)
    frame = read_table(table_path)
    if model.target_ is None:
        raise ValueError(f"{model_path}: this model does not know the name of its target; use it from Python.")
    names, classes = target_names(model), {canonical_label(label): label for label in getattr(model, "classes_", ())}
    try:
        if absent := [name for name in names if name not in frame.columns]:
            raise TableError(f"there is no column {quoted_list(absent)}, which the model predicts.")
        X, exposure = encode_inputs(encoder, frame, model.exposure_)
        y, has_target = read_targets(frame, names, bool(classes))
        if unknown := [word for word in y if classes and word is not None and canonical_label(word) not in classes]:
            raise TableError(f"the target {model.target_!r} has {unknown[0]!r}, a class that the model does not know.")
        complete = ~np.isnan(X).any(axis=1) & has_target
        if not complete.any():
            raise TableError("there is no complete row.")
    except TableError as error:
        raise TableError(f"{table_path}: {error}") from None
    rows = Rows(X, y, exposure)[complete]
    if classes:
        rows = replace(rows, y=np.array([classes[canonical_label(label)] for label in rows.y]))
    return model, encoder, rows


def encode_inputs(encoder: Encoder, frame: pl.DataFrame, exposure: str | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Return inputs, with NaN in rows to be dropped, and the values of the column of exposures, if there is one."""
    X = encoder.encode(frame)
    if exposure is None:
        return X, None
    if exposure not in frame.columns:
        raise TableError(f"there is no column {exposure!r}, the exposure that the model was fitted with.")
    values = Column(exposure, "number").encode(frame[exposure])[:, 0]
    gaps = np.isnan(values)
    if gaps.any() and encoder.missing != "drop":
        raise TableError(f"the exposure {exposure!r} is missing in {gaps.sum()} rows; drop them: --missing drop.")
    if len(bad := np.flatnonzero((values <= 0) | np.isinf(values))):
        raise TableError(f"the exposure {exposure!r} must be positive; row {bad[0] + 1} has {values[bad[0]]:g}.")
    return np.where(gaps[:, None], np.nan, X), np.where(gaps, 1.0, values)


def read_targets(frame: pl.DataFrame, names: list[str], classes: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return labels or numbers (N,), or the numbers (N, P) of several targets, and which rows have any target."""
    if classes:
        y = class_labels(frame[names[0]])
        return y, np.array([label is not None for label in y])
    Y = np.column_stack([numeric_target(frame[name]) for name in names])
    return Y if len(names) > 1 else Y[:, 0], ~np.asarray(np.isnan(Y).all(axis=1))


def target_names(model: Any) -> list[str]:
    """Return the names of the targets."""
    return model.target_ if isinstance(model.target_, list) else [str(model.target_)]


def score(model: Any, rows: Rows) -> dict[str, Any]:
    """Return the metrics of the predictions or, with several targets, the metrics of each by name."""
    if len(names := target_names(model)) == 1:
        return model.evaluate(rows.X, rows.y, **rows.keywords)
    return dict(zip(names, model.evaluate_outputs(rows.X, rows.y, **rows.keywords), strict=True))


def print_scores(scores: dict[str, Any]) -> None:
    """Print the metrics, one column for each of several targets."""
    several = all(isinstance(metrics, dict) for metrics in scores.values())
    columns = list(scores.values()) if several else [scores]
    if several:
        print(f"    {'':20} " + " ".join(f"{target:>14}" for target in scores))
    for metric in columns[0]:
        cells = " ".join(f"{metrics[metric]:>{14 if several else 1}.6g}" for metrics in columns)
        print(f"    {metric.replace('_', ' '):20} {cells}")
