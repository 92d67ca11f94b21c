"""Compiled programs are kept between processes: real ones, with a cache folder of their own."""

import os
import subprocess
import sys
from pathlib import Path

FIT = """
import numpy as np
from overtone.sklearn import DeepGPRegressor
X = np.linspace(0, 1, 20)[:, None]
DeepGPRegressor(method="vff", n_inducing=2, max_steps=3).fit(X, np.sin(5 * X[:, 0]))
"""


def run(**variables: str) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "OVERTONE_CACHE"}
    subprocess.run([sys.executable, "-c", FIT], env={**environment, **variables}, check=True)


def programs(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*-cache")}


def test_a_second_process_compiles_nothing_anew(tmp_path):
    run(XDG_CACHE_HOME=str(tmp_path))
    first = programs(tmp_path / "overtone" / "jax")
    assert any("_run" in name for name in first)
    run(OVERTONE_CACHE=str(tmp_path / "overtone" / "jax"))
    assert programs(tmp_path / "overtone" / "jax") == first


def test_it_can_be_switched_off(tmp_path):
    run(XDG_CACHE_HOME=str(tmp_path), OVERTONE_CACHE="")
    assert not list(tmp_path.iterdir())
