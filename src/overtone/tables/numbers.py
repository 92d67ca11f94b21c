"""Read numbers as people write them: 1234.5, 1,234.5, 1.234,5, 1 234,5 and 1'234.5, and the words for missing values.

A column has one style. It is the plain one if all cells can be read so, and otherwise the one that all cells follow:
1234 has no place beside 1 000. Where cells follow two styles with different results, such as 1,234 without any other
hint, the user is asked.
"""

import re
from dataclasses import dataclass

import polars as pl

from overtone.tables.errors import CellError, TableError

MISSING_WORDS = ("", "na", "n/a", "nan", "null", "?", "#n/a", "#na", "<na>")
MISSING_NUMBERS = (*MISSING_WORDS, "none", "-", "--", ".", "#null!")  # which may well be words of a category
MIN_NUMBER_SHARE = 0.5  # of the distinct cells, above which those that are not numbers are an error rather than words
DECORATIONS = "$€£¥%"  # of cells that look like numbers, but have to be written without
NO_BREAK_SPACES = "[\u00a0\u202f\u2009]"


@dataclass(frozen=True)
class NumberStyle:
    """Hold how numbers are written: the sign before decimals, and the one between thousands, if there is one."""

    decimal: str = "."
    thousands: str = ""

    def parse(self, words: pl.Series) -> pl.Series:
        """Return words as floats, with null for missing values and for text that is not a number."""
        if self != PLAIN:
            group, point = re.escape(self.thousands), re.escape(self.decimal)
            whole = rf"\d{{1,3}}(?:{group}\d{{3}})*" if group else r"\d+"
            number = rf"^[+-]?(?:{whole}(?:{point}\d*)?|{point}\d+)(?:[eE][+-]?\d+)?$"
            words = words.str.replace_all(NO_BREAK_SPACES, " ")
            words = words.set(~words.str.contains(number), None)
            words = words.str.replace_all(self.thousands, "", literal=True) if group else words
            words = words.str.replace_all(self.decimal, ".", literal=True)
        return words.cast(pl.Float64, strict=False)


PLAIN = NumberStyle()
STYLES = (PLAIN, NumberStyle(","), *(NumberStyle(d, t) for d, t in ((".", ","), (",", "."))))
STYLES += tuple(NumberStyle(decimal, thousands) for thousands in " '" for decimal in ".,")


def clean_words(series: pl.Series, missing: tuple[str, ...] = MISSING_NUMBERS, na: tuple[str, ...] = ()) -> pl.Series:
    """Return a series as stripped text, with null for words that stand for a missing value, and for those in `na`."""
    words = series.cast(pl.String).str.strip_chars()
    if series.dtype.is_float():  # so that 1 and 1.0 are the same word
        integers = series.cast(pl.Int64, strict=False)
        words = integers.cast(pl.String).zip_with((integers == series).fill_null(False), words)
    return words.set(words.str.to_lowercase().is_in(missing) | words.is_in(na), None)


def find_style(words: pl.Series, decimal: str = "") -> NumberStyle | None:
    """Return the style in which a column's words are numbers, or None if it is a column of words.

    With `decimal`, only the styles with this sign are tried. A column that is numeric but for some cells is an error.
    """
    distinct = words.drop_nulls().unique(maintain_order=True)
    styles = [style for style in STYLES if decimal in ("", style.decimal)]
    unread = {style: style.parse(distinct).null_count() for style in styles}
    best = min(styles, key=lambda style: unread[style])
    if not unread[best]:
        if best != PLAIN:
            _check_one_reading(words, [style for style in styles if not unread[style]])
        return best
    bare = distinct.str.replace_all(f"[{DECORATIONS}]", "").str.strip_chars()
    if best.parse(bare).null_count() >= (1 - MIN_NUMBER_SHARE) * distinct.len():
        return None
    row = int((best.parse(words).is_null() & words.is_not_null()).arg_true()[0])
    advice = "name it with --na if it stands for a missing value, or the column with --categorical if it holds words"
    raise CellError(f"column {words.name!r} holds numbers, but", row, f" has {words[row]!r}; correct it, or {advice}.")


def _check_one_reading(words: pl.Series, styles: list[NumberStyle]) -> None:
    """Raise an error if styles that read all words disagree about one."""
    first, *others = (style.parse(words) for style in styles)
    for style, other in zip(styles[1:], others, strict=True):
        if len(different := (first != other).arg_true()):
            cell, one, two = (series[different[0]] for series in (words, first, other))
            raise TableError(
                f"column {words.name!r} has numbers such as {cell!r}, which is {one:g} with --decimal "
                f"{styles[0].decimal} and {two:g} with --decimal {style.decimal}; say which."
            )
