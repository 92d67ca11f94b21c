"""All pages of the site: their code runs, their commands exist, their pictures are what their code draws."""

import re
import shlex
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

import overtone
from overtone.app.cli import build_parser
from tests.pages import PAGES, ROOT, blocks, run

# These have tests of their own, which look at what their blocks leave.
ELSEWHERE = {"docs/tutorial.md", "docs/research.md", "docs/local.md", "ARCHITECTURE.md"}
RUN = [page for page in PAGES if page not in ELSEWHERE and blocks(page, "python")]
NOT_CODE = {"", "text", "bibtex"}
MAX_PICTURE_BYTES = 80_000
PICTURE = re.compile(r"!\[[^\]]*\]\(([\w.]+\.png)\)")


@pytest.mark.filterwarnings("ignore::overtone.sklearn.OutsideRangeWarning")  # of which pages speak
@pytest.mark.parametrize("page", RUN)
def test_the_code_of_a_page_runs_and_draws_its_pictures(page, tmp_path, capsys):
    import matplotlib.pyplot as plt

    run(page, tmp_path, short=True)
    plt.close("all")
    beside = {name for name in PICTURE.findall((ROOT / page).read_text()) if "/" not in name}
    assert {path.name for path in tmp_path.glob("*.png")} == beside


def test_pictures_are_small_and_the_gallery_shows_all_of_its_pages():
    gallery = ROOT / "docs" / "gallery"
    pages = {path.stem for path in gallery.glob("*.md")} - {"README"}
    assert len(pages) >= 8
    assert pages == {path.stem for path in gallery.glob("*.png")}
    overview, contents = (gallery / "README.md").read_text(), (ROOT / "mkdocs.yml").read_text()
    assert all(f"({page}.md)" in overview and f"gallery/{page}.md" in contents for page in pages)
    for picture in (ROOT / "docs").rglob("*.png"):
        assert picture.stat().st_size < MAX_PICTURE_BYTES, picture


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)])
def test_all_blocks_are_checked_and_commands_exist(page):
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for kind, text in blocks(page):
        assert kind in {"python", "sh"} | NOT_CODE, f"a block of {page} is {kind!r}, which nothing checks"
        for line in text.splitlines() if kind == "sh" else ():
            program, *arguments = shlex.split(line, comments=True)
            if program == "overtone":
                build_parser().parse_args(arguments)
            elif program == "make":
                assert set(arguments) <= set(targets)
            elif program != "export":
                assert find_spec(program), f"{page} has the command {line!r}, which nothing checks"


def test_every_page_is_in_the_contents_of_the_site_or_shown_by_another():
    contents = (ROOT / "mkdocs.yml").read_text()
    fragments = {f"benchmarks/results/{name}.md" for name in ("quality_table", "neighbours", "scale", "flights")}
    missing = {page for page in PAGES if f" {page.removeprefix('docs/')}\n" not in contents}
    assert missing == fragments
    hooks = (ROOT / "docs" / "site_hooks.py").read_text()
    assert all(f'"{Path(page).stem}"' in hooks for page in fragments)


def test_the_reference_has_every_public_name():
    pages = "\n".join(path.read_text() for path in (ROOT / "docs" / "reference").glob("*.md"))
    modules = set(re.findall(r"<!-- names: ([\w.]+) -->", pages))
    assert modules == set(overtone.NAMES) - {"app"}
    assert "::: overtone.app.plots" in pages


def test_versions_are_stated_as_they_are():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest = dict(re.findall(r'"([\w-]+)>=([\d.]+)"', "".join(f'"{each}"' for each in project["dependencies"])))
    python = project["requires-python"].removeprefix(">=")
    stated = (ROOT / "docs" / "reference" / "README.md").read_text()
    names = ["JAX", "Equinox", "Optax", "NumPy", "SciPy", "scikit-learn", "Polars", "Matplotlib"]
    assert all(f"{name} {oldest[name.lower()]}" in stated for name in names)
    assert f"Python {python}" in stated
    badges = {path.stem: path.read_text() for path in (ROOT / "docs" / "badges").glob("*.svg")}
    assert f">{python} or later<" in badges["python"]
    assert f">{oldest['jax']} or later<" in badges["jax"]
    assert f">{project['license']}<" in badges["licence"]
    for name in ("CITATION.cff", "README.md"):
        assert re.search(rf"version\s*[:=] \{{?{re.escape(project['version'])}\b", (ROOT / name).read_text()), name
    assert project["version"] == overtone.__version__


def test_type_checkers_see_the_annotations():
    assert Path(overtone.__file__).with_name("py.typed").exists()
