"""Tables to train on: what a fit says about each column, and the exact sentences that refuse a table."""

from argparse import Namespace
from dataclasses import asdict, fields

import numpy as np
import polars as pl
import pytest

from overtone.app.cli import build_parser, main
from overtone.tables.columns import ColumnHints
from overtone.tables.delimited import AS_FOUND
from overtone.tables.encode import Encoder
from overtone.tables.errors import TableError
from overtone.tables.read import located_errors, read_table
from overtone.tables.training import Reading, TrainingTable, read_training_table

ADVICE = (
    "; correct it, or name it with --na if it stands for a missing value, or the column with --categorical if it holds "
    "words."
)


def fit_arguments(path, *more: str) -> Namespace:
    return build_parser().parse_args(["fit", str(path), *more])


def training_table(folder, text: str, *more: str) -> TrainingTable:
    (folder / "t.csv").write_text(text)
    return read_training_table(Reading.of(fit_arguments("t.csv", *more)))


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
        f"t.csv: 2 columns cannot be used: column 'a' holds numbers, but line 4 has '$3'{ADVICE} column 'b' has dates "
        "in different formats: most look like %Y-%m-%d, but line 4 has 'soon'.",
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
    assert again.with_parsed_numbers(later)["price"].to_list() == [7.5]
    assert again.with_parsed_numbers(later, "y")["y"].to_list() == [3.5]


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


def test_the_hints_of_the_command_line_are_those_of_the_columns():
    arguments = fit_arguments("t.csv", "--target", "y")
    assert all(hasattr(arguments, field.name) for field in fields(ColumnHints))
    assert fit_arguments("t.csv", "--target", "y", "--delimiter", "tab").delimiter == "\t"
