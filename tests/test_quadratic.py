"""Quadratic forms as polynomials against dense matrices, values and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from overtone.numerics.quadratic import FFT_FREQUENCIES, gram_of_sums, quadratic_forms, sum_of_diagonal
from overtone.numerics.trigpoly import evaluate

RNG = np.random.default_rng(0)
pytestmark = pytest.mark.usefixtures("x64")
T = np.linspace(0, 1, 11)


def sinusoids(num):
    k = 2 * np.pi * np.arange(num + 1)[:, None]
    return np.concatenate([np.cos(k * T), np.sin(k[1:] * T)])


def values(coefficients, num):
    return evaluate(coefficients, jnp.zeros((1, 2 * num + 1)), jnp.asarray(T))[0]


@pytest.mark.parametrize("num", [1, 6])
def test_diagonal(num):
    s, phi = RNG.uniform(size=(3, 2 * num + 1)), sinusoids(num)
    np.testing.assert_allclose(values(sum_of_diagonal(jnp.asarray(s)), num), s @ phi**2, rtol=1e-12)


@pytest.mark.parametrize("num", [1, 6, FFT_FREQUENCIES - 1, FFT_FREQUENCIES])
@pytest.mark.parametrize("first", [1, 2])
def test_factor(num, first):
    """Up to FFT_FREQUENCIES a matrix product is used, from there on an FFT."""
    size, phi = 2 * num + 1 + 2 * first, jnp.asarray(sinusoids(num))
    part = np.tril(np.ones((size, size)))[:, None]
    readout = RNG.normal(size=(3, size))
    args = RNG.uniform(0.5, 1, size=size), RNG.uniform(0.5, 1, size=(2, size)), RNG.normal(size=(size, 2, size)) / num
    by_values, by_crossed = jnp.asarray(RNG.normal(size=(2, 11))), jnp.asarray(RNG.normal(size=(size, 2, 3)))

    def direct(amplitude, weights, U):
        W = amplitude[:, None, None] * U * part
        Q = jnp.einsum("ipr,pr,jpr->pij", W, weights, W)
        inner = Q[:, first : size - first, first : size - first]
        return jnp.einsum("in,pij,jn->pn", phi, inner, phi), jnp.einsum("pij,ej->ipe", Q, readout)

    def ours(amplitude, weights, U):
        squares, crossed = quadratic_forms(first, readout, amplitude, weights, U * part)
        return values(squares, num), crossed

    def loss(function):
        def value(*args):
            at, crossed = function(*args)
            return jnp.sum(jnp.sin(at) * by_values) + jnp.sum(jnp.cos(crossed) * by_crossed), (at, crossed)

        return jax.jit(jax.value_and_grad(value, argnums=(0, 1, 2), has_aux=True))

    args = tuple(map(jnp.asarray, args))
    for a, b in zip(*(jax.tree.leaves(loss(function)(*args)) for function in (ours, direct)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("num", [1, 2, 6])
def test_gram_of_sums(num):
    phi, twice = sinusoids(num), sinusoids(2 * num)
    np.testing.assert_allclose(gram_of_sums(jnp.asarray(twice.sum(axis=1))), phi @ phi.T, atol=1e-12)
