"""Tables as people write them: each file with its exact reading, or with the exact sentence that refuses it."""

import gzip
import sys
from argparse import Namespace
from dataclasses import asdict, fields, replace
from datetime import datetime, timedelta, timezone
from io import BytesIO
from zipfile import ZipFile
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from overtone.app.cli import build_parser, main
from overtone.app.loading import located_errors
from overtone.app.training import TrainingTable, read_training_table
from overtone.tables.columns import MAX_CATEGORIES, NUM_HASHES, Column, ColumnHints, hashed_points, infer_column
from overtone.tables.delimited import AS_FOUND, TextOptions
from overtone.tables.encode import Encoder
from overtone.tables.errors import TableError
from overtone.tables.numbers import MISSING_NUMBERS
from overtone.tables.read import read_table

NAN = np.nan


def column_of(cells, name="c", **hints) -> tuple[Column, np.ndarray]:
    """Return what a column was taken for and its inputs, without the parts of the calendar."""
    series = cells if isinstance(cells, pl.Series) else pl.Series(name, cells)
    column = infer_column(series.alias(name), False, ColumnHints(**hints))
    return column, column.encode(series.alias(name))


FILES = {
    "commas": b"a,b\n1,x\n2,y\n",
    "semicolons": b"a;b\n1;x\n2;y\n",
    "tabs": b"a\tb\n1\tx\n2\ty\n",
    "bars": b"a|b\n1|x\n2|y\n",
    "quotes": b'"a";"b"\n"1";"x"\n"2";"y"\n',
    "carriage returns": b"a;b\r\n1;x\r\n2;y\r\n",
    "no last line end": b"a;b\n1;x\n2;y",
    "blank lines": b"a,b\n\n1,x\n\n2,y\n",
    "spaces in the header": b" a , b \n1,x\n2,y\n",
    "a mark of UTF-8": b"\xef\xbb\xbfa,b\n1,x\n2,y\n",
    "a mark and semicolons": b"\xef\xbb\xbfa;b\n1;x\n2;y\n",
    "UTF-16": "a\tb\n1\tx\n2\ty\n".encode("utf-16"),
    "UTF-16, the other way": b"\xfe\xff" + "a\tb\n1\tx\n2\ty\n".encode("utf-16-be"),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".tsv"])
def test_ordinary_files_are_read(name, suffix, tmp_path):
    path = tmp_path / f"table{suffix}"
    path.write_bytes(gzip.compress(FILES[name]) if suffix.endswith("gz") else FILES[name])
    assert read_table(path).to_dict(as_series=False) == {"a": ["1", "2"], "b": ["x", "y"]}


