"""What the neighbours of rows know, for the outputs of an estimator."""

import numpy as np

from overtone.autopilot.local import Neighbours
from overtone.gp.neighbours import NeighbourGP
from overtone.inference.neighbours import from_neighbours
from overtone.storage.files import FileError


def of_neighbours(neighbours: Neighbours, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return means and variances (N, P) of the scores of rows; 0 and 1 for outputs whose neighbours are not asked."""
    nothing = np.zeros(len(Z)), np.ones(len(Z))
    found = [nothing if process is None else from_neighbours(process, Z) for process in neighbours]
    shift, variance = (np.stack(part, axis=1).astype(Z.dtype) for part in zip(*found, strict=True))
    return shift, variance


def check_neighbours(neighbours: object, num_inputs: int, num_outputs: int) -> None:
    """Raise a FileError if what a file says about neighbours does not belong to its model."""
    fit = (
        isinstance(neighbours, tuple)
        and len(neighbours) in (0, num_outputs)
        and all(
            process is None
            or (
                isinstance(process, NeighbourGP)
                and process.inputs.ndim == 2
                and process.inputs.shape[1] == num_inputs
                and 0 < process.scores.size == len(process.inputs)
                and process.lengthscales.shape == (num_inputs,)
                and np.all(process.lengthscales > 0)
                and 0 <= process.share < 1
                and process.gain >= 0
                and process.scale > 0
            )
            for process in neighbours
        )
    )
    if not fit:
        raise FileError("its neighbours do not belong to its model.")
