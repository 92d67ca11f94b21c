"""The last training rows of a series, which forecasts are drawn after, and which the seasonal naive repeats."""

from typing import Any

import numpy as np

from overtone.estimators.baselines import seasonal_naive

MAX_ROWS = 250


def last_rows(X: np.ndarray, Y: np.ndarray, earlier: np.ndarray | None = None) -> np.ndarray:
    """Return the first input and the targets of the rows where that input is largest, at most 250: (n, 1 + targets).

    earlier: rows of an earlier call that count as well.
    """
    rows = np.column_stack([X[:, 0], Y]).astype(np.float64)
    rows = rows if earlier is None else np.concatenate([earlier, rows])
    return rows[np.argsort(rows[:, 0], kind="stable")[-MAX_ROWS:]]


def is_series(model: Any) -> bool:
    """Return whether predictions depend on one date or one number, and nothing else."""
    kinds = [column.kind for column in model.encoder_.columns] if model.encoder_ else ["number"] * model.n_features_in_
    return kinds in (["number"], ["time"])


def a_season_earlier(model: Any, X: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the means (N, P) and deviations (P,) of the seasonal naive, in the model's units, of numbers in time."""
    if model.recent_ is None or model.model_.likelihood.counts or not (is_series(model) and model.encoder_):
        return None
    moments, in_time = model.inputs(X)[:, 0], model.encoder_.columns[0].kind == "time"
    if np.isnan(moments).any() or not in_time:
        return None
    return seasonal_naive(model.recent_[:, 0], model.recent_[:, 1:], moments)
