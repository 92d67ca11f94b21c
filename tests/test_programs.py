"""Programs that are kept before compilation: found again by another process, and only if nothing has changed."""

import json
import os
import subprocess
import sys
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.tree_util import Partial

from overtone.build import build
from overtone.config import Config
from overtone.io import leaves
from overtone.programs import Kept, Unknown, name_of

FIT = """
import json, sys
import numpy as np
from overtone.model import DeepGP
from overtone.sklearn import DeepGPRegressor
if sys.argv[1:] == ["untraceable"]:
    def fail(*_): raise AssertionError("traced")
    DeepGP.propagate = fail
X = np.linspace(0, 1, 20)[:, None]
model = DeepGPRegressor(n_layers=2, n_inducing=2, max_steps=3, output="adam").fit(X, np.sin(5 * X[:, 0]))
print(json.dumps([x.tolist() for x in model.predict(X, return_std=True)]))
"""


def test_a_second_process_traces_nothing_and_finds_the_same(tmp_path):
    def run(*arguments: str) -> list:
        command = [sys.executable, "-c", FIT, *arguments]
        environment = {**os.environ, "OVERTONE_CACHE": str(tmp_path)}
        return json.loads(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)

    first = run()
    assert run("untraceable") == first
    for path in tmp_path.glob("*.program"):
        path.write_bytes(path.read_bytes()[:-7] + b"damaged")
    with pytest.raises(subprocess.CalledProcessError):
        run("untraceable")
    assert run() == first


def things() -> dict:
    """What a training loop depends on, with one setting changed in turn."""
    X = np.linspace(0, 1, 10, dtype=np.float32)[:, None]
    model = build(Config(n_inducing=3), X, X)

    def named(**changed):
        chosen = {"rate": 0.1, "model": model, "samples": 1, "shape": (3, 2)} | changed
        loss = Partial(leaves, tree=jnp.ones(()), prefix=chosen["samples"])
        return loss, optax.adam(chosen["rate"]), chosen["model"], np.zeros(chosen["shape"])

    return {
        "same": named(),
        "rate": named(rate=0.2),
        "kernel": named(model=build(Config(n_inducing=3, kernel="matern12"), X, X)),
        "frequencies": named(model=build(Config(n_inducing=4), X, X)),
        "samples": named(samples=2),
        "shape": named(shape=(3, 3)),
        "partial": partial(leaves, prefix=1),
    }


def test_names_tell_everything_apart_and_last():
    names, again = ({key: name_of(thing) for key, thing in things().items()} for _ in range(2))
    assert names == again
    assert len(set(names.values())) == len(names)


def test_what_is_not_ours_has_no_name():
    class Mine(eqx.Module):
        x: jax.Array

    for thing in (Mine(jnp.ones(2)), lambda x: x, object(), [Mine]):
        with pytest.raises(Unknown):
            name_of(thing)


def test_functions_of_users_are_traced_as_usual(tmp_path):
    kept = Kept(lambda x, factor: {"y": factor * x}, jax.jit, lambda: str(tmp_path))
    np.testing.assert_array_equal(kept(np.arange(3.0), factor=2)["y"], [0, 2, 4])
    np.testing.assert_array_equal(kept(np.arange(3.0), factor=3)["y"], [0, 3, 6])
    assert not list(tmp_path.iterdir())
