"""B-spline features against quadrature of the RKHS inner product of SciPy's splines, and the reproducing property."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.interpolate import BSpline

from overtone.gp.features.base import PerDimension
from overtone.gp.features.bsplines import BSplines
from overtone.gp.kernels import Additive, Matern12, Matern32, Matern52, SquaredExponential
from overtone.numerics.params import Fixed, unwrap
from tests.reference.karhunen_loeve import optimal_residual
from tests.reference.matern import Matern

A, B, M = -0.4, 1.5, 8
VARIANCE, LENGTHSCALE = 1.3, 0.7
CASES = [(Matern12, 1), (Matern12, 3), (Matern32, 2), (Matern32, 3), (Matern52, 3), (Matern52, 5)]
MATERNS = [Matern12, Matern32, Matern52]
pytestmark = pytest.mark.usefixtures("x64")


def make(kind, degree=None, num=M, lengthscale=LENGTHSCALE, ends=(A, B), dtype=np.float64):
    features = BSplines(num, *(jnp.asarray(end, dtype) for end in ends), degree)
    return features, kind(jnp.asarray(VARIANCE, dtype), jnp.asarray(lengthscale, dtype))


def scipy_splines(degree):
    """Return the knots in [A, B] and the splines as functions phi(x, n) of x and the order of a derivative."""
    spacing = (B - A) / (M - degree)
    knots = A + spacing * np.arange(-degree, M + 1)
    splines = [BSpline(knots, unit, degree) for unit in np.eye(M)]
    return knots[degree : M + 1], [lambda x, n, phi=phi: phi(x, nu=n) for phi in splines]


@eqx.filter_jit
def dense(features, kernel):
    return features.Kuu(kernel).dense()


@eqx.filter_jit
def cross(features, kernel, X):
    return features.Kuf(kernel, X), kernel.gram(X, X)


@eqx.filter_jit
def explained(features, kernel, x):
    return jnp.sum(features.whitened(kernel, x[:, None]) ** 2, axis=0)


@pytest.mark.parametrize(("kind", "degree"), CASES)
def test_Kuu_is_the_inner_product_of_the_splines(kind, degree):
    features, kernel = make(kind, degree)
    reference, (knots, splines) = Matern(kind.order, VARIANCE, LENGTHSCALE), scipy_splines(degree)
    expected = np.array([[reference.inner(g, h, A, B, breaks=knots) for h in splines] for g in splines])
    Kuu = np.asarray(dense(features, kernel))
    scale = np.sqrt(np.diag(expected))
    np.testing.assert_allclose(Kuu / scale / scale[:, None], expected / scale / scale[:, None], atol=1e-11)
    beyond_the_band = np.abs(np.subtract.outer(np.arange(M), np.arange(M))) > degree
    np.testing.assert_array_equal(Kuu[beyond_the_band], 0)


@pytest.mark.parametrize(("kind", "degree"), CASES)
def test_Kuf_is_the_inner_product_with_the_kernel_inside_and_outside(kind, degree):
    features, kernel = make(kind, degree)
    reference, (knots, splines) = Matern(kind.order, VARIANCE, LENGTHSCALE), scipy_splines(degree)
    x = np.array([-2.0, -0.7, -0.41, A, -0.3, knots[1], 0.6, 1.3, B, 1.52, 1.9, 3.0])

    def inner_with_kernel(phi, x):
        return reference.inner(phi, lambda t, n: reference.derivative(t, x, n), A, B, breaks=[*knots, x])

    Kuf = np.asarray(cross(features, kernel, jnp.asarray(x)[:, None])[0])
    np.testing.assert_allclose(Kuf, [[inner_with_kernel(phi, each) for each in x] for phi in splines], atol=1e-9)
    inside = (x >= A) & (x <= B)
    np.testing.assert_allclose(Kuf[:, inside], [phi(x[inside], 0) for phi in splines], atol=1e-13)


@pytest.mark.parametrize("lengthscale", [0.05, 0.3, 2.0])
@pytest.mark.parametrize(("kind", "degree"), CASES)
def test_splines_and_function_are_jointly_gaussian(kind, degree, lengthscale):
    """[[Kuu, Kuf], [Kfu, Kff]] has no negative eigenvalue, once u is scaled to unit variance."""
    features, kernel = make(kind, degree, 30, lengthscale)
    X = jnp.asarray(np.random.default_rng(0).uniform(A - 1, B + 1, size=(60, 1)))
    Kuu, (Kuf, Kff) = dense(features, kernel), cross(features, kernel, X)
    joint = np.block([[Kuu, Kuf], [Kuf.T, Kff]])
    scale = np.sqrt(np.diag(joint))
    assert np.linalg.eigvalsh(joint / scale / scale[:, None]).min() > -1e-12


@pytest.mark.parametrize("kind", MATERNS)
def test_residual_is_not_negative_and_vanishes_everywhere_as_splines_are_added(kind):
    x = jnp.linspace(A, B, 101)
    residuals = [VARIANCE - explained(*make(kind, num=num, lengthscale=0.3), x) for num in (20, 80, 320)]
    assert all(float(jnp.min(residual)) > -1e-12 for residual in residuals)
    worst = [float(jnp.max(residual)) for residual in residuals]
    rate = 4 if kind is Matern12 else 64  # of h or h^3, at least, for four times the splines
    assert worst[1] < 1.2 * worst[0] / rate
    assert worst[2] < 1.2 * worst[1] / rate


@pytest.mark.parametrize("lengthscale", [0.1, 0.5])
@pytest.mark.parametrize(("kind", "limit"), [(Matern12, 1.7), (Matern32, 1.9), (Matern52, 2.4)])
def test_residual_at_degree_2p_plus_1_is_near_the_karhunen_loeve_optimum(kind, limit, lengthscale):
    num = 50
    features, kernel = make(kind, 2 * kind.order + 1, num, lengthscale, (0.0, 1.0))
    residual = VARIANCE - explained(features, kernel, jnp.asarray((np.arange(2000) + 0.5) / 2000))
    assert float(jnp.mean(residual)) < limit * optimal_residual(
        Matern(kind.order, VARIANCE, lengthscale), 0.0, 1.0, num
    )


@pytest.mark.parametrize("lengthscale", [0.02, 0.2, 1.0])
@pytest.mark.parametrize("num", [30, 300])
@pytest.mark.parametrize(("kind", "degree"), CASES)
def test_single_precision_keeps_the_covariances(kind, degree, num, lengthscale):
    """Also where the entries of Kuu have a condition number of 1e14.

    Six neighbouring splines of degree 5 are all but dependent: for them this is so unless knots are too far apart. The
    rounding depends on the linear algebra that JAX comes with: 4e-6 with JAX 0.10, and 2.6e-5 in one case with 0.8.
    """
    ends = 0.0, 1.0
    x = np.linspace(0, 1, 257).astype(np.float32)  # the same numbers in both precisions
    exact = explained(*make(kind, degree, num, lengthscale, ends), jnp.asarray(x, np.float64))
    single = explained(*make(kind, degree, num, lengthscale, ends, np.float32), jnp.asarray(x))
    assert single.dtype == np.float32
    too_far = degree == 5 and num * lengthscale < 1
    np.testing.assert_allclose(single, exact, atol=5e-4 if too_far else 4e-5)


@pytest.mark.parametrize("kind", MATERNS)
def test_gradients_agree_with_finite_differences(kind):
    features, _ = make(kind)
    weights = jnp.asarray(np.random.default_rng(0).normal(size=(M, 9)))

    def total(theta):
        kernel, x = kind(theta[0], theta[1]), theta[2:, None]
        return jnp.sum(weights * features.whitened(kernel, x))

    x = np.array([-0.8, -0.41, -0.35, 0.123, 0.4, 1.0, 1.47, 1.6, 2.1])  # no knots, where lines have kinks
    theta = np.array([VARIANCE, LENGTHSCALE, *x])
    gradient = eqx.filter_jit(jax.grad(total))(jnp.asarray(theta))
    values = jax.jit(jax.vmap(total))
    step = 1e-6 * np.eye(len(theta))
    differences = (values(jnp.asarray(theta + step)) - values(jnp.asarray(theta - step))) / 2e-6
    np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", MATERNS)
def test_each_dimension_has_splines_of_its_own(kind):
    kernel = Additive(kind(jnp.asarray([1.3, 0.6]), jnp.asarray([0.4, 1.1])))
    features = PerDimension(BSplines(M, jnp.asarray([A, 0.0]), jnp.asarray([B, 1.0])), 2)
    X = jnp.asarray(np.random.default_rng(0).uniform(-1, 2, size=(7, 2)))
    whitened = eqx.filter_jit(features.whitened)(kernel, X)
    for d, ends in enumerate(((A, B), (0.0, 1.0))):
        alone = eqx.filter_jit(BSplines(M, *map(jnp.asarray, ends)).whitened)(
            kind(kernel.parts.variance[d], kernel.parts.lengthscale[d]), X[:, d : d + 1]
        )
        np.testing.assert_allclose(whitened[d * M : (d + 1) * M], alone, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("first", [True, False])
def test_interval_and_degree_are_decided_when_a_model_is_initialised(first):
    settings = {"first": first, "learned": True, "seed": 0, "dtype": np.float32}
    _, features = BSplines(10).initialised(Matern32(), np.zeros((5, 3)), **settings)
    parts = unwrap(features).parts
    assert (features.num_features, parts.degree) == (30, 3)
    assert isinstance(features.parts.a, Fixed)
    np.testing.assert_allclose([parts.a, parts.b], np.repeat([[-0.02, 1.02] if first else [-0.5, 1.5]], 3, 0).T)
    _, features = BSplines(10, a=0.0, b=2.0, degree=4).initialised(Matern12(), np.zeros((5, 1)), **settings)
    assert (features.parts.degree, float(unwrap(features).parts.b[0])) == (4, 2.0)


def test_outside_marks_what_is_beyond_the_interval():
    X = jnp.asarray([[A - 0.1], [A], [B], [B + 0.1]])
    np.testing.assert_array_equal(make(Matern32)[0].outside(X)[:, 0], [True, False, False, True])


def test_what_cannot_be_is_refused_with_a_reason():
    settings = {"first": True, "learned": False, "seed": 0, "dtype": np.float32}
    for features, kernel, error, reason in (
        (BSplines(10, degree=1), Matern32(), ValueError, "degree 2 and more, got degree=1"),
        (BSplines(3), Matern52(), ValueError, "take 6 or more"),
        (BSplines(10), SquaredExponential(), TypeError, "Matern"),
    ):
        with pytest.raises(error, match=reason):
            features.initialised(kernel, np.zeros((5, 1)), **settings)
