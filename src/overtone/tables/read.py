"""Read tables from disk into polars frames and write them back, with errors that name the file and the line.

A table is CSV (optionally gzipped) or Parquet, one file or a folder of parts, read as a whole or in chunks. CSV cells
stay text: `tables.encode` decides once, at training, what a column means, rather than again for every chunk.
"""

import csv
import gzip
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

import polars as pl

CHUNK_ROWS = 50_000
SUFFIXES = (".csv", ".csv.gz", ".parquet", ".pq")
OTHER_DELIMITERS = ";\t|"


class TableError(ValueError):
    """Report in one sentence why a table cannot be used, and where the problem is."""


def read_table(path: str | Path) -> pl.DataFrame:
    """Read all rows of a table."""
    return pl.concat(list(read_chunks(path)), how="vertical")


def read_chunks(path: str | Path, rows: int = CHUNK_ROWS) -> Iterator[pl.DataFrame]:
    """Yield the rows of a table in chunks; there is at least one chunk, and none is empty."""
    names = None
    for part in _part_files(Path(path)):
        for chunk in _read_csv(part, rows) if ".csv" in part.suffixes else _read_parquet(part, rows):
            if names is not None and chunk.columns != names:
                raise TableError(f"{part}: columns {quoted_list(chunk.columns)} differ from those of earlier parts.")
            names = chunk.columns
            yield chunk


def _part_files(path: Path) -> list[Path]:
    if path.is_dir():
        parts = sorted(part for part in path.iterdir() if part.name.endswith(SUFFIXES))
        if not parts:
            raise TableError(f"{path}: there are no {', '.join(SUFFIXES)} files in this folder.")
        return parts
    if not path.is_file():
        raise TableError(f"{path}: there is no such file or folder.")
    if not path.name.endswith(SUFFIXES):
        raise TableError(f"{path}: the file name of a table must end in {', '.join(SUFFIXES)}.")
    return [path]


def _read_csv(path: Path, rows: int) -> Iterator[pl.DataFrame]:
    opener = gzip.open if path.name.endswith(".gz") else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            yield from _csv_chunks(path, csv.reader(file, strict=True), rows)
    except UnicodeDecodeError:
        raise TableError(f"{path}: this file is not UTF-8 text; save it as UTF-8.") from None
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise TableError(f"{path}: this gzip file is damaged ({error}).") from None
    except OSError as error:
        raise TableError(f"{path}: {error.strerror or error}.") from None


def _csv_chunks(path: Path, reader, rows: int) -> Iterator[pl.DataFrame]:
    try:
        names = [name.strip() for name in next(reader, [])]
        if not any(names):
            raise TableError(f"{path}: the file or its first line is empty.")
        _check_names(path, names)
        first_row = next((row for row in reader if row), None)
        if first_row is None:
            raise TableError(f"{path}: the table has a header but no rows.")
        numbered_rows = chain([(reader.line_num, first_row)], ((reader.line_num, row) for row in reader if row))
        while block := list(islice(numbered_rows, rows)):
            for line, row in block:
                if len(row) != len(names):
                    raise TableError(
                        f"{path}, line {line}: {len(row)} values, but the header has {len(names)} columns."
                    )
            columns = zip(*(row for _, row in block), strict=True)
            yield pl.DataFrame([pl.Series(n, c, dtype=pl.String) for n, c in zip(names, columns, strict=True)])
    except csv.Error as error:
        raise TableError(f"{path}, line {reader.line_num}: not a valid CSV file ({error}).") from None


def _check_names(path: Path, names: list[str]) -> None:
    if len(names) == 1 and (used := [d for d in OTHER_DELIMITERS if d in names[0]]):
        raise TableError(f"{path}: the header contains {used[0]!r} but no commas; separate the columns by commas.")
    if duplicates := [name for name, count in Counter(names).items() if count > 1]:
        raise TableError(f"{path}: more than one column is called {quoted_list(duplicates)}; use unique names.")


def _read_parquet(path: Path, rows: int) -> Iterator[pl.DataFrame]:
    try:
        table = pl.scan_parquet(path)
        if not table.collect_schema().names() or not table.select(pl.len()).collect().item():
            raise TableError(f"{path}: the table has no rows.")
        for chunk in table.collect_batches(chunk_size=rows, maintain_order=True):
            if len(chunk):
                yield chunk
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise TableError(f"{path}: the file is damaged or not a Parquet file ({reason}).") from None


def quoted_list(names: list[str], max_shown: int = 5) -> str:
    """Return the names in quotes, separated by commas, with a count of those beyond `max_shown`."""
    shown = ", ".join(map(repr, names[:max_shown]))
    return shown if len(names) <= max_shown else f"{shown} and {len(names) - max_shown} more"


class TableWriter:
    """Write chunks of rows to a CSV or Parquet file that appears under its name only once it is complete."""

    def __init__(self, path: str):
        self.path = Path(path)
        if not path.endswith((".csv", ".parquet")):
            raise TableError(f"{path}: the name of the output file must end in .csv or .parquet.")
        if not self.path.absolute().parent.is_dir():
            raise TableError(f"{path}: there is no such folder to write to.")
        self.num_chunks = 0

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix=f".{self.path.name}.", dir=self.path.absolute().parent)
        self.unfinished = Path(self.folder.name) / self.path.name
        return self

    def add(self, frame: pl.DataFrame) -> None:
        """Append a chunk of rows."""
        if self.path.suffix == ".csv":
            with self.unfinished.open("ab") as file:
                frame.write_csv(file, include_header=not self.num_chunks)
        else:
            frame.write_parquet(self.unfinished.with_name(f"{self.num_chunks:09}.part"))
        self.num_chunks += 1

    def __exit__(self, error_type, *_):
        with self.folder:
            if error_type is None and self.path.suffix == ".parquet":
                pl.scan_parquet(sorted(self.unfinished.parent.glob("*.part"))).sink_parquet(self.unfinished)
            if error_type is None:
                self.unfinished.replace(self.path)
