"""The scikit-learn estimator: arrays or frames in, predictions in the user's units out."""

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from overtone import diagnostics, io, predictions
from overtone.build import skeleton
from overtone.compiling import keep_compiled_programs, quickly_compiled
from overtone.config import PARAMETERS, Config
from overtone.fit import History
from overtone.scaling import Affine, standardise, unit_interval
from overtone.train import Run, resolved, train

DIAGNOSED = 10_000  # rows, at most
PRECISIONS = (np.float64, np.float32)  # inputs are taken as they are; anything else becomes the first
FAR = 1e6  # inputs are clipped to this many data ranges: a GP is back at its prior long before


class DeepGPRegressor(RegressorMixin, BaseEstimator):
    """Regression by a deep Gaussian process with Fourier features, or one of its three rivals.

    >>> import numpy as np
    >>> from overtone.sklearn import DeepGPRegressor
    >>> X = np.linspace(0, 10, 200)[:, None]
    >>> model = DeepGPRegressor(max_steps=300).fit(X, np.sign(np.sin(X[:, 0])))
    >>> mean, std = model.predict(X, return_std=True)
    >>> mean.shape, std.shape
    ((200,), (200,))

    The parameters are those of `overtone.config.Config`, which explains each; `verbose=True` shows a
    progress bar. Inputs and targets are scaled inside; results come back in the user's units. A pandas or polars frame
    may have columns of dates and of a few words, which become numbers as `overtone.encoding` says.

    Attributes: `model_` (the fitted `overtone.model.DeepGP`), `history_` (the loss at each step),
    `config_`, `n_features_in_`, `feature_names_in_`, and the scalings `x_scaling_` and `y_scaling_`.
    """

    n_features_in_: int
    encoder_: Any

    def __init__(
        self,
        method: str = Config.method,
        *,
        n_layers: int | str = Config.n_layers,
        n_inducing: int | str = Config.n_inducing,
        hidden_width: int | None = Config.hidden_width,
        n_projections: int | None = Config.n_projections,
        kernel: str = Config.kernel,
        covariance: str = Config.covariance,
        output: str = Config.output,
        likelihood: str = Config.likelihood,
        preset: str = Config.preset,
        interval: tuple[float, float] | None = Config.interval,
        max_steps: int | None = Config.max_steps,
        max_time: float | None = Config.max_time,
        batch_size: int = Config.batch_size,
        learning_rate: float | None = Config.learning_rate,
        n_samples: int = Config.n_samples,
        n_predict_samples: int = Config.n_predict_samples,
        dtype: str = Config.dtype,
        random_state: Any = Config.random_state,
        verbose: bool = False,
    ):
        self.method = method
        self.n_layers = n_layers
        self.n_inducing = n_inducing
        self.hidden_width = hidden_width
        self.n_projections = n_projections
        self.kernel = kernel
        self.covariance = covariance
        self.output = output
        self.likelihood = likelihood
        self.preset = preset
        self.interval = interval
        self.max_steps = max_steps
        self.max_time = max_time
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.n_samples = n_samples
        self.n_predict_samples = n_predict_samples
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X, y, *, checkpoint: str | os.PathLike | None = None, stop: Callable[[], bool] | None = None) -> Self:
        """Fit to inputs X (N, D) and targets y, (N,) or (N, P).

        checkpoint: a folder to which training writes what it knows, every few seconds; a fit with the same settings and
            data that was killed goes on from there, to the same result. stop: training ends once this returns True.
        """
        config = Config(**{name: getattr(self, name) for name in PARAMETERS if name != "random_state"})
        config.validate()
        frame = _mixed_frame(X)
        self.target_ = None if getattr(y, "name", None) is None else str(y.name)
        self.encoder_ = None if frame is None else _encoding().Encoder.fit(frame)
        X, y = validate_data(
            self, self._columns(X), y, multi_output=True, y_numeric=True, dtype=list(PRECISIONS), ensure_min_samples=2
        )
        X, y = np.asarray(X), np.asarray(y, np.float64)
        self.single_output_ = y.ndim == 1
        Y = y.reshape(len(y), -1)
        self.x_scaling_ = _scaling("X", unit_interval, X)
        self.y_scaling_ = _scaling("y", standardise, Y)
        keep_compiled_programs()
        X, Y = self.x_scaling_.columns(X, config.dtype), self.y_scaling_.columns(Y, config.dtype)
        self.config_ = resolved(replace(config, random_state=_seed(self.random_state)), X, Y)
        with jax.enable_x64(True):
            run = Run(self.verbose, stop or (lambda: False), checkpoint)
            self.model_, self.history_ = train(self.config_, X, Y, run)
        return self

    def predict(self, X, return_std: bool = False):
        """The predictive mean of y; with `return_std=True` the pair (mean, standard deviation)."""
        mean, std = self._over_rows(predictions.moments, X)
        mean = self._shape(self.y_scaling_.inverse(mean))
        return (mean, self._shape(std * self.y_scaling_.scale)) if return_std else mean

    def predict_quantiles(self, X, levels: Sequence[float] = (0.05, 0.5, 0.95)) -> np.ndarray:
        """Quantiles of the predictive distribution of y, of shape (levels, N) or (levels, N, P)."""
        shares = np.asarray(levels, self._fitted().config_.dtype)
        if shares.ndim != 1 or not np.all((shares > 0) & (shares < 1)):
            raise ValueError(f"levels must be a list of numbers between 0 and 1; got {levels!r}.")

        def compute(model, key, num_samples, X):
            return predictions.quantiles(model, key, num_samples, shares, X)

        (values,) = self._over_rows(compute, X)
        return self._shape(self.y_scaling_.inverse(values))

    def log_predictive_density(self, X, y) -> np.ndarray:
        """log p(y | x) of each row in the user's units, summed over outputs: shape (N,)."""
        (values,) = self._over_rows(predictions.log_density, X, self._targets(X, y))
        return np.sum(values - np.log(self.y_scaling_.scale), axis=1)

    def inputs(self, X) -> np.ndarray:
        """The numbers (N, D) that the model sees for the rows of X, in the user's units."""
        return np.asarray(validate_data(self._fitted(), self._columns(X), dtype=np.float64, reset=False))

    def predictive_cdf(self, X, y) -> np.ndarray:
        """P(Y < y) of each row, (N,) or (N, P): uniform between 0 and 1 where predictions are honest."""
        return self._shape(self._over_rows(predictions.scores, X, self._targets(X, y))[2])

    def evaluate(self, X, y) -> dict[str, float]:
        """How good are the predictions of y? In the user's units, over all rows and outputs.

        `rmse`; `standardised_rmse`, in standard deviations of the training targets; the mean `log_density` of a row;
        the mean `crps`; and shares `coverage_50`, `_80`, `_95` of values inside the central intervals of each level.
        """
        Y, scale = self._targets(X, y), self.y_scaling_.scale
        mean, density, below, crps = self._over_rows(predictions.scores, X, Y)
        return {
            "rows": len(Y),
            "rmse": float(np.sqrt(np.mean(((mean - Y) * scale) ** 2))),
            "standardised_rmse": float(np.sqrt(np.mean((mean - Y) ** 2))),
            "log_density": float(np.mean(np.sum(density - np.log(scale), axis=1))),
            "crps": float(np.mean(crps * scale)),
            **{f"coverage_{level}": float(np.mean(np.abs(below - 0.5) < level / 200)) for level in (50, 80, 95)},
        }

    def elbo(self, X, y, n_samples: int = 64) -> float:
        """The evidence lower bound of all rows in the user's units, by fresh draws of the hidden layers."""
        Z, Y = self._inputs(X), self._targets(X, y)
        with jax.enable_x64(True):
            key = jax.random.fold_in(jax.random.key(self.config_.random_state), n_samples)
            value = float(predictions.bound(self.model_, key, n_samples, Z, Y))
        return value - len(Y) * float(np.sum(np.log(self.y_scaling_.scale)))

    def sample_y(self, X, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Draws of y at the rows of X, of shape (N, n_samples) or (N, P, n_samples).

        The rows of one draw belong together: they are values of one function, plus noise.
        """
        Z = self._inputs(X)
        with jax.enable_x64(True):
            key = jax.random.key(_seed(random_state))
            draws = np.asarray(predictions.observations(self.model_, key, n_samples, Z), np.float64)
        return self._shape(np.moveaxis(self.y_scaling_.inverse(draws), 0, -1), axis=1)

    def layer_marginals(self, X) -> list[tuple[np.ndarray, np.ndarray]]:
        """Mean and standard deviation (N, units) of every layer's function, in the model's own units."""
        flat = self._over_rows(predictions.layers, X)
        return list(zip(flat[::2], flat[1::2], strict=True))

    def outside_fraction(self, X) -> list[float]:
        """The share of each layer's inputs outside the interval of its Fourier features."""
        return self._diagnose(diagnostics.outside_fraction, X)

    def residual_fraction(self, X) -> list[float]:
        """The share of each layer's prior variance that its features cannot represent: near 0, they are enough."""
        return self._diagnose(diagnostics.residual_fraction, X)

    def _diagnose(self, compute: Callable, X) -> list[float]:
        Z = self._inputs(X)[:DIAGNOSED]
        with jax.enable_x64(True):
            key = jax.random.key(self.config_.random_state)
            return [float(share) for share in quickly_compiled(compute)(self.model_, key, jnp.asarray(Z))]

    def _over_rows(self, compute, X, *others: np.ndarray) -> tuple[np.ndarray, ...]:
        Z = self._inputs(X)
        with jax.enable_x64(True):
            key, num_samples = jax.random.key(self.config_.random_state), self.config_.n_predict_samples
            parts = predictions.over_rows(lambda *chunk: compute(self.model_, key, num_samples, *chunk), Z, *others)
        return tuple(np.asarray(part, np.float64) for part in parts)

    def _inputs(self, X) -> np.ndarray:
        values = self.inputs(X)
        return np.clip(self.x_scaling_(values), -FAR, FAR).astype(self.config_.dtype)

    def _targets(self, X, y) -> np.ndarray:
        _, y = validate_data(
            self._fitted(), self._columns(X), y, multi_output=True, y_numeric=True, dtype=np.float64, reset=False
        )
        Y = np.asarray(y, np.float64).reshape(len(y), -1)
        num_outputs = len(self.y_scaling_.shift)
        if Y.shape[1] != num_outputs:
            raise ValueError(f"y has {Y.shape[1]} outputs, but the model was fitted to {num_outputs}.")
        return self.y_scaling_(Y).astype(self.config_.dtype)

    def _columns(self, X) -> Any:
        """The inputs as numbers, where X is a frame whose columns are something else."""
        if self.encoder_ is None or not hasattr(X, "columns"):
            return X
        return self.encoder_.encode(_encoding().as_frame(X))

    def save(self, path: str | os.PathLike) -> None:
        """Write the fitted estimator to one safetensors file, which `load` reads again."""
        self._fitted()
        arrays = io.leaves(self.model_, "model")
        for name in ("x_scaling_", "y_scaling_"):
            scaling = getattr(self, name)
            arrays |= {f"{name}.shift": scaling.shift, f"{name}.scale": scaling.scale}
        config = replace(self.config_, n_layers=len(self.model_.layers))
        about = {
            "estimator": type(self).__name__,
            "parameters": {**self.get_params(), "random_state": config.random_state},
            "config": asdict(config),
            "history": {**asdict(self.history_), "loss": None},
            "single_output": self.single_output_,
            "inputs": [str(name) for name in getattr(self, "feature_names_in_", ())],
            "target": self.target_,
            "encoder": self.encoder_ and self.encoder_.to_json(),
        }
        io.write(path, "model", {**arrays, "history_.loss": self.history_.loss}, about)

    @classmethod
    def load(cls, path: str | os.PathLike) -> Self:
        """The estimator that `save` wrote; its predictions are the same to the last bit."""
        arrays, about = io.read(path, "model")
        model = cls(**_tuples(about["parameters"]))
        model.x_scaling_, model.y_scaling_ = (
            Affine(arrays[f"{name}.shift"], arrays[f"{name}.scale"]) for name in ("x_scaling_", "y_scaling_")
        )
        config = Config(**_tuples(about["config"]))
        model.config_, model.single_output_ = config, about["single_output"]
        model.history_ = History(**{**about["history"], "loss": arrays["history_.loss"]})
        model.n_features_in_ = len(model.x_scaling_.shift)
        if about["inputs"]:
            vars(model)["feature_names_in_"] = np.array(about["inputs"], object)
        model.target_ = about["target"]
        model.encoder_ = about["encoder"] and _encoding().Encoder.from_json(about["encoder"])
        with jax.enable_x64(True):
            empty = skeleton(config, model.n_features_in_, len(model.y_scaling_.shift))
            model.model_ = io.restored(empty, arrays, "model")
        return model

    def _fitted(self) -> Self:
        check_is_fitted(self, "model_")
        return self

    def _shape(self, values: np.ndarray, axis: int = -1) -> np.ndarray:
        return values.squeeze(axis) if self.single_output_ else values


def _seed(random_state: Any) -> int:
    if isinstance(random_state, int):
        return random_state
    return int(check_random_state(random_state).randint(2**31 - 1))


def _scaling(name: str, make: Callable[[np.ndarray], Affine], values: np.ndarray) -> Affine:
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
    """JSON has lists where Python had tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}


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
