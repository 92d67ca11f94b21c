"""The tutorial, block by block."""

import shlex

from overtone.app.cli import main
from tests.pages import blocks


def test_the_tutorial_runs_and_ends_with_a_report(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for kind, text in blocks("docs/tutorial.md", "python", "sh"):
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
