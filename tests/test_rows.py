"""Rows that are read when somebody asks for them, and the order in which training does."""

import jax
import numpy as np
import optax
import pytest

import overtone as ot
from overtone.inference.batches import Batches, random_rows
from overtone.inference.objective import Rows
from overtone.numerics.shuffle import shuffled
from overtone.storage.rows import RowView, StoredRows, pieces, without

RNG = np.random.default_rng(0)
X, Y = RNG.random((5000, 3)), RNG.random((5000, 1))


@pytest.fixture
def stored(tmp_path):
    np.save(tmp_path / "X.npy", X)
    return StoredRows(tmp_path / "X.npy")


@pytest.mark.parametrize("num", [1, 2, 3, 10, 17, 1000, 4097])
def test_a_shuffle_is_a_permutation_that_depends_on_its_seed(num):
    orders = [shuffled(np.arange(num), num, seed, 5) for seed in range(3)]
    for order in orders:
        np.testing.assert_array_equal(np.sort(order), np.arange(num))
    part = shuffled(np.arange(num)[::2], num, 0, 5)
    np.testing.assert_array_equal(part, orders[0][::2])
    assert num < 10 or not np.array_equal(orders[0], orders[1])


def test_shuffles_of_many_seeds_are_even():
    """Chi-squared over 20 x 20 cells of old and new places: its mean is 361, its standard deviation 27."""
    num, counts = 2000, np.zeros((20, 20))
    for seed in range(200):
        np.add.at(counts, (np.arange(num) // 100, shuffled(np.arange(num), num, seed) // 100), 1)
    expected = 200 * num / 400
    assert 250 < np.sum((counts - expected) ** 2 / expected) < 480
    small = {tuple(shuffled(np.arange(4), 4, seed)) for seed in range(1000)}
    assert len(small) == 24


def test_stored_rows_are_those_of_the_array(stored):
    assert stored.shape == X.shape
    assert len(stored) == 5000
    for index in (slice(7, 3000, 3), RNG.integers(5000, size=2500), np.array([4999, 0, 0])):
        np.testing.assert_array_equal(stored[index], X[index])
    np.testing.assert_array_equal(np.concatenate(list(pieces(stored))), X)


def test_a_view_changes_rows_and_leaves_some_out(stored):
    left_out = np.array([0, 1, 77, 4999])
    view = without(RowView(stored, "float32", lambda rows: 2 * rows), left_out)
    kept = np.delete(2 * X, left_out, 0).astype("float32")
    assert view.shape == kept.shape
    assert view.dtype == np.float32
    np.testing.assert_array_equal(view[:], kept)
    index = RNG.integers(len(kept), size=300)
    np.testing.assert_array_equal(view[index], kept[index])
    np.testing.assert_array_equal(without(view, np.array([3]))[::7], np.delete(kept, 3, 0)[::7])
    np.testing.assert_array_equal(np.asarray(without(X, left_out)), np.delete(X, left_out, 0))


def test_random_rows_are_distinct_and_the_same_of_a_view(stored):
    some = random_rows(Rows(X, Y), 300, 4)
    assert len(np.unique(some.X, axis=0)) == 300
    np.testing.assert_array_equal(random_rows(Rows(RowView(stored), RowView(Y)), 300, 4).X, some.X)


def test_what_is_expected_is_read_ahead(stored):
    view = RowView(stored)
    batches, plain = (Batches(a, batch_size=64, seed=1) for a in (view, X))
    batches.expect(5, 3)
    np.testing.assert_array_equal(batches.take(5, 3)[0], plain.take(5, 3)[0])
    np.testing.assert_array_equal(batches.take(9, 2)[0], plain.take(9, 2)[0])  # not what was expected


def test_a_fit_to_rows_on_disk_is_the_fit_to_the_array(stored):
    X32, Y32 = X.astype("float32"), Y.astype("float32")
    layers = ot.Layer(ot.Matern32(), ot.PinnedFourier(3), 2), ot.Layer(ot.Matern32(), ot.PinnedFourier(3))
    model = ot.DeepGP(layers, ot.Gaussian()).initialised(X32, Y32)
    settings = {"key": jax.random.key(0), "optim": optax.adam(0.01), "steps": 7, "batch_size": 32}
    rows = RowView(stored, "float32"), RowView(Y, "float32")
    ours, expected = (ot.fit(model, ot.NaturalGradient(), data, **settings) for data in (rows, (X32, Y32)))
    np.testing.assert_array_equal(ours.history.loss, expected.history.loss)
    jax.tree.map(np.testing.assert_array_equal, ours.model, expected.model)
