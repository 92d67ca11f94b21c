"""Tables that are converted to rows on the disk: the same rows as in memory, and nothing half done."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from overtone.app.cli import build_parser, main
from overtone.estimators.stored import columns_of, views
from overtone.sklearn import DeepGPClassifier, DeepGPRegressor, load
from overtone.storage.rows import RowView
from overtone.tables import convert
from overtone.tables.delimited import AS_FOUND
from overtone.tables.errors import TableError
from overtone.tables.read import evenly_spaced
from overtone.tables.training import Reading, TrainingTable, read_training_table

RNG = np.random.default_rng(0)
NUM = 1500
A, B = RNG.random(NUM), RNG.random(NUM)
FRAME = pl.DataFrame(
    {
        "a": [None if i % 97 == 0 else a for i, a in enumerate(A)],
        "colour": RNG.choice(["red", "blue"], NUM),
        "y": [None if i % 89 == 0 else y for i, y in enumerate(np.sin(9 * A) + B)],
        "z": B,
        "kind": np.where(A > 0.5, "low", "High"),
        "n": RNG.poisson(3 * B),
        "hours": 1 + B,
    }
)


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.setattr("overtone.tables.read.CHUNK_ROWS", 400)
    (tmp_path / "parts").mkdir()
    FRAME[:700].write_parquet(tmp_path / "parts" / "0.parquet")
    FRAME[700:].write_parquet(tmp_path / "parts" / "1.parquet")
    FRAME.write_csv(tmp_path / "t.csv")
    return tmp_path


def reading(table: Path, name: str, *more: str) -> Reading:
    return Reading.of(build_parser().parse_args(["fit", str(table / name), "--missing", "drop", "--quiet", *more]))


def both(table: Path, name: str, *more: str) -> tuple[TrainingTable, TrainingTable]:
    """Return a table as it is read into memory, and converted."""
    plain, on_disk = reading(table, name, *more), reading(table, name, *more, "--convert", str(table / "kept"))
    return read_training_table(plain), read_training_table(on_disk)


@pytest.mark.parametrize("name", ["parts", "t.csv"])
@pytest.mark.parametrize(
    "columns",
    [
        ("--target", "y", "--inputs", "a,colour"),
        ("--target", "y,z", "--inputs", "a,colour"),
        ("--target", "n", "--inputs", "a", "--exposure", "hours"),
    ],
)
def test_rows_on_the_disk_are_those_in_memory(table, name, columns):
    in_memory, on_disk = both(table, name, *columns)
    assert isinstance(on_disk.rows.X, RowView)
    np.testing.assert_array_equal(on_disk.rows.X[:], in_memory.rows.X)
    np.testing.assert_array_equal(on_disk.rows.y[:], in_memory.rows.y.reshape(len(in_memory.rows), -1))
    assert set(on_disk.rows.keywords) == set(in_memory.rows.keywords)
    for key, values in in_memory.rows.keywords.items():
        np.testing.assert_array_equal(on_disk.rows.keywords[key][:][:, 0], values)
    assert on_disk.encoder == in_memory.encoder
    targets = len(on_disk.targets)  # whose lines count the rows that have one; others those of the sample
    assert on_disk.notices("gaussian")[:targets] == in_memory.notices("gaussian")[:targets]


def test_classes_on_the_disk_are_numbers_of_sorted_labels(table):
    in_memory, on_disk = both(table, "t.csv", "--target", "kind", "--inputs", "a,z")
    assert on_disk.labels == ("High", "low")
    assert np.array(on_disk.labels)[on_disk.rows.y[:][:, 0]].tolist() == in_memory.rows.y.tolist()


def with_odd_parts(table: Path) -> None:
    """Write parts of which the first has no target, and the third no complete row; labels are spelt in two ways."""
    words = FRAME.with_columns(
        pl.when(pl.col("kind") == "low").then(pl.lit("no")).otherwise(pl.lit("Yes")).alias("kind"),
        pl.format("shop {}", pl.int_range(NUM) // 10).alias("shop"),
    )
    (table / "odd").mkdir()
    parts = [words[first : first + 300] for first in range(0, NUM, 300)]
    parts[0] = parts[0].with_columns(pl.lit("").alias("kind"), pl.lit(None, pl.Float64).alias("y"))
    parts[2] = parts[2].with_columns(pl.lit(None, pl.Float64).alias("a"))
    parts[3] = parts[3].with_columns(pl.col("kind").str.to_uppercase())
    parts[4] = parts[4].with_columns(pl.lit("perhaps").alias("kind"))
    for i, part in enumerate(parts):
        part.write_parquet(table / "odd" / f"{i}.parquet")


@pytest.mark.parametrize("target", ["y", "kind"])
@pytest.mark.parametrize("num_parts", [4, 5])
def test_parts_without_complete_rows_and_with_other_spellings_are_those_of_one_table(table, target, num_parts):
    with_odd_parts(table)
    if num_parts == 4:  # of which all labels are yes or no
        (table / "odd" / "4.parquet").unlink()
    in_memory, on_disk = both(table, "odd", "--target", target, "--inputs", "a,shop")
    np.testing.assert_array_equal(on_disk.rows.X[:], in_memory.rows.X)
    found = on_disk.rows.y[:][:, 0]
    labels = np.array(on_disk.labels)[found] if target == "kind" else found
    assert labels.tolist() == in_memory.rows.y.tolist()
    spellings = ("no", "yes") if num_parts == 4 else ("NO", "YES", "Yes", "no", "perhaps")
    assert on_disk.labels == (spellings if target == "kind" else ())


def test_labels_are_the_same_words_in_parts_of_whole_numbers_and_of_others(table):
    (table / "floats").mkdir()
    for i, labels in enumerate(([1.0, 2.0], [2.0, 0.1 + 0.2], [0.3, 1.0])):
        part = FRAME[100 * i : 100 * i + 100].select("z", target=pl.Series(labels * 50))
        part.write_parquet(table / "floats" / f"{i}.parquet")
    FRAME[300:400].select("z", target=pl.Series([1, 2] * 50)).write_parquet(table / "floats" / "3.parquet")
    given = "--target", "target", "--inputs", "z", "--likelihood", "softmax"
    in_memory, on_disk = both(table, "floats", *given)
    assert on_disk.labels == ("0.3", "1", "2")
    assert np.array(on_disk.labels)[on_disk.rows.y[:][:, 0]].tolist() == in_memory.rows.y.tolist()


def test_more_classes_than_one_can_tell_apart_are_refused_though_each_part_has_few(table, monkeypatch):
    monkeypatch.setattr("overtone.tables.convert.SAMPLE_ROWS", 20)
    FRAME.select("z", kind=pl.format("k{}", pl.int_range(NUM) // 25)).write_csv(table / "many.csv")
    for more in ([], ["--convert", str(table / "kept")]):
        with pytest.raises(TableError, match=r"many\.csv: the target 'kind' has 60 different values, such as 'k0'"):
            read_training_table(reading(table, "many.csv", "--target", "kind", *more))
    assert not list((table / "kept").iterdir())


@pytest.mark.parametrize("most", [10, 700, 10_000])
def test_the_rows_that_tell_what_columns_mean_are_evenly_spaced(table, most):
    sample, numbers = evenly_spaced(table / "parts", AS_FOUND, most)
    assert numbers.stop == NUM
    assert len(sample) == NUM or most <= len(sample) <= 2 * most
    assert sample.equals(FRAME[list(numbers)])


def test_a_conversion_is_found_again_unless_the_table_or_the_question_changes(table):
    def folders(*columns: str) -> set[str]:
        read_training_table(reading(table, "t.csv", *columns, "--convert", str(table / "kept")))
        return {path.name for path in (table / "kept").iterdir()}

    first = folders("--target", "y", "--inputs", "a")
    assert folders("--target", "y", "--inputs", "a") == first
    second = folders("--target", "y", "--inputs", "a,z")
    assert len(second) == 2
    FRAME[:1000].write_csv(table / "t.csv")
    assert len(folders("--target", "y", "--inputs", "a")) == 3
    for name in second - first:  # not used for long
        os.utime(table / "kept" / name, (0, 0))
    assert not (second - first) & folders("--target", "y", "--inputs", "a")


def broken_schema(table: Path) -> None:
    FRAME[700:].rename({"a": "other"}).write_parquet(table / "parts" / "1.parquet")


def truncated_part(table: Path) -> None:
    contents = (table / "parts" / "1.parquet").read_bytes()
    (table / "parts" / "1.parquet").write_bytes(contents[: len(contents) // 2])


def full_disk(table: Path, monkeypatch) -> None:
    usage = shutil.disk_usage(table)._replace(free=1000)
    monkeypatch.setattr("overtone.tables.convert.shutil.disk_usage", lambda _: usage)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (broken_schema, r"1\.parquet: columns .* differ from those of earlier parts"),
        (truncated_part, r"1\.parquet: the file is damaged or not a Parquet file"),
        ("full disk", r"converting it takes 3.\de-05 GB, but .*kept has 1e-06"),
    ],
)
def test_a_table_that_cannot_be_converted_leaves_nothing(table, monkeypatch, spoil, sentence):
    full_disk(table, monkeypatch) if spoil == "full disk" else spoil(table)
    given = reading(table, "parts", "--target", "y", "--inputs", "a,z", "--convert", str(table / "kept"))
    with pytest.raises(TableError, match=sentence):
        read_training_table(given)
    assert not list((table / "kept").iterdir())


def test_a_cell_that_the_sample_did_not_show_is_named(table):
    lines = (table / "t.csv").read_text().splitlines()
    words = lines[1402].split(",")
    lines[1402] = ",".join(["n/k", *words[1:]])
    (table / "t.csv").write_text("\n".join(lines))
    convert_all, convert.SAMPLE_ROWS = convert.SAMPLE_ROWS, 100
    given = reading(table, "t.csv", "--target", "y", "--inputs", "a", "--convert", str(table / "kept"))
    try:
        with pytest.raises(TableError, match=r"t\.csv: column 'a' holds numbers, but line 1403 has 'n/k'"):
            read_training_table(given)
    finally:
        convert.SAMPLE_ROWS = convert_all
    assert not list((table / "kept").iterdir())


def test_a_conversion_that_was_killed_leaves_nothing_for_long(table):
    program = (
        "import time; from overtone.tables import convert; from overtone.app.cli import main\n"
        "write = convert.NpyWriter.write\n"
        "convert.NpyWriter.write = lambda *a: (write(*a), print('writing', flush=True), time.sleep(60))\n"
        f"main(['fit', {str(table / 't.csv')!r}, '--target', 'z', '--inputs', 'y', '--missing', 'drop', '--quiet',"
        f" '--convert', {str(table / 'kept')!r}])"
    )
    for number, left in ((signal.SIGTERM, 0), (signal.SIGKILL, 1)):
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        process.wait(30)
        process.stdout.close()
        assert len(list((table / "kept").iterdir())) == left
    time.sleep(0.1)
    read_training_table(reading(table, "t.csv", "--target", "z", "--inputs", "y", "--convert", str(table / "kept")))
    assert [path.name.startswith(".") for path in (table / "kept").iterdir()] == [False]


def test_columns_of_rows_on_the_disk():
    rows = np.where(RNG.random((70_000, 3)) < 0.1, np.nan, 1e6 + RNG.standard_normal((70_000, 3)))
    found = columns_of(RowView(rows))
    for ours, expected in zip(found, (np.nanmin, np.nanmax, np.nanmean, np.nanstd), strict=False):
        np.testing.assert_allclose(ours, expected(rows, axis=0), rtol=1e-10)  # of numbers near 1e6
    np.testing.assert_array_equal(found.known, np.sum(~np.isnan(rows), axis=0))


SETTINGS = {"n_layers": 1, "n_inducing": 4, "max_steps": 5, "output": "natural", "likelihood": "gaussian"}


def test_an_estimator_learns_the_same_from_arrays_that_are_mapped(tmp_path, monkeypatch):
    X, y = np.column_stack([A, B]), np.sin(9 * A) + B
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    mapped = [np.load(tmp_path / name, mmap_mode="r") for name in ("X.npy", "y.npy")]
    assert views(*mapped) is None  # small enough to be copied
    monkeypatch.setattr("overtone.estimators.stored.LARGE_BYTES", 1000)
    on_disk, in_memory = (DeepGPRegressor(**SETTINGS).fit(*data) for data in (mapped, (X, y)))
    predictions = (model.predict(X[:50], return_std=True) for model in (on_disk, in_memory))
    for ours, expected in zip(*predictions, strict=True):
        assert ours.shape == (50,)
        np.testing.assert_allclose(ours, expected, rtol=1e-4)
    classes = [
        DeepGPClassifier(**{**SETTINGS, "likelihood": "auto"}).fit(data, np.where(y > 1, "b", "a"))
        for data in (mapped[0], X)
    ]
    np.testing.assert_allclose(*(model.predict_proba(X[:50]) for model in classes), rtol=1e-4)
    spoilt = np.where(np.arange(NUM)[:, None] == 7, np.nan, X)
    with pytest.raises(ValueError, match="X is on the disk and has missing or infinite values"):
        DeepGPRegressor(**SETTINGS).fit(RowView(spoilt), RowView(y[:, None]))


@pytest.mark.parametrize("name", ["parts", "t.csv"])
@pytest.mark.parametrize("large", [False, True])
def test_an_estimator_learns_from_a_table_in_files(table, name, large, monkeypatch):
    monkeypatch.setattr(convert, "LARGE_BYTES", 100 if large else 2**28)
    monkeypatch.setenv("XDG_CACHE_HOME", str(table / "cache"))
    frame = FRAME.drop_nulls().to_pandas()
    inputs = frame[["a", "colour", "z", "kind", "n", "hours"]]
    model = DeepGPRegressor(**SETTINGS, missing="drop").fit(table / name, "y")
    assert (table / "cache").exists() == large
    expected = DeepGPRegressor(**SETTINGS).fit(inputs, frame["y"])
    assert model.input_names == expected.input_names
    assert model.target_names == ["y"]
    np.testing.assert_allclose(model.predict(inputs[:50]), expected.predict(inputs[:50]), rtol=1e-3)

    classifier = DeepGPClassifier(max_steps=5, n_layers=1, missing="drop").fit(str(table / name), "kind")
    assert classifier.classes_.tolist() == ["High", "low"]
    assert set(classifier.predict(frame.drop(columns="kind")[:50])) <= {"High", "low"}


def test_names_of_columns_go_with_a_table_in_a_file(table):
    with pytest.raises(TypeError, match="so y and exposure must be names of its columns; got ndarray and NoneType"):
        DeepGPRegressor().fit(table / "t.csv", B)
    with pytest.raises(TableError, match=r"'kind' is a category; .* use 'auto' \(in Python, DeepGPClassifier\)"):
        DeepGPRegressor(missing="drop").fit(table / "t.csv", "kind")
    model = DeepGPRegressor(**{**SETTINGS, "likelihood": "auto"}, missing="drop")
    assert model.fit(table / "t.csv", "n", exposure="hours").exposure_ == "hours"
    assert model.plan_.likelihood == "negative-binomial"


def test_the_command_line_fits_a_table_on_the_disk(table, monkeypatch, capsys):
    monkeypatch.chdir(table)
    given = ["fit", "parts", "--target", "kind", "--inputs", "a,z", "--missing", "drop", "--quiet"]
    given += ["--layers", "1", "--frequencies", "4", "--steps", "5", "--output", "natural"]
    printed = []
    for more in ([], ["--convert", "kept"]):
        assert main([*given, *more]) == 0
        printed.append(capsys.readouterr().out.partition("On the held-out rows:")[2])
    assert printed[0] == printed[1]
    assert load("model.safetensors").classes_.tolist() == ["High", "low"]


def test_a_class_of_held_out_rows_alone_is_none_of_a_model_from_the_disk(table, monkeypatch):
    monkeypatch.chdir(table)
    labels = np.where(A > 0.5, "c", "a")
    labels[-3:] = "b"
    FRAME.select("a", "z", kind=pl.Series(labels)).write_csv("rare.csv")
    given = ["fit", "rare.csv", "--target", "kind", "--missing", "drop", "--quiet", "--held-out", "last"]
    assert main([*given, "--layers", "1", "--frequencies", "4", "--steps", "5", "--convert", "kept"]) == 0
    assert load("model.safetensors").classes_.tolist() == ["a", "c"]


def test_of_a_very_large_table_evenly_spaced_rows_are_judged(table, monkeypatch, capsys, caplog):
    DeepGPRegressor(**SETTINGS).fit(FRAME.select("z").to_pandas(), FRAME["hours"].to_pandas()).save(table / "m")
    monkeypatch.setattr("overtone.app.loading.JUDGED_ROWS", 300)
    assert main(["evaluate", str(table / "m"), str(table / "t.csv"), "--json"]) == 0
    assert '"rows": 375' in capsys.readouterr().out
    assert "375 evenly spaced rows of 1500 are taken" in caplog.text
