"""Linear means and affine maps."""

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.decomposition import PCA

from overtone.gp.maps import Columns, Identity, Projection, directions, linear_weight, standardise, unit_interval

X = np.random.default_rng(0).normal(size=(50, 3)) @ np.diag([5.0, 1.0, 0.1])


def test_linear_weight_is_identity_padding_or_principal_directions():
    np.testing.assert_array_equal(linear_weight(X, 3), np.eye(3))
    np.testing.assert_array_equal(linear_weight(X, 5), np.eye(3, 5))
    ours, peers = linear_weight(X, 2), PCA(2).fit(X).components_.T
    np.testing.assert_allclose(np.abs(ours), np.abs(peers), atol=1e-10)
    assert linear_weight(X[:2], 1).shape == (3, 1)


def test_scalings_and_their_inverse():
    table = np.column_stack([X, np.full(50, 7.0)])
    unit, standard = unit_interval(table), standardise(table)
    np.testing.assert_allclose(unit(table).min(axis=0), [0, 0, 0, 0.5], atol=1e-15)
    np.testing.assert_allclose(unit(table).max(axis=0), [1, 1, 1, 0.5], atol=1e-15)
    np.testing.assert_allclose(standard(table).mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(standard(table).std(axis=0), [1, 1, 1, 0], atol=1e-12)
    for scaling in (unit, standard):
        np.testing.assert_allclose(scaling.inverse(scaling(table)), table, atol=1e-12)


def test_many_rows_need_no_matrix_between_them():
    X = np.random.default_rng(0).normal(size=(200_000, 3)) * [1, 5, 2]
    np.testing.assert_allclose(np.abs(linear_weight(X, 2)), [[0, 0], [1, 0], [0, 1]], atol=0.02)


@pytest.mark.parametrize("num", [2, 3, 7])
def test_directions_start_with_the_axes_and_keep_the_data_in_the_unit_interval(num):
    Z = np.random.default_rng(0).uniform(size=(50, 3))
    W = directions(Z, num, 0)
    assert W.shape == (3, num)
    H = np.asarray(Projection(jnp.asarray(W))(Z))
    if num >= 3:
        np.testing.assert_array_equal(W[:, :3], np.eye(3))
        np.testing.assert_allclose(H[:, :3], Z, atol=1e-6)
    else:
        assert np.all(W != 0)  # every direction sees every input
    assert H.min() > -1e-6
    assert H.max() < 1 + 1e-6


def test_a_number_of_directions_becomes_directions_and_other_maps_stay():
    Z = np.random.default_rng(0).uniform(size=(50, 3))
    chosen = Projection(5).initialised(Z, 1, np.float32)
    np.testing.assert_allclose(chosen.weight, directions(Z, 5, 1), rtol=1e-6)
    assert chosen.weight.dtype == np.float32
    again = chosen.initialised(Z, 2, np.float32)  # another seed changes nothing
    np.testing.assert_array_equal(again.weight, chosen.weight)
    for ready in (Columns((2, 0)), Identity()):
        assert ready.initialised(Z, 1, np.float32) is ready
    np.testing.assert_array_equal(Columns((2, 0))(Z), Z[:, [2, 0]])
    np.testing.assert_array_equal(Identity()(Z), Z)
