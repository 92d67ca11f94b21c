"""The Gaussian process that a small table or series starts with: no features, and the evidence itself.

Its kernel is a Matern with a lengthscale for each input plus straight lines, and the hyperparameters are the most
probable ones under weak priors. A series has two Materns, one for what is slow and one for what is fast: with one
alone, a trend beyond the data would be forgotten as quickly as its waves. Variances are raised for the degrees of
freedom that hyperparameters take.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np

from overtone.autopilot.names import KERNELS, part
from overtone.autopilot.policies import EXACT
from overtone.autopilot.record import Plan
from overtone.gp.features import InducingPoints
from overtone.gp.kernels import Linear
from overtone.gp.layers import Layer
from overtone.gp.likelihoods import FlexibleNoise, Gaussian
from overtone.gp.maps import Affine
from overtone.gp.model import DeepGP
from overtone.inference.evidence import Evidence, LogNormal, freedom, with_variances_times
from overtone.inference.loop import Fitted
from overtone.inference.objective import Rows
from overtone.inference.quasi_newton import fit_quasi_newton
from overtone.inference.varying import with_varying_noise
from overtone.numerics.params import Fixed, unwrap


def fit_exact(plan: Plan, rows: Rows, key: Any, stop: Callable[[], bool]) -> tuple[Fitted, Evidence]:
    """Return the exact GP of these rows, up to what a limited number of inducing points leaves, and its objective."""
    order = np.random.default_rng(plan.seed).permutation(len(rows.X))[: EXACT.fitted_rows]
    some = Rows(rows.X[order].astype(float), rows.y[order].astype(float))
    objective = Evidence(priors(rows.X.shape[1]))  # pyright: ignore[reportArgumentType]
    twice = len(some.X) <= EXACT.rows_twice or len(np.unique(some.X, axis=0)) < len(some.X)
    noises = EXACT.noises if twice else EXACT.noises[:1]
    starts = [fit_quasi_newton(exact_model(plan, some, n), objective, some, key=key, stop=stop) for n in noises]
    fitted = min(starts, key=lambda each: each.history.loss.min(initial=np.inf))
    factor, model = freedom(fitted.model, len(some.X)), objective.finish(fitted.model, fitted.state, key, rows)

    def refitted(known: np.ndarray) -> DeepGP:
        """Return the model with the hyperparameters of these rows."""
        chosen = order[np.isin(order, known)]
        part = Rows(*(part[chosen].astype(float) for part in rows))
        return fit_quasi_newton(fitted.model, objective, part, key=key, stop=stop, finish=False).model

    model, known = with_noise(plan, model, key, rows, stop, refitted)
    model = objective.finish(with_variances_times(model, factor), fitted.state, key, rows)
    return fitted._replace(model=model, history=replace(fitted.history, noise=known)), objective


def with_noise(
    plan: Plan,
    model: DeepGP,
    key: Any,
    rows: Rows,
    stop: Callable[[], bool],
    refitted: Callable[[np.ndarray], DeepGP] | None = None,
) -> tuple[DeepGP, str]:
    """Return a model of one layer with the noise that rows ask for that are left out, and a sentence."""
    if not plan.varying_noise or stop():
        return model, ""
    rows = Rows(*(part.astype(unwrap(model.output.q).mean.dtype) for part in rows))
    varied, nats = with_varying_noise(model, key, *rows, refitted=refitted)
    if varied is model:
        return model, "Rows that are left out say that one noise variance is enough."
    noise = cast(FlexibleNoise, varied.likelihood)
    found = ["varies with the inputs"] * bool(np.any(noise.weight)) + ["has heavy tails"] * (noise.base.shape[1] > 1)
    return varied, f"Rows that are left out say that the noise {' and '.join(found)} ({np.sum(nats):+.1f} nats)."


def exact_model(plan: Plan, rows: Rows, noise: float) -> DeepGP:
    """Return the model before training, with an inducing point at each row."""
    num_inputs = rows.X.shape[1]
    kind, start, (variance, faster) = part(KERNELS, str(plan.exact_kernel)), EXACT.start * num_inputs**0.5, EXACT.fast
    kernel = kind(1.0, start) + Linear(1 / num_inputs)
    if num_inputs == 1:  # waves that the spectrum shows are not found from longer lengthscales
        shortest = plan.start.lengthscale if plan.start else np.inf
        kernel = kernel + kind(variance, min(faster * start, shortest))
    scaling = Affine(np.zeros(num_inputs), np.ones(num_inputs))  # inputs of all rows are scaled already
    layer = Layer(kernel, InducingPoints(Fixed(rows.X)), scaling=scaling)
    return DeepGP([layer], Gaussian(noise)).initialised(*rows, seed=plan.seed, dtype="float64")


def priors(num_inputs: int) -> tuple[tuple[str, LogNormal], ...]:
    """Return weak priors: the more inputs there are, the farther apart rows lie, and the longer lengthscales are."""
    lengthscale = LogNormal(EXACT.lengthscale * num_inputs**0.5, EXACT.lengthscale_spread)
    variance, noise = LogNormal(1.0, EXACT.variance_spread), LogNormal(EXACT.noise, EXACT.noise_spread)
    return ("lengthscale", lengthscale), ("variance", variance), ("noise", noise)
