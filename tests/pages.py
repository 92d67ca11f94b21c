"""Run the code of the pages: in the tests with few steps, and by `make pictures` with the settings that they show.

Blocks of a page share their names and run in one folder, to which they write files.
"""

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "results/*.md", "benchmarks/results/*.md")
    for path in ROOT.glob(pattern)
)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
TIME, STEPS = re.compile(r"\bmax_time=\d+"), re.compile(r"\b((?:max_)?steps)=[\d_]+")
FEW_STEPS = 5


def blocks(page: str, *kinds: str) -> list[tuple[str, str]]:
    """Return the language and the text of each block of a page, of some kinds or of all."""
    found = BLOCK.findall((ROOT / page).read_text())
    return [(kind, text) for kind, text in found if not kinds or kind in kinds]


def shortened(code: str) -> str:
    """Return code whose fits take few steps; those that have a time get one layer, for most of theirs is compilation.

    >>> shortened("fit(max_time=60), fit(max_steps=2_000), fit(steps=2000)")
    'fit(n_layers=1, max_steps=5), fit(max_steps=5), fit(steps=5)'
    """
    return STEPS.sub(rf"\1={FEW_STEPS}", TIME.sub(f"n_layers=1, max_steps={FEW_STEPS}", code))


def run(page: str, folder: Path, *, short: bool = False) -> dict:
    """Run the Python blocks of a page in a folder, and return the names that they leave."""
    names: dict = {}
    before = Path.cwd()
    os.chdir(folder)
    try:
        for number, (_, text) in enumerate(blocks(page, "python"), start=1):
            code = shortened(text) if short else text
            exec(compile(code, f"{page}, block {number}", "exec"), names)
    finally:
        os.chdir(before)
    return names


def main(pages: list[str]) -> None:
    """Run pages, and put the pictures that they draw beside them."""
    plt.switch_backend("Agg")
    for page in pages:
        with tempfile.TemporaryDirectory() as folder:
            run(page, Path(folder))
            for picture in sorted(Path(folder).glob("*.png")):
                shutil.copy(picture, ROOT / Path(page).parent)
                print(f"{page}: {picture.name}, {picture.stat().st_size / 1000:.0f} kB", flush=True)
        plt.close("all")


if __name__ == "__main__":
    main(sys.argv[1:])
