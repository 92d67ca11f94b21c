"""Classification: arrays or frames in, probabilities out."""

from collections.abc import Callable
from functools import partial
from typing import Any, Self

import numpy as np
from scipy.special import logsumexp
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d

from overtone.autopilot.names import LIKELIHOODS, part
from overtone.estimators import baselines
from overtone.estimators.arguments import known_rows, seed_of
from overtone.estimators.base import PRECISIONS, DeepGPEstimator
from overtone.estimators.stored import views
from overtone.estimators.tables import fit_table, is_table
from overtone.estimators.unseen import replaced
from overtone.inference import predictions
from overtone.storage.rows import pieces
from overtone.tables.gaps import missing_cells, number_of


class DeepGPClassifier(ClassifierMixin, DeepGPEstimator):
    """Classification by a deep Gaussian process, with probabilities that know what they do not know.

    >>> import numpy as np
    >>> from overtone.sklearn import DeepGPClassifier
    >>> X = np.linspace(0, 10, 200)[:, None]
    >>> model = DeepGPClassifier(max_steps=300).fit(X, np.where(np.sin(2 * X[:, 0]) > 0, "up", "down"))
    >>> model.predict([[1.0]]), model.predict_proba([[1.0]]).shape
    (array(['up'], dtype='<U4'), (1, 2))

    The parameters are those of `DeepGPRegressor`; `classes_` are the labels in the order of the probabilities.
    """

    def fit(self, X, y, *, checkpoint: Any = None, log: Any = None, stop: Callable[[], bool] | None = None) -> Self:
        """Fit to inputs X (N, D) and labels y (N,), of which rows without one are left out; see `DeepGPRegressor`."""
        watched = {"checkpoint": checkpoint, "log": log, "stop": stop}
        if is_table(X):
            return fit_table(self, X, y, **watched)
        on_disk, labels = views(X, y), y
        if on_disk is None:
            y, X = known_rows(y, X)
        config = self._start_fit(X, y)
        if config.likelihood != "auto" and not part(LIKELIHOODS, config.likelihood).classes:
            raise ValueError(f"likelihood={config.likelihood!r} is for numbers; use DeepGPRegressor.")
        if on_disk:
            X, labels = on_disk
            check_consistent_length(X, labels)
            self.classes_ = np.unique(np.concatenate([np.unique(piece) for piece in pieces(labels)]))
            codes = labels.changed(partial(np.searchsorted, self.classes_), np.float64)
        else:
            X, y = self._validated(config.missing, X, _plain(y), dtype=list(PRECISIONS), ensure_min_samples=2)
            check_classification_targets(y)
            X, rows = self._complete(config, np.asarray(X))
            self.classes_, codes = np.unique(column_or_1d(y, warn=True)[rows], return_inverse=True)
            codes = codes.reshape(-1, 1).astype(np.float64)
        num = len(self.classes_)
        if num < 2:
            raise ValueError(f"all rows are of the class {self.classes_.tolist()[0]!r}; a fit needs at least two.")
        if config.likelihood == "bernoulli" and num > 2:
            raise ValueError(f"likelihood='bernoulli' is for two classes, but y has {num}; use 'softmax'.")
        default, why = "bernoulli" if num == 2 else "softmax", f"The target has {num} classes."
        likelihood = default if config.likelihood == "auto" else config.likelihood
        return self._fit(config, X, codes, likelihood, why, **watched)

    def predict_proba(self, X) -> np.ndarray:
        """Return the probability of each class (N, C), in the order of `classes_`."""
        (probabilities,) = self._over_rows(predictions.probabilities, X, warn=True)
        if (found := replaced(self, X)) is not None:  # an unseen category may be like any of the others
            (of_turns,) = self._over_rows(predictions.probabilities, found.flat())
            probabilities[found.rows] = found.averaged(found.of_turns(of_turns))
        return probabilities / probabilities.sum(axis=1, keepdims=True)

    def predict(self, X) -> np.ndarray:
        """Return the most probable class of each row."""
        return self._fitted().classes_[np.argmax(_decided(self.predict_proba(X)), axis=1)]

    def score(self, X, y, sample_weight=None) -> float:
        """Return the share of labels that are predicted, over the rows that have one."""
        y, X, sample_weight = known_rows(y, X, sample_weight)
        return float(accuracy_score(_plain(y), self.predict(X), sample_weight=sample_weight))

    def log_predictive_density(self, X, y) -> np.ndarray:
        """Return log p(y | x) of each row."""
        Y, found = self._targets(X, y), replaced(self, X)
        (density,) = self._over_rows(predictions.log_density, X, Y)
        if found is not None:
            labels = np.repeat(Y[found.rows], found.weights.shape[1], axis=0)
            (of_turns,) = self._over_rows(predictions.log_density, found.flat(), labels)
            density[found.rows] = logsumexp(found.of_turns(of_turns), axis=1, b=found.weights[..., None])
        return density[:, 0]

    def evaluate(self, X, y) -> dict[str, float]:
        """Return `accuracy`, mean `log_density` of a label, and `brier`: the mean squared distance of probabilities."""
        y, X = known_rows(y, X)
        return self._metrics(self._targets(X, y), self.predict_proba(X), self.log_predictive_density(X, y))

    def evaluate_baselines(self, X, y) -> dict[str, dict[str, float]]:
        """Return what `evaluate` says of the frequencies of the classes and of logistic regression.

        Both were fitted to the same training rows. Older files have none.
        """
        y, X = known_rows(y, X)
        Y, (Z, gaps), found = self._targets(X, y), self._inputs(X), {}
        known = {name: line for name, line in self.baselines_.items() if len(line) == len(self.classes_)}
        for name, line in known.items():  # a very rare class may have been among other rows
            logs = np.where(gaps[:, None], np.nan, baselines.log_probabilities(line, Z))
            density = np.take_along_axis(logs, Y.astype(int), axis=1)[:, 0]
            found[name] = self._metrics(Y, np.exp(logs), density)
        return found

    def _metrics(self, Y: np.ndarray, probabilities: np.ndarray, density: np.ndarray) -> dict[str, float]:
        kept = ~np.isnan(density)
        if not kept.any():
            raise ValueError("X has no row without missing values; there is nothing to compare.")
        Y, probabilities, density = Y[kept], probabilities[kept], density[kept]
        right = Y == np.arange(len(self.classes_))
        return {
            "rows": len(Y),
            "accuracy": float(np.mean(np.argmax(probabilities, axis=1) == Y[:, 0])),
            "log_density": float(np.mean(density)),
            "brier": float(np.mean(np.sum((probabilities - right) ** 2, axis=1))),
        }

    def elbo(self, X, y, n_samples: int = 64) -> float:
        """Return the evidence lower bound of all rows, by fresh draws of the hidden layers."""
        return self._bound(X, self._targets(X, y), n_samples)[0]

    def sample_y(self, X, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Return draws of labels at the rows of X (N, n_samples), of one function for all rows of a draw."""
        seed, zero = seed_of(random_state), np.zeros((1, 1), self._fitted().config_.dtype)
        draws = self._draws(X, n_samples, seed, zero)
        if (found := replaced(self, X)) is not None:
            draws[:, found.rows] = found.drawn(self._draws(found.flat(), n_samples, seed, zero), seed)
        return self.classes_[_decided(draws[..., 0].T).astype(int)]

    def _targets(self, X, y) -> np.ndarray:
        y, classes = column_or_1d(_plain(y)), self._fitted().classes_
        check_consistent_length(X, y)
        if unknown := set(np.unique(y).tolist()) - set(classes.tolist()):
            raise ValueError(f"y has the class {unknown.pop()!r}, which the model was not fitted to.")
        return np.searchsorted(classes, y).reshape(-1, 1).astype(self.config_.dtype)

    def _in_units(self, values):
        return values

    def _target_state(self):
        """Return what `save` keeps about targets: arrays, and what JSON can express."""
        classes = self.classes_.astype(np.int64) if self.classes_.dtype.kind in "mM" else self.classes_
        return {}, {"classes": classes.tolist(), "classes_dtype": self.classes_.dtype.str}

    def _restore_targets(self, arrays, about):
        self.classes_ = np.array(about["classes"], np.dtype(about["classes_dtype"]))


def _decided(probabilities: np.ndarray) -> np.ndarray:
    """Return probabilities or draws, or raise an error where a row has no class because its inputs are missing."""
    if num := int(np.isnan(probabilities).any(axis=1).sum()):
        raise ValueError(
            f"X has {number_of(num, 'row')} with missing values, for which this model (missing='drop') predicts no "
            f"class; leave them out, or use predict_proba, which is NaN there."
        )
    return probabilities


def _plain(y: Any) -> Any:
    """Return labels as an array of one type, or raise an error if some are missing."""
    values = np.asarray(y)
    if values.dtype != object or values.ndim != 1:
        return y if values.ndim == 0 else values
    if missing := int(missing_cells(values).sum()):
        raise ValueError(f"y has {number_of(missing, 'missing label')}; leave such rows out.")
    return values if any(isinstance(v, str) for v in values) else np.array(values.tolist())
