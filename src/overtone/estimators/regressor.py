"""Regression: arrays or frames in, predictions in the user's units out."""

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_consistent_length

from overtone.autopilot.config import Config
from overtone.autopilot.names import LIKELIHOODS, part
from overtone.estimators import baselines, unseen_counts
from overtone.estimators.arguments import checked_scaling, known_rows, name_of, seed_of
from overtone.estimators.base import PRECISIONS, DeepGPEstimator
from overtone.estimators.counts import likelihood_of, log_exposure
from overtone.estimators.recent import a_season_earlier
from overtone.estimators.stored import PackedTargets, columns_of, views
from overtone.estimators.tables import fit_table, is_table
from overtone.estimators.unseen import replaced, widening
from overtone.estimators.unseen_counts import shifts, with_unseen_counts
from overtone.gp.maps import Affine, standardise
from overtone.inference import predictions
from overtone.numerics.shuffle import some_of
from overtone.storage.rows import RowView
from overtone.tables.gaps import missing_cells

CHECKED_ROWS = 200_000  # of targets on the disk, which tell whether they are counts
NOTHING_TO_COMPARE = "there is no row with both inputs and targets; there is nothing to compare."
COUNTS = "Small whole numbers with zeros among them, or an exposure: counts, which may vary more than Poisson's."


