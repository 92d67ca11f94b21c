"""Time the bound with the output layer in closed form, by the matrix of its features and by that of the rows.

Writes one JSON line for each size of table to results/closed_form.jsonl: milliseconds for value and gradient, side by
side.

    python -m benchmarks.closed_form
"""

from time import perf_counter

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.lines import resumed
from overtone.autopilot.build import build
from overtone.autopilot.config import Config
from overtone.autopilot.plan import plan
from overtone.inference.collapsed import _by_features, _by_rows
from overtone.inference.sites import reference_noise
from overtone.numerics.params import unwrap

SIZES = ((36, 4), (100, 4), (300, 6), (600, 6), (1000, 8))  # rows, inputs
ROUNDS, CALLS = 7, 5


def timed(case: int) -> dict:
    """Return the median times of both ways for one size of table."""
    rows, inputs = SIZES[case]
    X = np.random.default_rng(0).random((rows, inputs)).astype(np.float32)
    y = np.sin(5 * X[:, :1])
    model = build(plan(Config(), X, y), X, y)

    def loss(model, by):
        plain = unwrap(model)
        noise = reference_noise(plain)
        inputs = plain.propagate(plain.draw_noise(jax.random.key(0), 1, len(X)), X)[-1][0]
        misfit, volume, left = by(plain, noise, inputs, y)
        return jnp.sum(misfit + volume + left / noise)

    call, ways = eqx.filter_jit(eqx.filter_value_and_grad(loss)), {"features": _by_features, "rows": _by_rows}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(1 + ROUNDS):
        for name, by in ways.items():
            start = perf_counter()
            for _ in range(CALLS):
                jax.block_until_ready(call(model, by))
            seconds[name].append((perf_counter() - start) / CALLS)
    milliseconds = {f"by_{name}": round(1e3 * float(np.median(times[1:])), 1) for name, times in seconds.items()}
    return {"rows": rows, "inputs": inputs, "features": model.output.features.num_features, **milliseconds}


if __name__ == "__main__":
    with jax.enable_x64(True):
        resumed("closed_form", len(SIZES), timed)
