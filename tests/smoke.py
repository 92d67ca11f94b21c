"""Try the installed package: `make dist` runs this where only the wheel and its dependencies are installed."""

import subprocess
import sys
import tempfile
from importlib import metadata, resources
from pathlib import Path

import numpy as np

import overtone
from overtone.sklearn import DeepGPClassifier, DeepGPRegressor, load


def try_estimators(folder: Path) -> None:
    X = np.linspace(0, 1, 60)[:, None]
    y = np.sign(np.sin(12 * X[:, 0]))
    model = DeepGPRegressor(max_steps=20).fit(X, y)
    model.save(folder / "model.safetensors")
    again = load(folder / "model.safetensors")
    assert all(map(np.array_equal, model.predict(X, return_std=True), again.predict(X, return_std=True)))
    probabilities = DeepGPClassifier(max_steps=5).fit(X, y > 0).predict_proba(X)
    assert np.allclose(probabilities.sum(axis=1), 1)


def try_command_line(folder: Path) -> None:
    program, table = Path(sys.executable).with_name("overtone"), folder / "table.csv"
    x = np.linspace(0, 1, 60)
    np.savetxt(table, np.column_stack([x, np.sin(9 * x)]), delimiter=",", header="x,y", comments="")
    for arguments in (
        ["--help"],
        ["fit", table, "--target", "y", "--steps", "5", "--quiet", "--out", folder / "fitted.safetensors"],
        ["predict", folder / "fitted.safetensors", table, "--out", folder / "predictions.csv"],
        ["report", folder / "fitted.safetensors", table, "--out", folder / "report.html"],
    ):
        subprocess.run([program, *arguments], check=True, stdout=subprocess.DEVNULL)
    assert len((folder / "predictions.csv").read_text().splitlines()) == 61
    assert "</html>" in (folder / "report.html").read_text()


if __name__ == "__main__":
    assert metadata.version("overtone") == overtone.__version__
    assert (resources.files("overtone") / "py.typed").is_file()
    assert all(getattr(overtone, name) is not None for name in overtone.__all__)
    with tempfile.TemporaryDirectory() as name:
        try_estimators(Path(name))
        try_command_line(Path(name))
    print(f"overtone {overtone.__version__} works from {Path(overtone.__file__).parent}")
