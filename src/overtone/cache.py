"""Compiled programs are kept in the user's cache folder, so that a second run starts at once."""

import os
from pathlib import Path

import jax


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
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
