"""What users of other libraries complain about must not happen here: one test for each promise."""

import re
import subprocess
import warnings
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from overtone.app.cli import build_parser
from overtone.app.demo import FOLDER, PICTURES, main
from overtone.experiments.data import multi_step
from overtone.inference.collapsed import Collapsed
from overtone.inference.natural import NaturalGradient
from overtone.inference.objective import Elbo, Rows
from overtone.inference.output_layer import with_optimal_output
from overtone.numerics.params import Positive
from overtone.sklearn import DeepGPRegressor
from tests.planned import built

X, Y = multi_step(0, 400)
X_TEST, Y_TEST = multi_step(1000, 1000)
QUICK = {"max_steps": 200, "n_inducing": 10}


@pytest.fixture(scope="module")
def fitted() -> DeepGPRegressor:
    return DeepGPRegressor(**QUICK, random_state=7).fit(X, Y)


def test_the_step_function_is_fitted():
    """A deep GP that looks like a shallow one is a failure of inference."""
    deep, shallow = (DeepGPRegressor(method, n_inducing=20, max_steps=3000).fit(X, Y) for method in ("id-dgp", "vff"))
    density = deep.log_predictive_density(X_TEST, Y_TEST).mean()
    assert density > shallow.log_predictive_density(X_TEST, Y_TEST).mean() + 0.5
    # Without the noise between the layers, it is too sure of the places of the jumps.
    deep.model_ = eqx.tree_at(lambda m: m.layers[0].noise, deep.model_, Positive(np.float32(1e-7)))
    assert density > deep.log_predictive_density(X_TEST, Y_TEST).mean() + 0.02


@pytest.mark.parametrize("method", ["id-dgp", "dgp", "svgp"])
def test_no_failed_factorisation_and_no_nan(method):
    """Smooth kernel, many inducing points, repeated inputs, noise-free targets, single precision, high rate."""
    x = np.repeat(np.linspace(0, 1, 40), 3)[:, None]
    with warnings.catch_warnings(action="error"):
        model = DeepGPRegressor(method, n_inducing=60, max_steps=500, learning_rate=0.1).fit(x, x[:, 0] ** 2)
    assert np.all(np.isfinite(model.history_.loss))
    assert np.all(np.isfinite(model.predict(x)))
    assert model.score(x, x[:, 0] ** 2) > 0.95


def test_the_sample_axis_does_not_leak():
    model = DeepGPRegressor(**QUICK, n_samples=3, n_predict_samples=10).fit(X, Y)
    mean, std = model.predict(X[:7], return_std=True)
    assert mean.shape == std.shape == model.log_predictive_density(X[:7], Y[:7]).shape == (7,)


def test_the_variance_is_that_of_the_mixture(fitted):
    """The deviation of predicted draws, not the average of the components' deviations."""
    _, std = fitted.predict(X_TEST[::50], return_std=True)
    draws = fitted.sample_y(X_TEST[::50], 4000)
    np.testing.assert_allclose(draws.std(axis=1), std, rtol=0.15)


def test_results_can_be_replicated(fitted):
    first, second = fitted, DeepGPRegressor(**QUICK, random_state=7).fit(X, Y)
    np.testing.assert_array_equal(first.history_.loss, second.history_.loss)
    np.testing.assert_array_equal(first.predict(X), second.predict(X))
    np.testing.assert_array_equal(first.sample_y(X, 2, 5), second.sample_y(X, 2, 5))
    other = DeepGPRegressor(**QUICK, random_state=8).fit(X, Y)
    assert np.any(first.history_.loss != other.history_.loss)


def test_predictions_do_not_depend_on_the_batch(fitted):
    whole, whole_std = fitted.predict(X_TEST, return_std=True)
    order = np.random.default_rng(0).permutation(len(X_TEST))
    shuffled, _ = fitted.predict(X_TEST[order], return_std=True)
    np.testing.assert_allclose(shuffled, whole[order], atol=1e-6)
    one, one_std = fitted.predict(X_TEST[123:124], return_std=True)
    np.testing.assert_allclose([one[0], one_std[0]], [whole[123], whole_std[123]], atol=1e-6)


