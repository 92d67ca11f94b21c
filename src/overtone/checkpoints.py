"""What training knows, in a file, now and then: a run that was killed goes on from there as if nothing had happened."""

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from overtone import io

EVERY = 5.0  # seconds; OVERTONE_CHECKPOINT_SECONDS is another number


class FileCheckpoint:
    """One file of a folder, for one stage of one fit, which is told from others by its `identity`: names and values."""

    def __init__(self, folder: str | os.PathLike, stage: str, identity: Mapping[str, Any]):
        self.path = Path(folder) / f"{stage}.checkpoint"
        self.identity, self.last = {k: str(v) for k, v in identity.items()}, perf_counter()
        self.every = float(os.environ.get("OVERTONE_CHECKPOINT_SECONDS", EVERY))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for left_over in self.path.parent.glob(f".{self.path.name}.*.new"):  # by a run that was killed while it wrote
            left_over.unlink(missing_ok=True)

    def load(self, like: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
        if not self.path.exists():
            return None
        arrays, about = io.read(self.path, "checkpoint")
        theirs = about.pop("identity")
        different = sorted(k for k in {*theirs, *self.identity} if theirs.get(k) != self.identity.get(k))
        if different:
            raise io.FileError(
                f"{self.path}: this checkpoint is of another fit: "
                + "; ".join(
                    f"{k} was {theirs.get(k, 'not set')}, is {self.identity.get(k, 'not set')}" for k in different
                )
                + "."
            )
        trees = {name: io.restored(tree, arrays, name) for name, tree in like.items()}
        return {**trees, "losses": arrays["losses"]}, about

    def save(self, known: Callable[[], tuple[dict[str, Any], dict[str, Any]]], last: bool) -> None:
        if not last and perf_counter() - self.last < self.every:
            return
        trees, about = known()
        arrays = {k: v for name, tree in trees.items() for k, v in io.leaves(tree, name).items()}
        io.write(self.path, "checkpoint", arrays, {**about, "identity": self.identity})
        self.last = perf_counter()


def digest(*arrays: np.ndarray) -> str:
    """A short name for the contents of arrays."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(str((array.shape, array.dtype)).encode() + np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]
