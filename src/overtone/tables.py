"""Tables as they are on disk -> polars frames and back, with errors that name the file and the place.

CSV (also gzip) and Parquet, one file or a folder of parts, whole or in chunks. A CSV is read as text: what its columns
mean is decided once, for training (see `encoding`), and not again for every chunk.
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

CHUNK = 50_000  # rows
SUFFIXES = (".csv", ".csv.gz", ".parquet", ".pq")
DELIMITERS = ";\t|"


class TableError(ValueError):
    """A table that cannot be used; the message is one sentence that says why, and where."""


def read_table(path: str | Path) -> pl.DataFrame:
    """All rows of a table."""
    return pl.concat(list(read_chunks(path)), how="vertical")


def read_chunks(path: str | Path, rows: int = CHUNK) -> Iterator[pl.DataFrame]:
    """The rows of a table, some at a time; at least one chunk, and no chunk is empty."""
    names = None
    for part in _parts(Path(path)):
        for chunk in _read_csv(part, rows) if ".csv" in part.suffixes else _read_parquet(part, rows):
            if names is not None and chunk.columns != names:
                raise TableError(
                    f"{part}: its columns differ from those of the parts before; got {some(chunk.columns)}."
                )
            names = chunk.columns
            yield chunk


def _parts(path: Path) -> list[Path]:
    if path.is_dir():
        parts = sorted(part for part in path.iterdir() if part.name.endswith(SUFFIXES))
        if not parts:
            raise TableError(f"{path}: there are no {', '.join(SUFFIXES)} files in this folder.")
        return parts
    if not path.is_file():
        raise TableError(f"{path}: there is no such file or folder.")
    if not path.name.endswith(SUFFIXES):
        raise TableError(f"{path}: the name of a table must end in {', '.join(SUFFIXES)}.")
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
            raise TableError(f"{path}: this file is empty, or its first line is.")
        _check_names(path, names)
        first = next((row for row in reader if row), None)
        if first is None:
            raise TableError(f"{path}: this table has a header and no rows.")
        filled = chain([(reader.line_num, first)], ((reader.line_num, row) for row in reader if row))
        while block := list(islice(filled, rows)):
            for line, row in block:
                if len(row) != len(names):
                    raise TableError(
                        f"{path}, line {line}: {len(row)} values, but the header has {len(names)} columns."
                    )
            columns = zip(*(row for _, row in block), strict=True)
            yield pl.DataFrame([pl.Series(n, c, dtype=pl.String) for n, c in zip(names, columns, strict=True)])
    except csv.Error as error:
        raise TableError(f"{path}, line {reader.line_num}: this is no CSV ({error}).") from None


def _check_names(path: Path, names: list[str]) -> None:
    if len(names) == 1 and (found := [d for d in DELIMITERS if d in names[0]]):
        raise TableError(f"{path}: the header has no commas, but {found[0]!r}; separate the columns by commas.")
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise TableError(f"{path}: more than one column is called {some(twice)}; give each a name of its own.")


def _read_parquet(path: Path, rows: int) -> Iterator[pl.DataFrame]:
    try:
        table = pl.scan_parquet(path)
        if not table.collect_schema().names() or not table.select(pl.len()).collect().item():
            raise TableError(f"{path}: this table has no rows.")
        for chunk in table.collect_batches(chunk_size=rows, maintain_order=True):
            if len(chunk):
                yield chunk
    except (pl.exceptions.PolarsError, OSError) as error:
        raise TableError(f"{path}: this is no Parquet file, or it is damaged ({_first_line(error)}).") from None


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


def some(names: list[str], most: int = 5) -> str:
    shown = ", ".join(map(repr, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


class TableWriter:
    """A CSV or Parquet file that takes chunks of rows and appears under its name once it is complete."""

    def __init__(self, path: str):
        self.path = Path(path)
        if not path.endswith((".csv", ".parquet")):
            raise TableError(f"{path}: the name of the predictions must end in .csv or .parquet.")
        if not self.path.absolute().parent.is_dir():
            raise TableError(f"{path}: there is no such folder to write to.")
        self.num = 0

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix=f".{self.path.name}.", dir=self.path.absolute().parent)
        self.new = Path(self.folder.name) / self.path.name
        return self

    def add(self, frame: pl.DataFrame) -> None:
        if self.path.suffix == ".csv":
            with self.new.open("ab") as file:
                frame.write_csv(file, include_header=not self.num)
        else:
            frame.write_parquet(self.new.with_name(f"{self.num:09}.part"))
        self.num += 1

    def __exit__(self, kind, *_):
        with self.folder:
            if kind is None and self.path.suffix == ".parquet":
                pl.scan_parquet(sorted(self.new.parent.glob("*.part"))).sink_parquet(self.new)
            if kind is None:
                self.new.replace(self.path)
