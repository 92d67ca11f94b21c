"""Posteriors against dense Gaussians."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from overtone.gp.variational import Full, Joint
from tests.posteriors import KINDS, root, shaken
from tests.reference.gp import kl

SHAPE = (2, 3, 5)  # blocks, outputs, variables
pytestmark = pytest.mark.usefixtures("x64")


def posterior(kind):
    return shaken(KINDS[kind](SHAPE, 0.5, np.float64), 0.4, np.random.default_rng(0))


def covariances(q):
    roots = [[root(q, b, p) for p in range(SHAPE[1])] for b in range(SHAPE[0])]
    return np.asarray([[R @ R.T for R in row] for row in roots])


@pytest.mark.parametrize("kind", KINDS)
def test_kl_agrees_with_dense_gaussians(kind):
    q = posterior(kind)
    S, prior = covariances(q), (np.zeros(5), np.eye(5))
    expected = sum(kl(np.asarray(q.mean[b, p]), S[b, p], *prior) for b in range(2) for p in range(3))
    assert float(q.kl()) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_draws_have_its_moments(kind):
    q, num = posterior(kind), 40_000
    draws = np.asarray(jax.jit(jax.vmap(q.sample))(jax.random.split(jax.random.key(0), num)))
    S = covariances(q)
    centred = draws - np.asarray(q.mean)
    np.testing.assert_allclose(centred.mean(axis=0), 0, atol=5 * np.sqrt(S.max() / num))
    np.testing.assert_allclose(np.einsum("sbpi,sbpj->bpij", centred, centred) / num, S, atol=6 * S.max() / num**0.5)


@pytest.mark.parametrize("kind", KINDS)
def test_start(kind):
    q = KINDS[kind](SHAPE, 0.5, np.float64)
    assert not np.any(q.mean)
    np.testing.assert_allclose(covariances(q), np.broadcast_to(0.5 * np.eye(5), (2, 3, 5, 5)), atol=0.05)


def test_a_joint_posterior_is_a_full_one_over_all_blocks():
    q, dense = Joint.start(SHAPE, 0.5, np.float64), Full.start((1, 3, 10), 0.5, np.float64)
    assert jax.tree.structure(q) == jax.tree.structure(dense)
    for ours, theirs in zip(jax.tree.leaves(q), jax.tree.leaves(dense), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_projections_and_spreads_agree_with_dense_gaussians(kind):
    q, A = posterior(kind), np.random.default_rng(1).normal(size=(10, 4))
    S, blocks = covariances(q), A.reshape(2, 5, 4)
    np.testing.assert_allclose(q.project(jnp.asarray(A)), np.einsum("bmn,bpm->np", blocks, q.mean), rtol=1e-12)
    spread = np.einsum("bmn,bpmk,bkn->np", blocks, S, blocks)
    np.testing.assert_allclose(q.spread(jnp.asarray(A)), spread, rtol=1e-10)


def test_the_ones_and_zeros_of_a_triangular_factor_have_no_gradient():
    q = posterior("full")
    gradient = jax.grad(lambda q: q.kl() + jnp.sum(q.spread(jnp.ones((10, 2)))))(q)
    below = np.arange(5)[:, None, None] > np.arange(5)
    assert not np.any(np.where(below, 0, gradient.unit))
    assert np.all(np.where(below, gradient.unit, 1))
