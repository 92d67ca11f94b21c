"""Estimators as arrays and words, and back."""

from dataclasses import asdict
from typing import Any

import jax
import numpy as np

from overtone.autopilot.config import Config
from overtone.autopilot.record import Plan
from overtone.estimators.arguments import encoding, plain
from overtone.estimators.baselines import NAMES
from overtone.estimators.ranges import TRAINED
from overtone.estimators.recent import is_series
from overtone.gp.maps import Affine
from overtone.gp.model import DeepGP
from overtone.gp.neighbours import NeighbourGP
from overtone.inference.loop import History
from overtone.storage import files
from overtone.storage.structure import described, rebuilt

BASELINE = "baselines_."  # before the names of their arrays


def stored(model: Any, neighbours: bool) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays of a fitted estimator, and all else as JSON has it."""
    structure, arrays = described(model.model_)
    nearby, more = described(model.neighbours_ if neighbours else (), "neighbours")
    arrays |= more
    arrays |= {"x_scaling_.shift": model.x_scaling_.shift, "x_scaling_.scale": model.x_scaling_.scale}
    arrays |= {"history_.loss": model.history_.loss, "range_": np.asarray(model.range_, float)}
    arrays |= {} if model.means_ is None else {"means_": model.means_}
    arrays |= {BASELINE + name: parameters for name, parameters in model.baselines_.items()}
    arrays |= {"recent_": model.recent_} if neighbours and is_series(model) and model.recent_ is not None else {}
    about = {
        "estimator": type(model).__name__,
        "parameters": plain({**model.get_params(), "random_state": model.config_.random_state}),
        "config": asdict(model.config_),
        "plan": asdict(model.plan_),
        "structure": structure,
        "neighbours": nearby,
        "history": {**asdict(model.history_), "loss": None},
        "inputs": [str(name) for name in getattr(model, "feature_names_in_", ())],
        "target": model.target_,
        "exposure": [model.exposed_, model.exposure_],
        "encoder": model.encoder_ and asdict(model.encoder_),
    }
    of_targets, about_targets = model._target_state()
    return arrays | of_targets, about | about_targets


def restored(kind: Any, arrays: dict[str, np.ndarray], about: dict[str, Any]) -> Any:
    """Return the estimator that these arrays and words of a file describe."""
    model = kind(**plain(about["parameters"]))
    model.x_scaling_ = Affine(arrays["x_scaling_.shift"], arrays["x_scaling_.scale"])
    if not (model.x_scaling_.shift.ndim == 1 and np.all(np.isfinite(model.x_scaling_(np.float64(0))))):
        raise files.FileError("its inputs cannot be scaled.")
    model.means_, model.range_ = arrays.get("means_"), arrays.get("range_", TRAINED)
    if not (model.range_.shape in ((2, 1), (2, len(model.x_scaling_.shift))) and np.all(np.isfinite(model.range_))):
        raise files.FileError("the range of its inputs is not one.")
    model.config_ = Config(**plain(about["config"]))
    model.config_.validate()
    model.plan_ = Plan.from_json(plain(about["plan"]))
    scores = [tuple(score) for score in about["history"]["scores"]]
    model.history_ = History(**{**about["history"], "loss": arrays["history_.loss"], "scores": scores})
    model.n_features_in_ = len(model.x_scaling_.shift)
    if about["inputs"]:
        vars(model)["feature_names_in_"] = np.array([str(name) for name in about["inputs"]], object)
    model.target_, (model.exposed_, model.exposure_) = about["target"], about["exposure"]
    model.encoder_ = about["encoder"] and encoding().Encoder.from_json(plain(about["encoder"]))
    model._restore_targets(arrays, about)
    with jax.enable_x64(True):
        model.model_ = rebuilt(about["structure"], arrays)
        model.neighbours_ = rebuilt(about.get("neighbours", {"tuple": []}), arrays)
    if not isinstance(model.model_, DeepGP):
        raise files.FileError("it holds something else than a model.")
    model.baselines_ = {name: arrays[BASELINE + name] for name in NAMES if BASELINE + name in arrays}
    num_rows = len(getattr(model, "classes_", getattr(model, "y_spread_", ())))
    if any(line.shape != (num_rows, 2 + model.n_features_in_) for line in model.baselines_.values()):
        raise files.FileError("its baselines do not belong to its model.")
    neighbours, num_outputs = model.neighbours_, model.model_.output.num_outputs
    model.recent_ = arrays.get("recent_")
    if model.recent_ is not None and not (model.recent_.ndim == 2 and model.recent_.shape[1] > 1):
        raise files.FileError("its last training rows are not rows.")
    fit = isinstance(neighbours, tuple) and len(neighbours) in (0, num_outputs)
    if not fit or not all(process is None or _fits(process, model.n_features_in_) for process in neighbours):
        raise files.FileError("its neighbours do not belong to its model.")
    return model


def _fits(process: Any, num_inputs: int) -> bool:
    """Return whether something in a file is a GP of neighbours for so many inputs."""
    if not isinstance(process, NeighbourGP):
        return False
    process = jax.tree.map(np.asarray, process)  # JAX would warn of double precision, which is switched off here
    return bool(
        process.inputs.shape == (process.scores.size, num_inputs)
        and process.scores.size > 0
        and process.lengthscales.shape == (num_inputs,)
        and np.all(process.lengthscales > 0)
        and 0 <= process.share < 1
        and process.gain >= 0
        and min(process.scales) > 0
        and 0 < process.weight < 1
    )
