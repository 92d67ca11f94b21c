"""Convert a table to arrays on the disk, so that a model can be trained on more rows than fit into memory.

A first pass keeps evenly spaced rows, which tell what the columns mean; a second one writes inputs and targets. They
stay in a folder that is named after the files of the table (names, sizes, times) and all that decides how they are
read, where the next fit finds them. The folder has its name once it is complete: what was interrupted leaves nothing.
"""

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from overtone.storage.rows import RowView, StoredRows
from overtone.tables.delimited import TextOptions
from overtone.tables.encode import Encoder
from overtone.tables.errors import TableError
from overtone.tables.gaps import number_of
from overtone.tables.read import evenly_spaced, located_errors, part_files, read_chunks, shown
from overtone.tables.rows import complete_rows, read_targets
from overtone.tables.targets import spellings
from overtone.version import __version__

LARGE_BYTES = 2**28  # of the files of a table that is converted without being asked for
SAMPLE_ROWS = 100_000  # at least, that tell what columns mean; twice as many at most
DAYS_KEPT = 30  # without use
UNFINISHED = ".converting-"
Understand = Callable[[pl.DataFrame], Encoder]


class Converted(NamedTuple):
    """A table on the disk: its rows, the labels that targets number, evenly spaced rows, and what they mean.

    `left_out` is the number of rows without a target or with missing inputs.
    """

    X: RowView  # (N, D), complete
    Y: RowView  # (N, P), with NaN for missing values; classes are numbers of labels
    exposure: RowView | None
    labels: list[str]
    sample: pl.DataFrame
    encoder: Encoder
    left_out: int


def is_large(path: str) -> bool:
    """Return whether a table has more bytes than are read into memory at once."""
    return sum(part.stat().st_size for part in part_files(Path(path))) > LARGE_BYTES


def converted(
    path: str,
    options: TextOptions,
    understand: Understand,
    wanted: Any,
    *,
    exposure: str | None = None,
    folder: str | None = None,
    progress: bool = False,
) -> Converted:
    """Return a table as rows on the disk, converted unless that was done before.

    understand: what evenly spaced rows say about the inputs, the targets and, after them, the exposure.
    wanted: all that it depends on, as JSON can express it. folder: where conversions are kept, not the user's cache.
    """
    home = Path(folder) if folder else _usual_home()
    files = [[part.name, part.stat().st_size, part.stat().st_mtime_ns] for part in part_files(Path(path))]
    key = json.dumps([str(Path(path).absolute()), files, asdict(options), wanted, __version__], sort_keys=True)
    kept = home / hashlib.sha256(key.encode()).hexdigest()[:24]
    try:
        home.mkdir(parents=True, exist_ok=True)
        _forget(home)
        if not kept.exists():
            _convert(path, options, understand, exposure, kept, progress)
        os.utime(kept)
    except OSError as error:
        raise TableError(f"{path} cannot be converted in {home}: {error.strerror or error}.") from None
    about, sample = json.loads((kept / "about.json").read_text()), pl.read_parquet(kept / "sample.parquet")
    encoder, rows = understand(sample), StoredRows(kept / "targets.npy")
    num, (labels, rank) = len(about["targets"]), np.unique(about["labels"], return_inverse=True)
    if len(labels):
        Y = RowView(rows, np.int64, lambda part: rank[part.astype(int)])
    else:
        Y = RowView(rows, change=lambda part: part[:, :num])
    exposures = RowView(rows, change=lambda part: part[:, num:]) if exposure else None
    X = RowView(StoredRows(kept / "inputs.npy"))
    return Converted(X, Y, exposures, labels.tolist(), sample, encoder, about["rows"] - len(X))


def _usual_home() -> Path:
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "overtone" / "tables"
    except RuntimeError:
        raise TableError("there is no home for the converted table; name a folder with --convert.") from None


