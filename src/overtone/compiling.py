"""How programs are compiled, and kept: in the user's cache folder, so that a second run starts at once."""

import gc
import os
from collections.abc import Callable
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any

import equinox as eqx
import jax

# Settings that measured better on a CPU: XLA's older code generator for fused elementwise loops (steps of small models
# take two thirds of the time, and compilation three quarters), and its library for matrix products alone, not for sums.
OPTIONS = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_DOT",
}
# For programs that run a few times only: compiled in a third of the time, a quarter slower.
QUICK = {**OPTIONS, "xla_backend_optimization_level": 1}


def compiled(function: Callable) -> Callable:
    """`equinox.filter_jit` for a program that runs for long."""
    return _compiled(function, tuple(OPTIONS.items()))


def quickly_compiled(function: Callable) -> Callable:
    """`equinox.filter_jit` for a program that is compiled for longer than it runs."""

    @wraps(function)
    def call(*arguments, **named):
        return _compiled(function, tuple(QUICK.items()))(*arguments, **named)  # JAX starts with the first call

    return call


@lru_cache(maxsize=64)
def _compiled(function: Callable, options: tuple[tuple[str, Any], ...]) -> Callable:
    """With those of the settings that this version of JAX knows."""
    jit: Callable = eqx.filter_jit
    on_cpu = jax.default_backend() == "cpu"
    return jit(function, compiler_options={name: value for name, value in options if on_cpu and _known(name, value)})


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
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = os.environ.get("OVERTONE_CACHE", str(base / "overtone" / "jax"))
    if folder:
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # reading is quicker, always


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
        jax.clear_caches()
        gc.collect()
