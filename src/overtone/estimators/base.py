"""What all estimators share: parameters, inputs, fitting, looking inside, saving and loading."""

import logging
import os
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from inspect import Parameter, Signature
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from overtone.autopilot.config import PARAMETERS, Config, checked_whole
from overtone.autopilot.local import Neighbours, extended, of_neighbours
from overtone.autopilot.plan import plan
from overtone.autopilot.train import Run, train, updated
from overtone.estimators.arguments import checked_scaling, dense, encoding, fitted_encoder, name_of, plain, seed_of
from overtone.estimators.baselines import MAX_CELLS, fit_baselines
from overtone.estimators.draws import FunctionDraws
from overtone.estimators.ranges import TRAINED, counted, is_outside, warn_of_rows_outside, warn_of_unseen
from overtone.estimators.recent import last_rows
from overtone.estimators.saving import restored, stored
from overtone.estimators.stored import range_of
from overtone.gp import diagnostics
from overtone.gp.maps import unit_interval
from overtone.inference import predictions
from overtone.inference.batches import random_rows
from overtone.inference.objective import Rows
from overtone.numerics import compiling
from overtone.numerics.compiling import one_blas_thread
from overtone.storage import files
from overtone.storage.rows import RowView
from overtone.tables import gaps as gap

log = logging.getLogger(__name__)
DIAGNOSED_ROWS = 10_000  # at most
PRECISIONS = (np.float64, np.float32)  # inputs are taken as they are; anything else becomes the first
FAR_AWAY = 1e6  # data ranges, to which inputs are clipped: a GP is back at its prior long before

# The fields of Config, of which only the method may come without its name.
DEFAULTS = {"self": Parameter.empty, **{f.name: f.default for f in fields(Config)}, "verbose": False}
KINDS = {"self": Parameter.POSITIONAL_OR_KEYWORD, "method": Parameter.POSITIONAL_OR_KEYWORD}
SIGNATURE = Signature([Parameter(n, KINDS.get(n, Parameter.KEYWORD_ONLY), default=d) for n, d in DEFAULTS.items()])


