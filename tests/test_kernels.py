"""Kernels against scikit-learn, and the state-space facts of Materns against quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from equinox import filter_jit as jit
from sklearn.gaussian_process.kernels import RBF, DotProduct, ExpSineSquared, Matern
from sklearn.gaussian_process.kernels import RationalQuadratic as SklearnRationalQuadratic

from overtone.gp.kernels import (
    Additive,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    Product,
    RationalQuadratic,
    SquaredExponential,
    Sum,
)
from tests.reference.matern import Matern as Reference

MATERNS = [Matern12, Matern32, Matern52]
PEERS = {
    Matern12: lambda ls: Matern(ls, nu=0.5),
    Matern32: lambda ls: Matern(ls, nu=1.5),
    Matern52: lambda ls: Matern(ls, nu=2.5),
    SquaredExponential: lambda ls: RBF(ls),
}
pytestmark = pytest.mark.usefixtures("x64")


@pytest.mark.parametrize("kind", PEERS)
def test_gram_with_ard_agrees_with_scikit_learn(kind):
    rng = np.random.default_rng(0)
    X, Y, lengthscale = rng.normal(size=(7, 3)), rng.normal(size=(5, 3)), np.array([0.3, 1.0, 2.0])
    kernel = kind(jnp.asarray(1.7), jnp.asarray(lengthscale))
    np.testing.assert_allclose(
        jit(kernel.gram)(jnp.asarray(X), jnp.asarray(Y)), 1.7 * PEERS[kind](lengthscale)(X, Y), rtol=1e-12
    )
    np.testing.assert_allclose(jit(kernel.diag)(jnp.asarray(X)), 1.7, rtol=1e-15)


@pytest.mark.parametrize("kind", PEERS)
def test_additive_is_the_sum_over_dimensions(kind):
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(6, 2)), rng.normal(size=(4, 2))
    variance, lengthscale = np.array([0.5, 2.0]), np.array([0.4, 1.5])
    kernel = Additive(kind(jnp.asarray(variance), jnp.asarray(lengthscale)))
    expected = sum(variance[d] * PEERS[kind](lengthscale[d])(X[:, d : d + 1], Y[:, d : d + 1]) for d in range(2))
    np.testing.assert_allclose(jit(kernel.gram)(jnp.asarray(X), jnp.asarray(Y)), expected, rtol=1e-12)
    np.testing.assert_allclose(jit(kernel.diag)(jnp.asarray(X)), 2.5, rtol=1e-15)


@pytest.mark.parametrize("kind", PEERS)
def test_gradients_are_finite_where_points_coincide(kind):
    X = jnp.zeros((2, 2))
    grad = jax.grad(lambda ls, X: kind(jnp.asarray(1.0), ls).gram(X, X).sum(), argnums=(0, 1))
    assert all(np.all(np.isfinite(g)) for g in jax.jit(grad)(jnp.asarray([0.5, 0.5]), X))


RNG = np.random.default_rng(2)
X, Y = RNG.normal(size=(7, 3)), RNG.normal(size=(5, 3))
LENGTHSCALES = np.array([0.3, 1.0, 2.0])


def rational_quadratic(alpha, lengthscale=LENGTHSCALES, variance=1.7):
    return RationalQuadratic(*map(jnp.asarray, (variance, lengthscale, alpha)))


def of_columns(peers, X, Y):
    """Return the Gram matrix of scikit-learn's kernels for each column."""
    return np.stack([k(X[:, [d]], Y[:, [d]]) for d, k in enumerate(peers)])


@pytest.mark.parametrize("alpha", [0.3, 1.0, 20.0])
def test_the_rational_quadratic_agrees_with_scikit_learn(alpha):
    kernel, peer = rational_quadratic(alpha), SklearnRationalQuadratic(1.0, alpha)
    expected = 1.7 * peer(X / LENGTHSCALES, Y / LENGTHSCALES)  # theirs has one lengthscale
    np.testing.assert_allclose(jit(kernel.gram)(jnp.asarray(X), jnp.asarray(Y)), expected, rtol=1e-12)
    np.testing.assert_allclose(jit(kernel.diag)(jnp.asarray(X)), 1.7, rtol=1e-15)


def test_periodic_agrees_with_scikit_learn():
    """Theirs has one input; of several, ours is the product."""
    periods = np.array([0.7, 1.0, 3.0])
    kernel = Periodic(jnp.asarray(1.7), jnp.asarray(LENGTHSCALES), jnp.asarray(periods))
    peers = [ExpSineSquared(scale, period) for scale, period in zip(LENGTHSCALES, periods, strict=True)]
    expected = 1.7 * np.prod(of_columns(peers, X, Y), axis=0)
    np.testing.assert_allclose(jit(kernel.gram)(jnp.asarray(X), jnp.asarray(Y)), expected, rtol=1e-12)
    np.testing.assert_allclose(jit(kernel.diag)(jnp.asarray(X)), 1.7, rtol=1e-15)


