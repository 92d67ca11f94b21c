"""Tables as they are: what is read, what is refused, and what a column means."""

import gzip
import tracemalloc
from dataclasses import asdict

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overtone.tables.columns import MAX_CATEGORIES, Column
from overtone.tables.encode import Encoder
from overtone.tables.read import TableError, read_chunks, read_table
from overtone.tables.targets import canonical_label, class_labels, infer_target, numeric_target

RNG = np.random.default_rng(0)
BAD = {
    "empty": (b"", "is empty"),
    "blank": (b"\n\n", "is empty"),
    "header only": (b"a,b\n", "a header but no rows"),
    "too many values": (b"a,b\n1,2\n1,2,3\n", "line 3: 3 values, but the header has 2 columns"),
    "too few values": (b"a,b\n1,2\n1\n", "line 3: 1 value, but"),
    "twice": (b"a,b,a\n1,2,3\n", "more than one column is called 'a'"),
    "open quote": (b'a,b\n"1,2\n', "line 2: not a valid CSV file"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_csv_is_refused_with_a_sentence(name, tmp_path):
    contents, message = BAD[name]
    path = tmp_path / "table.csv"
    path.write_bytes(contents)
    with pytest.raises(TableError, match=message) as caught:
        read_table(path)
    assert str(path) in str(caught.value)


def test_bad_parquet_gzip_folder_and_name(tmp_path):
    for name, contents, message in (
        ("a.parquet", b"PAR1 and nothing else", "not a Parquet file"),
        ("a.csv.gz", b"\x1f\x8b broken", "gzip"),
        ("a.txt", b"a,b\n1,2\n", "must end in"),
    ):
        (tmp_path / name).write_bytes(contents)
        with pytest.raises(TableError, match=message):
            read_table(tmp_path / name)
    with pytest.raises(TableError, match="no such file"):
        read_table(tmp_path / "nowhere.csv")
    (tmp_path / "folder").mkdir()
    with pytest.raises(TableError, match=r"no .csv.* files in this folder"):
        read_table(tmp_path / "folder")


def test_a_gzip_file_that_unpacks_to_far_more_than_a_table_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("overtone.tables.delimited.MAX_BYTES", 2**20)
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(b"x,y\n" + bytes(2**25)))
    tracemalloc.start()
    with pytest.raises(TableError, match=r"bomb\.csv\.gz: this gzip file unpacks to more than a table would"):
        read_table(path)
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "parquet"])
def test_parts_and_chunks_are_one_table(suffix, tmp_path, monkeypatch):
    monkeypatch.setattr("overtone.tables.read.CHUNK_ROWS", 30)
    frame = pl.DataFrame({"x": range(100), "word": ["a,b", 'c"d'] * 50})
    for i in range(2):
        part, path = frame[50 * i : 50 * (i + 1)], tmp_path / f"{i}.{suffix}"
        if suffix == "parquet":
            part.write_parquet(path)
        else:
            text = part.write_csv().encode()
            path.write_bytes(gzip.compress(text) if suffix == "csv.gz" else text)
    whole = read_table(tmp_path)
    assert whole["word"].to_list() == frame["word"].to_list()
    assert [int(v) for v in whole["x"]] == list(range(100))
    assert [len(chunk) for chunk in read_chunks(tmp_path) if suffix != "parquet"] in ([], [30, 20, 30, 20])
    (tmp_path / f"2.{suffix}").write_bytes(b"z\n1\n" if suffix == "csv" else gzip.compress(b"z\n1\n"))
    with pytest.raises(TableError, match=r"differ from those of earlier parts|not a Parquet file"):
        read_table(tmp_path)


def frame_of(**columns) -> pl.DataFrame:
    return pl.DataFrame(columns)


