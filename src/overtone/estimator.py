"""What all estimators share: parameters, inputs, fitting, looking inside, saving and loading."""

import logging
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from overtone import diagnostics, io, predictions
from overtone.build import skeleton
from overtone.compiling import forget_programs_if_many, keep_compiled_programs, quickly_compiled
from overtone.config import PARAMETERS, Config
from overtone.decide import resolved
from overtone.fit import History
from overtone.functions import FunctionDraws
from overtone.gaps import blank, count, refusal, settled
from overtone.pathwise import draw_paths
from overtone.scaling import Affine, unit_interval
from overtone.train import Run, train

log = logging.getLogger(__name__)
DIAGNOSED = 10_000  # rows, at most
PRECISIONS = (np.float64, np.float32)  # inputs are taken as they are; anything else becomes the first
FAR = 1e6  # inputs are clipped to this many data ranges: a GP is back at its prior long before


class DeepGPEstimator(BaseEstimator):
    """A deep GP behind scikit-learn's interface; the subclasses say what a target is."""

    n_features_in_: int
    target_: str | list[str] | None  # its name; of several targets, their names
    encoder_: Any
    exposed_, exposure_ = False, None  # whether counts had an exposure, and the name of its column
    means_: np.ndarray | None = None  # of the training inputs, where they fill gaps

    def __init__(
        self,
        method: str = Config.method,
        *,
        n_layers: int | str = Config.n_layers,
        n_inducing: int | str = Config.n_inducing,
        hidden_width: int | None = Config.hidden_width,
        n_projections: int | None = Config.n_projections,
        fine_inputs: tuple[int, ...] | str = Config.fine_inputs,
        waves: tuple[tuple[float, ...], ...] | str = Config.waves,
        pairs: tuple[tuple[int, int], ...] = Config.pairs,
        kernel: str = Config.kernel,
        covariance: str = Config.covariance,
        band_limited: str = Config.band_limited,
        output: str = Config.output,
        likelihood: str = Config.likelihood,
        preset: str = Config.preset,
        interval: tuple[float, float] | None = Config.interval,
        max_steps: int | None = Config.max_steps,
        max_time: float | None = Config.max_time,
        held_out: str = Config.held_out,
        batch_size: int = Config.batch_size,
        learning_rate: float | None = Config.learning_rate,
        n_samples: int = Config.n_samples,
        n_predict_samples: int = Config.n_predict_samples,
        missing: str = Config.missing,
        dtype: str = Config.dtype,
        random_state: Any = Config.random_state,
        verbose: bool = False,
    ):
        self.method = method
        self.n_layers = n_layers
        self.n_inducing = n_inducing
        self.hidden_width = hidden_width
        self.n_projections = n_projections
        self.fine_inputs = fine_inputs
        self.waves = waves
        self.pairs = pairs
        self.kernel = kernel
        self.covariance = covariance
        self.band_limited = band_limited
        self.output = output
        self.likelihood = likelihood
        self.preset = preset
        self.interval = interval
        self.max_steps = max_steps
        self.max_time = max_time
        self.held_out = held_out
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.n_samples = n_samples
        self.n_predict_samples = n_predict_samples
        self.missing = missing
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing != "error"
        return tags

    def _start_fit(self, X, y) -> Config:
        """Check the parameters, and learn what the columns of a frame mean."""
        config = Config(**_tuples({name: getattr(self, name) for name in PARAMETERS if name != "random_state"}))
        config.validate()
        frame = _mixed_frame(X)
        self.target_ = [str(name) for name in y.columns] if hasattr(y, "columns") else name_of(y)
        self.encoder_ = None if frame is None else _encoding().Encoder.fit(frame, missing=config.missing)
        return replace(config, random_state=seed_of(self.random_state))

    def _fit(self, config: Config, X: np.ndarray, Y: np.ndarray, run: Run) -> Self:
        """Train on checked inputs and targets (N, Q) in the model's units."""
        self.x_scaling_ = checked_scaling("X", unit_interval, X)
        keep_compiled_programs()
        forget_programs_if_many()
        X, Y = self.x_scaling_.columns(X, config.dtype), Y.astype(config.dtype)
        known, run = resolved(config, X, Y), run._replace(progress=self.verbose)
        with jax.enable_x64(True):
            self.config_, self.model_, self.history_ = train(known, X, Y, run, grows=config.n_inducing == "auto")
        return self

    def _complete(self, config: Config, X: np.ndarray) -> tuple[np.ndarray, Any]:
        """Training inputs without gaps, and which rows those are."""
        self.means_ = None
        if config.missing == "mean":
            if (empty := np.isnan(X).all(axis=0)).any():
                raise ValueError(f"column {int(np.argmax(empty))} of X has no value at all; leave it out.")
            self.means_ = np.asarray(np.nanmean(X, axis=0, dtype=np.float64))
        X = settled(X, config.missing, self.means_).astype(X.dtype, copy=False)
        kept = ~np.isnan(X).any(axis=1)
        if kept.all():
            return X, slice(None)
        if kept.sum() < 2:
            raise ValueError(f"X has {kept.sum()} rows without missing values; a fit needs at least 2.")
        log.info("%d rows with missing inputs are left out", np.sum(~kept))
        return X[kept], kept

    def inputs(self, X) -> np.ndarray:
        """The numbers (N, D) that the model sees for the rows of X, in the user's units; NaN in a row to be dropped."""
        missing = self._fitted().config_.missing
        values = self._validated(missing, X, dtype=np.float64, reset=False)
        return settled(np.asarray(values), missing, self.means_)

    def layer_marginals(self, X) -> list[tuple[np.ndarray, np.ndarray]]:
        """Mean and standard deviation (N, units) of every layer's function, in the model's own units."""
        flat = self._over_rows(predictions.layers, X)
        return list(zip(flat[::2], flat[1::2], strict=True))

    def sample_functions(self, n: int, random_state: Any = 0, *, prior: bool = False) -> FunctionDraws:
        """n functions from the posterior, or from the prior: the same draw gives the same values whenever it is asked.

        >>> functions = model.sample_functions(100)                                              # doctest: +SKIP
        >>> functions(X).shape, functions.layers(X)[0].shape                                     # doctest: +SKIP
        ((500, 100), (500, 3, 100))
        """
        self._fitted()
        with jax.enable_x64(True):
            key = jax.random.key(seed_of(random_state))
            return FunctionDraws(
                self.model_, quickly_compiled(draw_paths)(self.model_, key, n, prior), self._inputs, self._in_units
            )

    def outside_fraction(self, X) -> list[float]:
        """The share of each layer's inputs outside the interval of its Fourier features."""
        return self._diagnose(diagnostics.outside_fraction, X)

    def residual_fraction(self, X) -> list[float]:
        """The share of each layer's prior variance that its features cannot represent: near 0, they are enough."""
        return self._diagnose(diagnostics.residual_fraction, X)

    def _diagnose(self, compute: Callable, X) -> list[float]:
        Z, gaps = self._inputs(X)
        Z = Z[~gaps][:DIAGNOSED]
        with jax.enable_x64(True):
            key = jax.random.key(self.config_.random_state)
            return [float(share) for share in quickly_compiled(compute)(self.model_, key, jnp.asarray(Z))]

    def _over_rows(self, compute, X, *others: np.ndarray) -> tuple[np.ndarray, ...]:
        Z, gaps = self._inputs(X)
        with jax.enable_x64(True):
            key, num_samples = jax.random.key(self.config_.random_state), self.config_.n_predict_samples
            draws = num_samples if self.model_.hidden_widths else 1
            parts = predictions.over_rows(
                lambda *chunk: compute(self.model_, key, num_samples, *chunk), Z, *others, draws=draws
            )
        return tuple(blank(part, gaps) for part in parts)

    def _bound(self, X, Y: np.ndarray, n_samples: int) -> tuple[float, np.ndarray]:
        """The bound of the rows without gaps, and their targets."""
        Z, gaps = self._inputs(X)
        with jax.enable_x64(True):
            key = jax.random.fold_in(jax.random.key(self.config_.random_state), n_samples)
            return float(predictions.bound(self.model_, key, n_samples, Z[~gaps], Y[~gaps])), Y[~gaps]

    def _draws(self, X, n_samples: int, random_state: Any, offset: np.ndarray) -> np.ndarray:
        """Draws of the targets (draws, N, P), in the model's units."""
        Z, gaps = self._inputs(X)
        with jax.enable_x64(True):
            key = jax.random.key(seed_of(random_state))
            return blank(predictions.observations(self.model_, key, n_samples, Z, offset), gaps)

    def _inputs(self, X) -> tuple[np.ndarray, np.ndarray]:
        """Scaled inputs, and which rows are to be dropped; those are zeros."""
        values = self.inputs(X)
        gaps = np.asarray(np.isnan(values).any(axis=1))
        scaled = np.clip(self.x_scaling_(values), -FAR, FAR).astype(self.config_.dtype)
        return np.where(gaps[:, None], np.zeros_like(scaled), scaled), gaps

    def _validated(self, missing: str, X, *y: Any, **settings: Any) -> Any:
        """Inputs as numbers, and targets, as scikit-learn takes them; inputs may be NaN unless that is an error."""
        X = self._columns(X)
        if missing == "error" and hasattr(X, "columns"):
            counts = {str(name): count(np.asarray(X[name])) for name in X.columns}
            if any(counts.values()):
                raise ValueError(refusal(counts))
        return validate_data(self, X, *y, ensure_all_finite=True if missing == "error" else "allow-nan", **settings)

    def _columns(self, X) -> Any:
        """The inputs as numbers, where X is a frame whose columns are something else."""
        if self.encoder_ is None or not hasattr(X, "columns"):
            return X
        return self.encoder_.encode(_encoding().as_frame(X))

    def save(self, path: str | os.PathLike) -> None:
        """Write the fitted estimator to one safetensors file, which `load` reads again."""
        self._fitted()
        arrays = io.leaves(self.model_, "model") | {"history_.loss": self.history_.loss}
        arrays |= {"x_scaling_.shift": self.x_scaling_.shift, "x_scaling_.scale": self.x_scaling_.scale}
        arrays |= {} if self.means_ is None else {"means_": self.means_}
        config = self.config_
        about = {
            "estimator": type(self).__name__,
            "parameters": {**self.get_params(), "random_state": config.random_state},
            "config": asdict(config),
            "history": {**asdict(self.history_), "loss": None},
            "inputs": [str(name) for name in getattr(self, "feature_names_in_", ())],
            "target": self.target_,
            "exposure": [self.exposed_, self.exposure_],
            "encoder": self.encoder_ and self.encoder_.to_json(),
        }
        of_targets, about_targets = self._target_state()
        io.write(path, "model", arrays | of_targets, about | about_targets)

    @classmethod
    def load(cls, path: str | os.PathLike) -> Self:
        """The estimator that `save` wrote; its predictions are the same to the last bit."""
        arrays, about = io.read(path, "model")
        kinds = {kind.__name__: kind for kind in (cls, *cls.__subclasses__())}
        if about["estimator"] not in kinds:
            raise ValueError(f"{path}: this is a {about['estimator']}, not a {cls.__name__}; load it as what it is.")
        model = kinds[about["estimator"]](**_tuples(about["parameters"]))
        model.x_scaling_ = Affine(arrays["x_scaling_.shift"], arrays["x_scaling_.scale"])
        model.means_ = arrays.get("means_")
        model.config_ = Config(**_tuples(about["config"]))
        scores = [(step, value) for step, value in about["history"]["scores"]]
        model.history_ = History(**{**about["history"], "loss": arrays["history_.loss"], "scores": scores})
        model.n_features_in_ = len(model.x_scaling_.shift)
        if about["inputs"]:
            vars(model)["feature_names_in_"] = np.array(about["inputs"], object)
        model.target_, (model.exposed_, model.exposure_) = about["target"], about["exposure"]
        model.encoder_ = about["encoder"] and _encoding().Encoder.from_json(about["encoder"])
        example = model._restore_targets(arrays, about)
        with jax.enable_x64(True):
            empty = skeleton(model.config_, model.n_features_in_, example)
            model.model_ = io.restored(empty, arrays, "model")
        return model

    def _in_units(self, values: np.ndarray) -> np.ndarray:
        """Expectations of targets (N, P, ...) in the user's units."""
        raise NotImplementedError

    def _target_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """What `save` should keep about targets: arrays, and what JSON can express."""
        raise NotImplementedError

    def _restore_targets(self, arrays: dict[str, np.ndarray], about: dict[str, Any]) -> np.ndarray:
        """Set what `_target_state` gave, and return a few targets (N, Q) as the model could have been trained on."""
        raise NotImplementedError

    def _fitted(self) -> Self:
        check_is_fitted(self, "model_")
        return self


