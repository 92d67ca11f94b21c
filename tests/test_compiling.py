"""Compiled programs are kept between processes: real ones, with a cache folder of their own."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from overtone.numerics import compiling
from overtone.sklearn import DeepGPRegressor

FIT = """
import numpy as np
from overtone.sklearn import DeepGPRegressor
X = np.linspace(0, 1, 20)[:, None]
model = DeepGPRegressor(method="vff", n_inducing=2, max_steps=3).fit(X, np.sin(5 * X[:, 0]))
"""


def run(**variables: str) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "OVERTONE_CACHE"}
    subprocess.run([sys.executable, "-c", FIT], env={**environment, **variables}, check=True)


def programs(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*-cache")}


def test_a_second_process_compiles_nothing_anew(tmp_path):
    run(XDG_CACHE_HOME=str(tmp_path))
    first = programs(tmp_path / "overtone" / "jax")
    assert len([name for name in first if "_run" in name]) == 1  # two turns, one program
    run(OVERTONE_CACHE=str(tmp_path / "overtone" / "jax"))
    assert programs(tmp_path / "overtone" / "jax") == first


def test_it_can_be_switched_off(tmp_path):
    run(XDG_CACHE_HOME=str(tmp_path), OVERTONE_CACHE="")
    assert not list(tmp_path.iterdir())


def test_a_cache_that_others_may_write_to_is_not_believed(tmp_path):
    """Programs from the cache are run; and without any home, there is none."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    run(OVERTONE_CACHE=str(tmp_path / "open"))
    assert not programs(tmp_path)
    code = FIT.replace("import numpy", "import pathlib; pathlib.Path.home = classmethod(lambda _: 1 / 0)\nimport numpy")
    code = code.replace("1 / 0", "(_ for _ in ()).throw(RuntimeError('no home'))")
    subprocess.run([sys.executable, "-c", code], check=True)


def test_linear_algebra_has_one_thread_during_a_fit(monkeypatch):
    def threads():
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    with threadpool_limits(2, "blas"):
        with compiling.one_blas_thread():
            assert threads() == {1}
        assert threads() == {2}


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="not Linux")
def test_many_programs_are_forgotten_before_they_are_too_many(monkeypatch):
    def maps() -> int:
        return len(Path("/proc/self/maps").read_text().splitlines())

    compiling.forget_programs()
    before = maps()
    X = np.linspace(0, 1, 21)[:, None]
    DeepGPRegressor(method="vff", n_inducing=2, max_steps=3).fit(X, X[:, 0])
    many = maps()
    assert many > before + 100
    compiling.forget_programs_if_many()
    assert maps() > many - 100  # they are few yet
    read = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda self: "4" if self.name == "max_map_count" else read(self))
    compiling.forget_programs_if_many()
    assert maps() < before + (many - before) // 2


def test_a_forked_process_is_told_that_it_would_wait_forever():
    ask = """
import multiprocessing, warnings
warnings.simplefilter("ignore")  # JAX warns about the fork, too
def predict(queue):
    try:
        model.predict(X)
    except RuntimeError as error:
        queue.put(str(error))
context = multiprocessing.get_context("fork")
queue = context.Queue()
context.Process(target=predict, args=(queue,)).start()
print(queue.get(timeout=60))
"""
    output = subprocess.run([sys.executable, "-c", FIT + ask], capture_output=True, text=True, check=True, timeout=120)
    assert "spawn" in output.stdout