def test_columns_mean_what_they_look_like():
    hours = pl.datetime_range(pl.datetime(2020, 1, 1), pl.datetime(2022, 12, 31), "7h", eager=True)
    rows = len(hours)
    text = {
        "when": hours.dt.strftime("%Y-%m-%d %H:%M:%S"),
        "number": [f" {i}e-1" for i in range(rows)],
        "truth": ["yes", "No"] * (rows // 2) + ["yes"] * (rows % 2),
        "word": ["red", "blue", "None"] * (rows // 3) + ["red"] * (rows % 3),
    }
    encoder = Encoder.fit(pl.DataFrame(text))
    assert [column.kind for column in encoder.columns] == ["time", "number", "boolean", "category"]
    parts = ["when: trend", "when: time of day", "when: day of week"]
    parts += ["when: day of year, cosine", "when: day of year, sine"]
    assert encoder.inputs == [*parts, "number", "truth", "word=None", "word=blue", "word=red"]
    values = encoder.encode(pl.DataFrame(text))
    np.testing.assert_allclose(np.diff(values[:, 0]), 7 / 24, rtol=1e-9)
    np.testing.assert_allclose(values[:, 1] * 24 % 24, hours.dt.hour().to_numpy(), atol=1e-6)
    np.testing.assert_array_equal(values[:, 2], hours.dt.weekday().to_numpy() - 1)
    day = hours.dt.ordinal_day().to_numpy() - 1 + hours.dt.hour().to_numpy() / 24
    on_circle = np.exp(2j * np.pi * day / 365.2425)
    np.testing.assert_allclose(values[:, 3:5], np.stack([on_circle.real, on_circle.imag], axis=1), atol=1e-9)
    np.testing.assert_array_equal(values[:2, 6], [1, 0])
    np.testing.assert_array_equal(values[:3, 7:], [[0, 0, 1], [0, 1, 0], [1, 0, 0]])
    native = pl.DataFrame({**text, "when": hours, "number": np.arange(rows) / 10})
    np.testing.assert_allclose(encoder.encode(native), values, rtol=1e-12)
    assert Encoder.from_json(asdict(encoder)) == encoder
    assert Encoder.fit(pl.DataFrame(text), calendar=False).inputs[:2] == ["when: trend", "number"]


def test_a_day_of_hours_has_no_day_of_the_week():
    day = pl.datetime_range(pl.datetime(2020, 1, 1), pl.datetime(2020, 1, 1, 23), "1h", eager=True)
    assert Encoder.fit(pl.DataFrame({"when": day})).inputs == ["when: trend"]
    days = pl.date_range(pl.date(2020, 1, 1), pl.date(2020, 3, 1), "1d", eager=True)
    assert Encoder.fit(pl.DataFrame({"when": days})).inputs == ["when: trend", "when: day of week"]


def test_the_turn_of_the_year_is_no_jump_and_even_steps_of_a_cycle_tell_nothing_of_it():
    frame = frame_of(when=pl.date_range(pl.date(2018, 1, 1), pl.date(2022, 12, 31), "1d", eager=True))
    values = Encoder.fit(frame).encode(frame)
    steps = np.linalg.norm(np.diff(values[:, -2:], axis=0), axis=1)
    assert steps.max() < 2.01 * np.median(steps)  # 31 December to 1 January is a step, or two after a leap year
    circle = ["when: day of year, cosine", "when: day of year, sine"]
    for every, expected in (
        ("1mo", circle),
        ("1w", circle),
        ("3mo", circle),
        ("1y", []),
        ("1d", ["when: day of week", *circle]),
    ):
        dates = pl.date_range(pl.date(1958, 3, 1), pl.date(1988, 12, 31), every, eager=True)
        assert Encoder.fit(frame_of(when=dates)).inputs[1:] == expected
        some = dates.filter(pl.Series(RNG.random(len(dates)) < 0.9))
        assert Encoder.fit(frame_of(when=some)).inputs[1:] == expected
    old = Column("when", "time", parts=("day of year",))  # as files of older versions have it
    np.testing.assert_array_equal(old.encode(frame["when"])[:, 1], frame["when"].dt.ordinal_day().to_numpy() - 1)
    scattered = np.datetime64("2000-01-01") + np.cumsum(RNG.integers(1, 60, 200)).astype("timedelta64[D]")
    assert Encoder.fit(frame_of(when=scattered)).inputs == ["when: trend", "when: day of week", *circle]


def test_missing_values_are_an_error_or_dropped_or_filled():
    frame = frame_of(a=["1", "", "3"], b=["x", "y", None])
    with pytest.raises(TableError, match=r"missing values in 'a' \(1\), 'b' \(1\)"):
        Encoder.fit(frame).encode(frame)
    np.testing.assert_array_equal(
        np.isnan(Encoder.fit(frame, missing="drop").encode(frame)).all(axis=1), [False, True, True]
    )
    np.testing.assert_array_equal(
        Encoder.fit(frame, missing="mean").encode(frame), [[1, 1, 0], [2, 0, 1], [3, 0.5, 0.5]]
    )
    with pytest.raises(TableError, match="no values in 'a'"):
        Encoder.fit(frame_of(a=["", "NA"]))


def test_later_tables_are_matched_by_name_and_checked():
    encoder = Encoder.fit(frame_of(a=["1", "2"], d=["2020-01-01", "2020-01-02"], w=["x", "y"], t=["yes", "no"]))
    later = frame_of(t=["no"], extra=["?"], w=["unseen"], d=["2021-01-01"], a=["7"])
    np.testing.assert_array_equal(encoder.encode(later), [[7, 18628, 0, 0, 0]])
    for column, value, message in (
        ("a", "seven", "'a' holds numbers, but row 1 has 'seven'"),
        ("a", "inf", "'a' has an infinite value in row 1"),
        ("d", "1.2.2021", "'d' holds dates like %Y-%m-%d, but row 1 has '1.2.2021'"),
        ("t", "perhaps", "'t' holds yes or no, but row 1 has 'perhaps'"),
    ):
        with pytest.raises(TableError, match=message):
            encoder.encode(later.with_columns(pl.Series(column, [value])))
    with pytest.raises(TableError, match="does not have: 'a', 'w'"):
        encoder.encode(later.drop("a", "w"))


def test_dates_that_cannot_be_read_for_certain_are_refused():
    with pytest.raises(TableError, match=r"different formats: most look like %Y-%m-%d, but row 3 has '3\.4\.2020'"):
        Encoder.fit(frame_of(d=["2020-01-01", "2020-01-02", "3.4.2020"]))
    with pytest.raises(TableError, match="day and month cannot be told apart"):
        Encoder.fit(frame_of(d=["01/02/2020", "03/04/2020"]))
    assert Encoder.fit(frame_of(d=["13/02/2020", "03/04/2020"])).columns[0].format == "%d/%m/%Y"
    assert Encoder.fit(frame_of(d=["02/13/2020", "03/04/2020"])).columns[0].format == "%m/%d/%Y"


def test_a_target_must_be_numbers():
    np.testing.assert_array_equal(numeric_target(pl.Series("y", ["1", "", "-2e3"])), [1, np.nan, -2000])
    for values, message in (
        (["a", "b"], "'y' is a category"),
        (["2020-01-01"], "'y' is a time"),
        (["1", "inf"], "infinite value in row 2"),
        (["", "NA"], "has no values"),
    ):
        with pytest.raises(TableError, match=message):
            numeric_target(pl.Series("y", values))


def test_words_and_truth_are_classes_unless_the_likelihood_says_otherwise():
    words, truth = pl.Series("y", ["a", "b", None]), pl.Series("y", ["yes", "no", ""])
    numbers = pl.Series("y", [0, 1, None])
    assert infer_target(words, "auto").kind == "category"
    assert infer_target(truth, "auto").kind == "category"
    assert infer_target(numbers, "auto").kind == "number"
    assert infer_target(numbers, "bernoulli").kind == "category"
    assert class_labels(truth).tolist() == ["yes", "no", None]
    assert class_labels(pl.Series("y", ["Yes", "no", "No"])).tolist() == ["yes", "no", "no"]
    assert [canonical_label(label) for label in (True, "True", 1, "1.0", 2.5, " a ")] == [
        "true",
        "true",
        "1",
        "1",
        "2.5",
        "a",
    ]
    assert class_labels(numbers).tolist() == ["0", "1", None]
    assert class_labels(pl.Series("y", ["1", "1.0", "2.50", "007", "v1.0"])).tolist() == [
        "1",
        "1",
        "2.50",
        "007",
        "v1.0",
    ]
    assert class_labels(pl.Series("y", [True, False])).tolist() == ["true", "false"]
    np.testing.assert_array_equal(numeric_target(truth), [1, 0, np.nan])
    for make, message in (
        (lambda: infer_target(words, "gaussian"), "likelihood 'gaussian' is for numbers"),
        (lambda: class_labels(pl.Series("y", ["2020-01-01", "2020-01-02"])), "'y' is a time"),
        (lambda: class_labels(pl.Series("y", ["", None])), "has no values"),
        (lambda: class_labels(pl.Series("y", [f"town {i}" for i in range(60)])), "60 different values"),
    ):
        with pytest.raises(TableError, match=message):
            make()


cells = st.one_of(st.text(max_size=8), st.integers().map(str), st.floats().map(str), st.dates().map(str))


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(cells, cells), min_size=1, max_size=30))
def test_any_text_is_encoded_or_refused(tmp_path_factory, rows):
    """Whatever is in a table, there are finite numbers for all of its rows, or one sentence."""
    frame = pl.DataFrame(
        {name: [row[i] for row in rows] for i, name in enumerate("ab")}, schema={"a": pl.String, "b": pl.String}
    )
    path = tmp_path_factory.mktemp("any") / "table.csv"
    try:
        path.write_text(frame.write_csv(), encoding="utf-8", newline="")
        again = read_table(path)
        encoder = Encoder.fit(again, missing="mean")
        values = encoder.encode(again)
    except TableError as error:
        assert "\n" not in str(error).replace(str(rows), "")  # noqa: PT017
    else:
        assert values.shape == (len(again), len(encoder.inputs))
        assert np.all(np.isfinite(values))
        assert all(len(column.levels) <= MAX_CATEGORIES for column in encoder.columns)
