"""Compare natural gradients with Adam for the output layer of other likelihoods, by half a minute of training.

Writes one JSON line for each fit to results/output_layers_TABLE.jsonl; a run that was stopped goes on where it was. The
clock counts all of `fit`, with compiled programs in the cache. Targets are made from those of real tables: above the
median or not, the quarter of all values, draws of counts; or the target itself.

    OVERTONE_DATA=folder python -m benchmarks.output_layers [seconds [table]]
"""

import sys
from itertools import product

import numpy as np

from benchmarks.lines import resumed
from benchmarks.tables import load, split
from overtone.sklearn import DeepGPClassifier, DeepGPRegressor

TARGETS = {
    "bernoulli": lambda y: (y > np.median(y)).astype(int),
    "softmax": lambda y: np.digitize(y, np.quantile(y, [0.25, 0.5, 0.75])),
    "poisson": lambda y: np.random.default_rng(0).poisson(3 * np.exp((y - y.mean()) / y.std() / 2)),
    "student-t": lambda y: y,
    "heteroscedastic": lambda y: y,
}
TABLES, OUTPUTS = ("uci_kin8nm", "uci_powerplant"), ("natural", "adam")
WARM_UP_STEPS = 150  # to compile the programs
CASES = list(product(TARGETS, OUTPUTS))


def fitted(table: str, case: int, seconds: float) -> dict:
    """Return the figures of one fit."""
    likelihood, output = CASES[case]
    X, y = load(table)
    train, test = split(table, X, 0)
    y = TARGETS[likelihood](y)
    kind = DeepGPClassifier if likelihood in ("bernoulli", "softmax") else DeepGPRegressor
    settings = {"output": output, "likelihood": likelihood}
    kind(**settings, max_steps=WARM_UP_STEPS).fit(X[train], y[train])
    model = kind(**settings, max_time=seconds).fit(X[train], y[train])
    effort = {"steps": len(model.history_.loss), "seconds": model.history_.seconds}
    return {"table": table, "likelihood": likelihood, "output": output} | effort | model.evaluate(X[test], y[test])


def main(seconds: float, tables: list[str]) -> None:
    """Fit all cases, and print a table of the log densities."""
    names = [f"output_layers_{table}" for table in tables]
    parts = [
        resumed(name, len(CASES), lambda case, table=table: fitted(table, case, seconds))
        for name, table in zip(names, tables, strict=True)
    ]
    lines = [line for part in parts for line in part]
    print("| table | likelihood | natural: log density (steps) | Adam |\n|---|---|---:|---:|")
    for natural, adam in zip(lines[::2], lines[1::2], strict=True):
        shown = [f"{line['log_density']:.3f} ({line['steps']:,})" for line in (natural, adam)]
        print(f"| {natural['table']} | {natural['likelihood']} | {' | '.join(shown)} |")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 30.0, sys.argv[2:] or list(TABLES))
