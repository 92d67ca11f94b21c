"""Training by a quasi-Newton method, for objectives that are the same at every step: one layer, all rows at once."""

import math
import warnings
from collections.abc import Callable
from time import perf_counter
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import PRNGKeyArray
from scipy.optimize import minimize

from overtone.inference.loop import DivergedWarning, Fitted, History
from overtone.inference.objective import AbstractObjective, rows_of
from overtone.numerics.compiling import jitted, one_blas_thread
from overtone.numerics.params import trainable

NO_VALUE = 1e10  # of the loss where it is not finite: SciPy's line search steps back from it


def fit_quasi_newton(
    model: Any,
    objective: AbstractObjective,
    data: tuple[Any, Any],
    *,
    key: PRNGKeyArray,
    steps: int = 200,
    stop: Callable[[], bool] = lambda: False,
    finish: bool = True,
) -> Fitted:
    """Maximise an objective over all rows (X, y) by L-BFGS, until it no longer rises or `stop()` is true.

    It is for deterministic objectives of few parameters, such as `Evidence` and one layer of `Collapsed`. The model is
    finished in closed form, unless `finish` is false.
    """
    with jax.enable_x64(True), one_blas_thread():
        began, losses, rows = perf_counter(), [], rows_of(model, data)
        model, state = objective.init(model, rows)
        params, static = eqx.partition(model, trainable(model))
        start, unravel = ravel_pytree(params)

        def loss(vector: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = jitted(_value_and_gradient)(
                vector.astype(start.dtype), unravel, static, objective, state, key, rows
            )
            losses.append(float(value))
            usable = math.isfinite(losses[-1]) and bool(np.all(np.isfinite(gradient)))
            return (losses[-1], np.asarray(gradient, float)) if usable else (NO_VALUE, np.zeros_like(vector))

        def after_step(intermediate_result: Any) -> None:
            if stop():
                raise StopIteration

        best: Any = minimize(
            loss, np.asarray(start, float), jac=True, method="L-BFGS-B", callback=after_step, options={"maxiter": steps}
        )
        message = ""
        if best.fun >= NO_VALUE:
            message = "The loss or its gradient was not finite at the start; look for extreme values in the data."
            warnings.warn(message, DivergedWarning, stacklevel=2)
        model = eqx.combine(unravel(best.x.astype(start.dtype)), static)
        finite = np.array([value for value in losses if math.isfinite(value)])
        history = History(finite, perf_counter() - began, message=message)
        return Fitted(objective.finish(model, state, key, rows) if finish else model, state, history)


def _value_and_gradient(vector, unravel, static, objective, state, key, rows):
    def loss(vector):
        return objective.loss(eqx.combine(unravel(vector), static), state, key, rows)[0]

    return jax.value_and_grad(loss)(vector)
