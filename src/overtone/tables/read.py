"""Read tables from disk into polars frames and write them back, with errors that name the file and the line.

A table is CSV (optionally gzipped) or Parquet, one file or a folder of parts, read as a whole or in chunks. CSV cells
stay text: `tables.encode` decides once, at training, what a column means, rather than again for every chunk.
"""

import csv
import gzip
import io
import os
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import polars as pl

CHUNK_ROWS = 50_000
SUFFIXES = (".csv", ".csv.gz", ".parquet", ".pq")
OTHER_DELIMITERS = ";\t|"


MAX_BYTES, MAX_RATIO = 2**27, 50  # of an unpacked file: so many bytes, and so many times those of the packed one


class TableError(ValueError):
    """Report in one sentence why a table cannot be used, and where the problem is."""


def read_table(path: str | Path) -> pl.DataFrame:
    """Read all rows of a table."""
    return pl.concat(list(read_chunks(path)), how="vertical")


def read_chunks(path: str | Path, rows: int = CHUNK_ROWS) -> Iterator[pl.DataFrame]:
    """Yield the rows of a table in chunks; there is at least one chunk, and none is empty."""
    names = None
    for part in _part_files(Path(path)):
        num_rows = 0
        for chunk in _read_csv(part, rows) if ".csv" in part.suffixes else _read_parquet(part, rows):
            if names is not None and chunk.columns != names:
                raise TableError(f"{part}: columns {quoted_list(chunk.columns)} differ from those of earlier parts.")
            names, num_rows = chunk.columns, num_rows + len(chunk)
            yield chunk
        if not num_rows:
            raise TableError(f"{part}: the table has a header but no rows.")


def _part_files(path: Path) -> list[Path]:
    parts = sorted(path.iterdir()) if path.is_dir() else [path]
    if not path.exists():
        raise TableError(f"{path}: there is no such file or folder.")
    if tables := [part for part in parts if part.name.endswith(SUFFIXES)]:
        return tables
    if path.is_dir():
        raise TableError(f"{path}: there are no {', '.join(SUFFIXES)} files in this folder.")
    raise TableError(f"{path}: the file name of a table must end in {', '.join(SUFFIXES)}.")


class BoundedGzip(gzip.GzipFile):
    """A gzip file that is refused once it is far larger than tables are: a small one can hold any amount of zeros."""

    def read1(self, size: int = -1) -> bytes:
        data = gzip.GzipFile.read1(self, size)
        if self.tell() > MAX_BYTES + MAX_RATIO * os.path.getsize(self.name):
            raise TableError(f"{self.name}: this gzip file unpacks to more than a table would; unpack it yourself.")
        return data


def _read_csv(path: Path, rows: int) -> Iterator[pl.DataFrame]:
    opener = BoundedGzip if path.name.endswith(".gz") else open
    try:
        with opener(path, "rb") as binary, io.TextIOWrapper(binary, encoding="utf-8-sig", newline="") as file:
            yield from _csv_chunks(path, csv.reader(file, strict=True), rows)
    except UnicodeDecodeError:
        raise TableError(f"{path}: this file is not UTF-8 text; save it as UTF-8.") from None
    except (zlib.error, EOFError, OSError) as error:
        raise TableError(f"{path}: this file cannot be read, or is a damaged gzip file ({error}).") from None


def _csv_chunks(path: Path, reader, rows: int) -> Iterator[pl.DataFrame]:
    try:
        names = [name.strip() for name in next(reader, [])]
        _check_names(path, names)
        numbered_rows = ((reader.line_num, row) for row in reader if row)
        while block := list(islice(numbered_rows, rows)):
            if odd := [(line, len(row)) for line, row in block if len(row) != len(names)]:
                line, num = odd[0]
                raise TableError(f"{path}, line {line}: {num} values, but the header has {len(names)} columns.")
            yield pl.DataFrame([row for _, row in block], schema=dict.fromkeys(names, pl.String), orient="row")
    except csv.Error as error:
        raise TableError(f"{path}, line {reader.line_num}: not a valid CSV file ({error}).") from None


def _check_names(path: Path, names: list[str]) -> None:
    if not any(names):
        raise TableError(f"{path}: the file or its first line is empty.")
    if len(names) == 1 and (used := [d for d in OTHER_DELIMITERS if d in names[0]]):
        raise TableError(f"{path}: the header contains {used[0]!r} but no commas; separate the columns by commas.")
    if duplicates := [name for name, count in Counter(names).items() if count > 1]:
        raise TableError(f"{path}: more than one column is called {quoted_list(duplicates)}; use unique names.")


def _read_parquet(path: Path, rows: int) -> Iterator[pl.DataFrame]:
    try:
        batches = pl.scan_parquet(path).collect_batches(chunk_size=rows, maintain_order=True)
        yield from (chunk for chunk in batches if len(chunk))
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise TableError(f"{path}: the file is damaged or not a Parquet file ({reason}).") from None


def quoted_list(names: list[str], max_shown: int = 5) -> str:
    """Return the names in quotes, separated by commas, with a count of those beyond `max_shown`."""
    shown = ", ".join(map(repr, names[:max_shown]))
    return shown if len(names) <= max_shown else f"{shown} and {len(names) - max_shown} more"


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
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise TableError(f"{path} cannot be written: {reason}") from None
