"""How programs are compiled, and where JAX keeps them: in the user's cache folder, so that a second run is quick."""

import gc
import logging
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import lru_cache, partial, wraps
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
from threadpoolctl import ThreadpoolController

log = logging.getLogger("overtone")

# Settings that measured better on a CPU: XLA's older code generator for fused elementwise loops (steps of small models
# take two thirds of the time, and compilation three quarters), and its library for matrix products alone, not for sums.
OPTIONS = {"xla_cpu_use_fusion_emitters": False, "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_DOT"}
# For programs that run a few times only: compiled in a third of the time, a quarter slower.
QUICK_OPTIONS = {**OPTIONS, "xla_backend_optimization_level": 1}


@lru_cache(maxsize=128)
def compiled(function: Callable, quickly: bool = False) -> Callable:
    """Return a function that is compiled when it is first called: well, or quickly if it runs a few times only."""
    return wraps(function)(lambda *arguments, **named: jitted(function, quickly)(*arguments, **named))


quickly_compiled = partial(compiled, quickly=True)


@lru_cache(maxsize=128)
def jitted(function: Callable, quickly: bool = False) -> Callable:
    """Return `equinox.filter_jit(function)` with those of the settings that this version of JAX knows.

    With OVERTONE_OPTIMISE=0 nothing is optimised, which compiles in half the time: for tests.
    """
    options: dict[str, Any] = QUICK_OPTIONS if quickly else OPTIONS
    if os.environ.get("OVERTONE_OPTIMISE") == "0":
        options = {**options, "xla_backend_optimization_level": 0}
    on_cpu, jit = jax.default_backend() == "cpu", eqx.filter_jit
    known = {name: value for name, value in options.items() if on_cpu and _is_known(name, value)}
    return jit(function, compiler_options=known)  # type: ignore[call-overload]


@lru_cache(maxsize=64)
def _is_known(option: str, value: Any) -> bool:
    try:
        jax.jit(lambda x: x, compiler_options={option: value})(0.0)
    except jax.errors.JaxRuntimeError:
        return False
    return True


def one_blas_thread() -> AbstractContextManager:
    """Return a context in which OpenBLAS, whose LAPACK is JAX's, has one thread in this process.

    Its own threads wait for those of XLA and of other processes: fits of small tables would take 4 to 13 times as long.
    All fits and predictions begin here, so this is where a forked process is told that it would wait forever.
    """
    if _first_process() != os.getpid():
        raise RuntimeError(
            "this process was forked from one that had computed with JAX, whose threads a fork does not copy, and it "
            "would wait for them forever. Start processes with multiprocessing.get_context('spawn'), or by joblib."
        )
    return _blas().limit(limits=1, user_api="blas")


@lru_cache(maxsize=1)
def _first_process() -> int:
    """Return the process that computed first, of this one and those that it was forked from."""
    return os.getpid()


@lru_cache(maxsize=1)
def _blas() -> ThreadpoolController:
    return ThreadpoolController()  # looks through all libraries of the process, which takes time


def keep_compiled_programs() -> None:
    """Switch on JAX's persistent compilation cache, unless the user has set one.

    The folder is `overtone/jax` in $XDG_CACHE_HOME or ~/.cache; OVERTONE_CACHE names another, or is empty for none.
    Programs from it are run, so it must belong to the user, and nobody else may write to it.
    """
    if jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        if not (name := os.environ.get("OVERTONE_CACHE", str(base / "overtone" / "jax"))):
            return
        folder = Path(name)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.stat()
    except (OSError, RuntimeError):  # nobody's home, or a folder that cannot be made: every run compiles anew
        return
    if hasattr(os, "getuid") and (about.st_uid != os.getuid() or about.st_mode & 0o022):
        log.warning("%s belongs to somebody else, or others may write to it; compiled programs are not kept.", folder)
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # reading is always quicker


def forget_programs_if_many() -> None:
    """Let go of all compiled programs before their number would end the process.

    Each is mapped into memory in pieces, and Linux allows a process some 65,000 of them: hundreds of fits of different
    shapes in one process would end in a segmentation fault. Programs that are still needed are read from the cache.
    """
    try:
        most = int(Path("/proc/sys/vm/max_map_count").read_text())
        with Path("/proc/self/maps").open("rb") as maps:
            num = sum(1 for _ in maps)
    except OSError:  # another system
        return
    if num > most // 4:
        forget_programs()


def forget_programs() -> None:
    """Let go of all compiled programs in memory."""
    jax.clear_caches()
    gc.collect()
