"""One layer is a sparse variational GP: against dense NumPy, Titsias' bound and exact GP regression."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from overtone.gp.features import Fourier, InducingPoints
from overtone.gp.kernels import Matern32
from overtone.gp.layers import Layer
from overtone.gp.likelihoods import Gaussian
from overtone.gp.maps import Affine, ZeroMean
from overtone.gp.model import DeepGP, elbo, predict
from overtone.gp.variational import Full
from overtone.inference.collapsed import Collapsed
from overtone.inference.objective import Progress, Rows
from overtone.inference.output_layer import statistics, with_optimal_output
from tests.posteriors import root, shaken
from tests.reference.gp import kl, log_normal, svgp_elbo, titsias
from tests.reference.matern import Matern

NOISE, VARIANCE, LENGTHSCALE = 0.05, 1.2, 0.3
RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(0, 1, 30))
Y = np.sin(9 * X) + 0.2 * RNG.normal(size=30)
KEY = jax.random.key(0)
pytestmark = pytest.mark.usefixtures("x64")


def features(kind: str, size: int):
    if kind == "points":
        return InducingPoints(jnp.linspace(0, 1, size)[:, None])
    return Fourier(size // 2, jnp.asarray(-2.0), jnp.asarray(3.0))


def model(kind: str, size: int) -> DeepGP:
    inducing = features(kind, size)
    layer = Layer(
        Matern32(jnp.asarray(VARIANCE), jnp.asarray(LENGTHSCALE)),
        inducing,
        q=Full.start((1, 1, inducing.num_features), 1.0, np.float64),
        mean_function=ZeroMean(1),
        scaling=Affine(jnp.zeros(1), jnp.ones(1)),
        noise=jnp.asarray(0.0),
    )
    return DeepGP((layer,), Gaussian(jnp.asarray([NOISE])))


@eqx.filter_jit
def bound(model):
    return elbo(model, KEY, jnp.asarray(X)[:, None], jnp.asarray(Y)[:, None], num_data=len(X))


@eqx.filter_jit
def optimal(model):
    rows = jnp.asarray(X)[:, None], jnp.asarray(Y)[:, None], jnp.ones(len(X))
    gram, projected, _, _ = statistics(model, KEY, *rows, num_samples=1)
    return with_optimal_output(model, gram, projected)


@eqx.filter_jit
def collapsed(model):
    rows = Rows(jnp.asarray(X)[:, None], jnp.asarray(Y)[:, None])
    return -len(X) * Collapsed().loss(model, Progress.start(rows), KEY, rows)[0]


@eqx.filter_jit
def covariances(layer):
    Kuf = layer.features.Kuf(layer.kernel, jnp.asarray(X)[:, None])
    return layer.features.Kuu(layer.kernel).dense(), Kuf


def dense(model):
    return *map(np.asarray, covariances(model.layers[0])), np.full(30, VARIANCE)


def unwhitened(model):
    """Mean and covariance of q(u), u = R v. R is read off the operator: whiten(I) = R^-1."""
    layer = model.layers[0]
    R = np.linalg.inv(layer.features.Kuu(layer.kernel).whiten(jnp.eye(layer.features.num_features)))
    whole = R @ root(layer.q, 0, 0)
    return R @ np.asarray(layer.q.mean[0, 0]), whole @ whole.T


@pytest.mark.parametrize("kind", ["points", "fourier"])
def test_elbo_and_kl_agree_with_dense_algebra_for_any_q(kind):
    gp = model(kind, 9)
    q = shaken(gp.layers[0].q, 0.3, np.random.default_rng(1))
    gp = eqx.tree_at(lambda m: m.layers[0].q, gp, q)
    mean_u, cov_u = unwhitened(gp)
    Kuu, Kuf, kff = dense(gp)
    assert float(gp.kl()) == pytest.approx(kl(mean_u, cov_u, np.zeros_like(mean_u), Kuu), rel=1e-8)
    assert float(bound(gp)) == pytest.approx(svgp_elbo(Kuu, Kuf, kff, mean_u, cov_u, Y, NOISE), rel=1e-8)


@pytest.mark.parametrize("kind", ["points", "fourier"])
def test_optimal_q_gives_titsias_bound_below_the_evidence_and_rising_to_it(kind):
    kernel = Matern(1, VARIANCE, LENGTHSCALE)
    evidence = log_normal(Y, np.zeros(30), kernel.gram(X, X) + NOISE * np.eye(30))
    bounds = []
    for size in (5, 11, 41, 401):
        gp = model(kind, size)
        expected = titsias(*dense(gp), Y, NOISE)
        assert float(collapsed(gp)) == pytest.approx(expected, rel=1e-6)
        assert float(bound(optimal(gp))) == pytest.approx(expected, rel=1e-6)
        bounds.append(expected)
    assert bounds == sorted(bounds)
    assert bounds[-1] < evidence
    assert evidence - bounds[-1] < 0.05


def test_the_optimal_q_is_a_maximum():
    gp = optimal(model("fourier", 11))
    gradient = eqx.filter_grad(lambda q: bound(eqx.tree_at(lambda m: m.layers[0].q, gp, q)))(gp.layers[0].q)
    assert max(float(jnp.abs(g).max()) for g in jax.tree.leaves(gradient)) < 1e-6


def test_prediction_with_many_points_is_exact_gp_regression():
    gp, x = optimal(model("points", 161)), np.linspace(-0.2, 1.2, 8)
    mixture = eqx.filter_jit(predict)(gp, KEY, jnp.asarray(x)[:, None], num_samples=7)
    kernel = Matern(1, VARIANCE, LENGTHSCALE)
    cross, K = kernel.gram(x, X), kernel.gram(X, X) + NOISE * np.eye(30)
    var = VARIANCE - np.sum(cross * np.linalg.solve(K, cross.T).T, axis=1) + NOISE
    np.testing.assert_allclose(mixture.mean()[:, 0], cross @ np.linalg.solve(K, Y), atol=2e-3)
    np.testing.assert_allclose(mixture.var()[:, 0], var, atol=2e-3)


def test_single_precision_bound_agrees_with_double():
    gp = optimal(model("fourier", 21))
    narrow = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), gp)
    x, y = jnp.asarray(X, jnp.float32)[:, None], jnp.asarray(Y, jnp.float32)[:, None]
    single = eqx.filter_jit(elbo)(narrow, KEY, x, y, num_data=30)
    assert single.dtype == jnp.float32
    assert float(single) == pytest.approx(float(bound(gp)), rel=1e-3)
