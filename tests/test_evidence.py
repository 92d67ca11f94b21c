"""The evidence against dense linear algebra, quasi-Newton steps, and the exact GP of small tables."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.stats import multivariate_normal

import overtone as ot
from overtone.autopilot.exact import fit_exact
from overtone.gp.layers import Layer
from overtone.inference.evidence import Evidence, LogNormal, log_evidence, with_variances_times
from overtone.inference.loop import DivergedWarning
from overtone.inference.objective import Progress, Rows
from overtone.numerics.params import Fixed, Positive, unwrap
from overtone.sklearn import DeepGPRegressor, load
from tests.planned import planned

RNG = np.random.default_rng(0)
KEY = jax.random.key(0)
pytestmark = pytest.mark.usefixtures("x64")
X = RNG.uniform(size=(40, 2))
Y = np.stack([np.sin(5 * X[:, 0]) + X[:, 1], X[:, 1]], axis=1) + 0.1 * RNG.standard_normal((40, 2))


def model(outputs: int = 2):
    """An inducing point at each row, in double precision."""
    kernel, scaling = (
        ot.Matern52(1.3, Positive(np.array([0.4, 0.9]))) + ot.Linear(0.7),
        ot.Affine(np.zeros(2), np.ones(2)),
    )
    layer = Layer(kernel, ot.InducingPoints(Fixed(X)), scaling=scaling)
    return ot.DeepGP([layer], ot.Gaussian(0.05)).initialised(X, Y[:, :outputs], dtype="float64")


def covariance() -> np.ndarray:
    scaled = X / np.array([0.4, 0.9])
    z = np.sqrt(5 * np.sum((scaled[:, None] - scaled) ** 2, axis=-1))
    return 1.3 * (1 + z + z**2 / 3) * np.exp(-z) + 0.7 * (X - 0.5) @ (X - 0.5).T


def loss(objective, given):
    with jax.enable_x64(True):
        rows = Rows(jnp.asarray(X), jnp.asarray(Y))
        return float(eqx.filter_jit(objective.loss)(given, Progress.start(rows), KEY, rows)[0])


def test_the_evidence_is_the_density_of_the_targets():
    dense = multivariate_normal(np.zeros(40), covariance() + 0.05 * np.eye(40)).logpdf(Y.T).sum()
    with jax.enable_x64(True):
        found = eqx.filter_jit(log_evidence)(unwrap(model()), jnp.asarray(X), jnp.asarray(Y))
    assert float(found) == pytest.approx(dense, rel=1e-9)
    assert loss(Evidence(), model()) == pytest.approx(-dense / 40, rel=1e-9)
    # With an inducing point at each row, the bound is the evidence, up to the rounding that points allow for.
    assert loss(ot.Collapsed(), model()) == pytest.approx(-dense / 40, abs=1e-5)


def test_priors_are_of_the_logarithms_of_all_parameters_of_a_name():
    priors = ("lengthscale", LogNormal(0.5, 2.0)), ("variance", LogNormal(1.0, 0.5)), ("noise", LogNormal(0.1, 1.0))
    lengths, variances, noises = np.log(np.array([0.4, 0.9]) / 0.5), np.log([1.3, 0.7]), np.log(np.full(2, 0.5))
    expected = -0.5 * (np.sum((lengths / 2) ** 2) + np.sum((variances / 0.5) ** 2) + np.sum(noises**2))
    difference = loss(Evidence(priors), model()) - loss(Evidence(), model())
    assert difference == pytest.approx(-expected / 40, rel=1e-6)


def test_quasi_newton_steps_end_where_the_gradient_is_zero_and_repeat():
    objective = Evidence((("lengthscale", LogNormal(1.0, 1.0)), ("variance", LogNormal(1.0, 1.0))))
    first, again = (ot.fit_quasi_newton(model(), objective, (X, Y), key=KEY) for _ in range(2))
    np.testing.assert_array_equal(first.history.loss, again.history.loss)
    assert first.history.loss[-1] < first.history.loss[0] - 0.1
    adam = ot.fit(first.model, objective, (X, Y), optim=optax.adam(1e-3), steps=200, key=KEY)
    assert adam.history.loss[-1] == pytest.approx(first.history.loss[-1], abs=1e-4)
    assert adam.history.loss[-1] > first.history.loss[-1] - 1e-5
    stopped = ot.fit_quasi_newton(model(), objective, (X, Y), key=KEY, stop=lambda: True)
    assert len(stopped.history.loss) < len(first.history.loss) / 2


def test_the_predictions_are_those_of_the_exact_process():
    with jax.enable_x64(True):
        exact = Evidence().finish(model(1), None, KEY, Rows(X, Y[:, :1]))
    new = RNG.uniform(size=(7, 2))
    found = ot.predict(exact, new, key=KEY)
    rows = np.concatenate([X, new]) / np.array([0.4, 0.9])
    z = np.sqrt(5 * np.sum((rows[:, None] - rows) ** 2, axis=-1))
    both = np.concatenate([X, new])
    K = 1.3 * (1 + z + z**2 / 3) * np.exp(-z) + 0.7 * (both - 0.5) @ (both - 0.5).T
    weights = np.linalg.solve(K[:40, :40] + 0.05 * np.eye(40), K[:40, 40:])
    np.testing.assert_allclose(found.mean()[:, 0], weights.T @ Y[:, 0], atol=1e-5)
    var = np.diag(K)[40:] - np.sum(weights * K[:40, 40:], axis=0) + 0.05
    np.testing.assert_allclose(found.std()[:, 0], np.sqrt(var), rtol=1e-5)
    # All variances times a factor: the same mean, and intervals that are wider by its root.
    with jax.enable_x64(True):
        wider = Evidence().finish(with_variances_times(exact, 1.44), None, KEY, Rows(X, Y[:, :1]))
    again = ot.predict(wider, new, key=KEY)
    np.testing.assert_allclose(again.mean(), found.mean(), atol=1e-6)
    np.testing.assert_allclose(again.std(), 1.2 * np.asarray(found.std()), rtol=1e-5)


@pytest.mark.parametrize(
    "kernel",
    [
        ot.Matern52(1.3, 0.4) * ot.Linear(0.7),
        (ot.Matern52(1.3, 0.4) + ot.Linear(0.7)) * ot.Periodic(1.5, 1.0, 0.3) * ot.Matern12(0.9, 2.0),
        ot.Matern32(Fixed(np.full((), 1.2)), 0.3) * ot.Linear(0.7) + ot.SquaredExponential(jnp.full((), 0.8), 0.5),
    ],
)
def test_a_product_is_raised_by_the_factor_once(kernel):
    """A covariance times a factor, whatever the kernel is made of: its parts keep how they are trained."""
    layer = Layer(kernel, ot.InducingPoints(Fixed(X)), scaling=ot.Affine(np.zeros(2), np.ones(2)))
    before = ot.DeepGP([layer], ot.Gaussian(0.05)).initialised(X, Y, dtype="float64")
    after = with_variances_times(before, 1.44)
    rows = jnp.asarray(X[:7])
    raised, own = (unwrap(m.output.kernel).gram(rows, rows) for m in (after, before))
    np.testing.assert_allclose(raised, 1.44 * own, rtol=1e-12)
    np.testing.assert_allclose(unwrap(after.likelihood).noise, 1.44 * 0.05, rtol=1e-12)
    assert jax.tree.structure(after) == jax.tree.structure(before)


def test_quasi_newton_steps_from_where_there_is_no_finite_loss_are_told():
    start = model()
    with pytest.warns(DivergedWarning, match="not finite at the start"):
        fitted = ot.fit_quasi_newton(start, Evidence(), (X, np.where(Y > 0.5, np.inf, Y)), key=KEY, finish=False)
    assert len(fitted.history.loss) == 0
    assert "not finite" in fitted.history.message
    np.testing.assert_array_equal(fitted.model.likelihood.noise.log, start.likelihood.noise.log)


def test_two_layers_and_other_likelihoods_are_refused():
    layers = [Layer(ot.Matern32(), ot.InducingPoints(5)) for _ in range(2)]
    deep = ot.DeepGP(layers, ot.Gaussian()).initialised(X, Y)
    with pytest.raises(TypeError, match="needs one layer, a Gaussian likelihood and complete targets"):
        ot.fit_quasi_newton(deep, Evidence(), (X, Y), key=KEY)


def test_variances_are_raised_by_the_degrees_of_freedom_of_the_hyperparameters():
    plan = planned(X.astype("f4"), Y[:, :1].astype("f4"))
    assert plan.exact_kernel == "matern52"
    with jax.enable_x64(True):
        fitted, objective = fit_exact(plan, Rows(X, Y[:, :1]), KEY, lambda: False)
        plain = ot.fit_quasi_newton(
            fitted.model, objective, (X, Y[:, :1]), key=KEY, stop=lambda: True
        )  # from there on, one step: back to the most probable variances
    raised, likeliest = (float(np.sum(unwrap(m.likelihood).noise)) for m in (fitted.model, plain.model))
    assert raised > 1.05 * likeliest
    # Two lengthscales, two variances and the noise, of 40 rows.
    again = ot.fit_quasi_newton(fitted.model, objective, (X, Y[:, :1]), key=KEY)
    assert raised / float(np.sum(unwrap(again.model.likelihood).noise)) == pytest.approx(40 / 35, rel=0.01)


@pytest.mark.filterwarnings("ignore::overtone.sklearn.OutsideRangeWarning")  # few rows do not reach the ends
@pytest.mark.parametrize("kind", ["constant", "binary", "noise", "few rows"])
def test_intervals_of_small_tables_cover_what_they_claim(kind):
    """Noise of variance 1 around at most two levels: nothing can be explained but these."""
    covered = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        num, inputs = (20, 3) if kind == "few rows" else (60, 1 if kind in ("constant", "binary") else 8)
        rows = [rng.random((n, inputs)) for n in (num, 1000)]
        if kind in ("constant", "binary"):
            rows = [np.round(part) if kind == "binary" else 0 * part for part in rows]
        y = [2 * part[:, 0] * (kind == "binary") + rng.standard_normal(len(part)) for part in rows]
        fitted = DeepGPRegressor(max_steps=300, random_state=seed).fit(rows[0], y[0])
        covered.append(fitted.evaluate(rows[1], y[1])["coverage_95"])
    assert 0.88 < np.mean(covered) < 0.985
    assert min(covered) > 0.8


def test_a_small_table_is_saved_drawn_from_and_explained(tmp_path):
    y = 3 + 2 * Y[:, 0]
    fitted = DeepGPRegressor().fit(X, y)
    assert len(fitted.model_.layers) == 1
    assert "exact GP" in fitted.plan_.reasons["n_layers"]
    fitted.save(tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    mean, std = fitted.predict(X[:9], return_std=True)
    draws = fitted.sample_functions(400)(X[:9])
    noise = float(unwrap(fitted.model_.likelihood).noise[0]) * fitted.y_scaling_.scale[0] ** 2
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=0.25 * std.max())
    np.testing.assert_allclose(draws.std(axis=1), np.sqrt(std**2 - noise), rtol=0.2)


def test_depth_has_to_be_proved_on_rows_that_neither_stage_has_seen():
    rng = np.random.default_rng(0)
    rows = rng.random((320, 2))
    fitted = DeepGPRegressor(max_time=200.0, max_steps=20).fit(
        rows, np.sin(3 * rows[:, 0]) + 0.3 * rng.normal(size=320)
    )
    assert fitted.plan_.depths == (1, 2)
    assert len(fitted.model_.layers) == 1
    assert "One layer, an exact GP, is kept: on 32 held-out rows" in fitted.plan_.reasons["n_layers"]
