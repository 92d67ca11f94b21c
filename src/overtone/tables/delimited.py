"""Read text files of delimited columns: the encoding and the delimiter are found from the file unless they are given.

UTF-16 has a mark in front. What is not UTF-8 is Windows-1252, which contains Latin-1's letters. The delimiter is the
one that splits the first lines into the same number of columns, and into most of them.
"""

import codecs
import csv
import gzip
import io
import logging
import os
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl

from overtone.tables.errors import TableError, quoted_list
from overtone.tables.gaps import number_of

log = logging.getLogger("overtone")
DELIMITERS = ",;\t|"
NUM_SAMPLED_CHARACTERS, NUM_SAMPLED_LINES = 2**16, 20
MAX_BYTES, MAX_RATIO = 2**27, 50  # of an unpacked file: so many bytes, and so many times those of the packed one


@dataclass(frozen=True)
class TextOptions:
    """Hold the delimiter and the encoding of text files; where they are empty, each file tells."""

    delimiter: str = ""
    encoding: str = ""

    def __post_init__(self):
        if len(self.delimiter) > 1 or self.delimiter in ('"', "\r", "\n"):
            raise TableError(f"--delimiter must be one character, or tab; got {self.delimiter!r}.")


AS_FOUND = TextOptions()


class BoundedGzip(gzip.GzipFile):
    """A gzip file that is refused once it is far larger than tables are: a small one can hold any amount of zeros."""

    def read1(self, size: int = -1) -> bytes:
        data = gzip.GzipFile.read1(self, size)
        if self.tell() > MAX_BYTES + MAX_RATIO * os.path.getsize(self.name):
            raise TableError(f"{self.name}: this gzip file unpacks to more than a table would; unpack it yourself.")
        return data


def read_delimited(path: Path, rows: int, options: TextOptions) -> Iterator[pl.DataFrame]:
    """Yield the rows of a file in chunks, in which all cells are text."""
    numbered = numbered_rows(path, options)
    _, names = next(numbered)
    while block := list(islice(numbered, rows)):
        yield pl.DataFrame([row for _, row in block], schema=dict.fromkeys(names, pl.String), orient="row")


def numbered_rows(path: Path, options: TextOptions) -> Iterator[tuple[int, list[str]]]:
    """Yield the header and the rows of a file, each with the number of its line."""
    opener: Any = BoundedGzip if path.name.endswith(".gz") else open
    encoding, reader = options.encoding, None
    try:
        with opener(path, "rb") as binary:
            encoding = encoding or _find_encoding(path, binary)
            text = "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding
            with io.TextIOWrapper(binary, encoding=text, newline="") as file:
                delimiter = options.delimiter or _find_delimiter(file)
                reader = csv.reader(file, delimiter=delimiter, strict=True)
                names = [name.strip() for name in next(reader, [])]
                _check_names(path, names)
                yield reader.line_num, names
                for row in filter(None, reader):
                    if len(row) != len(names):
                        values, columns = number_of(len(row), "value"), number_of(len(names), "column")
                        found = f"{values}, but the header has {columns}"
                        raise TableError(f"{path}, line {reader.line_num}: {found}.")
                    yield reader.line_num, row
    except csv.Error as error:
        raise TableError(f"{path}, line {reader and reader.line_num}: not a valid CSV file ({error}).") from None
    except UnicodeError:
        raise TableError(f"{path}: this file is not {encoding} text; name its encoding with --encoding.") from None
    except LookupError:
        raise TableError(f"--encoding {encoding!r} is not known; try utf-8, latin-1, cp1252 or utf-16.") from None
    except (zlib.error, EOFError, gzip.BadGzipFile) as error:
        raise TableError(f"{path}: this is not a gzip file, or a damaged one ({error}).") from None
    except OSError as error:
        raise TableError(f"{path}: this file cannot be read ({error.strerror or error}).") from None


def _find_encoding(path: Path, binary: Any) -> str:
    decoder, block = codecs.getincrementaldecoder("utf-8")(), binary.read1(2**20)
    encoding = "utf-16" if block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8"
    try:
        while block and encoding == "utf-8":
            decoder.decode(block)
            block = binary.read1(2**20)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        log.info("%s is not UTF-8 and is read as Windows-1252; --encoding changes this.", path)
        encoding = "cp1252"
    binary.seek(0)
    return encoding


def _find_delimiter(file: io.TextIOWrapper) -> str:
    sample = file.read(NUM_SAMPLED_CHARACTERS)
    file.seek(0)

    def num_columns(delimiter: str) -> int:
        """Return the number of columns that all lines agree on, or 0."""
        try:
            lines = list(islice(csv.reader(io.StringIO(sample), delimiter=delimiter), NUM_SAMPLED_LINES))
        except csv.Error:
            return 0
        cut = len(lines) < NUM_SAMPLED_LINES and len(sample) == NUM_SAMPLED_CHARACTERS
        widths = {len(line) for line in lines[: len(lines) - cut] if line}
        return widths.pop() if len(widths) == 1 else 0

    best = max(DELIMITERS, key=num_columns)
    header = sample.partition("\n")[0]
    return best if num_columns(best) > 1 else max(DELIMITERS, key=header.count)


def _check_names(path: Path, names: list[str]) -> None:
    if any("\0" in name for name in names):
        raise TableError(f"{path}: the first line is not text, unless it is UTF-16 or the like; name its --encoding.")
    if not any(names):
        raise TableError(f"{path}: the file or its first line is empty.")
    if duplicates := [name for name, count in Counter(names).items() if count > 1]:
        raise TableError(f"{path}: more than one column is called {quoted_list(duplicates)}; use unique names.")
