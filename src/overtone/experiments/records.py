"""Records as JSON lines: one for each case, appended as soon as it is measured and never changed.

Several processes may work on one file. A case is claimed by a lock on a file of its own, which the system gives back
even if the process is killed; a line is written under a lock on the whole file. What a killed process left of a line is
no record, and is removed before the next one is written.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Records:
    """The records of one experiment, in one file."""

    def __init__(self, path: Path):
        self.path = path

    def read(self) -> list[dict[str, Any]]:
        """Return all complete records."""
        if not self.path.exists():
            return []
        *lines, _ = self.path.read_text().split("\n")  # what follows the last line's end is unfinished, or empty
        try:
            return [json.loads(line) for line in lines]
        except json.JSONDecodeError as error:
            raise ValueError(
                f"{self.path}: a line is not JSON ({error}); remove it, and its case runs again."
            ) from None

    def has(self, case: dict[str, Any]) -> bool:
        """Return whether a record has all fields of a case."""
        wanted = json.loads(json.dumps(case))
        return any(wanted.items() <= _hashable_items(record) for record in self.read()) if wanted else False

    @contextmanager
    def claim(self, case: dict[str, Any]) -> Iterator[bool]:
        """Yield whether the case is ours to measure: it has no record, and no other process works on it."""
        folder = self.path.parent / ".claims"
        folder.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(json.dumps(case, sort_keys=True).encode()).hexdigest()[:24]
        with (folder / f"{self.path.stem}-{digest}").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield not self.has(case)

    def append(self, record: dict[str, Any]) -> None:
        """Write one more record, and return once it is on the disk."""
        line = (json.dumps(record) + "\n").encode()
        with self.path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            kept = file.read().rfind(b"\n") + 1
            file.truncate(kept)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())


def _hashable_items(record: dict[str, Any]) -> Any:
    """Return the fields of a record that a case can have: numbers, words, yes and no."""
    return {name: value for name, value in record.items() if not isinstance(value, list | dict)}.items()
