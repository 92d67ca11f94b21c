"""Errors about tables: one sentence each, which names the place as those know it who have the file before them."""

from collections.abc import Callable


class TableError(ValueError):
    """Report in one sentence why a table cannot be used, and where the problem is."""

    def located(self, place: Callable[[int], str]) -> str:
        """Return the sentence, with `place(row)` in words for each row that it names."""
        return str(self)


class CellError(TableError):
    """Report a cell that cannot be read: `before`, the place of its row, `after`."""

    def __init__(self, before: str, row: int, after: str):
        super().__init__(f"{before} row {row + 1}{after}")
        self.before, self.row, self.after = before, int(row), after

    def located(self, place: Callable[[int], str]) -> str:
        return f"{self.before} {place(self.row)}{self.after}"


class ColumnErrors(TableError):
    """Report all columns that cannot be used at once."""

    def __init__(self, errors: list[TableError]):
        super().__init__(_joined([str(error) for error in errors]))
        self.errors = errors

    def located(self, place: Callable[[int], str]) -> str:
        return _joined([error.located(place) for error in self.errors])


def _joined(sentences: list[str]) -> str:
    return sentences[0] if len(sentences) == 1 else f"{len(sentences)} columns cannot be used: {' '.join(sentences)}"


def quoted_list(names: list[str], max_shown: int = 5) -> str:
    """Return the names in quotes, separated by commas, with a count of those beyond `max_shown`."""
    shown = ", ".join(map(repr, names[:max_shown]))
    return shown if len(names) <= max_shown else f"{shown} and {len(names) - max_shown} more"
