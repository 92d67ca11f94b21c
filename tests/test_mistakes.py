"""Mix-ups on the command line: each ends with a sentence before any work is done, and leaves all files as they are."""

import sys

import numpy as np
import polars as pl
import pytest

from overtone.app.cli import build_parser, main
from overtone.app.loading import load_model_and_rows
from overtone.sklearn import DeepGPClassifier, DeepGPRegressor

TABLE = pl.DataFrame({"x": np.arange(30.0), "y": np.sin(np.arange(30.0))})


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a table and a model of it."""
    folder = tmp_path_factory.mktemp("mistakes")
    TABLE.write_csv(folder / "t.csv")
    (folder / "folder").mkdir()
    DeepGPRegressor("vff", n_inducing=4, max_steps=2).fit(TABLE.select("x"), TABLE["y"]).save(folder / "m.safetensors")
    return folder


FIT = ("fit", "t.csv", "--target", "y", "--steps", "2", "--quiet")
PREDICT = ("predict", "m.safetensors", "t.csv", "--out", "p.csv")
MISTAKES = [
    ((*FIT, "--out", "t.csv"), "t.csv: --out would replace what is read; name another file."),
    (("report", "m.safetensors", "t.csv", "--out", "./t.csv"), "t.csv: --out would replace what is read"),
    (("report", "m.safetensors", "t.csv", "--out", "m.safetensors"), "m.safetensors: --out would replace what is read"),
    (("update", "m.safetensors", "t.csv", "--out", "t.csv"), "t.csv: --out would replace what is read"),
    ((*FIT, "--out", "folder"), "folder: this is a folder; name a file to write with --out."),
    ((*FIT, "--target", ""), "t.csv: --target names no column; the table has 'x', 'y'."),
    ((*FIT, "--date-format", "%d/%m/%Y"), "t.csv: no column has dates like --date-format %d/%m/%Y; correct it"),
    ((*FIT, "--num-processes", "2"), "--num-processes and --process-id need --coordinator HOST:PORT"),
    ((*FIT, "--checkpoint", "t.csv"), "File exists: 't.csv'"),
    ((*PREDICT, "--samples", "-1"), "--samples must be a whole number of at least 0; got -1."),
    ((*PREDICT, "--quantiles", "0.5,"), "--quantiles must be between 0 and 1, such as 0.05,0.5,0.95; got 0.5,."),
    ((*PREDICT, "--quantiles", "5"), "--quantiles must be between 0 and 1, such as 0.05,0.5,0.95; got [5.0]."),
]


@pytest.mark.parametrize(("command", "sentence"), MISTAKES, ids=lambda value: " ".join(value)[-40:])
def test_a_mistake_is_told_in_a_sentence_and_changes_nothing(made, monkeypatch, capsys, command, sentence):
    monkeypatch.chdir(made)
    before = {path.name: path.read_bytes() for path in made.iterdir() if path.is_file()}
    assert main(command) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert told.count("\n") == 1 or "--checkpoint" in command
    assert "Errno" not in told
    assert {path.name: path.read_bytes() for path in made.iterdir() if path.is_file()} == before


def test_an_update_may_replace_its_own_model(made, monkeypatch):
    monkeypatch.chdir(made)
    assert main(["update", "m.safetensors", "t.csv", "--out", "m.safetensors"]) == 0


def test_a_command_needs_no_output(made, monkeypatch):
    monkeypatch.chdir(made)
    monkeypatch.setattr(sys, "stdout", None)  # as where a shell closes it: >&-
    assert main(["evaluate", "m.safetensors", "t.csv"]) == 0


def test_labels_with_zeros_in_front_are_classes_of_their_own_when_they_are_read_again(tmp_path):
    rows = TABLE.with_columns(y=pl.Series(["007", "7", "8"] * 10))
    model = DeepGPClassifier("vff", n_inducing=4, max_steps=2).fit(rows.select("x"), rows["y"].to_numpy())
    model.save(tmp_path / "m.safetensors")
    written = rows.with_columns(pl.col("y").replace("8", "8.0"))
    written.write_csv(tmp_path / "t.csv")
    given = ["evaluate", str(tmp_path / "m.safetensors"), str(tmp_path / "t.csv")]
    assert load_model_and_rows(build_parser().parse_args(given))[2].y.tolist() == rows["y"].to_list()
