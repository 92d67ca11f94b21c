"""Records of experiments survive kills and torn lines, and many writers."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from time import sleep

import pytest

from overtone.experiments.records import Records


def test_a_torn_line_is_no_record_and_is_removed(tmp_path):
    records = Records(tmp_path / "x.jsonl")
    records.append({"seed": 0, "value": 1.5})
    with records.path.open("a") as file:
        file.write('{"seed": 1, "val')
    assert records.read() == [{"seed": 0, "value": 1.5}]
    with records.claim({"seed": 1}) as ours:
        assert ours
    records.append({"seed": 1, "value": 2.5})
    assert [each["seed"] for each in records.read()] == [0, 1]
    records.path.write_text("no JSON\n")
    with pytest.raises(ValueError, match="a line is not JSON"):
        records.read()


def test_a_case_is_measured_by_one_process_at_a_time_and_never_again(tmp_path):
    records, case = Records(tmp_path / "x.jsonl"), {"method": "a", "seed": 0}
    with records.claim(case) as first, Records(records.path).claim(case) as second:
        assert (first, second) == (True, False)
        records.append({**case, "value": 1.0, "draws": [1, 2]})
    with records.claim(case) as again:
        assert not again
    with records.claim({**case, "seed": 1}) as other:
        assert other


def test_lines_of_many_writers_are_whole(tmp_path):
    path = tmp_path / "x.jsonl"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda seed: Records(path).append({"seed": seed, "text": "x" * 5000}), range(64)))
    assert sorted(each["seed"] for each in Records(path).read()) == list(range(64))


def test_a_killed_run_goes_on_where_it_was(tmp_path):
    """Killed in the middle of its second case, a run has one record; another finishes, and measures nothing twice."""
    code = (
        "import sys, time; from pathlib import Path; from overtone.experiments import running\n"
        "class Slow:\n"
        "    cases = staticmethod(lambda *_: [{'method': 'a', 'seed': s} for s in range(3)])\n"
        "    figure = staticmethod(lambda *_: None)\n"
        "    def measure(case, folder):\n"
        "        time.sleep(0 if len(sys.argv) > 2 or case['seed'] == 0 else 60)\n"
        "        return {'value': 1.0}\n"
        "running.experiment = lambda name: Slow\n"
        "print(running.run('x', quick=False, seeds=None, data=None, folder=Path(sys.argv[1])))"
    )
    command, path = [sys.executable, "-c", code, str(tmp_path)], tmp_path / "x.jsonl"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while not (path.exists() and path.read_text().endswith("\n")):
            sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
    before = path.read_text()
    done = subprocess.run([*command, "quick"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "2"
    assert path.read_text().startswith(before)
    assert [each["seed"] for each in Records(path).read()] == [0, 1, 2]
