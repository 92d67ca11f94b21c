"""Fit estimators to tables in files, of any size, as the command line does."""

import os
from typing import Any

import numpy as np
from sklearn.base import is_classifier


def is_table(X: Any) -> bool:
    """Return whether inputs are the path of a table."""
    return isinstance(X, str | os.PathLike)


def fit_table(model: Any, path: Any, target: Any, *, exposure: Any = None, **watched: Any) -> Any:
    """Fit a model to the table in a file or a folder of parts, all columns of which but some it predicts from.

    A large one stays on the disk.
    """
    from overtone.tables.training import Reading, read_training_table  # imports polars, which arrays need not

    if not isinstance(target, str) or not isinstance(exposure, str | None):
        raise TypeError(
            f"X is the path of a table, so y and exposure must be names of its columns; got {type(target).__name__} "
            f"and {type(exposure).__name__}."
        )
    likelihood = model.likelihood
    if likelihood == "auto":  # the estimator says whether the target is numbers or classes, whatever its cells are
        likelihood = "softmax" if is_classifier(model) else "gaussian"
    reading = Reading(str(path), target, exposure=exposure, missing=model.missing, likelihood=likelihood)
    table = read_training_table(reading)
    model.fit(table.rows.X, table.rows.y, **table.rows.keywords, **watched)
    return named(model, table)


def named(model: Any, table: Any) -> Any:
    """Return a model that was fitted to rows of a table, with the meaning of its columns."""
    if table.labels:
        model.classes_ = np.array(table.labels)[model.classes_.astype(int)]  # of those that training has met
    model.encoder_, model.exposure_ = table.encoder, table.exposure
    model.target_ = table.targets if len(table.targets) > 1 else table.targets[0]
    return model
