"""Several processes, on one machine or many, train one model.

JAX's own runtime connects them. Each reads its own part of every batch, all see the same model, and the first one
decides what depends on a clock. They compute together in the training loop alone; what comes before and after, which
is short, each does by itself, and only the first one writes files.
"""

import hashlib
import os
import socket
import sys
import time
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

WAIT_SECONDS = 60
# What the runtime's errors begin with where a connection has failed; ValueErrors of arrays that are not there do, too.
LOST = "ABORTED:", "CANCELLED:", "DEADLINE_EXCEEDED:", "FAILED_PRECONDITION:", "INTERNAL:", "UNAVAILABLE:", "UNKNOWN:"


class LostProcessError(ConnectionError):
    """Another process of a fit has ended."""


def connect(coordinator: str | None = None, num: int | None = None, index: int | None = None) -> None:
    """Connect the processes of a fit, of which this is the `index`-th of `num`, counted from 0.

    coordinator: HOST:PORT of the first process. Without one, JAX asks the cluster (SLURM, Open MPI) for all three.
    """
    if coordinator is not None:
        if num is None or index is None or not 0 <= index < num:
            raise ValueError(f"--coordinator needs --num-processes K and --process-id from 0 to K - 1; got {index}.")
        if index:
            _wait_for(coordinator)
    jax.distributed.initialize(coordinator, num, index, initialization_timeout=WAIT_SECONDS)


def _wait_for(coordinator: str) -> None:
    host, _, port = coordinator.rpartition(":")
    if not port.isdecimal():
        raise ValueError(f"--coordinator must be HOST:PORT; got {coordinator!r}.")
    end = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            socket.create_connection((host, int(port)), 5).close()
        except OSError as error:
            if time.monotonic() > end:
                raise ConnectionError(f"the coordinator {coordinator} does not answer ({error}).") from None
            time.sleep(0.2)
        else:
            return


def is_first() -> bool:
    """Return whether this process writes files and speaks."""
    return jax.process_index() == 0


def agreed(tree: Any) -> Any:
    """Return what the first process has, a tree of numbers and arrays, on all processes."""
    if jax.process_count() == 1:
        return tree
    with lost_processes():
        return multihost_utils.broadcast_one_to_all(tree)


def check_alike(what: Any) -> None:
    """Raise an error unless all processes say the same."""
    if jax.process_count() == 1:
        return
    digest = np.frombuffer(hashlib.sha256(repr(what).encode()).digest(), np.uint8)
    with lost_processes():
        digests = np.asarray(multihost_utils.process_allgather(jnp.asarray(digest)))
    if others := [i for i, other in enumerate(digests) if not np.array_equal(other, digests[0])]:
        raise ValueError(
            f"the processes 0 and {others[0]} differ in their settings, rows or versions of libraries; start all of "
            f"them with the same."
        )


@contextmanager
def lost_processes():
    """Let the runtime's errors about connections say that another process has ended; other errors stay as they are."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        if jax.process_count() == 1 or not str(error).startswith(LOST):
            raise
        raise LostProcessError(
            "another process of this fit has ended; start all of them again, with --resume where there is a checkpoint."
        ) from error


def leave(code: int) -> None:
    """End this process if it is one of several; what JAX does on the way out would wait for those that are gone."""
    if jax.process_count() > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
