"""The tutorial, block by block."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
BLOCKS = re.findall(r"```(python|sh)\n(.*?)```", (ROOT / "docs" / "tutorial.md").read_text(), re.DOTALL)


def test_the_tutorial_runs_and_ends_with_a_report(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    environment = {**os.environ, "OVERTONE_CACHE": str(ROOT / ".cache" / "jax")}
    names: dict = {}
    for kind, text in BLOCKS:
        if kind == "python":
            exec(compile(text, "tutorial", "exec"), names)
            continue
        for line in text.strip().splitlines():
            command = [sys.executable, "-m", "overtone.app.cli", *shlex.split(line)[1:]]
            subprocess.run(command, check=True, capture_output=True, env=environment)
    assert names["model"].encoder_.inputs == ["when: trend", "when: time of day", "when: day of week", "temperature"]
    assert names["model"].evaluate(names["new"], names["new"]["demand"])["standardised_rmse"] < 0.35
    assert {"report.html", "pictures.png", "predictions.csv", "other.safetensors"} <= {
        p.name for p in tmp_path.iterdir()
    }