def test_linear_agrees_with_scikit_learn():
    variances = np.array([0.4, 1.0, 2.5])
    kernel = Linear(jnp.asarray(variances))
    scaled, others = (np.sqrt(variances) * (part - 0.5) for part in (X, Y))
    expected = DotProduct(sigma_0=0.0)(scaled, others)
    np.testing.assert_allclose(jit(kernel.gram)(jnp.asarray(X), jnp.asarray(Y)), expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(jit(kernel.diag)(jnp.asarray(X)), DotProduct(sigma_0=0.0).diag(scaled), rtol=1e-12)
    shared = Linear(jnp.asarray(0.4))  # one variance for all inputs
    expected = 0.4 * DotProduct(sigma_0=0.0)(X - 0.5, Y - 0.5)
    np.testing.assert_allclose(jit(shared.gram)(jnp.asarray(X), jnp.asarray(Y)), expected, rtol=1e-12, atol=1e-14)


def test_sums_and_products_of_kernels_agree_with_scikit_learn():
    wave = Periodic(jnp.asarray(1.0), jnp.ones(1), jnp.asarray([0.7]))
    smooth, rough = (kind(jnp.asarray(1.3), jnp.asarray([0.4])) for kind in (SquaredExponential, Matern12))
    (a, b, c), (x, y) = (ExpSineSquared(1.0, 0.7), 1.3 * RBF(0.4), 1.3 * Matern(0.4, nu=0.5)), (X[:, :1], Y[:, :1])
    for ours, theirs in [
        (wave + smooth, a + b),
        (wave * smooth, a * b),
        (wave + smooth + rough, a + b + c),
        (wave * smooth * rough, a * b * c),
        (wave * smooth + rough, a * b + c),
        (rough + wave * smooth, c + a * b),
        ((wave + smooth) * rough, (a + b) * c),
        (rough * (wave + smooth), c * (a + b)),
    ]:
        np.testing.assert_allclose(jit(ours.gram)(jnp.asarray(x), jnp.asarray(y)), theirs(x, y), rtol=1e-12)
        np.testing.assert_allclose(jit(ours.diag)(jnp.asarray(x)), theirs.diag(x), rtol=1e-12)


def test_sums_of_sums_are_one_sum_and_products_of_products_one_product():
    a, b, c = (kind(jnp.asarray(1.0), jnp.ones(1)) for kind in (Matern12, Matern32, Matern52))
    for kernel in (a + b + c, a + (b + c)):
        assert isinstance(kernel, Sum)
        assert kernel.parts == (a, b, c)
    for kernel in (a * b * c, a * (b * c)):
        assert isinstance(kernel, Product)
        assert kernel.parts == (a, b, c)
    mixed = (a + b) * c
    assert isinstance(mixed, Product)
    assert mixed.parts[1] is c


COMPOSED = {
    "rational quadratic": lambda scale: rational_quadratic(0.8, scale, 1.0),
    "periodic": lambda scale: Periodic(jnp.asarray(1.0), scale, scale),
    "sum": lambda scale: rational_quadratic(0.8, scale, 1.0) + Matern12(jnp.asarray(1.0), scale),
    "product": lambda scale: Linear(scale) * Matern32(jnp.asarray(1.0), scale),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_gradients_of_further_kernels_are_finite_where_points_coincide(name):
    points = jnp.zeros((2, 2))
    grad = jax.grad(lambda scale, X: COMPOSED[name](scale).gram(X, X).sum(), argnums=(0, 1))
    assert all(np.all(np.isfinite(g)) for g in jax.jit(grad)(jnp.asarray([0.5, 0.5]), points))


@pytest.mark.parametrize("name", [*PEERS, RationalQuadratic])
def test_frequencies_are_drawn_from_the_spectral_density(name):
    """k(r) / k(0) is the mean of cos(w r) over them: Bochner's theorem."""
    kernel = rational_quadratic(0.8) if name is RationalQuadratic else name(jnp.asarray(1.7), jnp.asarray(LENGTHSCALES))
    num = 200_000
    w = jit(kernel.frequencies)(jax.random.key(0), (num, 3))
    r = np.concatenate([0.5 * X[:3], np.eye(3) * LENGTHSCALES])
    found = np.mean(np.cos(np.asarray(w) @ r.T), axis=0)
    expected = np.asarray(jit(kernel.gram)(jnp.asarray(r), jnp.zeros((1, 3))))[:, 0] / 1.7
    np.testing.assert_allclose(found, expected, atol=5 / num**0.5)


@pytest.mark.parametrize("kind", MATERNS)
def test_spectral_density_is_the_fourier_transform(kind):
    kernel, reference = kind(jnp.asarray(1.3), jnp.asarray(0.4)), Reference(kind.order, 1.3, 0.4)
    w = np.array([0.0, 1.0, 5.0, 20.0])
    expected = [reference.spectral_density(v) for v in w]
    np.testing.assert_allclose(jit(kernel.spectral_density)(jnp.asarray(w)), expected, rtol=1e-8)


@pytest.mark.parametrize("kind", MATERNS)
def test_state_correlation_is_that_of_the_scaled_derivatives(kind):
    kernel, reference = kind(jnp.asarray(1.3), jnp.asarray(0.4)), Reference(kind.order, 1.3, 0.4)
    scale = reference.lam ** np.arange(kind.order + 1)
    expected = reference.state_covariance() / scale / scale[:, None]
    np.testing.assert_allclose(1.3 * np.array(kernel.state_correlation), expected, atol=1e-12)


@pytest.mark.parametrize("kind", MATERNS)
def test_transition_is_the_conditional_mean_given_the_state(kind):
    kernel, reference = kind(jnp.asarray(1.3), jnp.asarray(0.4)), Reference(kind.order, 1.3, 0.4)
    size, scale = kind.order + 1, reference.lam ** np.arange(kind.order + 1)
    for r in (1e-3, 0.1, 0.5, 2.0):
        # cov(f^(i)(a + r), f^(j)(a)) = (-1)^j k^(i+j)(r)
        cross = [[(-1) ** j * reference.profile_derivative(r, i + j) for j in range(size)] for i in range(size)]
        expected = np.linalg.solve(reference.state_covariance(), np.array(cross).T).T * scale / scale[:, None]
        transition = kernel.transition(jnp.asarray([r]))[0]
        np.testing.assert_allclose(transition, expected, rtol=1e-9, atol=1e-11)
        np.testing.assert_array_equal(kernel.extrapolation(jnp.asarray([r]))[:, 0], transition[0])
