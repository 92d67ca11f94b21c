"""The report: what it says, and what a real browser makes of it."""

import html
import json
import re
import shutil
import subprocess

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
import pytest

from overtone.app import plots
from overtone.app.report import model_warnings, render_report
from overtone.sklearn import DeepGPClassifier, DeepGPRegressor

RNG = np.random.default_rng(0)
X = RNG.uniform(0, 10, size=(200, 2))
Y = np.sin(X[:, 0]) + 0.1 * RNG.standard_normal(200)
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
# What the page looks like, written into it by the page itself.
MEASURE = """<script>
const errors = []; addEventListener('error', e => errors.push(String(e.message)));
const size = s => { const box = s.getBoundingClientRect(); return [box.width, box.height] };
addEventListener('load', () => { document.body.dataset.found = JSON.stringify({errors,
  figures: [...document.querySelectorAll('figure svg')].map(size),
  drawn: [...document.querySelectorAll('figure svg')].map(s => s.querySelectorAll('path, use').length),
  wide: document.documentElement.scrollWidth - innerWidth}) });
</script></head>"""


@pytest.fixture(scope="module")
def model():
    return DeepGPRegressor("vff", n_inducing=6, max_steps=200).fit(X, Y)


@pytest.fixture(scope="module")
def page(model):
    return render_report(model, X, Y, names=["time of day", "<noise> & nothing"], target='the "target"')


def test_it_is_one_page_that_needs_nothing_else(page):
    assert page.startswith("<!doctype html>")
    assert not re.search(r'(src|href)="(?!#|data:)', page)
    assert "<script" not in page
    assert "<noise>" not in page
    assert html.escape("<noise> & nothing") in page
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert len(page) < 2_000_000


def test_it_shows_the_metrics_and_the_most_relevant_input_first(model, page):
    assert f"{model.evaluate(X, Y)['rmse']:.6g}" in page
    assert page.index("time of day: moves the prediction") < page.index("nothing: moves the prediction")


def test_it_warns_in_plain_words(model):
    found = model.evaluate(X, Y)
    assert model_warnings(model, X, found, [0.0]) == []
    assert "take those as guesses" in " ".join(model_warnings(model, X + 20, found, [0.0]))
    assert "too sure" in " ".join(model_warnings(model, X, {**found, "coverage_95": 0.6}, [0.0]))
    assert "more frequencies" in " ".join(model_warnings(model, X, found, [0.0, 0.4]))
    assert "only 3 rows" in " ".join(model_warnings(model, X, {**found, "rows": 3}, [0.0]))
    assert "hardly better" in " ".join(model_warnings(model, X, {**found, "standardised_rmse": 1.0}, [0.0]))


def test_it_speaks_of_classes_where_there_are_any():
    labels = np.where(Y > 0.3, "high", np.where(Y < -0.3, "low", "middle"))
    model = DeepGPClassifier("vff", n_inducing=4, max_steps=30).fit(X, labels)
    page = render_report(model, X, labels, names=["time", "noise"], target="level")
    assert f"{model.evaluate(X, labels)['accuracy']:.1%}" in page
    assert "P(middle)" in page
    assert "Residuals" not in page


@pytest.mark.skipif(BROWSER is None, reason="no chromium: the report is not looked at in a browser")
@pytest.mark.parametrize("size", ["1200,900", "500,900"])  # a desk, and the narrowest window that chromium makes
def test_a_browser_shows_all_figures_without_errors(page, size, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(page.replace("</head>", MEASURE), encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    flags += ["--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}"]
    command = [BROWSER, *flags, "--enable-logging=stderr", f"--window-size={size}", "--dump-dom", path.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert "CONSOLE" not in shown.stderr
    found = json.loads(html.unescape(re.search(r'data-found="([^"]+)"', shown.stdout)[1]))
    assert found["errors"] == []
    assert len(found["figures"]) == page.count("<svg")
    assert all(width > 200 and height > 100 for width, height in found["figures"])
    assert all(num > 5 for num in found["drawn"])
    assert found["wide"] <= 0  # nothing sticks out


def test_pictures_of_a_numeric_frame_raise_no_warning():
    rng = np.random.default_rng(0)
    frame = pl.DataFrame(rng.random((60, 2)), schema=["wind", "sun"])
    y = np.sin(6 * frame["sun"].to_numpy())
    model = DeepGPRegressor("svgp", n_inducing=5, max_steps=5).fit(frame, y)
    fig, axes = plt.subplots(1, 4)
    plots.prediction(model, frame, y, axes[0])
    plots.effect(model, frame, 1, axes[1])
    plots.residuals(model, frame, y, axes[2])
    plots.spectrum(model, frame, axes[3], column=1)
    assert np.argmax(plots.relevance(model, frame)) == 1
    plt.close(fig)
