"""Columns as people write them: what each is taken for, its numbers, or the exact sentence that refuses it."""

from dataclasses import asdict, replace
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from overtone.tables.columns import MAX_CATEGORIES, NUM_HASHES, Column, ColumnHints, hashed_points, infer_column
from overtone.tables.encode import Encoder, as_frame
from overtone.tables.errors import TableError
from overtone.tables.numbers import MISSING_NUMBERS

NAN = np.nan


def column_of(cells, name="c", **hints) -> tuple[Column, np.ndarray]:
    """Return what a column was taken for and its inputs, without the parts of the calendar."""
    series = cells if isinstance(cells, pl.Series) else pl.Series(name, cells)
    column = infer_column(series.alias(name), False, ColumnHints(**hints))
    return column, column.encode(series.alias(name))


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


def test_times_of_older_files_are_those_of_utc():
    parts = ("time of day", "day of week")
    for date_format in ("", "%Y-%m-%d %H:%M:%S"):
        old = {"name": "when", "kind": "time", "levels": (), "parts": parts, "format": date_format}
        (column,) = Encoder.from_json({"columns": (old,), "missing": "error", "means": ()}).columns
        expected = Column("when", "time", parts=parts).encode(
            AWARE.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        )
        np.testing.assert_array_equal(column.encode(AWARE), expected)
        naive = Column("when", "time", parts=parts).encode(pl.Series("when", HOURS))
        np.testing.assert_array_equal(column.encode(pl.Series("when", HOURS)), naive)
        np.testing.assert_array_equal(column.encode(pl.Series("when", [str(hour) for hour in HOURS])), naive)


def test_dates_without_a_zone_are_those_that_clocks_show():
    column = replace(infer_column(pl.Series("when", HOURS)), parts=("time of day",))
    np.testing.assert_array_equal(column.encode(AWARE), column.encode(pl.Series("when", HOURS)))


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


def test_categories_of_decimal_numbers_are_the_same_words_in_every_part_of_a_table():
    numbers = pl.Series("code", [1.0, 2.5, -0.0, 1e16, 1.0])
    column = infer_column(numbers, hints=ColumnHints(categorical=("code",)))
    assert set(column.levels) == {"1", "2.5", "0", "10000000000000000"}
    whole = column.encode(numbers)
    assert whole.sum(axis=1).tolist() == [1.0] * 5
    for i in range(len(numbers)):
        np.testing.assert_array_equal(column.encode(numbers[i : i + 1]), whole[i : i + 1])
