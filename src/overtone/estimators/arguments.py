"""What users pass to estimators: seeds, names, frames, scales."""

import warnings
from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.validation import check_consistent_length

from overtone.gp.maps import Affine
from overtone.tables.gaps import missing_cells, rows_left_out

MAX_SEED = 2**63
MAX_DENSE_BYTES = 2 * 2**30  # of a sparse matrix as an array


def name_of(column: Any) -> str | None:
    """Return the name of a column of a frame, if it has one."""
    name = getattr(column, "name", None)
    return str(name) if name not in (None, "") else None


def seed_of(random_state: Any) -> int:
    """Return a seed as it is, or draw one from a generator."""
    if not isinstance(random_state, Integral):
        return int(check_random_state(random_state).randint(2**31 - 1))
    if not 0 <= (seed := int(random_state)) < MAX_SEED:
        raise ValueError(f"random_state must be a whole number from 0 to 2^63 - 1; got {seed}.")
    return seed


def checked_scaling(name: str, make: Callable[[np.ndarray], Affine], values: np.ndarray) -> Affine:
    with np.errstate(over="ignore", invalid="ignore"):
        scaling = make(values)
    if not (np.all(np.isfinite(scaling.shift)) and np.all(np.isfinite(scaling.scale))):
        raise ValueError(f"{name} has values too large to be scaled in double precision; rescale it.")
    return scaling


def known_rows(y: Any, *others: Any) -> tuple[Any, ...]:
    """Return targets and whatever goes with them, without the rows that have no target at all, and warn of these."""
    values = np.asarray(y)
    if values.ndim not in (1, 2) or not values.size:
        return y, *others
    missing = np.all([missing_cells(column) for column in values.reshape(len(values), -1).T], axis=0)
    if not missing.any():
        return y, *others
    if missing.all():
        raise ValueError("y has no value at all; there is nothing to learn from.")
    warnings.warn(f"{rows_left_out(missing.sum(), 'without a target')}.", UserWarning, stacklevel=3)
    check_consistent_length(y, *others)
    kept = np.flatnonzero(~missing)
    return tuple(None if part is None else _safe_indexing(part, kept) for part in (y, *others))


def dense(X: Any) -> Any:
    """Return a sparse matrix as an array, if there is room for it, and anything else as it is."""
    if not issparse(X):
        return X
    if (size := 8 * X.shape[0] * X.shape[1]) > MAX_DENSE_BYTES:
        raise ValueError(
            f"X is sparse, and as an array its {X.shape[0]} rows of {X.shape[1]} inputs would take {size / 2**30:.1f} "
            f"GiB, of which at most {MAX_DENSE_BYTES / 2**30:g} are allowed; use fewer columns, such as the categories "
            f"themselves in a frame."
        )
    return X.toarray()


def encoding():
    """Import the encoder where a frame needs it: arrays need no polars."""
    from overtone.tables import encode as encoding

    return encoding


def fitted_encoder(X: Any, missing: str) -> Any:
    """Return what the columns of a frame mean, of any library; None for arrays, and for frames of numbers alone.

    A column of pandas' type "category" is one, whatever its values are.
    """
    if not (hasattr(X, "columns") and hasattr(X, "__getitem__")) or all(_is_numeric(X[name]) for name in X.columns):
        return None
    hints = encoding().ColumnHints(categorical=tuple(str(name) for name in X.columns if _is_category(X[name])))
    return encoding().Encoder.fit(encoding().as_frame(X), missing=missing, hints=hints)


def plain(value: Any) -> Any:
    """Return settings with tuples in place of lists and arrays, and Python's numbers in place of NumPy's."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    value = value.tolist() if isinstance(value, np.generic | np.ndarray) else value
    return tuple(map(plain, value)) if isinstance(value, list | tuple) else value


def _is_category(column: Any) -> bool:
    return str(getattr(column, "dtype", "")) == "category"


def _is_numeric(column: Any) -> bool:
    values = np.asarray(column)
    try:
        numbers = values.astype(np.float64) if values.dtype == object else values
        return numbers.dtype.kind in "biuf" and not _is_category(column)
    except (TypeError, ValueError):
        return False
