"""The command line, with real files and real signals, and in real processes where these make a difference."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from time import perf_counter, sleep

import numpy as np
import polars as pl
import pytest

from overtone.app.cli import main
from overtone.sklearn import DeepGPRegressor

RNG = np.random.default_rng(0)
OVERTONE = [sys.executable, "-m", "overtone.app.cli"]
QUICK = ["--method", "vff", "--frequencies", "4", "--quiet"]
KILLS = 2


def table(rows: int) -> pl.DataFrame:
    x = RNG.uniform(0, 10, rows)
    town = RNG.choice(["here", "there"], rows)
    return pl.DataFrame({"x": x, "town": town, "y": np.sin(x) + (town == "here") + 0.1 * RNG.standard_normal(rows)})


def environment() -> dict[str, str]:
    return {**os.environ, "OVERTONE_CACHE": str(Path(__file__).parent.parent / ".cache" / "jax")}


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess:
    command = [*OVERTONE, *arguments]
    return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)


def run_here(*arguments: str, folder: Path) -> subprocess.CompletedProcess:
    """Run a command in this process: another one takes seconds to start."""
    output, errors = StringIO(), StringIO()
    with chdir(folder), redirect_stdout(output), redirect_stderr(errors):
        code = main(arguments)
    return subprocess.CompletedProcess(arguments, code, output.getvalue(), errors.getvalue())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table and a model of it."""
    folder = tmp_path_factory.mktemp("cli")
    table(300).write_csv(folder / "train.csv")
    table(50).write_parquet(folder / "new.parquet")
    done = run("fit", "train.csv", "--target", "y", "--steps", "100", *QUICK, folder=folder)
    assert done.returncode == 0, done.stderr
    assert "log density" in done.stdout
    assert "Then the model took these rows in, too." in done.stdout
    assert "Written: model.safetensors" in done.stdout
    return folder


def test_help_is_quick_and_explains_every_setting():
    start = perf_counter()
    helped = subprocess.run([*OVERTONE, "fit", "--help"], capture_output=True, text=True, check=True)
    assert perf_counter() - start < 3  # about a twelfth of it on an idle machine
    first, more, expert = re.split("\nmore options:|\nexpert options:", helped.stdout)
    assert re.findall(r"^  (--[a-z-]+)", first, re.M) == ["--target", "--inputs", "--budget", "--held-out", "--out"]
    assert {"--checkpoint", "--missing", "--validate"} < set(re.findall(r"^  (--[a-z-]+)", more, re.M))
    flags = dict(re.findall(r"^  (--[a-z-]+)(.*?)(?=^  -|\Z)", first + expert, re.M | re.S))
    assert {"--frequencies", "--layers", "--likelihood", "--seed"} < set(flags)
    assert " ".join(flags["--steps"].split()[1:]) != " ".join(flags["--budget"].split()[1:])
    code = "import sys, overtone.app.cli; print([m for m in ('jax', 'numpy', 'polars', 'sklearn') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_predictions_go_beside_the_columns_and_do_not_depend_on_their_order(folder):
    done = run("predict", "model.safetensors", "new.parquet", "--out", "p.csv", "--quantiles", "0.1,0.5", folder=folder)
    assert done.returncode == 0, done.stderr
    found, new = pl.read_csv(folder / "p.csv"), pl.read_parquet(folder / "new.parquet")
    assert found.columns == [
        "x",
        "town",
        "y",
        "mean",
        "std",
        "lower",
        "upper",
        "quantile_0.1",
        "quantile_0.5",
        "outside",
    ]
    assert np.all(found["lower"].to_numpy() < found["mean"].to_numpy())
    model = DeepGPRegressor.load(folder / "model.safetensors")
    np.testing.assert_array_equal(found["mean"], model.predict(new))  # from Python, the same to the last bit
    np.testing.assert_array_equal(found["mean"], model.predict(new[["town", "y", "x"]].to_pandas()))
    out = folder / "p.parquet"
    done = run_here("predict", "model.safetensors", "new.parquet", "--out", str(out), "--samples", "2", folder=folder)
    assert done.returncode == 0, done.stderr
    assert pl.read_parquet(out).columns[-3:] == ["sample_1", "sample_2", "outside"]