def name_of(column: Any) -> str | None:
    """Of a column of a frame, if it has one."""
    name = getattr(column, "name", None)
    return str(name) if name not in (None, "") else None


def seed_of(random_state: Any) -> int:
    if isinstance(random_state, int):
        return random_state
    return int(check_random_state(random_state).randint(2**31 - 1))


def checked_scaling(name: str, make: Callable[[np.ndarray], Affine], values: np.ndarray) -> Affine:
    with np.errstate(over="ignore", invalid="ignore"):
        scaling = make(values)
    if not (np.all(np.isfinite(scaling.shift)) and np.all(np.isfinite(scaling.scale))):
        raise ValueError(f"{name} has values too large to be scaled in double precision; rescale it.")
    return scaling


def _encoding():
    """Imported where a frame needs it: arrays need no polars."""
    from overtone import encoding

    return encoding


def _mixed_frame(X):
    """X as a polars frame if it is one, of any library, with columns that are not numbers."""
    if not (hasattr(X, "columns") and hasattr(X, "__getitem__")) or all(_is_numeric(X[name]) for name in X.columns):
        return None
    return _encoding().as_frame(X)


def _tuples(settings: dict[str, Any]) -> dict[str, Any]:
    """JSON has lists where Python has tuples, and so have some users."""

    def tuples(value):
        return tuple(map(tuples, value)) if isinstance(value, list) else value

    return {name: tuples(value) for name, value in settings.items()}


def _is_numeric(column) -> bool:
    values = np.asarray(column)
    if values.dtype.kind in "biuf":
        return True
    if values.dtype.kind != "O":
        return False
    try:
        values.astype(np.float64)
    except (TypeError, ValueError):
        return False
    return True