CONTENTS = {
    "semicolons and decimal commas": (b"a;b\n1,5;2,5\n", AS_FOUND, {"a": ["1,5"], "b": ["2,5"]}),
    "commas inside quotes": (b'a,b\n"1,5","2;5"\n', AS_FOUND, {"a": ["1,5"], "b": ["2;5"]}),
    "one column": (b"a b\n1 2\n", AS_FOUND, {"a b": ["1 2"]}),
    "one column of commas": (b"a\n1\n", TextOptions(";"), {"a": ["1"]}),
    "a sign of one's own": (b"a~b\n1~2\n", TextOptions("~"), {"a": ["1"], "b": ["2"]}),
    "semicolons in names": (b"a;x,b;y\n1,2\n3,4\n", AS_FOUND, {"a;x": ["1", "3"], "b;y": ["2", "4"]}),
    "Latin-1": ("a;ä\nü;ß\n".encode("latin-1"), AS_FOUND, {"a": ["ü"], "ä": ["ß"]}),
    "Windows-1252": ("a,b\n€,“x”\n".encode("cp1252"), AS_FOUND, {"a": ["€"], "b": ["“x”"]}),
    "Latin-2 by name": ("a,b\nł,1\n".encode("latin2"), TextOptions(encoding="latin2"), {"a": ["ł"], "b": ["1"]}),
    "UTF-8 by name, with a mark": (b"\xef\xbb\xbfa,b\n1,2\n", TextOptions(encoding="UTF8"), {"a": ["1"], "b": ["2"]}),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_cells_are_the_text_in_the_file(name, tmp_path):
    contents, options, expected = CONTENTS[name]
    (tmp_path / "t.csv").write_bytes(contents)
    assert read_table(tmp_path / "t.csv", options).to_dict(as_series=False) == expected


REFUSED_FILES = {
    "ragged semicolons": (b"a;b\n1;2\n1;2;3\n", {}, "t.csv, line 3: 3 values, but the header has 2 columns."),
    "two signs": (b"a,b\n1,2\n", {"delimiter": "::"}, "--delimiter must be one character, or tab; got '::'."),
    "no encoding": (
        b"a,b\n1,2\n",
        {"encoding": "elvish"},
        "--encoding 'elvish' is not known; try utf-8, latin-1, cp1252 or utf-16.",
    ),
    "no text encoding": (
        b"a,b\n1,2\n",
        {"encoding": "rot13"},
        "--encoding 'rot13' is not known; try utf-8, latin-1, cp1252 or utf-16.",
    ),
    "another encoding": (
        "a,b\nü,2\n".encode("latin-1"),
        {"encoding": "utf-8"},
        "t.csv: this file is not utf-8 text; name its encoding with --encoding.",
    ),
    "no encoding at all": (
        b"a,b\n\x81,\xff\n",
        {},
        "t.csv: this file is not cp1252 text; name its encoding with --encoding.",
    ),
}


@pytest.mark.parametrize("name", REFUSED_FILES)
def test_files_that_cannot_be_read_are_one_sentence(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    contents, options, sentence = REFUSED_FILES[name]
    (tmp_path / "t.csv").write_bytes(contents)
    with pytest.raises(TableError) as caught:
        read_table("t.csv", TextOptions(**options))
    assert str(caught.value) == sentence


def test_what_is_not_utf_8_is_said(tmp_path, caplog):
    caplog.set_level("INFO", "overtone")
    (tmp_path / "t.csv").write_bytes("a\nü\n".encode("latin-1"))
    read_table(tmp_path / "t.csv")
    assert [r.message.split("/")[-1] for r in caplog.records] == [
        "t.csv is not UTF-8 and is read as Windows-1252; --encoding changes this."
    ]


NUMBERS = {
    "plain": (["1", "-2.5", "+3e2", ".5"], [1, -2.5, 300, 0.5]),
    "spaces around": ([" 1", "2 "], [1, 2]),
    "decimal commas": (["1,5", "-2,25", "3"], [1.5, -2.25, 3]),
    "a short decimal comma": (["1,234", "0,5"], [1.234, 0.5]),
    "thousands by commas": (["1,234.5", "12", "1,234,567"], [1234.5, 12, 1234567]),
    "thousands by points": (["1.234,5", "12", "1.234.567"], [1234.5, 12, 1234567]),
    "thousands by spaces": (["1 000", "12", "1 234 567.5"], [1000, 12, 1234567.5]),
    "thousands by narrow spaces": (["1\u202f000", "12,5", "1\u00a0234"], [1000, 12.5, 1234]),
    "thousands by apostrophes": (["1'000", "12.5"], [1000, 12.5]),
    "two groups": (["1,234,567", "2,345,678"], [1234567, 2345678]),
    "three decimals": (["1.234", "12.500"], [1.234, 12.5]),
    "a decimal comma and an exponent": (["1,5e3", "2"], [1500, 2]),
    "leading zeros": (["01234", "98765"], [1234, 98765]),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_read_as_the_whole_column_writes_them(name):
    cells, expected = NUMBERS[name]
    column, values = column_of(cells)
    assert column.kind == "number"
    np.testing.assert_allclose(values[:, 0], expected, rtol=1e-15)
    np.testing.assert_allclose(column.encode(pl.Series("c", expected, dtype=pl.Float64))[:, 0], expected, rtol=1e-15)


MISSING = [
    "",
    " ",
    "NA",
    "N/A",
    "n/a",
    "#N/A",
    "#NA",
    "<NA>",
    "nan",
    "NaN",
    "NULL",
    "null",
    "None",
    "?",
    "-",
    "--",
    ".",
]


@pytest.mark.parametrize("word", [*MISSING, "#NULL!", None])
def test_the_usual_words_for_missing_values_are_known_among_numbers(word):
    column, values = column_of(["1", word, "3"])
    assert column.kind == "number"
    np.testing.assert_array_equal(values[:, 0], [1, NAN, 3])


ADVICE = (
    "; correct it, or name it with --na if it stands for a missing value, or the column with --categorical if it holds "
    "words."
)
REFUSED_COLUMNS = {
    "a currency": (["5", "6", "$5"], {}, f"column 'c' holds numbers, but row 3 has '$5'{ADVICE}"),
    "currencies": (["€ 5", "€ 6"], {}, f"column 'c' holds numbers, but row 1 has '€ 5'{ADVICE}"),
    "percents": (["5%", "6.5%", "7"], {}, f"column 'c' holds numbers, but row 1 has '5%'{ADVICE}"),
    "a space": (["1234", "5678", "1 000"], {}, f"column 'c' holds numbers, but row 3 has '1 000'{ADVICE}"),
    "a word": (["1", "2", "3", "four"], {}, f"column 'c' holds numbers, but row 4 has 'four'{ADVICE}"),
    "an error of Excel": (["1", "#DIV/0!", "3"], {}, f"column 'c' holds numbers, but row 2 has '#DIV/0!'{ADVICE}"),
    "a bad group": (["1,234.5", "12,34", "6,789.0"], {}, f"column 'c' holds numbers, but row 2 has '12,34'{ADVICE}"),
    "a point among decimal commas": (
        ["1.5", "2", "3"],
        {"decimal": ","},
        f"column 'c' holds numbers, but row 1 has '1.5'{ADVICE}",
    ),
    "thousands or decimals": (
        ["1,234", "5,678"],
        {},
        "column 'c' has numbers such as '1,234', which is 1.234 with --decimal , and 1234 with --decimal .; say which.",
    ),
    "no sign": (["1"], {"decimal": "x"}, "--decimal must be . or a comma; got 'x'."),
    "day or month": (
        ["01/02/2020", "03/04/2020"],
        {},
        "column 'c' has dates such as '01/02/2020', in which day and month cannot be told apart; write them as "
        "2024-12-31, or say --date-format %d/%m/%Y or %m/%d/%Y.",
    ),
    "day or month, with dashes": (
        ["01-02-2020", "03-04-2020"],
        {},
        "column 'c' has dates such as '01-02-2020', in which day and month cannot be told apart; write them as "
        "2024-12-31, or say --date-format %d-%m-%Y or %m-%d-%Y.",
    ),
    "years of two and of four digits": (
        ["13/02/12", "14/02/12", "15/02/2012"],
        {},
        "column 'c' has dates in different formats: most look like %d/%m/%y, but row 3 has '15/02/2012'.",
    ),
    "a word among dates": (
        ["2020-01-01", "2020-01-02", "soon"],
        {},
        "column 'c' has dates in different formats: most look like %Y-%m-%d, but row 3 has 'soon'.",
    ),
    "words": (
        [f"id {i}" for i in range(60)],
        {},
        "column 'c' is text with 60 different values in 60 rows, such as 'id 0'; leave it out (--drop) or encode it as "
        "numbers.",
    ),
    "lists": ([[1], [2]], {}, "column 'c' holds List(Int64); only numbers, dates and text can be used."),
}


@pytest.mark.parametrize("name", REFUSED_COLUMNS)
def test_columns_that_cannot_be_read_for_certain_are_refused(name):
    cells, hints, sentence = REFUSED_COLUMNS[name]
    with pytest.raises(TableError) as caught:
        column_of(cells, **hints)
    assert str(caught.value) == sentence


CHOSEN = {
    "a decimal comma": (["1,234", "5,678"], {"decimal": ","}, [1.234, 5.678]),
    "thousands": (["1,234", "5,678"], {"decimal": "."}, [1234, 5678]),
    "thousands by points": (["1.234", "5.678"], {"decimal": ","}, [1234, 5678]),
    "a word": (["1", "unknown", "-9"], {"na": ("unknown", "-9")}, [1, NAN, NAN]),
    "a number": ([1.0, -999.0, 2.5], {"na": ("-999",)}, [1, NAN, 2.5]),
    "days first": (["01/02/1970", "03/04/1970"], {"date_format": "%d/%m/%Y"}, [31, 92]),
    "months first": (["01/02/1970", "03/04/1970"], {"date_format": "%m/%d/%Y"}, [1, 62]),
    "months without days": (["197001", "197002"], {"date_format": "%Y%m"}, [0, 31]),
    "years": (["1970", "1972"], {"date_format": "%Y"}, [0, 730]),
    "seconds": ([0, 86400], {"date_format": "epoch seconds"}, [0, 1]),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_what_the_user_says_is_done(name):
    cells, hints, expected = CHOSEN[name]
    column, values = column_of(cells, **hints)
    np.testing.assert_allclose(values[:, 0], expected)
    np.testing.assert_array_equal(Column(**asdict(column)).encode(pl.Series("c", cells)), values)


NOON = datetime(2012, 1, 31, 12)
DATES = {
    "2012-01-31": "%Y-%m-%d",
    "2012/01/31": "%Y/%m/%d",
    "31.01.2012": "%d.%m.%Y",
    "31.01.12": "%d.%m.%y",
    "31/01/2012": "%d/%m/%Y",
    "01/31/2012": "%m/%d/%Y",
    "31/01/12": "%d/%m/%y",
    "01/31/12": "%m/%d/%y",
    "31-01-2012": "%d-%m-%Y",
    "Jan 31, 2012": "%b %d, %Y",
    "January 31, 2012": "%B %d, %Y",
    "31-Jan-12": "%d-%b-%y",
    "31-Jan-2012": "%d-%b-%Y",
    "31 Jan 2012": "%d %b %Y",
    "31 January 2012": "%d %B %Y",
    "2012-01-31 12:00": "%Y-%m-%d %H:%M",
    "2012-01-31T12:00:00": "%Y-%m-%dT%H:%M:%S",
    "2012-01-31T12:00:00.000": "%Y-%m-%dT%H:%M:%S",
    "2012-01-31 12:00 PM": "%Y-%m-%d %I:%M %p",
    "01/31/2012 12:00:00 PM": "%m/%d/%Y %I:%M:%S %p",
    "1/31/2012 12:00pm": "%m/%d/%Y %I:%M%p",
    "Jan 31, 2012 12:00": "%b %d, %Y %H:%M",
    "2012-01-31T12:00:00Z": "%Y-%m-%dT%H:%M:%S%z",
    "2012-01-31 12:00:00+00:00": "%Y-%m-%d %H:%M:%S%z",
    "2012-01-31 12:00:00.000 UTC": "%Y-%m-%d %H:%M:%S%z",
    "31.01.2012 12:00": "%d.%m.%Y %H:%M",
}


@pytest.mark.parametrize("word", DATES)
def test_dates_are_dates(word):
    column, values = column_of([word])
    assert column.kind == "time"
    assert column.format.replace("%.f", "") == DATES[word]
    expected = NOON if "12:00" in word else datetime(2012, 1, 31)
    assert values[0, 0] == (expected - datetime(1970, 1, 1)) / timedelta(days=1)


MONTHS = {"2012-01": "%Y-%m", "2012/01": "%Y/%m", "Jan 2012": "%b %Y", "January 2012": "%B %Y", "Jan-12": "%b-%y"}


@pytest.mark.parametrize("word", MONTHS)
def test_a_month_is_its_first_day(word):
    column, values = column_of([word])
    assert column.format == MONTHS[word]
    assert values[0, 0] == (datetime(2012, 1, 1) - datetime(1970, 1, 1)).days


NUMBERS_OR_DATES = {
    "days": ("x", ["19580329", "19580401", "19590101", "19600229", "19601231"], "%Y%m%d"),
    "days as numbers": ("x", [19580329, 19580401, 19590101, 19600229, 19601231], "%Y%m%d"),
    "few days": ("x", ["19580329", "19580401"], ""),
    "few days with a name": ("order_date", ["19580329", "19580401"], "%Y%m%d"),
    "no days": ("date", ["19580329", "19580432"], ""),
    "seconds": ("timestamp", ["1325376000", "1325376060"], "epoch seconds"),
    "seconds as numbers": ("created_at", [1325376000, 1325376060], "epoch seconds"),
    "milliseconds": ("Time", ["1325376000000", "1325376000500"], "epoch milliseconds"),
    "seconds without a name": ("id", ["1325376000", "1325376060"], ""),
    "short times": ("time", ["12", "1325376060"], ""),
    "fractions": ("time", [1.5, 2.5], ""),
}


@pytest.mark.parametrize("case", NUMBERS_OR_DATES)
def test_numbers_are_dates_where_this_is_plain(case):
    name, cells, date_format = NUMBERS_OR_DATES[case]
    column, values = column_of(cells, name)
    assert (column.kind, column.format) == ("time" if date_format else "number", date_format)
    if date_format == "%Y%m%d":
        assert values[0, 0] == (datetime(1958, 3, 29) - datetime(1970, 1, 1)).days
        as_floats = pl.Series(name, [float(cell) for cell in cells])  # as pandas has whole numbers beside gaps
        np.testing.assert_array_equal(column.encode(as_floats), values)
    if date_format.startswith("epoch"):
        assert values[0, 0] == (datetime(2012, 1, 1) - datetime(1970, 1, 1)).days


HOURS = [datetime(2020, 1, 1, 12) + timedelta(days=day) for day in range(400)]
BERLIN = [hour.replace(tzinfo=ZoneInfo("Europe/Berlin")) for hour in HOURS]
AWARE = pl.Series("when", HOURS).dt.replace_time_zone("Europe/Berlin")
CLOCKS = {
    "a zone": AWARE,
    "pandas": pd.DataFrame({"when": pd.Series(HOURS).dt.tz_localize("Europe/Berlin"), "word": "x"}),
    "offsets": pl.Series("when", [hour.isoformat() for hour in BERLIN]),
    "offsets without a colon": pl.Series("when", [hour.strftime("%Y-%m-%d %H:%M%z") for hour in BERLIN]),
}


@pytest.mark.parametrize("name", CLOCKS)
def test_noon_is_noon_in_summer_and_winter_and_the_trend_is_that_of_utc(name):
    from overtone.tables.encode import as_frame

    table = CLOCKS[name]
    series = table if isinstance(table, pl.Series) else as_frame(table)["when"]
    column = infer_column(series)
    column = replace(column, parts=("time of day", *column.parts))
    values = column.encode(series)
    np.testing.assert_allclose(values[:, 1], 0.5, atol=1e-9)
    utc = [hour.astimezone(timezone.utc).timestamp() / 86400 for hour in BERLIN]  # noqa: UP017
    np.testing.assert_allclose(values[:, 0], utc, rtol=1e-12)


LATER = {
    "the same zone": AWARE,
    "UTC": AWARE.dt.convert_time_zone("UTC"),
    "no zone": pl.Series("when", HOURS),
    "text without a zone": pl.Series("when", [str(hour) for hour in HOURS]),
    "text with offsets": pl.Series("when", [hour.isoformat() for hour in BERLIN]),
    "text in UTC": pl.Series("when", [h.astimezone(timezone.utc).isoformat() for h in BERLIN]),  # noqa: UP017
}


@pytest.mark.parametrize("name", LATER)
def test_later_dates_are_moved_to_the_zone_of_training(name):
    column = replace(infer_column(AWARE), parts=("time of day", "day of week"))
    assert column.zone == "Europe/Berlin"
    np.testing.assert_allclose(column.encode(LATER[name]), column.encode(AWARE), atol=1e-9)


def test_dates_without_a_zone_are_those_that_clocks_show():
    column = replace(infer_column(pl.Series("when", HOURS)), parts=("time of day",))
    np.testing.assert_array_equal(column.encode(AWARE), column.encode(pl.Series("when", HOURS)))


def fit_arguments(path, *more: str) -> Namespace:
    return build_parser().parse_args(["fit", str(path), *more])


def training_table(folder, text: str, *more: str) -> TrainingTable:
    (folder / "t.csv").write_text(text)
    return read_training_table(fit_arguments("t.csv", *more))


def text_of(**columns) -> str:
    return pl.DataFrame(columns).write_csv()


TWENTY = range(20)
LINES = {
    "numbers": (["0.5", "2"], "c: numbers 0.5 to 2"),
    "few whole numbers": (["1", "2"], "c: numbers 1 to 2; --categorical for categories"),
    "decimal commas": (["0,5", "2"], "c: numbers 0.5 to 2 (decimals as in 1,5)"),
    "thousands": (
        ["1.000,5", "2,5"],
        "c: numbers 2.5 to 1000.5 (decimals as in 1,5, thousands as in 1.000)",
    ),
    "leading zeros": (
        ["01234", "98765"],
        "c: numbers 1234 to 98765, whose leading zeros do not count; --categorical for codes, such as zip codes",
    ),
    "large numbers": (
        ["9007199254740993", "2"],
        "c: numbers 2 to 9.00719925474099e+15, of which the 16 leading digits count; --drop it if it is an id",
    ),
    "missing": (["0.5", "#N/A"], "c: numbers 0.5 to 0.5; 1 missing"),
    "yes or no": (["yes", "no"], "c: yes or no"),
    "words": (["red", "blue"], "c: 2 categories (blue, red)"),
    "days": (["2020-01-01", "2020-02-01"], "c: dates like %Y-%m-%d from 2020-01-01 to 2020-02-01 (trend)"),
    "hours": (
        [f"2020-01-{day:02} {hour:02}:00" for day in range(1, 21) for hour in range(24)],
        "c: dates like %Y-%m-%d %H:%M from 2020-01-01 to 2020-01-20 23:00:00 (trend, time of day, day of week); "
        "--no-calendar for the trend alone",
    ),
    "offsets": (
        ["2020-01-01 03:00+01:00", "2020-01-01 04:00+01:00"],
        "c: dates like %Y-%m-%d %H:%M%z from 2020-01-01 03:00:00 to 2020-01-01 04:00:00, in the local time of its "
        "offsets (trend)",
    ),
    "many words": (
        [f"N{i % 60:02}" for i in range(180)],
        "c: 60 categories (N00, N01, N02, ...), each a random point of 8 inputs",
    ),
}


@pytest.mark.parametrize("name", LINES)
def test_a_fit_says_what_each_column_was_taken_for(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells, line = LINES[name]
    table = training_table(
        tmp_path, text_of(c=cells, y=np.arange(len(cells)) / 7), "--target", "y", "--missing", "mean"
    )
    assert table.notices("auto")[1] == line


TARGETS = {
    "numbers": (np.arange(4) / 2, [], "auto", "target y: numbers 0 to 1.5"),
    "whole numbers": ([1, 2, 30], [], "auto", "target y: numbers 1 to 30; --likelihood softmax for classes"),
    "zero and one": ([0, 1, 1], [], "auto", "target y: numbers 0 to 1; --likelihood bernoulli for classes"),
    "counts": (
        range(13),
        [],
        "negative-binomial",
        "target y: counts 0 to 12, negative binomial; --likelihood softmax for classes, gaussian for other numbers",
    ),
    "digits as counts": (
        range(10),
        ["--likelihood", "negative-binomial"],
        "negative-binomial",
        "target y: counts 0 to 9, negative binomial; --likelihood softmax for classes, gaussian for other numbers",
    ),
    "digits as classes": (
        range(10),
        ["--likelihood", "softmax"],
        "auto",
        "target y: 10 classes (0, 1, 2, ...); --likelihood gaussian for numbers",
    ),
    "words": (["no", "Yes", "no"], [], "auto", "target y: 2 classes (no, yes)"),
    "decimal commas": (["0,5", "1,5"], [], "auto", "target y: numbers 0.5 to 1.5 (decimals as in 1,5)"),
}


@pytest.mark.parametrize("name", TARGETS)
def test_a_fit_says_what_the_target_was_taken_for(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells, more, likelihood, line = TARGETS[name]
    text = text_of(x=np.arange(len(cells)) / 3, y=[str(cell) for cell in cells])
    assert training_table(tmp_path, text, "--target", "y", *more).notices(likelihood)[0] == line


REFUSED_TABLES = {
    "a currency": (
        "x,y\n1,2\n\n$5,3\n4,4\n",
        ["--target", "y"],
        f"t.csv: column 'x' holds numbers, but line 4 has '$5'{ADVICE}",
    ),
    "a cell after rows without a target": (
        "x,y\n1,\n2,\n3,1\n$5,3\n4,4\n",
        ["--target", "y"],
        f"t.csv: column 'x' holds numbers, but line 5 has '$5'{ADVICE}",
    ),
    "a target with a word": (
        "x,y\n1,2\n2,3\n4,oops\n",
        ["--target", "y"],
        f"t.csv: column 'y' holds numbers, but line 4 has 'oops'{ADVICE}",
    ),
    "an infinite target": (
        "x,y\n1,2\n2,inf\n",
        ["--target", "y"],
        "t.csv: the target 'y' has an infinite value in line 3.",
    ),
    "an infinite input": ("x,y\n1,2\ninf,3\n", ["--target", "y"], "t.csv: column 'x' has an infinite value in line 3."),
    "several columns at once": (
        "a,b,c,y\n1,2020-01-01,3,1\n2,2020-01-02,4,2\n$3,soon,5,3\n4,2020-01-03,6,4\n",
        ["--target", "y"],
        f"t.csv: 2 columns cannot be used: column 'a' holds numbers, but line 4 has '$3'{ADVICE} column 'b' has dates in "
        "different formats: most look like %Y-%m-%d, but line 4 has 'soon'.",
    ),
    "digits": (
        text_of(x=TWENTY, y=[i % 10 for i in TWENTY]),
        ["--target", "y"],
        "t.csv: the target 'y' has the whole numbers 0 to 9, which may be counts or classes; say --likelihood "
        "negative-binomial for counts, softmax for classes, or gaussian for other numbers.",
    ),
    "a target among the inputs": (
        "x,y\n1,2\n3,4\n",
        ["--target", "y", "--inputs", "x,y"],
        "t.csv: the target 'y' cannot be an input, an exposure or left out as well; name it once.",
    ),
    "a target as exposure": (
        "x,y\n1,2\n3,4\n",
        ["--target", "y", "--exposure", "y"],
        "t.csv: the target 'y' cannot be an input, an exposure or left out as well; name it once.",
    ),
    "an input twice": (
        "x,y\n1,2\n3,4\n",
        ["--target", "y", "--inputs", "x,x"],
        "t.csv: --inputs names 'x' more than once.",
    ),
    "nothing left": (
        "x,y\n1,2\n3,4\n",
        ["--target", "y", "--drop", "x"],
        "t.csv: there is no column to predict from; the table has 'x', 'y'.",
    ),
    "dropping nothing": (
        "x,y\n1,2\n3,4\n",
        ["--target", "y", "--drop", "z"],
        "t.csv: there is no column 'z'; the table has 'x', 'y'.",
    ),
    "a categorical target": (
        "x,y\n1,2\n3,4\n",
        ["--target", "y", "--categorical", "y"],
        "t.csv: --categorical names 'y', which is not among the inputs.",
    ),
    "an exposure of zero": (
        "x,h,y\n1,2,1\n3,0,4\n",
        ["--target", "y", "--exposure", "h"],
        "t.csv: the exposure 'h' must be positive; line 3 has 0.",
    ),
    "an exposure of words": (
        "x,h,y\n1,a,1\n3,b,4\n",
        ["--target", "y", "--exposure", "h"],
        "t.csv: the exposure 'h' is a category; it must be numbers.",
    ),
    "too many classes": (
        text_of(x=range(60), y=[f"k{i:02}" for i in range(60)]),
        ["--target", "y"],
        "t.csv: the target 'y' has 60 different values, such as 'k00'; there may be at most 50 classes.",
    ),
}


@pytest.mark.parametrize("name", REFUSED_TABLES)
def test_a_table_that_cannot_be_used_is_one_sentence_with_file_line_column_and_cell(
    name, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    text, more, sentence = REFUSED_TABLES[name]
    (tmp_path / "t.csv").write_text(text)
    assert main(["fit", "t.csv", *more]) == 2
    assert capsys.readouterr().err == f"overtone: error: {sentence}\n"


def test_the_options_reach_the_encoder_and_come_back_from_its_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (
        "day;zip;price;junk;y\n01/02/2020;01234;1.234,5;a;1,5\n03/04/2020;98765;none;b;oops\n05/04/2020;98765;2;c;2,5\n"
    )
    options = ["--categorical", "zip", "--drop", "junk", "--na", "oops", "--decimal", ",", "--date-format", "%d/%m/%Y"]
    table = training_table(tmp_path, text, "--target", "y", *options, "--missing", "mean")
    assert table.encoder.inputs == ["day: trend", "zip=01234", "zip=98765", "price"]
    np.testing.assert_array_equal(table.rows.X, [[18293, 1, 0, 1234.5], [18357, 0, 1, 2]])
    np.testing.assert_array_equal(table.rows.y, [1.5, 2.5])
    again = Encoder.from_json(asdict(table.encoder))
    assert again == table.encoder
    later = pl.DataFrame({"day": ["02/01/2020"], "zip": ["01234"], "price": ["7,5"], "y": ["3,5"]})
    np.testing.assert_array_equal(again.encode(later), [[18263, 1, 0, 7.5]])
    np.testing.assert_array_equal(again.other("y").encode(later["y"]), [[3.5]])
    parsed = again.with_parsed_numbers(later)
    assert parsed["price"].to_list() == [7.5]
    assert parsed["y"].to_list() == [3.5]


def test_lines_are_those_of_the_part_and_rows_those_of_parquet(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("x\n1\n2\n")
    (tmp_path / "b.csv").write_text("x\n1\n\nworse\n")
    frame = read_table(tmp_path)
    with pytest.raises(TableError, match=r"but line 4 of b\.csv has 'worse'"), located_errors(str(tmp_path), AS_FOUND):
        Encoder.fit(frame)
    frame.write_parquet(tmp_path / "t.parquet")
    path = str(tmp_path / "t.parquet")
    with pytest.raises(TableError, match=r"but row 4 has 'worse'"), located_errors(path, AS_FOUND):
        Encoder.fit(frame)


FILES_OF_OLD = {"name": "x", "kind": "number", "levels": (), "parts": (), "format": ""}
CRAFTED = {
    "kind": ({"kind": "secret"}, "is not one that a column can have"),
    "parts": ({"kind": "time", "parts": ("moon",)}, "is not one that a column can have"),
    "levels": ({"kind": "category", "levels": (1, 2)}, "is not one that a column can have"),
    "na": ({"na": (1,)}, "is not one that a column can have"),
    "decimal": ({"decimal": "(.*)*"}, "is not one that a column can have"),
    "zone": ({"kind": "time", "zone": "Middle/Earth"}, "is not one that a column can have"),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_column_is_refused(name):
    assert Column(**FILES_OF_OLD) == Column("x", "number")
    fields_, message = CRAFTED[name]
    with pytest.raises(TableError, match=message):
        Encoder.from_json({"columns": ({**FILES_OF_OLD, **fields_},), "missing": "error", "means": ()})


def test_crafted_means_are_refused():
    with pytest.raises(TableError, match="not 1 numbers"):
        Encoder.from_json({"columns": (FILES_OF_OLD,), "missing": "error", "means": (1.0, 2.0)})


def test_many_categories_are_points_that_depend_on_nothing_but_their_names():
    tails = [f"N{i % 3000}" for i in range(9000)]
    column, values = column_of(tails)
    assert column.kind == "category"
    assert column.inputs == [f"c: hash {i}" for i in range(1, NUM_HASHES + 1)]
    assert values.shape == (9000, NUM_HASHES)
    np.testing.assert_array_equal(values[:3000], values[3000:6000])
    assert len(np.unique(values, axis=0)) == 3000
    assert values.min() >= 0
    assert values.max() <= 1
    np.testing.assert_allclose(values.mean(axis=0), 0.5, atol=0.03)
    np.testing.assert_array_equal(hashed_points(pl.Series(["N7", None]))[0], values[7])
    assert np.isnan(hashed_points(pl.Series(["N7", None]))[1]).all()
    np.testing.assert_allclose(hashed_points(pl.Series(["N7"]))[0, :3], [1322 / 65535, 58429 / 65535, 64624 / 65535])
    few, _ = column_of([f"N{i % MAX_CATEGORIES}" for i in range(200)])
    assert len(few.inputs) == MAX_CATEGORIES


def test_unseen_categories_are_flagged_and_missing_ones_are_not():
    frame = pl.DataFrame({"a": ["x", "y", "x"], "n": [1, 2, 3], "b": ["u", "v", "w"]})
    encoder = Encoder.fit(frame, missing="mean")
    later = pl.DataFrame({"b": ["u", "new", None], "n": [1, 2, 3], "a": ["other", "y", "x"]})
    np.testing.assert_array_equal(encoder.unseen(later), [[True, False], [False, True], [False, False]])
    assert encoder.categories == ["a", "b"]
    assert Encoder.fit(frame[["n"]]).unseen(later).shape == (3, 0)


def workbook(cells: list[list[object]], *more_sheets: str) -> bytes:
    """Return an Excel file with text and numbers, written by hand."""
    rows = ""
    for number, row in enumerate(cells, 1):
        rows += f'<row r="{number}">'
        for letter, value in zip("ABCDEFG", row, strict=False):
            is_text = isinstance(value, str)
            kind, tag = (' t="inlineStr"', f"<is><t>{value}</t></is>") if is_text else ("", f"<v>{value}</v>")
            rows += f'<c r="{letter}{number}"{kind}>{tag}</c>' if value is not None else ""
        rows += "</row>"
    main_space = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    names = ["Data", *more_sheets]
    sheets = "".join(f'<sheet name="{name}" sheetId="{i}" r:id="rId{i}"/>' for i, name in enumerate(names, 1))
    links = "".join(
        f'<Relationship Id="rId{i}" Type="{office}/worksheet" Target="worksheets/sheet{i}.xml"/>'
        for i in range(1, len(names) + 1)
    )
    stream = BytesIO()
    with ZipFile(stream, "w") as packed:
        kinds = "application/vnd.openxmlformats-officedocument.spreadsheetml"
        parts = "".join(
            f'<Override PartName="/xl/worksheets/sheet{i}.xml" ContentType="{kinds}.worksheet+xml"/>'
            for i in range(1, len(names) + 1)
        )
        packed.writestr(
            "[Content_Types].xml",
            f'<Types xmlns="{package}/content-types"><Default Extension="rels" ContentType="application/vnd.'
            f'openxmlformats-package.relationships+xml"/><Override PartName="/xl/workbook.xml" ContentType="{kinds}.sheet.'
            f'main+xml"/>{parts}</Types>',
        )
        packed.writestr(
            "_rels/.rels",
            f'<Relationships xmlns="{package}/relationships"><Relationship Id="rId1" Type="{office}/officeDocument" '
            f'Target="xl/workbook.xml"/></Relationships>',
        )
        packed.writestr(
            "xl/workbook.xml", f'<workbook {main_space} xmlns:r="{office}"><sheets>{sheets}</sheets></workbook>'
        )
        packed.writestr(
            "xl/_rels/workbook.xml.rels", f'<Relationships xmlns="{package}/relationships">{links}</Relationships>'
        )
        for i in range(1, len(names) + 1):
            packed.writestr(
                f"xl/worksheets/sheet{i}.xml", f"<worksheet {main_space}><sheetData>{rows}</sheetData></worksheet>"
            )
    return stream.getvalue()


def test_excel_files_are_read(tmp_path, caplog):
    pytest.importorskip("fastexcel")
    caplog.set_level("INFO", "overtone")
    path = tmp_path / "t.xlsx"
    path.write_bytes(workbook([["x", "word"], [1 / 3, "a"], [2.5, "b"], [None, "c"]], "Notes"))
    assert read_table(path).to_dict(as_series=False) == {"x": [1 / 3, 2.5, None], "word": ["a", "b", "c"]}
    assert "t.xlsx has 2 sheets, of which the first, 'Data', is read." in caplog.records[0].message
    path.write_bytes(workbook([["x"], [1], [2], ["$5"]]))
    with pytest.raises(TableError, match=r"but row 3 has '\$5'"):
        Encoder.fit(read_table(path))
    for contents in (b"PK, and nothing else", workbook([["x"]])[:-30]):
        path.write_bytes(contents)
        with pytest.raises(TableError, match=r"t\.xlsx: the file is damaged or not an Excel file"):
            read_table(path)


def test_without_the_extra_excel_files_are_refused_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fastexcel", None)
    (tmp_path / "t.xlsx").write_bytes(workbook([["x"], [1]]))
    with pytest.raises(TableError, match=r"fastexcel, .*; install overtone\[excel\], or save the sheet as CSV\.$"):
        read_table(tmp_path / "t.xlsx")


STYLES = {
    "plain": lambda value: f"{value:.2f}",
    "decimal comma": lambda value: f"{value:.2f}".replace(".", ","),
    "commas": lambda value: f"{value:,.2f}",
    "points": lambda value: f"{value:,.2f}".translate(str.maketrans(",.", ".,")),
    "spaces": lambda value: f"{value:,.2f}".replace(",", " "),
    "apostrophes": lambda value: f"{value:,.2f}".replace(",", "'"),
}
amounts = st.decimals(-(10**9), 10**9, places=2).map(float)


@settings(deadline=None, max_examples=150)
@given(st.sampled_from(sorted(STYLES)), st.lists(amounts, min_size=1, max_size=20), st.data())
def test_any_style_of_numbers_comes_back_with_any_missing_words_between(style, values, data):
    cells = [STYLES[style](value) for value in values]
    holes = data.draw(st.lists(st.sampled_from([*MISSING_NUMBERS, "#N/A", "NaN", None]), max_size=5))
    column, found = column_of(pl.Series(cells + holes, dtype=pl.String))
    assert column.kind == "number"
    np.testing.assert_allclose(found[:, 0], values + [NAN] * len(holes), rtol=1e-15)


@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(st.sampled_from(sorted(STYLES)), amounts), min_size=2, max_size=8))
def test_mixed_styles_are_read_as_they_were_written_or_refused(mixture):
    """A column in which each cell has a style of its own is never read with a wrong value."""
    assume(all(abs(value) >= 1 for _, value in mixture))
    try:
        column, found = column_of([STYLES[style](value) for style, value in mixture])
    except TableError as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        if column.kind == "number":
            np.testing.assert_allclose(found[:, 0], [value for _, value in mixture], rtol=1e-15)


CLOCK_FORMATS = ["", " %H:%M", "T%H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %H:%M:%S%z", "T%H:%M:%SZ"]
DAY_FORMATS = ["%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%d %b %Y", "%b %d, %Y", "%d-%b-%Y", "%Y%m%d"]
moments = st.datetimes(datetime(1901, 1, 1), datetime(2099, 1, 1), timezones=st.just(timezone(timedelta(hours=-8))))


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(DAY_FORMATS), st.sampled_from(CLOCK_FORMATS), st.lists(moments, min_size=5, max_size=9))
def test_any_dates_come_back(day, clock, times):
    assume(len({time.date() for time in times}) >= 5)
    words = [time.strftime(day + clock) for time in times]
    column, values = column_of(words)
    assert column.kind == "time"
    written = day + clock.replace("Z", "%z")
    expected = [datetime.strptime(word, written) for word in words]
    aware = [time if time.tzinfo else time.replace(tzinfo=timezone.utc) for time in expected]  # noqa: UP017
    np.testing.assert_allclose(values[:, 0], [time.timestamp() / 86400 for time in aware], atol=1e-9)
    local = column.days(pl.Series("c", words))[1]
    naive = [time.replace(tzinfo=timezone.utc).timestamp() / 86400 for time in expected]  # noqa: UP017
    np.testing.assert_allclose(local, naive, atol=1e-9)


words = st.one_of(
    st.sampled_from(["1", "2,5", "1.234", "$5", "-", "NA", "2020-01-01", "01/02/2020", "yes", "no", "x", "19580329"]),
    st.text(max_size=4),
    amounts.map(STYLES["points"]),
)


@settings(deadline=None, max_examples=150)
@given(st.lists(words, min_size=1, max_size=12), st.sampled_from(["", ".", ","]), st.lists(words, max_size=2))
def test_any_mixture_is_read_or_refused_and_read_again_in_the_same_way(cells, decimal, na):
    hints = ColumnHints(decimal, tuple(na))
    frame = pl.DataFrame({"c": pl.Series(cells, dtype=pl.String)})
    try:
        encoder = Encoder.fit(frame, missing="mean", hints=hints)
        values = encoder.encode(frame)
    except TableError as error:
        assert "'c'" in str(error)  # noqa: PT017
    else:
        again = Encoder.from_json(asdict(encoder))
        np.testing.assert_array_equal(again.encode(frame), values)
        assert values.shape == (len(cells), len(encoder.inputs))
        assert not encoder.unseen(frame).any()


def test_the_hints_of_the_command_line_are_those_of_the_columns():
    arguments = fit_arguments("t.csv", "--target", "y")
    assert all(hasattr(arguments, field.name) for field in fields(ColumnHints))
    assert fit_arguments("t.csv", "--target", "y", "--delimiter", "tab").delimiter == "\t"
