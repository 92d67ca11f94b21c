"""The shape of the library: imports go one way, files stay small, and importing it stays light."""

import ast
import io
import subprocess
import sys
import tokenize
import traceback
from pathlib import Path

import numpy as np
import pytest

import overtone
from overtone.gp.features import PinnedFourier
from overtone.sklearn import DeepGPRegressor

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "overtone"
# Each room may import from those before it, and from itself; `version` belongs to all.
LIBRARY = "version", "numerics", "gp", "storage", "inference"
ROOMS = *LIBRARY, "autopilot", "tables", "estimators", "sklearn", "skpro", "experiments", "app"
MAX_MODULE_LINES, MAX_FLOOR_LINES, MAX_EXPERIMENT_LINES, MAX_FRAMES = 300, 5000, 1300, 14


def imported_rooms(path: Path) -> set[str]:
    """Return the rooms that a module imports from, also inside functions."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "overtone":
            parts = node.module.split(".")
            rooms |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
    return rooms


def test_imports_go_one_way():
    for path in SOURCE.rglob("*.py"):
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if room == "__init__":
            assert imported_rooms(path) == {"version"}
            continue
        for other in imported_rooms(path):
            assert ROOMS.index(other) <= ROOMS.index(room), f"{path} must not import overtone.{other}"


def test_the_library_knows_neither_tables_nor_defaults():
    for room in LIBRARY[1:]:
        for path in (SOURCE / room).rglob("*.py"):
            assert imported_rooms(path) <= set(LIBRARY), path


def test_importing_the_library_pulls_in_neither_scikit_learn_nor_polars_nor_matplotlib():
    code = (
        "import overtone, sys; [getattr(overtone, name) for name in overtone.__all__ if name != 'plots']; "
        "import overtone.autopilot.train; "
        "print([m for m in ('sklearn', 'polars', 'pandas', 'matplotlib') if m in sys.modules])"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "[]"


def test_importing_the_package_alone_is_immediate():
    code = "import overtone, sys; print([m for m in ('jax', 'numpy', 'scipy') if m in sys.modules])"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "[]"


def test_public_names_exist_and_are_listed():
    for name in overtone.__all__:
        assert getattr(overtone, name) is not None
    assert set(overtone.__all__) <= set(dir(overtone))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        overtone.nonsense  # noqa: B018


def code_lines(path: Path) -> int:
    """Return the number of lines with code: no comments, docstrings or empty lines."""
    text = path.read_text()
    docstrings = set()
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
            and ast.get_docstring(node, clean=False) is not None
        ):
            first = node.body[0]
            docstrings |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    ignored = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in ignored:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def test_modules_and_both_floors_stay_small():
    """The experiments use the package, as benchmarks do."""
    lines = {"library": 0, "product": 0, "experiments": 0}
    for path in SOURCE.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= MAX_MODULE_LINES, path
        room = path.relative_to(SOURCE).parts[0]
        lines["library" if room in LIBRARY else room if room == "experiments" else "product"] += code_lines(path)
    assert max(lines["library"], lines["product"]) <= MAX_FLOOR_LINES
    assert lines["experiments"] <= MAX_EXPERIMENT_LINES


@pytest.mark.parametrize("output", ["collapsed", "natural", "adam"])
def test_from_fit_to_the_algebra_of_a_feature_are_few_frames(output, monkeypatch):
    """Whoever reads a traceback wants to see the formula, not the plumbing: our own frames are counted."""
    depths, algebra = [], PinnedFourier.marginals

    def watched(self, *arguments):
        own = [frame.filename for frame in traceback.extract_stack() if frame.filename.startswith(str(SOURCE))]
        if any(name.endswith("inference/loop.py") for name in own):
            depths.append(len(own) + 1)  # with the one that is called here
        return algebra(self, *arguments)

    monkeypatch.setattr(PinnedFourier, "marginals", watched)
    X = np.linspace(0, 1, 23)[:, None]
    DeepGPRegressor(n_layers=2, n_inducing=3, max_steps=1, output=output).fit(X, X[:, 0])
    assert depths
    assert max(depths) <= MAX_FRAMES


def test_the_pages_show_the_committed_tables():
    for table, page in (
        ("results/demo/multi_step.md", "results/README.md"),
        ("benchmarks/results/quality_table.md", "README.md"),
        ("benchmarks/results/small_tables.md", "README.md"),
        ("benchmarks/results/neighbours.md", "docs/local.md"),
        ("benchmarks/results/scale.md", "docs/scale.md"),
        ("benchmarks/results/flights.md", "docs/scale.md"),
    ):
        assert (ROOT / table).read_text() in (ROOT / page).read_text()