def _convert(
    path: str, options: TextOptions, understand: Understand, exposure: str | None, kept: Path, progress: bool
) -> None:
    sample, numbers = evenly_spaced(path, options, SAMPLE_ROWS, progress)
    encoder = understand(sample)
    needed, free = 8 * numbers.stop * (len(encoder.inputs) + len(encoder.others)), shutil.disk_usage(kept.parent).free
    if needed > free:
        raise TableError(f"{path}: converting it takes {needed / 1e9:.3g} GB, but {kept.parent} has {free / 1e9:.3g}.")
    with tempfile.TemporaryDirectory(prefix=f"{UNFINISHED}{os.getpid()}-", dir=kept.parent) as unfinished:
        folder = Path(unfinished) / "whole"
        folder.mkdir()
        chunks = shown(read_chunks(path, options), "convert", numbers.stop, progress)
        about = _write_arrays(path, options, encoder, exposure, folder, chunks)
        sample.write_parquet(folder / "sample.parquet")
        (folder / "about.json").write_text(json.dumps(about))
        try:
            folder.rename(kept)
        except OSError:
            if not kept.exists():  # or somebody else was quicker
                raise


def _write_arrays(
    path: str, options: TextOptions, encoder: Encoder, exposure: str | None, folder: Path, chunks: Iterable
) -> dict[str, Any]:
    """Write the inputs and the targets of all rows, and return what else there is to know."""
    targets = [column for column in encoder.others if column.name != exposure]
    numbers: dict[str, int] = {}  # of labels, as they appear
    first, classes = 0, targets[0].kind == "category"
    with NpyWriter(folder / "inputs.npy") as inputs, NpyWriter(folder / "targets.npy") as outputs:
        for chunk in chunks:
            with located_errors(path, options, range(first, first + len(chunk))):
                y, known = read_targets(chunk, targets, whole=False)
            first += len(chunk)
            if not len(known):
                continue
            with located_errors(path, options, known + first - len(chunk)):
                rows = complete_rows(encoder, chunk[known], y, exposure)
            y = np.array([numbers.setdefault(label, len(numbers)) for label in rows.y]) if classes else rows.y
            inputs.write(rows.X)
            outputs.write(np.column_stack([y.reshape(len(rows), len(targets)), *rows.keywords.values()]))
    if inputs.num_rows < 2:
        raise TableError(f"{path}: {number_of(inputs.num_rows, 'complete row')}; a fit needs at least 2.")
    with located_errors(path, options):
        labels = list(spellings(targets[0].name, list(numbers)).values())
    return {"targets": [column.name for column in targets], "labels": labels, "rows": first}


def _forget(home: Path) -> None:
    """Remove what killed processes left, and conversions that nobody has used for long."""
    for left_over in home.glob(f"{UNFINISHED}*"):
        if not Path("/proc", left_over.name.split("-")[1]).exists():
            shutil.rmtree(left_over, ignore_errors=True)
    for kept in home.glob("*/about.json"):
        if time.time() - kept.parent.stat().st_mtime > DAYS_KEPT * 86400:
            shutil.rmtree(kept.parent, ignore_errors=True)


class NpyWriter:
    """Writes an array of doubles of as many rows as come, to a .npy file."""

    def __init__(self, path: Path):
        self.path, self.shape = path, (0, 0)

    @property
    def num_rows(self) -> int:
        return self.shape[0]

    def __enter__(self) -> "NpyWriter":
        self.file = self.path.open("wb")
        return self

    def write(self, rows: np.ndarray) -> None:
        """Add rows (N, D)."""
        if not self.file.tell():
            self._write_header(rows.shape[1])
        self.file.write(np.ascontiguousarray(rows, np.float64).data)
        self.shape = self.num_rows + len(rows), rows.shape[1]

    def __exit__(self, *_: Any) -> None:
        self.file.seek(0)
        self._write_header(self.shape[1])  # which takes the same room for any number of rows
        self.file.close()

    def _write_header(self, width: int) -> None:
        header = {"descr": "<f8", "fortran_order": False, "shape": (self.num_rows, width)}
        np.lib.format.write_array_header_1_0(self.file, header)
