"""Measure what this machine can do at most: the yardstick for the floor of a step.

python -m benchmarks.machine
"""

import json
import os
import platform
from pathlib import Path
from time import perf_counter

import jax
import jax.numpy as jnp
import numpy as np

RESULTS = Path(__file__).parent / "results"


def best(function, *args, repeats: int = 20) -> float:
    """Return the shortest time that a compiled function took."""
    run = jax.jit(function)
    jax.block_until_ready(run(*args))
    times = []
    for _ in range(repeats):
        start = perf_counter()
        jax.block_until_ready(run(*args))
        times.append(perf_counter() - start)
    return min(times)


def main() -> None:
    """Write operations, bytes and calls per second as one JSON line."""
    A, v = jnp.ones((1024, 1024)), jnp.ones(16_000_000)

    def loop(x):
        """Do a thousand times three steps that depend on each other and cannot be fused."""
        return jax.lax.scan(lambda x, _: (jnp.sort(jnp.sort(jnp.sort(x))), None), x, None, length=1000)[0]

    line = {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "gigaflops": 2 * 1024**3 / best(jnp.matmul, A, A) / 1e9,
        "gigabytes_per_second": 2 * v.nbytes / best(lambda v: v + 1, v) / 1e9,
        "microseconds_per_call": best(loop, jnp.asarray(np.arange(2.0, dtype=np.float32)), repeats=5) / 3000 * 1e6,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "machine.jsonl").write_text(json.dumps(line) + "\n")
    print(line)


if __name__ == "__main__":
    main()
