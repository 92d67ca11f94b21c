"""Files that come back to the last bit, or are refused with a sentence."""

import json
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import save

from overtone.sklearn import DeepGPClassifier, DeepGPRegressor
from overtone.storage import files

RNG = np.random.default_rng(0)
X = np.linspace(0, 1, 40)[:, None]
Y = np.sin(9 * X[:, 0])
MODELS = {
    "deep": {},
    "natural": {"output": "natural"},
    "points": {"method": "dgp", "n_inducing": 5},
    "paper": {"preset": "paper", "n_inducing": 3},
    "three layers": {"n_layers": 3, "n_inducing": 3, "interval": (-1, 2), "covariance": "mean-field"},
    "double": {"method": "svgp", "n_inducing": 4, "dtype": "float64"},
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "model.safetensors"
    DeepGPRegressor("vff", n_inducing=3, max_steps=3).fit(X, Y).save(path)
    return path


@pytest.mark.parametrize("name", MODELS)
def test_a_model_comes_back_to_the_last_bit(name, tmp_path):
    model = DeepGPRegressor(**MODELS[name], max_steps=3).fit(np.hstack([X, X**2]), np.stack([Y, -Y], axis=1))
    model.save(tmp_path / "model.safetensors")
    again = DeepGPRegressor.load(tmp_path / "model.safetensors")
    for one, other in zip(model.predict(np.hstack([X, X]), True), again.predict(np.hstack([X, X]), True), strict=True):
        np.testing.assert_array_equal(one, other)
    assert again.get_params() == model.get_params()
    np.testing.assert_array_equal(again.history_.loss, model.history_.loss)


LABELS = {
    "dates": np.array(["2020-01-01", "2021-06-30"], "M8[D]"),
    "times": np.array(["2020-01-01T10:30:00.5", "2021-06-30T23:00"], "M8[ms]"),
    "words": np.array(["up", "down"], object),
    "numbers": np.array([-1.0, 7.0]),
    "flags": np.array([True, False]),
}


@pytest.mark.parametrize("name", LABELS)
def test_labels_of_each_type_come_back(name, tmp_path):
    model = DeepGPClassifier("svgp", n_inducing=3, max_steps=2).fit(X, LABELS[name].repeat(20))
    model.save(tmp_path / "model.safetensors")
    found, expected = DeepGPClassifier.load(tmp_path / "model.safetensors").predict(X), model.predict(X)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype
    assert set(found) <= set(LABELS[name])


def test_another_process_predicts_the_same(saved):
    code = (
        "import sys, numpy as np; from overtone.sklearn import DeepGPRegressor; "
        "print(DeepGPRegressor.load(sys.argv[1]).predict(np.linspace(0, 1, 40)[:, None]).tolist())"
    )
    found = subprocess.run([sys.executable, "-c", code, str(saved)], capture_output=True, text=True, check=True)
    np.testing.assert_array_equal(json.loads(found.stdout), DeepGPRegressor.load(saved).predict(X))


def test_thousands_of_damaged_files_are_refused(saved, tmp_path):
    contents, path = saved.read_bytes(), tmp_path / "damaged.safetensors"
    expected = DeepGPRegressor.load(saved).predict(X)
    harmless = 0
    for number in range(3000):
        damaged = bytearray(contents)
        kind = number % 4
        place = int(RNG.integers(len(damaged) if kind else 3000))  # the header is where it can hurt most
        if kind == 0 or kind == 1:
            damaged[place] ^= 1 << int(RNG.integers(8))
        elif kind == 2:
            damaged = damaged[:place]
        else:
            damaged[place : place + 8] = RNG.bytes(8)
        path.write_bytes(damaged)
        try:
            files.read(path, "estimator")
        except files.FileError as error:
            assert str(path) in str(error)  # noqa: PT017
            assert "\n" not in str(error)  # noqa: PT017
        else:  # such as another order of spaces in the header
            harmless += 1
            np.testing.assert_array_equal(DeepGPRegressor.load(path).predict(X), expected)
    assert harmless < 100


def test_foreign_newer_and_other_files_are_refused(saved, tmp_path):
    path = tmp_path / "file.safetensors"
    path.write_bytes(save({"a": np.zeros(3)}))
    with pytest.raises(files.FileError, match="not written by Overtone"):
        DeepGPRegressor.load(path)
    path.write_bytes(save({"a": np.zeros(3)}, {"overtone": "model", "format": "99", "version": "9.0"}))
    with pytest.raises(files.FileError, match=r"format '99', written by Overtone 9\.0; .* update Overtone"):
        DeepGPRegressor.load(path)
    files.write(path, "checkpoint", {}, {})
    with pytest.raises(files.FileError, match="holds a checkpoint, not an estimator"):
        DeepGPRegressor.load(path)
    with pytest.raises(files.FileError, match="no such file"):
        DeepGPRegressor.load(tmp_path / "nowhere")
    path.write_text("x,y\n1,2\n")
    with pytest.raises(files.FileError, match="not a safetensors file"):
        DeepGPRegressor.load(path)


def test_a_full_disk_leaves_the_old_file(saved, tmp_path):
    """A real one: a limit on the size of files, which this process sets for a child."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(saved.read_bytes())
    code = (
        "import sys, resource, signal, numpy as np; from overtone.storage import files; "
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); "
        "files.write(sys.argv[1], 'model', {'a': np.zeros(10_000)}, {})"
    )
    run = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert "File too large" in run.stderr
    assert path.read_bytes() == saved.read_bytes()
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]
