"""The pages for researchers, block by block: docs/research.md, docs/local.md and the recipes of ARCHITECTURE.md."""

import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import overtone as ot

ROOT = Path(__file__).parent.parent


def run(page: str, tmp_path, monkeypatch) -> dict:
    """Run the Python blocks of a page in a folder of their own, and return the names that they leave."""
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for number, text in enumerate(re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL), start=1):
        exec(compile(text, f"{page}, block {number}", "exec"), names)
    return names


def assert_predicts(model, X, key):
    distribution = ot.predict(model, X, key=key)
    assert distribution.mean().shape == (len(X), 1)
    assert np.all(np.isfinite(distribution.mean()))
    assert np.all(distribution.std() > 0)


def test_the_research_page_runs(tmp_path, monkeypatch, capsys):
    names = run("docs/research.md", tmp_path, monkeypatch)
    assert names["mean"].shape == names["std"].shape == names["low"].shape == (50, 1)
    assert names["log_density"].shape == (60, 1)
    assert np.isfinite(names["bound"])
    assert names["values"].shape == names["prior"](names["X_new"]).shape == (5, 50, 1)
    assert names["hidden"].shape == names["function"].shape == (50, 1)
    assert (tmp_path / "model.safetensors").exists()
    assert names["watched"].history.scores
    for name in ("wendland", "windows", "outliers", "tempered"):
        assert_predicts(names[name], names["X_new"], names["key"])
    check_windows(names["Windows"])


def check_windows(Windows):
    """Compare the formulas of the page's features with integrals by quadrature."""
    kernel, windows = ot.SquaredExponential(jnp.asarray(1.3), jnp.asarray(0.2)), Windows(jnp.asarray([[0.1], [0.6]]))
    nodes = np.linspace(-1, 2, 3001)
    weights = np.exp(-0.5 * ((nodes - np.asarray(windows.Z)) / windows.width) ** 2)
    weights = weights / weights.sum(axis=1, keepdims=True)
    nodes = jnp.asarray(nodes[:, None], "float32")
    X = jnp.asarray([[0.0], [0.35], [1.1]])
    np.testing.assert_allclose(windows.Kuf(kernel, X), weights @ kernel.gram(nodes, X), rtol=1e-3)
    Kuu = weights @ kernel.gram(nodes, nodes) @ weights.T
    np.testing.assert_allclose(windows.Kuu(kernel).dense(), Kuu, rtol=1e-3)


def test_the_page_about_neighbours_runs(tmp_path, monkeypatch):
    assert run("docs/local.md", tmp_path, monkeypatch)["corrected"].mean().shape == (200, 1)


def test_the_recipes_of_the_architecture_run(tmp_path, monkeypatch):
    names = run("ARCHITECTURE.md", tmp_path, monkeypatch)
    for model in (names["brownian"], names["increments"], names["known"], names["fitted"].model):
        assert_predicts(model, names["X"], names["key"])