def test_depth_costs_in_proportion():
    """The work of a step grows with the number of layers, not faster."""

    def flops(n_layers: int) -> float:
        model, state = Elbo().init(built(X, Y[:, None], n_layers=n_layers, n_inducing=20), Rows(X, Y[:, None]))
        step = jax.jit(jax.grad(lambda x: Elbo().loss(model, state, jax.random.key(0), Rows(x, x))[0]))
        cost = step.lower(jax.ShapeDtypeStruct((400, 1), np.float32)).compile().cost_analysis()
        return cost["flops"]

    two, four, six = map(flops, (2, 4, 6))
    assert (six - four) == pytest.approx(four - two, rel=0.2)


@pytest.mark.parametrize("method", ["id-dgp", "dgp"])
@pytest.mark.parametrize("output", ["collapsed", "natural", "adam"])
def test_it_does_not_hang(method, output, x64):
    """No call to LAPACK has more than one matrix: see `overtone.numerics.linalg.one_by_one`."""
    y, x = jnp.asarray(np.stack([Y, -Y], axis=1)), jnp.asarray(np.hstack([X, X**2, X**3]))
    settings = {"n_layers": 2, "n_inducing": 4, "likelihood": "gaussian", "dtype": "float64"}
    objective = {"collapsed": Collapsed, "natural": NaturalGradient, "adam": Elbo}[output](num_samples=3)
    rows, key = Rows(x, y), jax.random.key(0)
    model, state = objective.init(built(np.asarray(x), np.asarray(y), method, output=output, **settings), rows)
    programs = [eqx.filter_value_and_grad(lambda model: objective.loss(model, state, key, rows)[0])]
    if output != "adam":
        size = model.output.features.num_features
        sums = jnp.broadcast_to(jnp.eye(size), (2, size, size)), jnp.zeros((2, size))
        programs.append(lambda model: with_optimal_output(model, *sums))
    for program in programs:
        lines = eqx.filter_jit(program).lower(model).as_text().splitlines()
        calls = [line for line in lines if re.search(r"custom_call @(lapack|blas)", line)]
        assert calls or (method, output) == ("id-dgp", "adam")
        assert [call for call in calls if re.search(r"tensor<\d+x\d+x\d+xf", call)] == []


def test_the_demo_writes_its_table_and_pictures(tmp_path, capsys):
    shown = PICTURES["multi_step.png"]
    rows = main(tmp_path, steps=30, labels=shown)
    assert [row["model"] for row in rows] == shown
    assert all(np.isfinite(list(row.values())[1:]).all() for row in rows)
    assert {path.name for path in tmp_path.iterdir()} == {"multi_step.json", "multi_step.md", "multi_step.png"}
    output = capsys.readouterr().out
    assert "| ID-DGP, 2 layers, 20 frequencies |" in output


def test_the_demo_leaves_the_working_tree_clean():
    """README's two commands work in either order: the demo writes nothing that is committed."""
    root = Path(__file__).parent.parent
    dry_run = ["make", "--no-print-directory", "-n", "demo"]
    commands = subprocess.run(dry_run, cwd=root, capture_output=True, text=True, check=True).stdout
    assert commands.splitlines()[-1].endswith("-m overtone.app.demo")  # without a folder, so that the default counts
    assert build_parser().parse_args(["demo"]).out == str(FOLDER)
    if not (root / ".git").exists():
        pytest.skip("this is not a git checkout")
    for name in ("multi_step.md", "multi_step.json", *PICTURES):
        ignored = subprocess.run(["git", "check-ignore", "--quiet", str(FOLDER / name)], cwd=root)
        assert ignored.returncode == 0, name
