"""The pages for researchers, block by block: docs/research.md, docs/local.md and the recipes of ARCHITECTURE.md."""

import jax.numpy as jnp
import numpy as np

import overtone as ot
from tests.pages import run


def assert_predicts(model, X, key):
    distribution = ot.predict(model, X, key=key)
    assert distribution.mean().shape == (len(X), 1)
    assert np.all(np.isfinite(distribution.mean()))
    assert np.all(distribution.std() > 0)


def test_the_research_page_runs(tmp_path, capsys):
    names = run("docs/research.md", tmp_path)
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


def test_the_page_about_neighbours_runs(tmp_path):
    assert run("docs/local.md", tmp_path)["corrected"].mean().shape == (200, 1)


def test_the_recipes_of_the_architecture_run(tmp_path):
    names = run("ARCHITECTURE.md", tmp_path)
    for model in (names["brownian"], names["increments"], names["known"], names["fitted"].model):
        assert_predicts(model, names["X"], names["key"])
