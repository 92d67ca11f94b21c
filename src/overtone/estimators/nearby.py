"""What the neighbours of rows know, for the outputs of an estimator."""

import numpy as np

from overtone.autopilot.local import Neighbours
from overtone.gp.neighbours import NeighbourGP
from overtone.inference.neighbours import said_by_neighbours
from overtone.storage.files import FileError


def of_neighbours(neighbours: Neighbours, Z: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return what makes the distribution of scores (`mixed`), each (N, P); N(0, 1) where neighbours are not asked."""
    zero, one = np.zeros(len(Z)), np.ones(len(Z))
    found = [
        (zero, one, one, 0.5 * one)
        if process is None
        else (*said_by_neighbours(process, Z), float(process.weight) * one)
        for process in neighbours
    ]
    return tuple(np.stack(part, axis=1).astype(Z.dtype) for part in zip(*found, strict=True))


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
                and min(process.scales) > 0
                and 0 < process.weight < 1
            )
            for process in neighbours
        )
    )
    if not fit:
        raise FileError("its neighbours do not belong to its model.")
