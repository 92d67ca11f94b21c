"""Draws of a fitted model's functions, as the user sees them."""

from collections.abc import Callable

import jax
import numpy as np

from overtone import predictions
from overtone.compiling import quickly_compiled
from overtone.gaps import blank
from overtone.model import DeepGP
from overtone.pathwise import LayerPath, follow


class FunctionDraws:
    """Draws of a model's functions, to be evaluated anywhere."""

    def __init__(self, model: DeepGP, paths: list[LayerPath], inputs: Callable, in_units: Callable):
        """`inputs` makes of rows what the model sees, and where they have gaps; `in_units` what the user sees."""
        self.model, self.paths, self._inputs, self._in_units = model, paths, inputs, in_units

    def __call__(self, X) -> np.ndarray:
        """What each draw expects of y at the rows of X, in the user's units: (N, n), or (N, P, n) for several outputs.

        Of classes, their probabilities (N, C, n).
        """
        return self._in_units(np.moveaxis(self._follow(X)[0], 0, -1))

    def layers(self, X) -> list[np.ndarray]:
        """The values (N, units, n) of each layer's functions, in the model's own units."""
        return [np.moveaxis(values, 0, -1) for values in self._follow(X)[1:]]

    def _follow(self, X) -> tuple[np.ndarray, ...]:
        def compute(X):
            expected, values = quickly_compiled(follow)(self.model, self.paths, X)
            return expected, *values

        Z, gaps = self._inputs(X)
        with jax.enable_x64(True):
            parts = predictions.over_rows(compute, Z)
        return tuple(blank(part, gaps) for part in parts)
