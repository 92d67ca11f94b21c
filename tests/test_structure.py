"""The shape of the library: imports go one way, and importing it stays light."""

import ast
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "overtone"
# Each group may import from the groups before it, and from its own.
ORDER = [
    {"params", "data", "config", "programs", "compiling", "io", "gaps", "tables"},
    {
        "linalg",
        "trigpoly",
        "quadratic",
        "kernels",
        "likelihoods",
        "mixture",
        "means",
        "scaling",
        "variational",
        "fit",
        "spectrum",
        "fine",
        "slanted",
        "discrete",
        "encoding",
        "checkpoints",
    },
    {"features"},
    {"layers"},
    {"model"},
    {"collapsed", "predictions", "diagnostics", "pathwise"},
    {"natural", "calibration", "functions"},
    {"build"},
    {"decide"},
    {"train"},
    {"estimator"},
    {"sklearn"},
    {"plots"},
    {"report"},
    {"demo"},
    {"commands"},
    {"cli"},
]
RANK = {name: rank for rank, group in enumerate(ORDER) for name in group}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "overtone":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
    return found - {"__version__"}


def test_imports_go_one_way():
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if name == "__init__":
            assert imports(path) == set()
            continue
        for other in imports(path):
            assert RANK[other] <= RANK[name], f"{name} must not import {other}"


def test_the_training_loop_knows_no_gaussian_process():
    assert imports(SOURCE / "fit.py") == {"params", "compiling"}


def test_importing_the_library_pulls_in_neither_scikit_learn_nor_polars_nor_matplotlib():
    code = (
        "import overtone, overtone.train, overtone.predictions, sys; "
        "print([m for m in ('sklearn', 'polars', 'pandas', 'matplotlib') if m in sys.modules])"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "[]"


def test_the_readme_shows_the_committed_tables():
    root = SOURCE.parent.parent
    for table in ("results/demo/multi_step.md", "benchmarks/results/quality_table.md"):
        assert (root / table).read_text() in (root / "README.md").read_text()