class DeepGPEstimator(BaseEstimator):
    """A deep GP behind scikit-learn's interface; the subclasses say what a target is."""

    missing: str
    random_state: Any
    verbose: bool
    target_: str | list[str] | None  # its name; of several targets, their names
    n_features_in_: int
    encoder_: Any
    y_spread_: np.ndarray  # of numbers, their standard deviations in training
    exposed_, exposure_ = False, None  # whether counts had an exposure, and the name of its column
    means_: np.ndarray | None = None  # of the training inputs, where they fill gaps
    range_ = TRAINED  # of scaled inputs, beyond which predictions are extrapolated
    baselines_: dict[str, np.ndarray]  # simple models of the training rows, by their names
    recent_: np.ndarray | None = None  # the first input and the targets of the last training rows, in the model's units
    neighbours_: Neighbours = ()  # for each output, the GP of what the neighbours of a row know, where it pays

    def __init__(self, *arguments: Any, **settings: Any):
        given = SIGNATURE.bind(self, *arguments, **settings)
        given.apply_defaults()
        vars(self).update({name: value for name, value in given.arguments.items() if name != "self"})

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan, tags.input_tags.sparse = self.missing != "error", True
        return tags

    def _start_fit(self, X, y) -> Config:
        """Check the parameters, and learn what the columns of a frame mean."""
        config = Config(**plain({name: getattr(self, name) for name in PARAMETERS if name != "random_state"}))
        config.validate()
        self.target_ = [str(name) for name in y.columns] if hasattr(y, "columns") else name_of(y)
        self.encoder_ = fitted_encoder(X, config.missing)
        return replace(config, random_state=seed_of(self.random_state))

    def _fit(self, config: Config, X: Any, Y: Any, likelihood: str, why: str, **watched: Any) -> Self:
        """Train on checked inputs and targets (N, Q) in the model's units, with a likelihood for them."""
        compiling.keep_compiled_programs()
        compiling.forget_programs_if_many()
        self.range_, self.recent_ = TRAINED, None if isinstance(X, RowView) else last_rows(X, Y)
        if isinstance(X, RowView):
            self.x_scaling_ = checked_scaling("X", unit_interval, range_of(X))
            self.n_features_in_ = X.shape[1]
            X, Y = X.changed(self.x_scaling_, config.dtype), Y.changed(np.asarray, config.dtype)
        else:
            self.x_scaling_ = checked_scaling("X", unit_interval, X)
            X, Y = self.x_scaling_.columns(X, config.dtype), Y.astype(config.dtype)
        self.config_, self.plan_ = config, plan(replace(config, likelihood=likelihood), X, Y)
        if likelihood != config.likelihood:
            self.plan_.reasons["likelihood"] = why
        run = Run(self.verbose, **{name: given for name, given in watched.items() if given is not None})
        self.model_, self.history_, self.neighbours_, why = train(self.plan_, X, Y, run)
        some = random_rows(Rows(X, Y), MAX_CELLS // X.shape[1], config.random_state)
        self.baselines_ = fit_baselines(self.model_.likelihood, *some, config.random_state)
        found = {"n_layers": self.history_.choice, "likelihood": self.history_.noise, "neighbours": why}
        self.plan_.reasons.update({name: sentence for name, sentence in found.items() if sentence})
        return self

    def update(self, X, y, **exposure: Any) -> Self:
        """Take new rows in, in seconds, without those that the model was fitted to; its hidden layers stay.

        The output layer is then what it would be if it were fitted to all rows again. Where neighbours are asked, they
        take the new rows in, and the output layer stays as well, since their scores belong to it. Features know little
        outside the range that they were trained in; neighbours and the exact GPs of small tables learn there, too.
        """
        Y, (Z, gaps) = self._targets(X, y, **exposure), self._inputs(X)
        if self.plan_.output == "adam":
            raise ValueError("this model was trained with output='adam', and cannot take in new rows; fit it again.")
        if np.isinf(Y).any():
            raise ValueError(f"y has values too large for {self.config_.dtype}; leave such rows out.")
        if gaps.all():
            return self
        rows = Rows(Z[~gaps], Y[~gaps])
        self.recent_ = last_rows(self.inputs(X)[~gaps], rows.y, self.recent_)
        if self.learns_outside:
            low, high = self.range_
            self.range_ = np.stack([np.minimum(low, rows.X.min(0)), np.maximum(high, rows.X.max(0))])
        else:
            warn_of_rows_outside(is_outside(rows.X), self.input_names)
        if self.neighbours_:
            with jax.enable_x64(True), one_blas_thread():
                key = jax.random.key(self.config_.random_state)
                self.neighbours_ = extended(self.neighbours_, self.model_, key, rows)
        else:
            self.model_ = updated(self.plan_, self.model_, *rows)
        return self

    @property
    def learns_outside(self) -> bool:
        """Whether new rows outside the range of the training inputs teach the model anything."""
        return bool(self.neighbours_) or self.plan_.is_exact(self.model_)

    @property
    def target_names(self) -> list[str]:
        """The names of the targets; where they have none, y, or y1, y2 and so on."""
        if self.target_ is None and not getattr(self, "single_output_", True):
            return [f"y{i + 1}" for i in range(len(self.y_spread_))]
        return self.target_ if isinstance(self.target_, list) else [self.target_ or "y"]

    def _complete(self, config: Config, X: np.ndarray) -> tuple[np.ndarray, Any]:
        """Return training inputs without gaps, and which rows those are."""
        self.means_ = None
        if config.missing == "mean":
            if (empty := np.isnan(X).all(axis=0)).any():
                raise ValueError(f"column {int(np.argmax(empty))} of X has no value at all; leave it out.")
            self.means_ = np.asarray(np.nanmean(X, axis=0, dtype=np.float64))
        X = gap.filled(X, config.missing, self.means_).astype(X.dtype, copy=False)
        kept = ~np.isnan(X).any(axis=1)
        if kept.all():
            return X, slice(None)
        if kept.sum() < 2:
            raise ValueError(f"X has {gap.number_of(kept.sum(), 'row')} without missing values; a fit needs two.")
        log.info("%s", gap.rows_left_out(np.sum(~kept), "with missing inputs"))
        return X[kept], kept

    def inputs(self, X) -> np.ndarray:
        """Return the numbers (N, D) that the model sees, in the user's units; NaN in a row to be dropped."""
        missing = self._fitted().config_.missing
        values = self._validated(missing, X, dtype=np.float64, reset=False)
        return gap.filled(np.asarray(values), missing, self.means_)

    def layer_marginals(self, X) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return mean and standard deviation (N, units) of every layer's function, in the model's own units."""
        flat = self._over_rows(predictions.layers, X, corrected=False)
        return list(zip(flat[::2], flat[1::2], strict=True))

    def sample_functions(self, n: int, random_state: Any = 0, *, prior: bool = False) -> FunctionDraws:
        """Return n functions from the posterior, or the prior: a draw gives the same values whenever it is asked.

        >>> functions = model.sample_functions(100)                                              # doctest: +SKIP
        >>> functions(X).shape, functions.layers(X)[0].shape                                     # doctest: +SKIP
        ((500, 100), (500, 3, 100))
        """
        model, key = self._fitted().model_, jax.random.key(seed_of(random_state))
        functions = predictions.sample_functions(model, checked_whole("n", n), key=key, prior=prior)
        return FunctionDraws(functions, self._inputs, self._in_units)

    def count_outside(self, X) -> np.ndarray:
        """Return how many rows of X lie outside the range of the training inputs, then how many along each input."""
        return counted(self.is_outside(X))

    def is_outside(self, X) -> np.ndarray:
        """Return which inputs (N, D) of the rows of X lie outside the range of the training inputs."""
        return is_outside(self._inputs(X)[0], self.range_)  # rows with gaps are zeros

    @property
    def input_names(self) -> list[str]:
        """The names of the inputs; where they have none, x1, x2 and so on."""
        given = self.encoder_.inputs if self.encoder_ else getattr(self, "feature_names_in_", ())
        return [str(name) for name in given] or [f"x{i + 1}" for i in range(self.n_features_in_)]

    def outside_fraction(self, X) -> list[float]:
        """Return the share of each layer's inputs outside the interval of its Fourier features."""
        return self._diagnose(diagnostics.outside_fraction, X)

    def residual_fraction(self, X) -> list[float]:
        """Return the share of each layer's prior variance that its features cannot represent; near 0 is good."""
        return self._diagnose(diagnostics.residual_fraction, X)

    def _diagnose(self, compute: Callable, X) -> list[float]:
        Z, gaps = self._inputs(X, some=True)
        Z = Z[~gaps][:DIAGNOSED_ROWS]
        with jax.enable_x64(True), one_blas_thread():
            key = jax.random.key(self.config_.random_state)
            return [float(share) for share in compiling.quickly_compiled(compute)(self.model_, key, jnp.asarray(Z))]

    def _over_rows(
        self, compute, X, *others: np.ndarray, warn: bool = False, corrected: bool = True
    ) -> tuple[np.ndarray, ...]:
        Z, gaps = self._inputs(X)
        if warn:
            warn_of_rows_outside(is_outside(Z, self.range_), self.input_names)
        if warn and self.encoder_ is not None and hasattr(X, "columns"):
            warn_of_unseen(self.encoder_.unseen(encoding().as_frame(X)), self.encoder_.categories)
        if corrected and self.neighbours_:
            others = *others, *of_neighbours(self.neighbours_, Z)
        with jax.enable_x64(True), one_blas_thread():
            key = jax.random.key(self.config_.random_state)
            draws = self.config_.n_predict_samples or predictions.usual_draws(self.model_)
            parts = predictions.over_rows(partial(compute, self.model_, key, draws), Z, *others, draws=draws)
        return tuple(gap.with_missing_rows(part, gaps) for part in parts)

    def _bound(self, X, Y: np.ndarray, n_samples: int) -> tuple[float, np.ndarray]:
        """Return the bound of the rows without gaps, and their targets."""
        (Z, gaps), draws = self._inputs(X, some=True), checked_whole("n_samples", n_samples)
        key = jax.random.fold_in(jax.random.key(self.config_.random_state), draws)
        return predictions.elbo(self.model_, (Z[~gaps], Y[~gaps]), key=key, num_samples=draws), Y[~gaps]

    def _draws(self, X, n_samples: int, random_state: Any, offset: np.ndarray) -> np.ndarray:
        """Return draws of the targets (draws, N, P), in the model's units."""
        (Z, gaps), draws = self._inputs(X), checked_whole("n_samples", n_samples)
        with jax.enable_x64(True), one_blas_thread():
            key = jax.random.key(seed_of(random_state))
            return gap.with_missing_rows(predictions.observations(self.model_, key, draws, Z, offset), gaps)

    def _inputs(self, X, some: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Return scaled inputs, and which rows are to be dropped, maybe all but `some`; those are zeros."""
        values = self.inputs(X)
        gaps = np.asarray(np.isnan(values).any(axis=1))
        if some and gaps.all():
            raise ValueError("X has no row without missing values; there is nothing to compute.")
        scaled = np.clip(self.x_scaling_(values), -FAR_AWAY, FAR_AWAY).astype(self.config_.dtype)
        return np.where(gaps[:, None], np.zeros_like(scaled), scaled), gaps

    def _validated(self, missing: str, X, *y: Any, **settings: Any) -> Any:
        """Return inputs as numbers, and targets, as scikit-learn takes them; inputs may be NaN unless refused."""
        if self.encoder_ is not None and hasattr(X, "columns"):
            X = self.encoder_.encode(encoding().as_frame(X))
        if missing == "error" and hasattr(X, "columns"):
            counts = {str(name): int(gap.missing_cells(np.asarray(X[name])).sum()) for name in X.columns}
            if any(counts.values()):
                raise ValueError(gap.missing_values_message(counts))
        settings["ensure_all_finite"] = True if missing == "error" else "allow-nan"
        return validate_data(self, dense(X), *y, **settings)

    def save(self, path: str | os.PathLike, *, neighbours: bool = True) -> None:
        """Write the fitted estimator to one safetensors file, which `load` reads again.

        Where neighbours are asked, the file holds the scaled inputs of training rows and their scores, and that of a
        series holds its last rows. With `neighbours=False` it does not, and the loaded model predicts what the deep GP
        says alone.
        """
        self._fitted()
        files.write(path, "estimator", *stored(self, neighbours))

    @classmethod
    def load(cls, path: str | os.PathLike) -> Self:
        """Return the estimator that `save` wrote; its predictions are the same to the last bit."""
        arrays, about = files.read(path, "estimator")
        kinds = {kind.__name__: kind for kind in (cls, *cls.__subclasses__())}
        if (name := str(about.get("estimator"))) not in kinds:
            raise ValueError(f"{path}: this is a {name}, not a {cls.__name__}; load it as what it is.")
        try:
            return restored(kinds[name], arrays, about)
        except files.FileError as error:
            raise files.FileError(f"{path}: {error}") from None
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
            raise files.FileError(f"{path}: this file is damaged, or not one of ours ({error!r:.200}).") from None

    def _targets(self, *rows: Any, **exposure: Any) -> Any:
        """Return targets in the form that the model was trained on."""

    def _in_units(self, values: np.ndarray) -> Any:
        """Return expectations of targets (N, P, ...) in the user's units."""

    def _fitted(self) -> Self:
        check_is_fitted(self, "model_")
        return self


DeepGPEstimator.__init__.__signature__ = SIGNATURE  # type: ignore[attr-defined]  # which scikit-learn reads
