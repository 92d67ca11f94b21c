"""Compare what features leave unexplained with the Karhunen-Loeve optimum of as many variables.

What is left is the mean of k(x, x) - |g(x)|^2 over the data's range [0, 1], for pinned features on that interval and
the paper's on [-2, 3]. No features of the same number can have a ratio below 1.

    python -m benchmarks.residuals
"""

import json
from pathlib import Path

import jax
import jax.numpy as jnp

from overtone.gp.features import Fourier, PinnedFourier
from overtone.gp.kernels import Matern12, Matern32, Matern52
from tests.reference.karhunen_loeve import optimal_residual
from tests.reference.matern import Matern

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Write a line for each kernel, lengthscale and kind of features."""
    x = jnp.linspace(0, 1, 4001)[:, None]
    lines = []
    for kind in (Matern12, Matern32, Matern52):
        for lengthscale in (0.05, 0.2, 0.5):
            kernel = kind(jnp.asarray(1.0), jnp.asarray(lengthscale))
            pinned = PinnedFourier(20, jnp.asarray(0.0), jnp.asarray(1.0), kind.order)
            paper = Fourier(20, jnp.asarray(-2.0), jnp.asarray(3.0))
            for name, features in (("pinned on [0, 1]", pinned), ("the paper's on [-2, 3]", paper)):
                left = float(features.unexplained(kernel, features.whitened(kernel, x), x).mean())
                best = optimal_residual(Matern(kind.order, 1.0, lengthscale), 0, 1, features.num_features)
                line = {"order": kind.order, "lengthscale": lengthscale, "features": name}
                lines.append({**line, "variables": features.num_features, "residual": left, "ratio": left / best})
                print(lines[-1], flush=True)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "residuals.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    with jax.enable_x64(True):
        main()
