"""Are intervals honest on small tables? Generated cases of 20 to 1,000 rows, fresh rows to test on, ten seeds each.

Writes one JSON line for each case and seed to results/coverage.jsonl (those that are there are not fitted again), and
the table to results/coverage.md.

    python -m benchmarks.coverage [seeds]
"""

import sys
from itertools import product

import numpy as np

from benchmarks.lines import RESULTS, completed
from overtone.sklearn import DeepGPRegressor

TEST_ROWS, SEEDS = 2000, 10
PATH = RESULTS / "coverage.jsonl"
SHAPES = [(rows, inputs) for rows, inputs in product((20, 60, 300, 1000), (1, 3, 8))]
# Inputs, a function of them, and noise. The function of all cases has about unit variance.
CASES = {
    "constant input": (lambda rng, n, d: np.zeros((n, d)), "zero", "normal"),
    "binary inputs": (lambda rng, n, d: rng.integers(0, 2, (n, d)).astype(float), "sum", "normal"),
    "pure noise": (lambda rng, n, d: rng.random((n, d)), "zero", "normal"),
    "smooth": (lambda rng, n, d: rng.random((n, d)), "smooth", "normal"),
    "steps": (lambda rng, n, d: rng.random((n, d)), "steps", "normal"),
    "repeated rows": (lambda rng, n, d: np.repeat(rng.random((n // 4, d)), 4, axis=0), "smooth", "normal"),
    "varying noise": (lambda rng, n, d: rng.random((n, d)), "smooth", "varying"),
    "heavy tails": (lambda rng, n, d: rng.random((n, d)), "smooth", "heavy"),
}
FUNCTIONS = {
    "zero": lambda X: np.zeros(len(X)),
    "sum": lambda X: 2 * X.sum(axis=1) / X.shape[1] ** 0.5,
    "smooth": lambda X: np.sin(5 * X[:, 0]) + 4 * (X[:, -1] - 0.5) ** 2,
    "steps": lambda X: np.sign(X[:, 0] - 0.4) + (X[:, -1] > 0.7),
}
NOISES = {
    "normal": lambda rng, X: 0.5 * rng.standard_normal(len(X)),
    "varying": lambda rng, X: (0.1 + 0.9 * X[:, 0]) * rng.standard_normal(len(X)),
    "heavy": lambda rng, X: 0.3 * rng.standard_t(3, len(X)),
}


def rows(case: str, num: int, inputs: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return X and y of a case."""
    make, function, noise = CASES[case]
    X = make(rng, num, inputs)
    return X, FUNCTIONS[function](X) + NOISES[noise](rng, X)


def measure(case: str, num: int, inputs: int, seed: int) -> dict:
    """Fit the defaults, and return what fresh rows say of it."""
    rng = np.random.default_rng([seed, num, inputs])
    X, y = rows(case, num, inputs, rng)
    model = DeepGPRegressor(random_state=seed).fit(X, y)
    metrics = model.evaluate(*rows(case, TEST_ROWS, inputs, rng))
    about = {"case": case, "rows": num, "inputs": inputs, "seed": seed, "seconds": model.history_.seconds}
    return {**about, "layers": len(model.model_.layers), **{k: metrics[k] for k in ("log_density", "coverage_95")}}


def page(lines: list[dict]) -> str:
    """Return the table of mean coverages, and of the lowest of a seed."""
    text = "| case | " + " | ".join(f"{n} x {d}" for n, d in SHAPES) + " |\n|" + "---|" * (1 + len(SHAPES)) + "\n"
    for case in CASES:
        cells = []
        for shape in SHAPES:
            found = [e["coverage_95"] for e in lines if (e["case"], e["rows"], e["inputs"]) == (case, *shape)]
            cells.append(f"{np.mean(found):.0%} ({min(found):.0%})" if found else "")
        text += f"| {case} | " + " | ".join(cells) + " |\n"
    return text


def main(seeds: int = SEEDS) -> None:
    cases = ((case, *shape, seed) for seed, case, shape in product(range(seeds), CASES, SHAPES))
    lines = completed(PATH, cases, ("case", "rows", "inputs", "seed"), measure)
    (RESULTS / "coverage.md").write_text(page(lines))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
