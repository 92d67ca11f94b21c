"""Frequencies and noise of series and tables where they are known."""

import numpy as np
import pytest

from overtone.spectrum import FEWEST, frequencies, highest_of_input, highest_of_series, noise_of_series

RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(size=2000))
NOISE = RNG.standard_normal(2000)


@pytest.mark.parametrize("cycles", [3, 40, 200])
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_the_highest_wave_of_a_series_is_found_at_irregular_times(cycles, noise):
    y = np.sin(2 * np.pi * cycles * X) + 2 * np.sin(2 * np.pi * X) + noise * NOISE
    assert cycles - 3 <= highest_of_series(X, y) <= cycles + 8


def test_noise_has_no_waves():
    assert highest_of_series(X, NOISE) == 0
    assert highest_of_input(X, NOISE) == 0
    assert frequencies(X[:, None], NOISE[:, None]) == 2 * FEWEST


def test_the_noise_of_a_series_is_found_beside_its_waves():
    assert noise_of_series(X, np.sin(2 * np.pi * 5 * X) + 0.3 * NOISE) == pytest.approx(0.09, rel=0.1)
    assert noise_of_series(X, np.sin(2 * np.pi * 5 * X)) < 1e-4


def test_more_cycles_ask_for_more_frequencies_than_there_are_cycles():
    found = [frequencies(X[:, None], np.sin(2 * np.pi * c * X)[:, None]) for c in (10, 100, 300)]
    assert all(more > c for more, c in zip(found, (10, 100, 300), strict=True))
    assert found == sorted(found)


def test_the_input_with_waves_decides_for_a_table():
    table = RNG.uniform(size=(3000, 4))
    y = np.sin(2 * np.pi * 7 * table[:, 2]) + table[:, 0] + 0.5 * RNG.standard_normal(3000)
    assert 7 <= frequencies(table, y[:, None]) <= 8
    assert frequencies(table, table.sum(axis=1, keepdims=True)) == FEWEST


@pytest.mark.parametrize("x", [np.zeros(50), np.repeat([0.0, 1.0], 25), np.arange(2.0), np.r_[0.0, np.full(49, 1e-9)]])
def test_few_distinct_values_are_no_reason_to_fail(x):
    y = np.arange(len(x), dtype=float)
    assert highest_of_series(x, y) >= 0
    assert highest_of_input(x, y) >= 0
    assert noise_of_series(x, y) >= 0
