"""The experiments of the paper: every command on made-up data, records that survive, and what figures are made of."""

import json
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import jax
import numpy as np
import polars as pl
import pytest
from scipy.io import savemat

from overtone.app.cli import main
from overtone.experiments import EXPERIMENTS, data, kalman, page, priors, running, steps, summaries
from overtone.experiments.claims import CLAIMS, verdict
from overtone.experiments.convert import CONVERTERS, convert
from overtone.experiments.convert import main as convert_main
from overtone.experiments.methods import gaussian_scores
from overtone.experiments.records import Records

RNG, ROWS = np.random.default_rng(0), 60
STAMPS = [datetime(2016, 10, 4) + timedelta(minutes=431 * i) for i in range(ROWS)]


def downloads(folder: Path) -> dict[str, Path]:
    """Write small files of the formats in which the data sets are published, and return where they are."""
    number, day = lambda i: f"{np.sin(i):.3f}", lambda t: t.strftime("%d/%m/%Y;%H:%M:%S")
    stamps = [t.strftime("%Y-%m-%d %H:%M:%S") for t in STAMPS]
    rooms = [f"{kind}{i}" for i in range(1, 10) for kind in ("T", "RH_")]
    weather = ["T_out", "Press_mm_hg", "RH_out", "Windspeed", "Visibility", "Tdewpoint", "rv1", "rv2"]
    power = "Date;Time;Global_active_power;Global_reactive_power;Voltage;Global_intensity;Sub_metering_1;Sub_metering_2"
    flights = "Year,Month,DayofMonth,DayOfWeek,DepTime,ArrTime,AirTime,Distance,ArrDelay,TailNum,Cancelled,Diverted"
    tables = {
        "power_household": (
            f"{power};Sub_metering_3",
            [f"{day(t)};{'?;?;?;?;?;?;' if i == 3 else f'{number(i)};0.4;234.8;18.4;0.0;1.0;17.0'}"
             for i, t in enumerate(STAMPS)],
        ),
        "appliances_energy": (
            ",".join(f'"{name}"' for name in ["date", "Appliances", "lights", *rooms, *weather]),
            [f'"{t}","{50 + 10 * (i % 7)}","30",' + ",".join(f'"{number(i + j)}"' for j in range(26))
             for i, t in enumerate(stamps)],
        ),
        "parking_birmingham": (
            "SystemCodeNumber,Capacity,Occupancy,LastUpdated",
            [f"BHM{'AB'[i % 2]},577,{60 + i},{t}" for i, t in enumerate(stamps)],
        ),
        "air_beijing_pm25": (
            "No,year,month,day,hour,pm2.5,DEWP,TEMP,PRES,cbwd,Iws,Is,Ir",
            [f"{i},{t.year},{t.month},{t.day},{t.hour},{'NA' if i == 0 else 100 + i},-21,-11,1021,"
             f"{('NW', 'cv', 'SE', 'NE')[i % 4]},1.79,0,0" for i, t in enumerate(STAMPS)],
        ),
        "traffic_metro_interstate": (
            "holiday,temp,rain_1h,snow_1h,clouds_all,weather_main,weather_description,date_time,traffic_volume",
            [f"None,28{i % 10}.3,0.0,0.0,40,Clouds,few clouds,{t},{5000 + i}" for i, t in enumerate(stamps)],
        ),
        "airline_us2008": (
            flights,
            [f"2008,1,{1 + i % 30},{1 + i % 7},{1200 + i % 60},{1400 + i % 60},{100 + i},{800 + i},{i % 9},N{i % 3},"
             f"{int(i == 3)},0" for i in range(ROWS)],
        ),
    }  # fmt: skip
    paths = {}
    for name, (head, rows) in tables.items():
        paths[name] = folder / f"{name}.csv"
        paths[name].write_text("\n".join([head, *rows]) + "\n")
    (folder / "plane-data.csv").write_text("tailnum,type,year\nN0,Corporation,1999\nN1,Corporation,None\n")
    paths["audio_subband"] = folder / "audio_subband.mat"
    savemat(paths["audio_subband"], {"y": np.sin(np.arange(ROWS) / 3)[:, None], "fs": 16000})
    return paths


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A data folder, most of it converted from downloads."""
    raw, folder = tmp_path_factory.mktemp("raw"), tmp_path_factory.mktemp("data")
    for name, path in downloads(raw).items():
        convert(name, path, folder / f"{name}.parquet")
    flights = pl.read_parquet(folder / "airline_us2008.parquet").with_columns(source=pl.lit("us2008"), plane_year=1999)
    flights.write_parquet(folder / "airline_us_mixed.parquet")
    (folder / "airline_us2008.parquet").unlink()
    X = RNG.random((ROWS, 2))
    pl.DataFrame({"a": X[:, 0], "b": X[:, 1], "resistance": X.sum(axis=1)}).write_parquet(folder / "uci_yacht.parquet")
    splits = {"dataset": ["yacht"] * 6, "split": [0] * 6, "test_index": np.arange(6)}
    pl.DataFrame(splits).write_parquet(folder / "uci_splits.parquet")
    return folder


def test_downloads_become_tables_with_known_inputs(tmp_path, capsys):
    paths = downloads(tmp_path)
    assert set(paths) == set(CONVERTERS)
    inputs = {}
    for name, path in paths.items():
        assert convert_main([name, str(path), str(tmp_path / f"{name}.parquet")]) == 0
        X, _ = data.load(tmp_path, name)
        assert np.isfinite(X).all()
        inputs[name] = X.shape
    assert inputs == {
        "power_household": (ROWS - 1, 3),  # less than a year; a row of question marks is left out
        "appliances_energy": (ROWS, 27),
        "parking_birmingham": (ROWS, 5),
        "air_beijing_pm25": (ROWS - 1, 13),
        "traffic_metro_interstate": (ROWS, 6),
        "airline_us2008": (19, 8),  # the aircraft of one tail number in three has a year; a flight was cancelled
        "audio_subband": (ROWS, 1),
    }
    assert data.load(tmp_path, "airline_us2008")[0][0].tolist() == [9, 800, 100, 12 * 60, 14 * 60, 1, 1, 1]
    assert convert_main(["nonsense", "a", "b"]) == 2
    (tmp_path / "plane-data.csv").unlink()
    assert convert_main(["airline_us2008", str(paths["airline_us2008"]), str(tmp_path / "x.parquet")]) == 2
    assert "plane-data.csv does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_runs_by_its_command_and_only_once(name, folder, tmp_path, capsys):
    command = ["reproduce", name, "--quick", "--data", str(folder), "--records", str(tmp_path)]
    assert main(command) == 0, capsys.readouterr().err
    lines = (tmp_path / f"{name}.jsonl").read_text()
    records = [json.loads(line) for line in lines.splitlines()]
    assert records
    for record in records:
        assert record["experiment"] == name
        assert {"method", "seed", "version", "total_seconds"} <= set(record)
        if "log_density" in record:
            assert {"rmse", "crps", "coverage_50", "coverage_80", "coverage_95", "seconds", "steps"} <= set(record)
            assert {"rows", "test_rows"} <= set(record)
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert main(command) == 0
    assert "0 new records" in capsys.readouterr().out
    assert (tmp_path / f"{name}.jsonl").read_text() == lines
    assert f"../results/paper/{name}.png" in page.block(tmp_path, name)


def test_experiments_are_listed_and_data_that_are_missing_are_named(tmp_path, capsys, monkeypatch):
    assert main(["reproduce"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in EXPERIMENTS)
    assert sum(each.hours for each in EXPERIMENTS.values()) <= 24  # of one core; there are two
    monkeypatch.delenv("OVERTONE_DATA", raising=False)
    records = ["--quick", "--records", str(tmp_path)]
    assert main(["reproduce", "uci", *records]) == 2
    assert "--data, or set OVERTONE_DATA" in capsys.readouterr().err
    assert main(["reproduce", "uci", *records, "--data", str(tmp_path)]) == 2
    assert "uci_yacht.parquet does not exist" in capsys.readouterr().err
    assert main(["reproduce", "nonsense", *records]) == 2
    assert main(["reproduce", "steps", *records, "--seeds", "0"]) == 2


def test_full_runs_are_planned_with_three_ways_of_the_method_and_no_case_twice(folder):
    for name in EXPERIMENTS:
        cases = [json.dumps(case, sort_keys=True) for case in running.experiment(name).cases(False, None, folder)]
        assert len(cases) == len(set(cases))
        if name in ("steps", "audio", "real-world", "airline", "uci"):
            assert all(
                any(f'"method": "ID-DGP, {way}' in case for case in cases) for way in ("paper", "features", "ours")
            )


def test_the_flights_of_2008_are_taken_where_they_are(folder, tmp_path):
    (tmp_path / "airline_us2008.parquet").touch()
    cases = running.experiment("airline").cases(False, None, tmp_path)
    assert {case["data"] for case in cases} == {"airline_us2008"}


def test_importing_the_experiments_is_light():
    code = "import overtone.experiments, sys; print([m for m in ('jax', 'numpy', 'polars') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_the_state_space_process_is_the_dense_one():
    t = np.sort(RNG.random(40))
    y, known = np.sin(9 * t) + 0.1 * RNG.standard_normal(40), np.arange(40) % 3 > 0
    found = kalman.fit_matern32(t, y, known)
    again = kalman.fit_matern32(t, y, known, steps=200)
    assert again.log_evidence == pytest.approx(found.log_evidence, abs=1e-3)
    log = np.log([1.3, 0.2, 0.02])
    gaps = np.diff(t, prepend=t[0])
    with jax.enable_x64(True):
        mean, var = kalman.smooth(log, gaps, np.where(known, y, 0.0), known)
        evidence = kalman._filter(log, gaps, np.where(known, y, 0.0), known)[0]
    r = 3**0.5 * np.abs(t[:, None] - t) / 0.2
    K = 1.3 * (1 + r) * np.exp(-r)
    noisy = K[np.ix_(known, known)] + 0.02 * np.eye(known.sum())
    weights = np.linalg.solve(noisy, K[known])
    np.testing.assert_allclose(mean, weights.T @ y[known], atol=1e-8)
    np.testing.assert_allclose(var, np.diag(K) - np.sum(weights * K[known], axis=0), atol=1e-8)
    expected = -0.5 * (y[known] @ np.linalg.solve(noisy, y[known]) + np.linalg.slogdet(2 * np.pi * noisy)[1])
    assert float(evidence) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("method", [priors.INTER_DOMAIN, priors.CONVENTIONAL])
def test_draws_from_deep_priors_are_numbers(method):
    draws = priors.measure({"method": method, "depth": 10, "seed": 0}, None)["draws"]
    assert np.isfinite(np.array(draws)).all()
    assert np.ptp(draws, axis=1).min() > 0.1


def test_draws_from_smooth_priors_have_no_noise_of_layers():
    draws = priors.measure({"method": priors.CONVENTIONAL, "depth": 2, "seed": 0}, None)["draws"]
    slopes = np.diff(draws, axis=1) * priors.ROWS
    assert np.abs(np.diff(slopes, axis=1)).max() < 1  # second derivatives are some 10, rows a 300th apart


def test_hidden_layers_are_measured():
    x = np.linspace(0, 1, 101)
    assert steps.monotonicity(x**3) == pytest.approx(1)
    assert steps.monotonicity(np.sin(2 * np.pi * x)) == pytest.approx(0, abs=1e-12)
    assert steps.monotonicity(np.abs(x - 0.25)) == pytest.approx(0.5)
    assert steps.clusters(np.array([0, 0.01, 0.5, 0.51, 1.0])) == 3
    assert steps.clusters(x) == 1


def test_scores_of_gaussian_predictions():
    y = RNG.standard_normal(20_000)
    scores = gaussian_scores(y, np.zeros(len(y)), np.ones(len(y)))
    assert scores["log_density"] == pytest.approx(-0.5 * np.log(2 * np.pi) - 0.5, abs=0.02)
    assert scores["crps"] == pytest.approx(np.pi**-0.5, abs=0.01)
    assert scores["coverage_80"] == pytest.approx(0.8, abs=0.01)


def test_the_page_is_made_from_records_and_keeps_its_prose(tmp_path):
    made = "".join(f"<!-- made: {name} -->\nold\n<!-- end -->\nProse.\n" for name in ("claims", "depth", "budget"))
    (target := tmp_path / "paper.md").write_text(made)
    records = Records(tmp_path / "depth.jsonl")
    for method, depth, seed in (
        (m, d, s) for m in ("ID-DGP, paper", "ID-DGP, ours") for d in (1, 2, 3, 4) for s in (0, 1)
    ):
        figures = {"log_density": 0.1 * min(depth, 2) + 0.01 * seed, "rmse": 0.5, "crps": 0.3, "total_seconds": 3.0}
        covered = {f"coverage_{level}": level / 100 for level in (50, 80, 95)}
        records.append({"data": "traffic", "method": method, "depth": depth, "seed": seed, **figures, **covered})
    page.draw(tmp_path, "depth")
    text = page.write_page(tmp_path, target).read_text()
    assert "old" not in text
    assert "Prose." in text
    assert "| traffic | ID-DGP, ours | 2 | 0.205 ± 0.005 | 0.500 ± 0.000 | 0.300 | 50 / 80 / 95 |" in text
    assert text.count("not run yet") == 2 * (len(CLAIMS) - 1)
    assert "More than two layers do not help ID-DGP](#depth) | Figure 5" in text
    assert "**reproduced**" in text
    assert page.write_page(tmp_path, target).read_text() == text
    assert [verdict(share) for share in (None, 0.1, 0.5, 1.0)] == [
        "not testable here", "not reproduced", "partly", "reproduced"
    ]  # fmt: skip


def test_the_committed_page_is_the_one_that_the_records_make(tmp_path):
    committed = Path(__file__).parent.parent / "docs" / "paper.md"
    (copy := tmp_path / "paper.md").write_text(committed.read_text())
    assert page.write_page(committed.parent.parent / "results" / "paper", copy).read_text() == committed.read_text()


def test_means_of_records():
    records = [{"method": "a", "seed": s, "rmse": r} for s, r in enumerate((1.0, 3.0))] + [
        {"method": "b", "seed": 1, "rmse": 4.0}
    ]
    a, b = (summaries.select(records, method=method) for method in "ab")
    assert summaries.with_error(a, "rmse") == "2.000 ± 1.000"
    assert summaries.paired_gain(b, a, "rmse")[0] == 1.0
    assert summaries.compact(records, "method", "seed", "rmse", 1).splitlines()[2] == "| 0 | 1.0 |  |"
