"""What training knows, in a file, now and then: a run that was killed goes on from there as if nothing had happened."""

import hashlib
import os
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from overtone.inference.callbacks import Callback
from overtone.inference.loop import Training
from overtone.inference.processes import is_first
from overtone.storage import files
from overtone.storage.rows import pieces

SECONDS_BETWEEN = 5.0  # OVERTONE_CHECKPOINT_SECONDS is another number
PLAIN = ("step", "steps", "most_steps", "factor", "scores")  # of a training, as JSON


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written."""


class Checkpoint(Callback):
    """Keeps a training in one file of a folder, for one stage of one fit, and resumes it from there.

    A stage is told from others by its `identity`: names and values. It should be the last of the callbacks.
    """

    def __init__(self, folder: str | os.PathLike, stage: str, identity: Mapping[str, Any]):
        self.path = Path(folder) / f"{stage}.checkpoint"
        self.identity, self.last = {k: str(v) for k, v in identity.items()}, perf_counter()
        self.seconds = float(os.environ.get("OVERTONE_CHECKPOINT_SECONDS", SECONDS_BETWEEN))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for left_over in self.path.parent.glob(f".{self.path.name}.*.new"):  # by a run that was killed while it wrote
            left_over.unlink(missing_ok=True)

    def start(self, training):
        if not self.path.exists():
            return
        stored, about = files.read(self.path, "checkpoint")
        self._check_identity(about["identity"])
        trees, _ = self._known(training)
        held = {key: tree for key, tree in trees.items() if any(name.startswith(key) for name in stored)}
        arrays = {key: files.restored(tree, stored, key) for key, tree in held.items()}
        training.state, training.good = arrays["state"], arrays["good"]
        training.losses = [stored["losses"]]
        for name in PLAIN:
            setattr(training, name, about[name])
        training.scores = [(int(step), float(value)) for step, value in about["scores"]]
        training.began -= about["seconds"]
        for name, callback in _named(training.callbacks).items():
            own = {key.partition(" ")[2]: tree for key, tree in arrays.items() if key.startswith(f"{name} ")}
            if name in about["callbacks"]:
                callback.restore(training, own, about["callbacks"][name])

    def _check_identity(self, theirs: Mapping[str, str]) -> None:
        different = sorted(k for k in {*theirs, *self.identity} if theirs.get(k) != self.identity.get(k))
        if different:
            changes = [f"{k} was {theirs.get(k, 'not set')}, is {self.identity.get(k, 'not set')}" for k in different]
            raise files.FileError(f"{self.path}: this checkpoint is of another fit: {'; '.join(changes)}.")

    def _known(self, training: Training) -> tuple[dict[str, Any], dict[str, Any]]:
        trees, about = {"state": training.state, "good": training.good}, {}
        for name, callback in _named(training.callbacks).items():
            of_callback, about[name] = callback.known(training)
            trees |= {f"{name} {key}": tree for key, tree in of_callback.items()}
        plain = {name: getattr(training, name) for name in PLAIN}
        return trees, {**plain, "callbacks": about, "seconds": perf_counter() - training.began}

    def after_turn(self, training):
        if training.diverged or (training.goes_on and perf_counter() - self.last < self.seconds):
            return
        if not is_first():
            return
        trees, about = self._known(training)
        arrays = {name: array for prefix, tree in trees.items() for name, array in files.leaves(tree, prefix).items()}
        arrays["losses"] = np.concatenate(training.losses)
        try:
            files.write(self.path, "checkpoint", arrays, {**about, "identity": self.identity})
        except OSError as error:  # a full disk, say: training is worth more than its checkpoint
            reason = str(error.strerror or error)
            named = reason if str(self.path) in reason else f"{self.path} cannot be written: {reason}"
            warnings.warn(f"{named}; training goes on without this checkpoint.", CheckpointWarning, stacklevel=2)
        self.last = perf_counter()


def _named(callbacks: Iterable[Callback]) -> dict[str, Callback]:
    """Return callbacks by names that stay when others, such as a progress bar, are added or left out."""
    named: dict[str, Callback] = {}
    for callback in callbacks:
        kind = type(callback).__name__
        named[f"{kind}-{sum(name.startswith(f'{kind}-') for name in named)}"] = callback
    return named


def digest(*arrays: Any) -> str:
    """Return a short name for the contents of arrays, or of views of rows."""
    contents = hashlib.sha256()
    for array in arrays:
        contents.update(str((array.shape, array.dtype)).encode())
        for piece in pieces(array):
            contents.update(piece.tobytes())
    return contents.hexdigest()[:16]
