"""Draws from deep priors, inter-domain and conventional, of one to ten layers (appendix).

Inducing variables are part of the approximation, not of the model, so the priors are those of the kernels alone, which
are drawn from exactly: Matern-3/2 for inter-domain layers, RBF for conventional ones, with linear mean functions
between the layers.
"""

from pathlib import Path
from typing import Any

import numpy as np

from overtone.experiments import summaries

INTER_DOMAIN, CONVENTIONAL = "inter-domain", "conventional"
DEPTHS, DRAWS, ROWS, INDUCING, SCALE = (1, 2, 3, 5, 10), 3, 300, 20, 0.5
NOISE = 1e-10  # variance added by every layer: invisible, and far above the rounding of kernel matrices


def cases(quick: bool, seeds: int | None, folder: Path | None) -> list[dict]:
    depths = (2,) if quick else DEPTHS
    return [
        {"method": method, "depth": depth, "seed": 0} for depth in depths for method in (INTER_DOMAIN, CONVENTIONAL)
    ]


def measure(case: dict, folder: Path | None) -> dict:
    import jax
    import jax.numpy as jnp

    import overtone as ot

    rows, draws = (20, 1) if case.get("quick") else (ROWS, DRAWS)
    X = np.linspace(0, 1, rows)[:, None]
    kernel: Any = ot.Matern32 if case["method"] == INTER_DOMAIN else ot.SquaredExponential
    features: Any = ot.Fourier if case["method"] == INTER_DOMAIN else ot.InducingPoints
    layer = ot.Layer(kernel(lengthscale=SCALE), features(INDUCING), outputs=1, noise=NOISE)
    model = ot.DeepGP([layer] * case["depth"], ot.Gaussian()).initialised(X, X[:, 0], dtype="float64")
    key, drawn = jax.random.key(case["seed"]), []
    with jax.enable_x64(True):  # kernel matrices of smooth functions are singular in single precision
        for draw in range(draws):
            passes = ot.draw_prior(model, jax.random.fold_in(key, draw), jnp.asarray(X))
            drawn.append(np.round(np.asarray(passes[-1][1])[:, 0], 4).tolist())
    slopes = np.abs(np.diff(np.asarray(drawn), axis=1))
    flat = float(np.mean(slopes < 0.01 * slopes.max(axis=1, keepdims=True)))
    return {"draws": drawn, "flat_share": flat}


def tables(records: list[dict]) -> str:
    lines = ["Share of the interval on which a draw is flat, its slope below a hundredth of the steepest:\n"]
    return "\n".join([*lines, summaries.compact(records, "depth", "method", "flat_share", 2)])


def figure(records: list[dict], path: Path) -> None:
    depths = sorted({each["depth"] for each in records})
    fig, axes = summaries.axes(2, len(depths), (2.6, 2.0), sharex=True)
    for row, method in zip(axes, (INTER_DOMAIN, CONVENTIONAL), strict=True):
        for ax, depth in zip(row, depths, strict=True):
            for draw in summaries.select(records, method=method, depth=depth)[0]["draws"]:
                ax.plot(np.linspace(0, 1, len(draw)), draw, lw=1)
            ax.set_title(f"{method}, {depth} layer{'s' if depth > 1 else ''}", fontsize=8)
    summaries.save(fig, path)
