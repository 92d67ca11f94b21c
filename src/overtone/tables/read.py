"""Read tables from disk into polars frames and write them back, with errors that name the file and the line.

A table is CSV (optionally gzipped), Excel or Parquet, one file or a folder of parts, read as a whole or in chunks. CSV
cells stay text: `tables.encode` decides once, at training, what a column means, rather than again for every chunk.
"""

import logging
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import numpy as np
import polars as pl
from tqdm.auto import tqdm

from overtone.tables.delimited import AS_FOUND, MAX_BYTES, TextOptions, numbered_rows, read_delimited
from overtone.tables.errors import TableError, quoted_list

log = logging.getLogger("overtone")
CHUNK_ROWS = 50_000
TEXT_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
SUFFIXES = (*TEXT_SUFFIXES, ".xlsx", ".parquet", ".pq")


def read_table(path: str | Path, options: TextOptions = AS_FOUND) -> pl.DataFrame:
    """Read all rows of a table."""
    return _together(path, list(read_chunks(path, options)))


def read_chunks(path: str | Path, options: TextOptions = AS_FOUND) -> Iterator[pl.DataFrame]:
    """Yield the rows of a table in chunks; there is at least one chunk, and none is empty."""
    names = None
    for part in part_files(Path(path)):
        num_rows = 0
        for chunk in _read_part(part, CHUNK_ROWS, options):
            if names is not None and chunk.columns != names:
                raise TableError(f"{part}: columns {quoted_list(chunk.columns)} differ from those of earlier parts.")
            names, num_rows = chunk.columns, num_rows + len(chunk)
            yield chunk
        if not num_rows:
            raise TableError(f"{part}: the table has a header but no rows.")


def evenly_spaced(
    path: str | Path, options: TextOptions, most: int, progress: bool = False
) -> tuple[pl.DataFrame, range]:
    """Return evenly spaced rows of a table, from `most` to twice as many or all of them, and the numbers they have."""
    kept, step, num_rows = [], 1, 0
    for chunk in shown(read_chunks(path, options), "look", None, progress):
        kept.append(chunk[-num_rows % step :: step])
        num_rows += len(chunk)
        while sum(map(len, kept)) > 2 * most:
            kept, step = [_together(path, kept)[::2]], 2 * step
    return _together(path, kept), range(0, num_rows, step)


def _together(path: str | Path, chunks: list[pl.DataFrame]) -> pl.DataFrame:
    """Return chunks as one frame; a column with whole numbers in one part, and others elsewhere, is of the latter."""
    try:
        return pl.concat(chunks, how="vertical_relaxed")
    except pl.exceptions.PolarsError as error:
        raise TableError(f"{path}: the parts hold different kinds of columns ({_reason(error)}).") from None


def shown(chunks: Iterator[pl.DataFrame], what: str, num_rows: int | None, progress: bool) -> Iterator[pl.DataFrame]:
    """Yield chunks, with a progress bar of their rows."""
    with tqdm(desc=what, total=num_rows, unit=" rows", unit_scale=True, disable=not progress) as bar:
        for chunk in chunks:
            yield chunk
            bar.update(len(chunk))


def place_of_row(path: str | Path, row: int, options: TextOptions = AS_FOUND) -> str:
    """Return in words where a row of a table is: the line of a text file, or else the number of the row."""
    parts, num_before = part_files(Path(path)), 0
    for part in parts if all(part.name.endswith(TEXT_SUFFIXES) for part in parts) else []:
        for index, (line, _) in zip(count(num_before - 1), numbered_rows(part, options), strict=False):
            num_before = index + 1
            if index == row:
                return f"line {line}" if len(parts) == 1 else f"line {line} of {part.name}"
    return f"row {row + 1}"


@contextmanager
def located_errors(path: str, options: TextOptions, rows: Sequence[int] | np.ndarray | None = None) -> Iterator[None]:
    """Let errors about the rows of a frame, which are these of a table, name the table's file and line."""
    try:
        yield
    except TableError as error:
        text = error.located(lambda row: place_of_row(path, row if rows is None else int(rows[row]), options))
        raise TableError(f"{path}: {text}") from None


def part_files(path: Path) -> list[Path]:
    """Return the files of a table: one, or those of a folder but for hidden ones, which other programs leave there."""
    parts = [path]
    if path.is_dir():
        parts = [part for part in sorted(path.iterdir()) if part.is_file() and not part.name.startswith(".")]
    if not path.exists():
        raise TableError(f"{path}: there is no such file or folder.")
    if tables := [part for part in parts if part.name.endswith(SUFFIXES)]:
        return tables
    if path.is_dir():
        raise TableError(f"{path}: there are no {', '.join(SUFFIXES)} files in this folder.")
    raise TableError(f"{path}: the file name of a table must end in {', '.join(SUFFIXES)}.")


def _read_part(path: Path, rows: int, options: TextOptions) -> Iterator[pl.DataFrame]:
    if path.name.endswith(TEXT_SUFFIXES):
        return read_delimited(path, rows, options)
    return _read_excel(path, rows) if path.suffix == ".xlsx" else _read_parquet(path, rows)


def _read_excel(path: Path, rows: int) -> Iterator[pl.DataFrame]:
    try:
        import fastexcel  # type: ignore[import-not-found]  # an extra
    except ImportError:
        advice = "install overtone[excel], or save the sheet as CSV"
        raise TableError(
            f"{path}: Excel files are read by the package fastexcel, which is not there; {advice}."
        ) from None
    try:
        with zipfile.ZipFile(path) as packed:
            if sum(file.file_size for file in packed.infolist()) > MAX_BYTES:
                raise TableError(f"{path}: this Excel file is too large to be read; save the sheet as CSV.")
        sheets = fastexcel.read_excel(path).sheet_names
        frame = pl.read_excel(path, engine="calamine", infer_schema_length=None)
    except (zipfile.BadZipFile, fastexcel.FastExcelError, pl.exceptions.PolarsError, OSError) as error:
        raise TableError(f"{path}: the file is damaged or not an Excel file ({_reason(error)}).") from None
    if len(sheets) > 1:
        log.info("%s has %d sheets, of which the first, %r, is read.", path, len(sheets), sheets[0])
    yield from frame.iter_slices(rows)


def _read_parquet(path: Path, rows: int) -> Iterator[pl.DataFrame]:
    try:
        batches = pl.scan_parquet(path).collect_batches(chunk_size=rows, maintain_order=True)
        yield from (chunk for chunk in batches if len(chunk))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise TableError(f"{path}: the file is damaged or not a Parquet file ({_reason(error)}).") from None


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


@contextmanager
def table_writer(path: str) -> Iterator[Callable[[pl.DataFrame], None]]:
    """Yield a function that adds rows to a CSV or Parquet file, which appears under its name once it is complete."""
    if not path.endswith((".csv", ".parquet")):
        raise TableError(f"{path}: the name of the output file must end in .csv or .parquet.")
    try:
        with tempfile.TemporaryDirectory(prefix=".overtone.", dir=Path(path).absolute().parent) as folder:
            parts, unfinished = [], Path(folder) / "whole"

            def add(frame: pl.DataFrame) -> None:
                parts.append(Path(folder) / f"{len(parts)}.parquet")
                frame.write_parquet(parts[-1])

            yield add
            rows = pl.concat([pl.scan_parquet(part) for part in parts], how="vertical_relaxed")
            (rows.sink_csv if path.endswith(".csv") else rows.sink_parquet)(unfinished)
            unfinished.replace(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise TableError(f"{path} cannot be written: {_reason(error)}") from None
