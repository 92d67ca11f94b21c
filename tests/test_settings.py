"""Settings as users have them: numbers of NumPy, seeds, and how many draws."""

import numpy as np
import pytest

from overtone.sklearn import DeepGPRegressor

RNG = np.random.default_rng(0)
X = RNG.uniform(0, 1, (40, 2))
Y = np.sin(9 * X[:, 0]) + X[:, 1]
SETTINGS = {"n_layers": 1, "n_inducing": 3, "max_steps": 3, "learning_rate": 0.1, "interval": (-1.0, 2.0)}
SETTINGS |= {"fine_inputs": (0,), "random_state": 5, "verbose": False, "n_predict_samples": 2, "kernel": "matern12"}
OF_NUMPY = {name: np.asarray(value)[()] for name, value in SETTINGS.items()}


@pytest.fixture(scope="module")
def fitted() -> DeepGPRegressor:
    return DeepGPRegressor(**SETTINGS).fit(X, Y)


def test_settings_may_be_numbers_and_arrays_of_numpy(fitted, tmp_path):
    assert all(isinstance(value, np.generic | np.ndarray) for value in OF_NUMPY.values())
    model = DeepGPRegressor(**OF_NUMPY).fit(X, Y)
    assert len(model.model_.layers) == 1
    np.testing.assert_array_equal(model.predict(X), fitted.predict(X))
    model.save(tmp_path / "model.safetensors")
    again = DeepGPRegressor.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.get_params() == fitted.get_params()


def test_a_seed_of_numpy_is_the_same_seed(fitted):
    np.testing.assert_array_equal(fitted.sample_y(X, 2, np.int64(5)), fitted.sample_y(X, 2, 5))
    generator = np.random.RandomState(5)
    assert np.any(fitted.sample_y(X, 2, generator) != fitted.sample_y(X, 2, generator))


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_seeds_that_are_none_are_refused(fitted, seed):
    message = "random_state must be a whole number from 0 to 2\\^63 - 1"
    with pytest.raises(ValueError, match=message):
        DeepGPRegressor(random_state=seed).fit(X, Y)
    with pytest.raises(ValueError, match=message):
        fitted.sample_y(X, 2, seed)


def test_numbers_of_draws_are_checked(fitted):
    calls = {
        "n_samples": (lambda n: fitted.sample_y(X, n), lambda n: [fitted.elbo(X, Y, n)]),
        "n": (lambda n: fitted.sample_functions(n)(X),),
    }
    for name, functions in calls.items():
        for call in functions:
            np.testing.assert_array_equal(call(np.int64(2)), call(2))
            for odd in (0, -1, 2.5, True, "many"):
                with pytest.raises(ValueError, match=f"^{name} must be a whole number of at least 1; got {odd!r}"):
                    call(odd)
