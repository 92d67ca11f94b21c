"""Fourier features against quadrature of the RKHS inner product and the reproducing property."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from overtone.gp.features import AbstractInducingFeatures, Fourier
from overtone.gp.kernels import Matern12, Matern32, Matern52, SquaredExponential
from overtone.gp.variational import Full, MeanField
from tests.posteriors import shaken
from tests.reference.matern import Matern, fourier_basis

MATERNS = [Matern12, Matern32, Matern52]
A, B, M = -0.4, 1.5, 4
VARIANCE, LENGTHSCALE = 1.3, 0.7
pytestmark = pytest.mark.usefixtures("x64")


def setting(kind):
    kernel = kind(jnp.asarray(VARIANCE), jnp.asarray(LENGTHSCALE))
    basis = [fourier_basis(m, M, A, B) for m in range(2 * M + 1)]
    return (
        Fourier(M, jnp.asarray(A), jnp.asarray(B)),
        kernel,
        Matern(kind.order, VARIANCE, LENGTHSCALE),
        basis,
    )


@pytest.mark.parametrize("kind", MATERNS)
def test_the_oracle_reproduces(kind):
    """<k(., x), g> = g(x) for a function that is no sinusoid: the inner product of the oracle is the right one."""
    reference = Matern(kind.order, VARIANCE, LENGTHSCALE)

    def g(x, n):
        return 0.7**n * np.exp(0.7 * x)

    for x in (A, 0.1, 0.9):
        section = lambda t, n, x=x: reference.derivative(t, x, n)  # noqa: E731
        assert reference.inner(section, g, A, B, breaks=[x]) == pytest.approx(g(x, 0), abs=1e-10)


@pytest.mark.parametrize("kind", MATERNS)
def test_Kuu_is_the_inner_product_of_the_basis(kind):
    features, kernel, reference, basis = setting(kind)
    expected = np.array([[reference.inner(g, h, A, B) for h in basis] for g in basis])
    Kuu = eqx.filter_jit(lambda f, k: f.Kuu(k).dense())(features, kernel)
    np.testing.assert_allclose(Kuu, expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())
    scale = np.sqrt(np.diag(expected))
    np.testing.assert_allclose(Kuu / scale / scale[:, None], expected / scale / scale[:, None], atol=1e-8)


@pytest.mark.parametrize("kind", MATERNS)
def test_Kuf_is_the_inner_product_with_the_kernel_inside_and_outside(kind):
    features, kernel, reference, basis = setting(kind)
    x = np.array([-2.0, -0.7, -0.41, A, 0.0, 0.6, 1.3, B, 1.52, 1.9, 3.0])
    expected = [
        [reference.inner(phi, lambda t, n, x=x: reference.derivative(t, x, n), A, B, breaks=[x]) for x in x]
        for phi in basis
    ]
    Kuf = eqx.filter_jit(features.Kuf)(kernel, jnp.asarray(x)[:, None])
    np.testing.assert_allclose(Kuf, expected, atol=1e-8)


def test_Kuf_inside_is_the_basis():
    features, kernel, _, basis = setting(Matern32)
    x = np.linspace(A, B, 7)
    Kuf = features.Kuf(kernel, jnp.asarray(x)[:, None])
    np.testing.assert_allclose(Kuf, [phi(x, 0) for phi in basis], atol=1e-12)


def test_outside_marks_what_is_beyond_the_interval():
    features, *_ = setting(Matern32)
    X = jnp.asarray([[A - 1e-3], [A], [0.5], [B], [B + 1e-3]])
    assert features.outside(X)[:, 0].tolist() == [True, False, False, False, True]


def test_other_kernels_are_refused_with_a_reason():
    features, *_ = setting(Matern32)
    with pytest.raises(TypeError, match="need a one-dimensional Matern12, Matern32 or Matern52 kernel, got Squared"):
        features.Kuu(SquaredExponential(jnp.asarray(1.0), jnp.asarray(1.0)))


@pytest.mark.parametrize("start", [Full.start, MeanField.start])
def test_marginals_in_few_operations_have_the_gradients_of_the_plain_ones(start):
    """By kernel, posterior and inputs, inside the interval and beyond both ends."""
    features, kernel, *_ = setting(Matern32)
    q = shaken(start((1, 2, 2 * M + 1), 0.7, np.float64), 0.3, np.random.default_rng(0))
    X, weights = jnp.linspace(-1.0, 2.2, 11)[:, None], np.random.default_rng(1).normal(size=(2, 11, 2))

    def total(marginals, args):
        mean, var = marginals(features, *args)
        return jnp.sum(weights[0] * mean + weights[1] * var)

    kinds = Fourier.marginals, AbstractInducingFeatures.marginals
    quick, plain = (eqx.filter_jit(jax.grad(partial(total, kind)))((kernel, q, X)) for kind in kinds)
    for found, expected in zip(jax.tree.leaves(quick), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-9)