class DeepGPRegressor(RegressorMixin, DeepGPEstimator):
    """Regression by a deep Gaussian process with Fourier features, or one of its three rivals.

    >>> import numpy as np
    >>> from overtone.sklearn import DeepGPRegressor
    >>> X = np.linspace(0, 10, 200)[:, None]
    >>> model = DeepGPRegressor(max_steps=300).fit(X, np.sign(np.sin(X[:, 0])))
    >>> mean, std = model.predict(X, return_std=True)
    >>> mean.shape, std.shape
    ((200,), (200,))

    The parameters are those of `overtone.autopilot.config.Config`, which explains each; `verbose=True` shows a
    progress bar. Results come back in the user's units. A pandas or polars frame may have columns of dates and of a few
    words, which become numbers as `overtone.tables.encode` says. With `missing="drop"`, results are NaN in rows that
    lack inputs, and scores leave such rows out.

    Attributes: `model_` (the fitted `overtone.DeepGP`), `history_` (the loss at each step), `config_` (what was asked),
    `plan_` (what was decided, and why), `n_features_in_`, `feature_names_in_`, `x_scaling_` and `y_scaling_`.
    """

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(
        self, X, y, *, exposure=None, checkpoint: Any = None, log: Any = None, stop: Callable[[], bool] | None = None
    ) -> Self:
        """Fit to inputs X (N, D) and targets y, (N,) or (N, P); of several targets, some values may be missing (NaN).

        Rows without any target are left out. Rows have no weights, other than in `score`: repeat those that count more.
        X may be the path of a table or a folder of parts, of any size, and y and exposure the names of its columns.

        exposure: of counts, the length of time, the area and so on (N,) in which they were counted. checkpoint: a
            folder to which training writes what it knows, every few seconds; a fit with the same settings and data that
            was killed goes on from there, to the same result. log: a file to which each turn of training adds a JSON
            line. stop: training ends once this returns True.
        """
        watched = {"checkpoint": checkpoint, "log": log, "stop": stop}
        if is_table(X):
            return fit_table(self, X, y, exposure=exposure, **watched)
        if on_disk := views(X, y) if exposure is None else views(X, y, exposure):
            return self._fit_stored(*on_disk, **watched)
        y, X, exposure = known_rows(y, X, exposure)
        config = self._start_fit(X, y)
        X, Y = self._checked(config.missing, X, y, reset=True, dtype=list(PRECISIONS))
        self.single_output_ = np.asarray(y).ndim == 1
        self.exposed_, self.exposure_ = exposure is not None, name_of(exposure)
        check_consistent_length(Y, exposure)
        X, rows = self._complete(config, X)
        Y, exposure = Y[rows], None if exposure is None else np.asarray(exposure)[rows]
        if (empty := np.isnan(Y).all(axis=0)).any():
            raise ValueError(f"column {int(np.argmax(empty))} of y has no value at all; leave it out.")
        likelihood, counts = self._start_targets(config, checked_scaling("y", standardise, Y), Y)
        return self._fit(config, X, self._packed(Y, exposure, counts), likelihood, COUNTS, **watched)

    def _fit_stored(self, X: RowView, Y: RowView, exposure: RowView | None = None, **watched: Any) -> Self:
        """Fit to rows on the disk, which are complete."""
        check_consistent_length(X, Y)
        self.single_output_, self.exposed_, self.exposure_ = Y.shape[1] == 1, exposure is not None, None
        config, columns = self._start_fit(X, Y), columns_of(Y)
        if not columns.known.all() or not np.all(np.isfinite([columns.low, columns.high])):
            raise ValueError("y is on the disk and has infinite values, or a column without any value.")
        standard = Affine(columns.mean, np.where(columns.std > 0, columns.std, 1.0))
        likelihood, counts = self._start_targets(config, standard, Y[some_of(len(Y), CHECKED_ROWS)])
        packed = PackedTargets(self, Y, exposure, counts)
        return self._fit(config, X, RowView(packed), likelihood, COUNTS, **watched)

    def _start_targets(self, config: Config, standard: Affine, Y: np.ndarray) -> tuple[str, bool]:
        """Set the units of targets, and return their likelihood, and whether they are counts."""
        likelihood = likelihood_of(config, Y, self.exposed_)
        counts = likelihood != "auto" and part(LIKELIHOODS, likelihood).counts
        if self.exposed_ and not counts:
            raise ValueError(f"an exposure belongs to counts, but likelihood={config.likelihood!r} is not for counts.")
        self.y_scaling_ = Affine(0 * standard.shift, np.ones_like(standard.scale)) if counts else standard
        self.y_spread_ = standard.scale
        return likelihood, counts

    def predict(self, X, return_std: bool = False, *, exposure=None):
        """Return the predictive mean of y; with `return_std=True` the pair (mean, standard deviation)."""
        offset, wide = self._offset(X, exposure), widening(self, X)
        parts = self._over_rows(predictions.moments, X, offset, warn=True)
        mean, std = with_unseen_counts(self, unseen_counts.moments, X, parts, offset)
        mean = self._shape(self.y_scaling_.inverse(wide.widened(mean)))
        return (mean, self._shape(wide.factor * std * self.y_scaling_.scale)) if return_std else mean

    def score(self, X, y, sample_weight=None, *, exposure=None) -> float:
        """Return R^2 of the predictive mean, over the rows that have one and whose targets are known."""
        Y = self._targets(X, y, exposure)[:, : len(self.y_scaling_.shift)].astype(np.float64)
        check_consistent_length(Y, sample_weight)
        mean = self.y_scaling_(np.reshape(self.predict(X, exposure=exposure), Y.shape))
        there = ~np.isnan(Y).any(axis=1) & ~self._inputs(X)[1]
        if not there.any():
            raise ValueError(NOTHING_TO_COMPARE)
        weight = None if sample_weight is None else np.asarray(sample_weight)[there]
        return float(r2_score(Y[there], mean[there], sample_weight=weight))

    def predict_quantiles(self, X, levels: Sequence[float] = (0.05, 0.5, 0.95), *, exposure=None) -> np.ndarray:
        """Return quantiles of the predictive distribution of y, of shape (levels, N) or (levels, N, P)."""
        shares = np.asarray(levels, self._fitted().config_.dtype)
        if shares.ndim != 1 or not np.all((shares > 0) & (shares < 1)):
            raise ValueError(f"levels must be a list of numbers between 0 and 1; got {levels!r}.")

        def at_levels(quantiles: Callable) -> Callable:
            return lambda model, key, num_samples, *rows: quantiles(model, key, num_samples, shares, *rows)

        offset = self._offset(X, exposure)
        parts = self._over_rows(at_levels(predictions.quantiles), X, offset, warn=True)
        (values,) = with_unseen_counts(self, at_levels(unseen_counts.quantiles), X, parts, offset)
        return self._shape(self.y_scaling_.inverse(widening(self, X).widened(values)))

    def log_predictive_density(self, X, y, *, exposure=None) -> np.ndarray:
        """Return log p(y | x) of each row in the user's units, summed over the outputs that are known: shape (N,)."""
        Y, wide = self._targets(X, y, exposure), widening(self, X)
        parts = self._over_rows(predictions.log_density, X, wide.narrowed(Y).astype(Y.dtype))
        (values,) = with_unseen_counts(self, unseen_counts.log_density, X, parts, Y)
        values = values - np.log(wide.factor)
        known = ~np.isnan(Y[:, : values.shape[1]])  # and NaN is left where inputs are missing
        return np.sum(np.where(known, values - np.log(self.y_scaling_.scale), 0.0), axis=1)

    def predictive_cdf(self, X, y, *, exposure=None) -> np.ndarray:
        """Return P(Y < y) of each row, (N,) or (N, P): uniform between 0 and 1 where predictions are honest.

        Of counts, a number between P(Y < y) and P(Y <= y), the same in every call.
        """
        return self._shape(self._scores(X, y, exposure)[3])

    def evaluate(self, X, y, *, exposure=None) -> dict[str, float]:
        """Return how good the predictions of y are, in the user's units, over all rows and outputs that are known.

        `rmse`; `standardised_rmse`, in standard deviations of the training targets; `r2`, the share of the variance
        that is explained, on average over the outputs; the mean `log_density` of a row; the mean `crps`; and shares
        `coverage_50`, `_80`, `_95` of values inside the central intervals of each level.
        """
        return self._metrics(self._scores(X, y, exposure))

    def evaluate_outputs(self, X, y, *, exposure=None) -> list[dict[str, float]]:
        """Return what `evaluate` says, for each output by itself."""
        scores = self._scores(X, y, exposure)
        return [self._metrics(scores, [output]) for output in range(len(self.y_scaling_.shift))]

    def evaluate_baselines(self, X, y, *, exposure=None, output: int | None = None) -> dict[str, dict[str, float]]:
        """Return what `evaluate` says, or of one output, for simple models of the same training rows, by their names.

        For numbers these are the mean and a straight line, by ridge regression, each with one standard deviation; for
        counts a constant rate and Poisson regression, with the variance that the counts have. Older files have none.
        Where a date is the only input, numbers after the training rows have the value one season earlier, too.
        """
        outputs, known = slice(None) if output is None else [output], self._fitted().baselines_.items()
        found = {name: self._metrics(self._scores(X, y, exposure, line), outputs) for name, line in known}
        if seasonal := a_season_earlier(self, X):
            Y = self._targets(X, y).astype(np.float64)
            found["seasonal naive"] = self._metrics((Y, *baselines.normal_scores(*seasonal, Y)), outputs)
        return found

    def _metrics(self, scores: tuple[np.ndarray, ...], outputs: Any = slice(None)) -> dict[str, float]:
        Y, mean, density, below, crps = (part[:, outputs] for part in scores)
        known = ~np.isnan(Y)
        if not known.any():
            raise ValueError(NOTHING_TO_COMPARE)
        scale, rows = self.y_scaling_.scale[outputs], int(known.any(axis=1).sum())
        miss, covered = (mean - Y) * scale, np.abs(below[known] - 0.5)
        return {
            "rows": rows,
            "rmse": float(np.sqrt(np.mean(miss[known] ** 2))),
            "standardised_rmse": float(np.sqrt(np.mean((miss / self.y_spread_[outputs])[known] ** 2))),
            "r2": float(np.mean([_explained(*columns) for columns in zip(Y.T, mean.T, strict=True)])),
            "log_density": float(np.sum((density - np.log(scale))[known]) / rows),
            "crps": float(np.mean((crps * scale)[known])),
            **{f"coverage_{level}": float(np.mean(covered < level / 200)) for level in (50, 80, 95)},
        }

    def _scores(self, X, y, exposure, baseline: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
        """Return targets (N, P) in the model's units, NaN where inputs are missing too, and their scores."""
        Y, num_outputs, (Z, gaps) = self._targets(X, y, exposure), len(self.y_scaling_.shift), self._inputs(X)
        if baseline is None:
            wide, offset = widening(self, X), self._offset(X, exposure)
            parts = self._over_rows(predictions.scores, X, wide.narrowed(Y).astype(Y.dtype), offset, warn=True)
            mean, density, below, crps = with_unseen_counts(self, unseen_counts.scores, X, parts, Y, offset)
            mean, density, crps = wide.widened(mean), density - np.log(wide.factor), wide.factor * crps
        else:
            mean, density, below, crps = baselines.scores(baseline, Z, Y.astype(np.float64))
        if self.model_.likelihood.counts:
            below = below + (np.random.default_rng(0).random(below.shape) - 0.5) * np.exp(density)
        return np.where(gaps[:, None], np.nan, Y[:, :num_outputs].astype(np.float64)), mean, density, below, crps

    def elbo(self, X, y, n_samples: int = 64, *, exposure=None) -> float:
        """Return the evidence lower bound of all rows in the user's units, by fresh draws of the hidden layers."""
        bound, Y = self._bound(X, self._targets(X, y, exposure), n_samples)
        num_known = np.sum(~np.isnan(Y[:, : len(self.y_scaling_.shift)]), axis=0)
        return bound - float(np.sum(num_known * np.log(self.y_scaling_.scale)))

    def sample_y(self, X, n_samples: int = 1, random_state: Any = 0, *, exposure=None) -> np.ndarray:
        """Return draws of y at the rows of X, of shape (N, n_samples) or (N, P, n_samples).

        The rows of one draw belong together: they are values of one function of the deep GP, plus noise. What
        neighbours know is no part of them.
        """
        offset, seed = self._offset(X, exposure), seed_of(random_state)
        draws = widening(self, X).widened(self._draws(X, n_samples, seed, offset))
        if self.model_.likelihood.counts and (found := replaced(self, X)) is not None:
            moved = (offset[found.rows, None] + shifts(self, found)).reshape(-1, draws.shape[-1])
            of_turns = self._draws(found.flat(), n_samples, seed, moved.astype(offset.dtype))
            draws[:, found.rows] = found.drawn(of_turns, seed)
        return self._shape(np.moveaxis(self.y_scaling_.inverse(draws), 0, -1), axis=1)

    def _checked(self, missing: str, X, y: Any, **settings: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return inputs and targets (N, P) as arrays; targets may have gaps, which validation does not see."""
        gaps, values = None, np.asarray(y)
        nullable = values.dtype == object and hasattr(y, "to_numpy") and bool(missing_cells(values.reshape(-1)).any())
        if values.ndim == 2 or nullable or (values.ndim == 1 and values.dtype.kind == "f"):
            y = y.to_numpy(dtype=float, na_value=np.nan) if nullable else values.astype(np.float64)
            gaps = np.isnan(y)
            y = np.where(gaps, 0.0, y)
        settings |= {"multi_output": True, "y_numeric": True, "ensure_min_samples": 2 if settings["reset"] else 1}
        X, y = self._validated(missing, X, y, **settings)
        Y = np.asarray(y, np.float64).reshape(len(y), -1)
        return np.asarray(X), Y if gaps is None else np.where(gaps.reshape(Y.shape), np.nan, Y)

    def _targets(self, X, y, exposure=None) -> np.ndarray:
        """Return targets as the model was trained on."""
        _, Y = self._fitted()._checked(self.config_.missing, X, y, reset=False, dtype=np.float64)
        num_outputs = len(self.y_scaling_.shift)
        if Y.shape[1] != num_outputs:
            raise ValueError(f"y has {Y.shape[1]} outputs, but the model was fitted to {num_outputs}.")
        with np.errstate(over="ignore"):  # values beyond the precision are infinite
            return self._packed(Y, exposure, self.model_.likelihood.counts).astype(self.config_.dtype)

    def _packed(self, Y: np.ndarray, exposure, counts: bool) -> np.ndarray:
        """Return standardised targets; or counts, with the logs of their exposures."""
        if not counts:
            return self.y_scaling_(Y)
        known = Y[~np.isnan(Y)]
        if odd := known[(known < 0) | (known != np.floor(known))][:1].tolist():
            raise ValueError(f"counts are whole numbers and not negative; y has {odd[0]:g}. Use another likelihood.")
        if exposure is None and self.exposed_:
            raise ValueError("this model was fitted to counts with an exposure; give the exposure of these rows too.")
        return np.concatenate([Y, np.repeat(log_exposure(exposure, len(Y)), Y.shape[1], axis=1)], axis=1)

    def _offset(self, X, exposure) -> np.ndarray:
        """Return what is added to the functions at each row, (N, 1)."""
        if exposure is not None and not self._fitted().model_.likelihood.counts:
            raise ValueError("an exposure belongs to counts, and this model was fitted to something else.")
        num = X.shape[0] if hasattr(X, "shape") else len(np.asarray(X))
        return log_exposure(exposure, num).astype(self._fitted().config_.dtype)

    def _in_units(self, values):
        scale, shift = (part[:, None] for part in (self.y_scaling_.scale, self.y_scaling_.shift))
        return self._shape(values * scale + shift, axis=1)

    def _target_state(self):
        """Return what `save` keeps about targets: arrays, and what JSON can express."""
        arrays = {"y_scaling_.shift": self.y_scaling_.shift, "y_scaling_.scale": self.y_scaling_.scale}
        return arrays | {"y_spread_": self.y_spread_}, {"single_output": self.single_output_}

    def _restore_targets(self, arrays, about):
        self.y_scaling_ = Affine(arrays["y_scaling_.shift"], arrays["y_scaling_.scale"])
        self.y_spread_, self.single_output_ = arrays["y_spread_"], about["single_output"]

    def _shape(self, values: np.ndarray, axis: int = -1) -> np.ndarray:
        return values.squeeze(axis) if self.single_output_ else values


def _explained(y: np.ndarray, mean: np.ndarray) -> float:
    """Return R^2 of the known targets of an output; 0 where they do not vary."""
    known = ~np.isnan(y)
    total = np.sum((y[known] - np.mean(y[known])) ** 2) if known.any() else 0.0
    return float(1 - np.sum((y - mean)[known] ** 2) / total) if total else 0.0
