"""The tutorial, block by block."""

import re
import shlex
from pathlib import Path

from overtone.app.cli import main

ROOT = Path(__file__).parent.parent
BLOCKS = re.findall(r"```(python|sh)\n(.*?)```", (ROOT / "docs" / "tutorial.md").read_text(), re.DOTALL)


def test_the_tutorial_runs_and_ends_with_a_report(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for kind, text in BLOCKS:
        if kind == "python":
            exec(compile(text, "tutorial", "exec"), names)
            continue
        for line in text.strip().splitlines():
            assert main(shlex.split(line)[1:]) == 0
    assert names["model"].encoder_.inputs == ["when: trend", "when: time of day", "when: day of week", "temperature"]
    assert names["model"].evaluate(names["new"], names["new"]["demand"])["standardised_rmse"] < 0.35
    assert {"report.html", "pictures.png", "predictions.csv", "other.safetensors"} <= {
        p.name for p in tmp_path.iterdir()
    }
