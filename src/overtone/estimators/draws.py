"""Draws of a fitted estimator's functions, in the user's units."""

from collections.abc import Callable

import numpy as np

from overtone.inference import predictions
from overtone.tables.gaps import with_missing_rows


class FunctionDraws:
    """Draws of a model's functions, to be evaluated anywhere."""

    def __init__(self, functions: predictions.Functions, inputs: Callable, in_units: Callable):
        """Take what makes of rows what the model sees, and where they have gaps, and what the user sees of results."""
        self.functions, self._inputs, self._in_units = functions, inputs, in_units

    def __call__(self, X) -> np.ndarray:
        """Return what each draw expects of y at the rows of X, in the user's units: (N, n), or (N, P, n) for several.

        Of classes these are probabilities (N, C, n).
        """
        return self._in_units(np.moveaxis(self._values(X)[0], 0, -1))

    def layers(self, X) -> list[np.ndarray]:
        """Return the values (N, units, n) of each layer's functions, in the model's own units."""
        return [np.moveaxis(values, 0, -1) for values in self._values(X)[1:]]

    def _values(self, X) -> list[np.ndarray]:
        Z, gaps = self._inputs(X)
        return [with_missing_rows(part, gaps) for part in self.functions.layers(Z)]
