"""Small tables: the default beside ridge regression, an exact ARD Gaussian process and our own svgp, on the same rows.

The small UCI sets with their standard splits, and the regression tables that scikit-learn ships. Writes one JSON line
for each table, split and model to results/small_tables.jsonl (those that are there are not fitted again), and the table
to results/small_tables.md. Log densities are in standard deviations of the training targets.

    OVERTONE_DATA=FOLDER python -m benchmarks.small_tables [splits]
"""

import sys
import warnings
from collections.abc import Callable
from itertools import product
from time import perf_counter

import numpy as np
from scipy.stats import norm
from sklearn import datasets
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.linear_model import RidgeCV
from sklearn.preprocessing import StandardScaler

from benchmarks import tables
from benchmarks.lines import RESULTS, completed
from overtone.sklearn import DeepGPRegressor

PATH, SPLITS = RESULTS / "small_tables.jsonl", 20
UCI = ("uci_yacht", "uci_boston", "uci_energy", "uci_concrete", "uci_wine_red")


def _linnerud():
    X, Y = datasets.load_linnerud(return_X_y=True)
    return X, Y[:, 0]


def _column(load: Callable, target: int):
    X, _ = load(return_X_y=True)
    return np.delete(X, target, axis=1), X[:, target]


SHIPPED = {
    "linnerud": _linnerud,
    "iris (petal width)": lambda: _column(datasets.load_iris, 3),
    "wine (alcohol)": lambda: _column(datasets.load_wine, 0),
    "diabetes": lambda: datasets.load_diabetes(return_X_y=True),
}


def load(name: str, split: int) -> tuple[np.ndarray, ...]:
    """Return training and test rows; of scikit-learn's tables, a quarter at random is for testing."""
    X, y = SHIPPED[name]() if name in SHIPPED else tables.load(name)
    if name in SHIPPED:
        order = np.random.default_rng(split).permutation(len(y))
        train, test = np.sort(order[len(y) // 4 :]), order[: len(y) // 4]
    else:
        train, test = tables.split(name, X, split)
    return X[train], y[train], X[test], y[test]


def ridge(X, y, X_test):
    """Ridge regression, its penalty by cross-validation, with one standard deviation."""
    alphas = np.logspace(-3, 4, 30)
    model = RidgeCV(alphas).fit(X, y)
    left = y - model.predict(X)
    eigenvalues = np.linalg.svd(X - X.mean(axis=0), compute_uv=False) ** 2
    freedom = len(y) - 1 - np.sum(eigenvalues / (eigenvalues + model.alpha_))
    return model.predict(X_test), np.full(len(X_test), np.sqrt(left @ left / max(freedom, 1)))


def exact_gp(X, y, X_test):
    """scikit-learn's Gaussian process: Matern-5/2 with a lengthscale for each input, and noise."""
    kernel = ConstantKernel(1.0, (1e-3, 1e3)) * Matern(np.full(X.shape[1], 2.0), (1e-2, 1e4), nu=2.5)
    model = GaussianProcessRegressor(kernel + WhiteKernel(0.1, (1e-6, 10)))
    with warnings.catch_warnings(action="ignore"):  # lengthscales of inputs that do not matter end at their bounds
        return model.fit(X, y).predict(X_test, return_std=True)


def estimator(method: str) -> Callable:
    def fit(X, y, X_test, y_test):
        model = DeepGPRegressor(method).fit(X, y)
        metrics = model.evaluate(X_test, y_test)
        return metrics["log_density"], metrics["rmse"], metrics["coverage_95"], len(model.model_.layers)

    return fit


def gaussian(predict: Callable) -> Callable:
    def fit(X, y, X_test, y_test):
        mean, std = predict(X, y, X_test)
        covered = np.mean(np.abs(y_test - mean) < norm.ppf(0.975) * std)
        return norm(mean, std).logpdf(y_test).mean(), np.sqrt(np.mean((y_test - mean) ** 2)), covered, 1

    return fit


MODELS = {
    "overtone": estimator("id-dgp"),
    "overtone-svgp": estimator("svgp"),
    "exact GP": gaussian(exact_gp),
    "ridge": gaussian(ridge),
}


def measure(name: str, split: int, model: str) -> dict:
    X, y, X_test, y_test = load(name, split)
    scaler, shift, scale = StandardScaler().fit(X), y.mean(), y.std()
    rows = scaler.transform(X), (y - shift) / scale, scaler.transform(X_test), (y_test - shift) / scale
    began = perf_counter()
    density, rmse, covered, layers = MODELS[model](*rows)
    about = {"table": name, "split": split, "model": model, "rows": len(y), "inputs": X.shape[1], "layers": layers}
    found = {"log_density": float(density), "rmse": float(rmse), "coverage_95": float(covered)}
    return {**about, **found, "seconds": perf_counter() - began}


def page(lines: list[dict]) -> str:
    text = "| table | rows x inputs | splits | " + " | ".join(MODELS) + " | overtone covers | lowest split |\n"
    text += "|---" * (5 + len(MODELS)) + "|\n"
    for name in dict.fromkeys(line["table"] for line in lines):
        of_table = [line for line in lines if line["table"] == name]
        mean = {m: np.mean([e["log_density"] for e in of_table if e["model"] == m] or np.nan) for m in MODELS}
        covered = [e["coverage_95"] for e in of_table if e["model"] == "overtone"]
        cells = " | ".join(f"{value:.3f}" for value in mean.values())
        shape = f"{of_table[0]['rows']} x {of_table[0]['inputs']}"
        text += f"| {name} | {shape} | {len(covered)} | {cells} | {np.mean(covered):.1%} | {min(covered):.0%} |\n"
    return text


def main(splits: int = SPLITS) -> None:
    cases = product((*SHIPPED, *UCI), range(splits), MODELS)
    lines = completed(PATH, cases, ("table", "split", "model"), measure)
    (RESULTS / "small_tables.md").write_text(page(lines))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
