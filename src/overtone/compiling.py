"""How programs are compiled, and kept: in the user's cache folder, so that a second run starts at once."""

import gc
import os
from collections.abc import Callable
from functools import lru_cache, partial, wraps
from pathlib import Path
from typing import Any

import jax

from overtone.programs import Kept

# Settings that measured better on a CPU: XLA's older code generator for fused elementwise loops (steps of small models
# take two thirds of the time, and compilation three quarters), and its library for matrix products alone, not for sums.
OPTIONS = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_DOT",
}
# For programs that run a few times only: compiled in a third of the time, a quarter slower.
QUICK = {**OPTIONS, "xla_backend_optimization_level": 1}


@lru_cache(maxsize=64)
def compiled(function: Callable) -> Callable:
    """`equinox.filter_jit` for a program that runs for long; it returns tuples, lists and dicts of arrays."""
    return Kept(function, partial(_jit, OPTIONS), kept_folder)


@lru_cache(maxsize=64)
def quickly_compiled(function: Callable) -> Callable:
    """The same for a program that is compiled for longer than it runs."""
    return wraps(function)(Kept(function, partial(_jit, QUICK), kept_folder))


def _jit(options: dict[str, Any], function: Callable) -> Callable:
    """With those of the settings that this version of JAX knows."""
    on_cpu = jax.default_backend() == "cpu"
    known = {name: value for name, value in options.items() if on_cpu and _known(name, value)}
    return jax.jit(function, compiler_options=known)


@lru_cache(maxsize=64)
def _known(option: str, value: Any) -> bool:
    try:
        jax.jit(lambda x: x, compiler_options={option: value})(0.0)
    except jax.errors.JaxRuntimeError:
        return False
    return True


def keep_compiled_programs() -> None:
    """Switch on JAX's persistent compilation cache, unless the user has set one.

    The folder is `overtone/jax` in $XDG_CACHE_HOME or ~/.cache; OVERTONE_CACHE names another, or is empty for none.
    """
    if jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    if folder := _folder():
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # reading is quicker, always


def _folder() -> str:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return os.environ.get("OVERTONE_CACHE", str(base / "overtone" / "jax"))


def kept_folder() -> str | None:
    """Where programs are kept before they are compiled: beside the compiled ones, if the folder is ours."""
    folder = _folder()
    return folder if folder and jax.config.values["jax_compilation_cache_dir"] == folder else None


def forget_programs_if_many() -> None:
    """Let go of all compiled programs before their number would end the process.

    Each is mapped into memory in pieces, and Linux allows a process some 65,000 of them: hundreds of fits of different
    shapes in one process would end in a segmentation fault. Those still needed are read from the cache folder again.
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
    for kept in Kept.everyone:
        kept.calls.clear()
    jax.clear_caches()
    gc.collect()
