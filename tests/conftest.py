"""Shapes and types of the library are checked at run time in the tests."""

import os
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from jaxtyping import install_import_hook

# Nearly all of the time is compilation, of programs that run once: nothing is optimised, nor split among threads. XLA
# reads this when it compiles its first program, and processes that tests start inherit it.
QUICK = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=0 --xla_cpu_parallel_codegen_split_count=1"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICK}"
os.environ["OVERTONE_OPTIMISE"] = "0"  # the library's own programs, which have options of their own

# A config checks itself, with better words.
AUTOPILOT = [f"autopilot.{name}" for name in ("plan", "build", "train", "spectrum", "fine")]
CHECKED = [f"overtone.{room}" for room in ("numerics", "gp", "inference", "storage", *AUTOPILOT)]
with install_import_hook(CHECKED, "beartype.beartype"):
    import overtone
    import overtone.sklearn

    for name in overtone.__all__:
        getattr(overtone, name)

import jax  # noqa: E402
import pytest  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402

from overtone.inference import predictions  # noqa: E402
from overtone.numerics import compiling  # noqa: E402

# Most tests predict a few rows, and programs that are not optimised take long for those that fill a chunk up.
predictions.CHUNK_ROWS = 64

# Workers side by side whose linear algebra has threads of its own take nine times as long: they wait for each other.
threadpool_limits(1, "blas")
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # of the processes that tests start

# What one worker has compiled, the others and later runs need not compile again.
jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parent.parent / ".cache" / "jax"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


@pytest.fixture
def x64():
    """Double precision, for comparisons with dense NumPy."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True)
def few_programs():
    """One process runs hundreds of tests, each with programs of its own."""
    yield
    compiling.forget_programs_if_many()
