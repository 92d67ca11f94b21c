"""Several processes that train one model: what comes out is what one makes, and none waits for those that are gone."""

import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from overtone.inference import processes
from overtone.sklearn import load
from tests.test_cli import environment

SETTINGS = ["--layers", "2", "--hidden-width", "1", "--frequencies", "4", "--output", "natural", "--quiet"]
SETTINGS += ["--likelihood", "gaussian"]
X = np.random.default_rng(0).random((1200, 1))


@pytest.fixture
def table(tmp_path):
    y = np.sin(9 * X[:, 0]) + 0.1 * np.random.default_rng(1).standard_normal(len(X))
    (tmp_path / "t.csv").write_text("x,y\n" + "\n".join(f"{a},{b}" for a, b in zip(X[:, 0], y, strict=True)))
    return tmp_path


def start(table: Path, num: int, *more: str | list[str], **environ: str) -> list[subprocess.Popen]:
    """Start so many processes of one fit; a list among the arguments has one for each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-m", "overtone.app.cli", "fit", "t.csv", "--target", "y", *SETTINGS]
    running = []
    for index in range(num):
        own = [each[index] if isinstance(each, list) else each for each in more]
        if num > 1:
            own += ["--coordinator", coordinator, "--num-processes", str(num), "--process-id", str(index)]
        settings: dict = {"cwd": table, "env": {**environment(), **environ}, "text": True}
        running.append(subprocess.Popen([*command, *own], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **settings))
    return running


def ended(running: list[subprocess.Popen], seconds: float = 120) -> list[tuple[int, str, str]]:
    """Return exit codes, and what was printed."""
    return [(process.returncode, *said) for process in running for said in [process.communicate(timeout=seconds)]]


def predictions(path: Path) -> np.ndarray:
    return np.stack(load(path).predict(X[:50], return_std=True))


def test_a_fit_of_four_processes_survives_the_death_of_one_goes_on_with_two_and_is_that_of_one(table):
    # At a small rate: at the usual one, rounding grows tenfold every 50 steps.
    steps = ["--steps", "700", "--dtype", "float64", "--learning-rate", "0.001"]
    watched = [*steps, "--checkpoint", "kept"]
    fast = {"OVERTONE_CHECKPOINT_SECONDS": "0"}
    (alone,) = ended(start(table, 1, *steps, "--out", "one.safetensors"))
    assert alone[0] == 0, alone[2]

    running = start(table, 4, *watched, **fast)
    began = time.monotonic()
    while not list((table / "kept").glob("*.checkpoint")) and time.monotonic() - began < 120:
        time.sleep(0.05)
    running[1].kill()
    killed_at = time.monotonic()
    first, victim, *others = ended(running)
    assert time.monotonic() - killed_at < 60
    assert victim[0] == -9
    for code, _, said in (first, *others):
        assert code == 2
        assert said.strip().splitlines()[-1].startswith("overtone: error: another process of this fit has ended;")
    assert not (table / "model.safetensors").exists()

    first, second = ended(start(table, 2, *watched, "--resume", "--out", "two.safetensors", **fast))
    assert (first[0], second[0]) == (0, 0), first[2]
    assert "700 steps" in first[1]
    assert "rows" not in second[1]
    np.testing.assert_allclose(predictions(table / "two.safetensors"), predictions(table / "one.safetensors"), 1e-6)


def test_processes_that_differ_are_refused_at_the_start(table):
    for code, _, said in ended(start(table, 2, "--steps", "5", "--seed", ["0", "1"])):
        assert code == 2
        assert "the processes 0 and 1 differ in their settings, rows or versions of libraries" in said


def test_a_coordinator_that_does_not_answer_or_is_none(monkeypatch):
    monkeypatch.setattr(processes, "WAIT_SECONDS", 0.1)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(ConnectionError, match=f"the coordinator 127.0.0.1:{port} does not answer"):
        processes.connect(f"127.0.0.1:{port}", 2, 1)
    with pytest.raises(ValueError, match="--coordinator must be HOST:PORT; got 'here'"):
        processes.connect("here", 2, 1)
    with pytest.raises(ValueError, match="--coordinator needs --num-processes K and --process-id"):
        processes.connect("localhost:1", 2)


@pytest.mark.parametrize(
    ("error", "is_lost"),
    [
        (ValueError("UNKNOWN: Gloo all-reduce failed: Connection closed by peer [127.0.0.1]:20353"), True),
        (jax.errors.JaxRuntimeError("UNAVAILABLE: the coordination service has ended"), True),
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 80000000000 bytes."), False),
        (ValueError("the model has 2 inputs; got rows of shape (1,)."), False),
    ],
)
def test_only_what_the_runtime_says_of_connections_is_a_lost_process(error, is_lost, monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(processes.LostProcessError if is_lost else type(error)) as raised, processes.lost_processes():
        raise error
    assert (raised.value.__cause__ if is_lost else raised.value) is error
