"""Write a report of each kind and draw it as it looks on a desk, on a phone and in print, for docs/report.md.

Chromium draws the pages, and pdftoppm what they look like in print. Two of the five tables are in the folder that
OVERTONE_DATA names; without it, their pictures stay as they are.
"""

import html
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import chdir
from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl
from PIL import Image
from sklearn.datasets import load_diabetes, load_wine

from overtone.app.cli import main as overtone
from tests.test_pages import MAX_PICTURE_BYTES

RNG = np.random.default_rng(0)
MAX_HEIGHT, FOLD = 9000, 1000
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"]
NEEDED = {"series": "co2_mauna_loa_weekly", "panel": "parking_birmingham"}
SIZES = {"": (1280, 0.6), "_phone": (390, 0.6)}  # pixels of a window, and how large they are in the picture


def series() -> tuple[pl.DataFrame, int, list[str]]:
    """Weekly CO2 at Mauna Loa, the last 200 weeks after 1,000 others."""
    rows = pl.read_parquet(data(NEEDED["series"])).drop_nulls().tail(1200)
    return rows, 200, ["--target", "co2"]


def panel() -> tuple[pl.DataFrame, int, list[str]]:
    """Cars in eight car parks, the last week after ten others."""
    rows = pl.read_parquet(data(NEEDED["panel"])).sort("last_updated").select(pl.exclude("capacity"))
    parks = rows["system_code_number"].unique().sort().head(8)
    rows = rows.filter(pl.col("system_code_number").is_in(parks.implode()))
    names = {"system_code_number": "car park", "last_updated": "time", "occupancy": "cars"}
    num_last = rows.filter(pl.col("last_updated") >= datetime(2016, 12, 12)).height
    return rows.rename(names), num_last, ["--target", "cars", "--likelihood", "gaussian"]


def table() -> tuple[pl.DataFrame, int, list[str]]:
    """Patients with diabetes, in the units of the measurements."""
    frame = load_diabetes(as_frame=True, scaled=False)["frame"]
    rows = pl.DataFrame({name: frame[name].to_numpy() for name in frame}).rename({"target": "progression"})
    rows = rows.with_columns(sex=pl.when(pl.col("sex") == 1).then(pl.lit("one")).otherwise(pl.lit("other")))
    return rows[RNG.permutation(len(rows))], 142, ["--target", "progression"]


def counts() -> tuple[pl.DataFrame, int, list[str]]:
    """Defects of rolls of different lengths, from machines at different speeds (generated)."""
    speed, length = RNG.uniform(20, 80, 900).round(1), RNG.uniform(1, 5, 900).round(1)
    machine = RNG.choice(["first", "second", "third", "old"], 900, p=[0.4, 0.3, 0.2, 0.1])
    rate = np.exp(0.03 * (speed - 20) - 1.5 + 0.8 * (machine == "old"))
    rows = {"speed": speed, "machine": machine, "length": length, "defects": RNG.poisson(rate * length)}
    return pl.DataFrame(rows), 300, ["--target", "defects", "--exposure", "length"]


def classes() -> tuple[pl.DataFrame, int, list[str]]:
    """Wines of three growers."""
    frame = load_wine(as_frame=True)["frame"]
    rows = pl.DataFrame({name: frame[name].to_numpy() for name in frame})
    grower = np.array(["first", "second", "third"])[frame["target"]]
    return rows.drop("target").with_columns(grower=grower)[RNG.permutation(178)], 78, ["--target", "grower"]


def data(name: str) -> Path:
    """Return where a table is."""
    return Path(os.environ.get("OVERTONE_DATA", "data")) / f"{name}.parquet"


def browse(*arguments: str) -> None:
    """Run chromium."""
    subprocess.run(["chromium", *FLAGS, "--user-data-dir=profile", *arguments], check=True, capture_output=True)


def save(picture: Image.Image, path: Path) -> None:
    """Save a picture without the white below it, in few colours, and folded if it is long."""
    white = np.all(np.asarray(picture.convert("L")) > 250, axis=1)
    picture = picture.convert("RGB").crop((0, 0, picture.width, len(white) - int(np.argmin(white[::-1]))))
    if picture.height > 3 * picture.width:  # of a phone
        parts = range(0, picture.height, FOLD)
        picture = side_by_side(
            [picture.crop((0, top, picture.width, min(top + FOLD, picture.height))) for top in parts]
        )
    for num_colours in (96, 64, 48, 32):  # until it is small
        few = picture.quantize(num_colours, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(path, optimize=True)
        if path.stat().st_size < MAX_PICTURE_BYTES:
            break
    print(f"{path.name}, {path.stat().st_size / 1000:.0f} kB", flush=True)


def side_by_side(pictures: list[Image.Image]) -> Image.Image:
    """Return pictures in a row; all are as large as the first, or shorter."""
    width, height = pictures[0].size
    row = Image.new("RGB", (len(pictures) * (width + 4), height), "white")
    for i, picture in enumerate(pictures):
        row.paste(picture, (i * (width + 4), 0))
        row.paste("grey", (i * (width + 4) + width, 0, (i + 1) * (width + 4), height))
    return row


def draw(kind: str, folder: Path) -> None:
    """Fit a model to all but the last rows of a table, and draw the report about those, in the current folder."""
    rows, num_last, arguments = globals()[kind]()
    rows.head(-num_last).write_csv("train.csv")
    rows.tail(num_last).write_csv("test.csv")
    for command in (
        ["fit", "train.csv", *arguments, "--steps", "300", "--validate", "0", "--quiet"],
        ["report", "model.safetensors", "test.csv"],
    ):
        assert overtone(command) == 0
    page = html.escape(Path("report.html").read_text())
    for name, (width, scale) in SIZES.items():  # in a frame, since a window of chromium has at least 500 pixels
        frame = f'<iframe style="border:0;width:{width}px;height:{MAX_HEIGHT}px" srcdoc="{page}"></iframe>'
        Path("frame.html").write_text(f'<!doctype html><meta charset="utf-8"><body style="margin:0">{frame}')
        window = [f"--window-size={width},{MAX_HEIGHT}", f"--force-device-scale-factor={scale}"]
        browse(*window, "--screenshot=screen.png", Path("frame.html").absolute().as_uri())
        picture = Image.open("screen.png")
        save(picture.crop((0, 0, round(width * scale), picture.height)), folder / f"{kind}{name}.png")
    browse("--no-pdf-header-footer", "--print-to-pdf=report.pdf", Path("report.html").absolute().as_uri())
    subprocess.run(["pdftoppm", "-r", "40", "-png", "report.pdf", "print"], check=True)
    leaves = [Image.open(path) for path in sorted(Path().glob("print-*.png"))]
    save(side_by_side(leaves), folder / f"{kind}_print.png")


def main(folder: Path) -> None:
    """Draw all kinds."""
    if absent := [name for name in ("chromium", "pdftoppm") if not shutil.which(name)]:
        sys.exit(f"{' and '.join(absent)}: not found; pictures of reports stay as they are.")
    folder = folder.absolute()
    for kind in ("series", "panel", "table", "counts", "classes"):
        if kind in NEEDED and not data(NEEDED[kind]).exists():
            print(
                f"{kind}: {NEEDED[kind]} is not in the folder that OVERTONE_DATA names; its pictures stay as they are."
            )
            continue
        with tempfile.TemporaryDirectory() as place, chdir(place):
            draw(kind, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