def test_evaluate_and_info(folder):
    done = run("evaluate", "model.safetensors", "new.parquet", "--json", folder=folder)
    found = json.loads(done.stdout)
    assert found["rows"] == 50
    assert found["standardised_rmse"] < 0.5
    assert {"rmse", "r2", "log_density", "crps", "coverage_50", "coverage_80", "coverage_95"} < set(found)
    assert set(found["baselines"]["straight line"]) == set(found) - {"baselines", "verdict"}
    assert found["verdict"].startswith("Better than a straight line by ")
    printed = run_here("evaluate", "model.safetensors", "new.parquet", folder=folder).stdout
    assert f"    {found['verdict']}\n" in printed
    assert printed.splitlines()[0].split() == ["y", "mean", "straight", "line"]
    about = run_here("info", "model.safetensors", folder=folder).stdout
    assert "target: y" in about
    assert "town=here" in about


@pytest.mark.parametrize(
    "command", ["evaluate model.safetensors new.parquet | head -1", "info model.safetensors | true"]
)
def test_output_that_nobody_reads_ends_quietly(folder, command):
    piped = ["bash", "-c", f"{shlex.join(OVERTONE)} {command}; echo ${{PIPESTATUS[0]}}"]
    done = subprocess.run(
        piped, cwd=folder, env={**environment(), "PYTHONUNBUFFERED": "1"}, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    *head, code = done.stdout.splitlines()
    assert len(head) == command.count("head")
    assert code == "141" or (head and code == "0")  # where all was written before the pipe was closed


def test_one_row_is_a_row(folder, monkeypatch, capsys, caplog):
    monkeypatch.chdir(folder)
    (folder / "single.csv").write_text("x,town,y\n99,here,1\n1,here,\n")
    assert main(["predict", "model.safetensors", "single.csv", "--out", "single_p.csv"]) == 0
    assert "2 rows\n" in capsys.readouterr().out
    assert main(["evaluate", "model.safetensors", "single.csv"]) == 0
    assert "1 row without a target is left out" in caplog.messages
    assert "1 of 1 row lies outside the range" in caplog.text
    (folder / "single.csv").write_text("x,town,y\n9,new,1\n")
    assert main(["predict", "model.safetensors", "single.csv", "--out", "single_p.csv"]) == 0
    assert capsys.readouterr().out.splitlines()[-2] == "1 row"
    assert "1 of 1 row has categories that no training row has (in 'town'); trust it less." in caplog.text


def test_rows_outside_of_training_are_flagged_and_counted_in_one_line_each(folder, monkeypatch, caplog):
    rows = {"x": [1.0, 12.0, -3.0, 2.0, 3.0], "town": ["here", "here", "new", "newer", "there"], "y": [0.0] * 5}
    pl.DataFrame(rows).write_csv(folder / "outside.csv")
    monkeypatch.chdir(folder)
    monkeypatch.setattr("overtone.tables.read.CHUNK_ROWS", 1)
    expected = {
        "2 of 5 rows lie outside the range of the training inputs (by 'x'); predictions there are extrapolated.",
        "2 of 5 rows have categories that no training row has (in 'town'); trust them less.",
    }
    for command in (["predict", "--out", "outside-predicted.csv"], ["evaluate", "--json"]):
        caplog.clear()
        assert main([command[0], "model.safetensors", "outside.csv", *command[1:]]) == 0
        warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
        assert set(warnings) == expected
        assert len(warnings) == 2
    assert pl.read_csv("outside-predicted.csv")["outside"].to_list() == [False, True, True, True, False]


def test_missing_values_are_treated_at_prediction_as_one_says_then(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    (folder / "holes.csv").write_text("x;town;y\n1;here;2\n;there;3\n2,5;here;-\n")
    assert main(["predict", "model.safetensors", "holes.csv", "--out", "h.csv"]) == 2
    assert "holes.csv: column 'x' holds numbers, but line 4 has '2,5'." in capsys.readouterr().err
    (folder / "holes.csv").write_text("x;town;y\n1;here;2\n;there;3\n2.5;here;-\n")
    assert main(["predict", "model.safetensors", "holes.csv", "--out", "h.csv"]) == 2
    assert "missing values in 'x' (1)" in capsys.readouterr().err
    for missing, gaps in (("drop", [False, True, False]), ("mean", [False] * 3)):
        assert main(["predict", "model.safetensors", "holes.csv", "--out", "h.csv", "--missing", missing]) == 0
        assert pl.read_csv("h.csv")["mean"].is_null().to_list() == gaps
        capsys.readouterr()
        assert main(["evaluate", "model.safetensors", "holes.csv", "--json", "--missing", missing]) == 0
        assert json.loads(capsys.readouterr().out)["rows"] == 2 - sum(gaps)
    assert main(["predict", "model.safetensors", "holes.csv", "--out", "h.csv", "--missing", "guess"]) == 2
    assert "missing must be one of 'error', 'drop', 'mean'; got 'guess'" in capsys.readouterr().err


BAD = {
    "no target": (["fit", "train.csv", "--target", "z"], "no column 'z'; the table has 'x', 'town', 'y'"),
    "no targets": (["fit", "train.csv", "--target", "y,z,q"], "no column 'z', 'q'; the table has 'x', 'town', 'y'"),
    "same target": (["fit", "train.csv", "--target", "y,x,y"], "--target names 'y' more than once"),
    "text among targets": (["fit", "train.csv", "--target", "y,town"], "'town' holds classes, which can only be"),
    "text among numbers": (
        ["fit", "train.csv", "--target", "y,town", "--likelihood", "gaussian"],
        "'town' is a category",
    ),
    "missing": (["fit", "train.csv", "--target", "y", "--missing", "guess"], "missing must be one of"),
    "text target": (["fit", "train.csv", "--target", "town", "--likelihood", "gaussian"], "'town' is a category"),
    "classes": (["fit", "train.csv", "--target", "town", "--exposure", "x"], "exposure belongs to counts"),
    "exposure": (["fit", "train.csv", "--target", "town", "--exposure", "z"], "no column 'z'"),
    "no file": (["fit", "nowhere.csv", "--target", "y"], "nowhere.csv: there is no such file"),
    "no folder": (["fit", "train.csv", "--target", "y", "--out", "no/where"], "no such folder"),
    "method": (["fit", "train.csv", "--target", "y", "--method", "gp"], "method must be one of"),
    "layers": (["fit", "train.csv", "--target", "y", "--layers", "two"], "n_layers must be a whole number"),
    "words for inputs": (["fit", "train.csv", "--target", "y", "--fine-inputs", "x"], "fine_inputs must be a tuple of"),
    "words for interval": (["fit", "train.csv", "--target", "y", "--interval", "x"], "interval must contain [0, 1]"),
    "resume": (["fit", "train.csv", "--target", "y", "--resume"], "--resume needs --checkpoint"),
    "one row": (["fit", "one.csv", "--target", "y"], "1 complete row; a fit needs at least 2"),
    "ragged": (["fit", "ragged.csv", "--target", "y"], "ragged.csv, line 3: 1 value, but"),
    "infinite": (["fit", "infinite.csv", "--target", "y"], "column 'x' has an infinite value in line 3"),
    "gaps": (["fit", "gaps.csv", "--target", "y"], "missing values in 'x' (1)"),
    "no model": (["predict", "train.csv", "train.csv", "--out", "p.csv"], "not a safetensors file"),
    "no columns": (["predict", "model.safetensors", "gaps.csv", "--out", "q.csv"], "does not have: 'town'"),
    "out": (["predict", "model.safetensors", "train.csv", "--out", "p.txt"], "must end in .csv or .parquet"),
    "taken": (["predict", "model.safetensors", "taken.csv", "--out", "q.csv"], "'mean' would be replaced"),
    "levels": (["predict", "model.safetensors", "train.csv", "--out", "q.csv", "--quantiles", "2"], "between 0 and 1"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence_and_exit_code_2(name, folder, monkeypatch, capsys):
    for file, text in (("one", "x,y\n1,2\n"), ("ragged", "x,y\n1,2\n3\n"), ("infinite", "x,y\n1,2\ninf,3\n1,1\n")):
        (folder / f"{file}.csv").write_text(text)
    (folder / "taken.csv").write_text("x,town,mean\n1,here,3\n")
    (folder / "gaps.csv").write_text("x,y\n1,2\n,3\n1,1\n")
    monkeypatch.chdir(folder)
    before = {path.name for path in folder.iterdir()}
    arguments, message = BAD[name]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert {path.name for path in folder.iterdir()} == before


def test_classes_from_table_to_table(folder):
    chosen = ["--target", "town", "--out", "classes.safetensors", "--steps", "60", *QUICK]
    done = run_here("fit", "train.csv", *chosen, folder=folder)
    assert done.returncode == 0, done.stderr
    assert "accuracy" in done.stdout
    done = run_here("predict", "classes.safetensors", "new.parquet", "--out", "c.csv", "--samples", "1", folder=folder)
    assert done.returncode == 0, done.stderr
    found = pl.read_csv(folder / "c.csv")
    assert found.columns[3:] == ["prediction", "probability_here", "probability_there", "sample_1", "outside"]
    np.testing.assert_allclose(found["probability_here"] + found["probability_there"], 1)
    assert (found["prediction"] == found["town"]).mean() > 0.9  # y is higher here
    done = run_here("evaluate", "classes.safetensors", "new.parquet", "--json", folder=folder)
    assert json.loads(done.stdout)["accuracy"] == pytest.approx((found["prediction"] == found["town"]).mean())
    assert "(here, there)" in run_here("info", "classes.safetensors", folder=folder).stdout


def test_counts_with_an_exposure(folder, capsys):
    hours, x = RNG.uniform(0.5, 5, 200), RNG.uniform(0, 6, 200)
    counts = RNG.poisson(hours * np.exp(np.sin(x)))
    frame = pl.DataFrame({"x": x, "hours": hours, "calls": counts})
    some_hours = pl.when(pl.int_range(pl.len()) % 9 > 0).then(pl.col("hours")).alias("hours")
    frame[:150].with_columns(some_hours).write_csv(folder / "calls.csv")
    frame[150:].with_columns(some_hours, pl.when(pl.col("x") > 3).then(pl.col("x"))).write_csv(folder / "more.csv")
    chosen = ["--target", "calls", "--exposure", "hours", "--out", "calls.safetensors", "--missing", "drop"]
    done = run_here("fit", "calls.csv", *chosen, "--steps", "60", *QUICK, folder=folder)
    assert done.returncode == 0, done.stderr
    done = run_here("predict", "calls.safetensors", "more.csv", "--out", "d.parquet", folder=folder)
    assert done.returncode == 0, done.stderr
    found = pl.read_parquet(folder / "d.parquet")
    gaps = found["x"].is_null() | found["hours"].is_null()
    assert 0 < gaps.sum() < len(found)
    np.testing.assert_array_equal(found["mean"].is_null(), gaps)  # rows with gaps stay, without a prediction
    there = found.drop_nulls()
    rates = there["mean"].to_numpy() / there["hours"].to_numpy()
    assert np.mean(np.abs(rates / np.exp(np.sin(there["x"].to_numpy())) - 1)) < 0.4
    assert main(["predict", str(folder / "calls.safetensors"), str(folder / "new.parquet"), "--out", "e.csv"]) == 2
    assert main(["fit", str(folder / "calls.csv"), "--target", "calls", "--exposure", "hours"]) == 2
    assert "'hours' is missing in 17 rows" in capsys.readouterr().err


def test_rows_to_test_on_are_the_last_in_time_if_later_rows_are_to_be_predicted(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    days = pl.date_range(pl.date(2024, 1, 1), pl.date(2024, 12, 31), eager=True).alias("day")
    frame = pl.DataFrame([days, pl.Series("sales", np.sin(np.arange(366) / 9) + np.arange(366) / 100)])
    frame.sample(fraction=1, shuffle=True, seed=0).write_csv("sales.csv")
    frame[-37:].write_csv("last.csv")
    out = ["--out", "sales.safetensors", "--no-calendar", "--held-out", "last", "--steps", "50"]
    assert main(["fit", "sales.csv", "--target", "sales", *out, *QUICK]) == 0
    printed = capsys.readouterr().out
    assert main(["evaluate", "sales.safetensors", "last.csv"]) == 0
    assert capsys.readouterr().out.strip() in printed


def test_a_budget_is_for_start_up_and_scores_too(folder, monkeypatch):
    monkeypatch.chdir(folder)
    for budget, seconds in (("40s", 30.0), ("5m", 288.0)):
        asked = ["--target", "y", "--steps", "1", "--budget", budget, "--out", "budget.safetensors"]
        assert main(["fit", "train.csv", *asked, *QUICK]) == 0
        assert DeepGPRegressor.load("budget.safetensors").config_.max_time == seconds


def test_several_targets_from_table_to_table(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    x = RNG.uniform(0, 6, 120)
    a, b = np.sin(x) + 0.05 * RNG.standard_normal(120), 100 * np.cos(x) + RNG.standard_normal(120)
    row = np.arange(120)
    frame = pl.DataFrame({"x": x, "a": np.where(row % 3 == 1, np.nan, a), "b": np.where(row % 4 == 1, np.nan, b)})
    frame.write_csv("two.csv")
    pl.DataFrame({"x": x, "a": a, "b": b}).write_parquet("known.parquet")
    assert main(["fit", "two.csv", "--target", "a,b", "--out", "two.safetensors", "--steps", "100", *QUICK]) == 0
    fitted = capsys.readouterr().out
    assert fitted.startswith("99 rows")  # the ten rows without any target are left out, and a tenth of the others
    assert main(["predict", "two.safetensors", "two.csv", "--out", "two_p.csv", "--samples", "1"]) == 0
    found = pl.read_csv("two_p.csv")
    names = ["mean", "std", "lower", "upper", "sample_1"]
    assert found.columns[3:] == [*(f"{target}_{name}" for target in "ab" for name in names), "outside"]
    assert np.std(found["a_mean"].to_numpy() - np.sin(x)) < 0.3
    assert np.std(found["b_mean"].to_numpy() - 100 * np.cos(x)) < 30
    capsys.readouterr()
    assert main(["evaluate", "two.safetensors", "known.parquet", "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["b"]["rows"] == 120
    assert scores["b"]["rmse"] == pytest.approx(np.sqrt(np.mean((found["b_mean"].to_numpy() - b) ** 2)), rel=1e-4)
    assert main(["evaluate", "two.safetensors", "two.csv"]) == 0
    head, rows, *_ = capsys.readouterr().out.splitlines()
    assert head.split() == ["a", "b"]
    assert rows.split() == ["rows", "80", "90"]
    assert main(["info", "two.safetensors"]) == 0
    assert "target: a, b" in capsys.readouterr().out
    assert main(["report", "two.safetensors", "two.csv", "--out", "two.html"]) == 0
    page = Path("two.html").read_text()
    assert f"<td>{scores['b']['rows']}</td>" not in page
    assert "<th></th><th>a</th><th>b</th>" in page
    assert all(f"<figcaption>{text}" in page for text in ("a, 110 rows", "b, 110 rows", "Effect of x, on b"))
    assert "110 rows of two.csv." in page
    assert re.search(r"<td>line \d+</td><td>[ab]</td>", page)
    assert ">nan<" not in page
    frame.drop("b").write_csv("half.csv")
    assert main(["evaluate", "two.safetensors", "half.csv"]) == 2
    assert "there is no column 'b', which the model predicts" in capsys.readouterr().err


def test_a_wide_table_works_with_some_of_its_columns(folder, capsys):
    values = RNG.standard_normal((30, 10_000))
    pl.DataFrame(values, schema=[f"c{i}" for i in range(10_000)]).write_csv(folder / "wide.csv")
    chosen = ["--target", "c0", "--inputs", "c1,c2,c3", "--out", "wide.safetensors"]
    done = run_here("fit", "wide.csv", *chosen, "--steps", "5", *QUICK, folder=folder)
    assert done.returncode == 0, done.stderr
    assert main(["fit", str(folder / "wide.csv"), "--target", "c0"]) == 2
    assert "9999 columns to predict from, but a model takes at most 1000" in capsys.readouterr().err


TRAIN = ["fit", "train.csv", "--target", "y", "--inputs", "x", "--frequencies", "8", "--out"]


def start(folder: Path, out: str, *more: str) -> subprocess.Popen:
    command, pipe = [*OVERTONE, *TRAIN, out, *more], subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=environment(), stdout=pipe, stderr=pipe, text=True)


def test_training_that_is_killed_again_and_again_ends_with_the_same_model(folder, monkeypatch):
    """Two stages (one layer, then two), killed by a real signal at random times, and resumed."""
    monkeypatch.setenv("OVERTONE_CHECKPOINT_SECONDS", "0")
    steps = ("--steps", "1500")
    whole = run_here(*TRAIN, "whole.safetensors", *steps, folder=folder)
    assert whole.returncode == 0, whole.stderr
    killed, kept = 0, ("--checkpoint", "kept", "--resume")

    def checkpoints():
        return {path: path.stat().st_mtime_ns for path in (folder / "kept").glob("*.checkpoint")}

    while killed < KILLS:
        process, before = start(folder, "killed.safetensors", *steps, *kept), checkpoints()
        while checkpoints() == before and process.poll() is None:  # until it has got farther than the one before
            sleep(0.02)
        sleep(RNG.uniform(0, 2))
        ended = process.poll() is not None
        process.kill()  # SIGKILL, which it cannot hear
        process.communicate()
        if ended:
            break
        killed += 1
    last = start(folder, "killed.safetensors", *steps, *kept)
    _, errors = last.communicate()
    assert last.returncode == 0, errors
    assert killed >= 1
    one, other = (DeepGPRegressor.load(folder / f"{name}.safetensors") for name in ("whole", "killed"))
    np.testing.assert_array_equal(one.history_.loss, other.history_.loss)
    grid = np.linspace(0, 10, 50)[:, None]
    np.testing.assert_array_equal(one.predict(grid, return_std=True), other.predict(grid, return_std=True))
    refused = run_here(*TRAIN, "killed.safetensors", "--steps", "1600", *kept, folder=folder)
    assert refused.returncode == 2
    assert "max_steps was 1500, is 1600" in refused.stderr


def test_ctrl_c_saves_the_best_model(folder):
    process = start(folder, "stopped.safetensors", "--layers", "2", "--steps", "1000000")
    while "step/s" not in (line := process.stderr.read(200)) and process.poll() is None:
        assert line is not None
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "will be saved" in errors
    assert "Training was stopped at step" in errors
    assert "Written: stopped.safetensors" in output
    assert DeepGPRegressor.load(folder / "stopped.safetensors").predict([[1.0]]).shape == (1,)


@pytest.mark.parametrize("out", ["predictions.parquet", "predictions.csv"])
def test_a_disk_without_space_is_one_sentence_that_names_the_file(folder, tmp_path, out):
    """The limit of a file's size stands for the disk's: a real write fails for real."""
    table(20_000).write_parquet(tmp_path / "many.parquet")
    command = [*OVERTONE, "predict", str(folder / "model.safetensors"), "many.parquet", "--out", out]
    limited = ["bash", "-c", f"ulimit -f 20; exec {shlex.join(command)}"]
    done = subprocess.run(
        limited,
        cwd=tmp_path,
        env={**environment(), "OVERTONE_CACHE": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"overtone: error: {out} cannot be written: ")
    assert done.stderr.count("\n") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["many.parquet"]


def test_a_prediction_that_is_ended_leaves_nothing_behind(folder, tmp_path):
    table(200_000).write_parquet(tmp_path / "many.parquet")
    command = [*OVERTONE, "predict", str(folder / "model.safetensors"), "many.parquet", "--out", "predictions.csv"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment())
    while not list(tmp_path.glob(".overtone.*")) and process.poll() is None:
        sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    assert [p.name for p in tmp_path.iterdir()] == ["many.parquet"]
