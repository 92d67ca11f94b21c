"""Kernels against scikit-learn, and the state-space facts of Materns against quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, Matern

from overtone.kernels import Additive, Matern12, Matern32, Matern52, SquaredExponential
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
        kernel.gram(jnp.asarray(X), jnp.asarray(Y)), 1.7 * PEERS[kind](lengthscale)(X, Y), rtol=1e-12
    )
    np.testing.assert_allclose(kernel.diag(jnp.asarray(X)), 1.7, rtol=1e-15)


@pytest.mark.parametrize("kind", PEERS)
def test_additive_is_the_sum_over_dimensions(kind):
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(6, 2)), rng.normal(size=(4, 2))
    variance, lengthscale = np.array([0.5, 2.0]), np.array([0.4, 1.5])
    kernel = Additive(kind(jnp.asarray(variance), jnp.asarray(lengthscale)))
    expected = sum(variance[d] * PEERS[kind](lengthscale[d])(X[:, d : d + 1], Y[:, d : d + 1]) for d in range(2))
    np.testing.assert_allclose(kernel.gram(jnp.asarray(X), jnp.asarray(Y)), expected, rtol=1e-12)
    np.testing.assert_allclose(kernel.diag(jnp.asarray(X)), 2.5, rtol=1e-15)


@pytest.mark.parametrize("kind", PEERS)
def test_gradients_are_finite_where_points_coincide(kind):
    X = jnp.zeros((2, 2))
    grad = jax.grad(lambda ls, X: kind(jnp.asarray(1.0), ls).gram(X, X).sum(), argnums=(0, 1))
    assert all(np.all(np.isfinite(g)) for g in grad(jnp.asarray([0.5, 0.5]), X))


@pytest.mark.parametrize("kind", MATERNS)
def test_spectral_density_is_the_fourier_transform(kind):
    kernel, reference = kind(jnp.asarray(1.3), jnp.asarray(0.4)), Reference(kind.order, 1.3, 0.4)
    w = np.array([0.0, 1.0, 5.0, 20.0])
    expected = [reference.spectral_density(v) for v in w]
    np.testing.assert_allclose(kernel.spectral_density(jnp.asarray(w)), expected, rtol=1e-8)


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
