"""The report: what it says of each kind of table, and what a real browser makes of it."""

import html
import json
import re
import shutil
import subprocess
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
import pytest

from overtone.app import plots
from overtone.app.curves import training_rows
from overtone.app.page import shown
from overtone.app.report import model_warnings, render_report
from overtone.app.sweeps import find_sweep
from overtone.sklearn import DeepGPClassifier, DeepGPRegressor, OutsideRangeWarning
from overtone.tables.encode import Encoder

RNG = np.random.default_rng(0)
X = RNG.uniform(0, 10, size=(200, 2))
Y = np.sin(X[:, 0]) + 0.1 * RNG.standard_normal(200)
HOURS = pl.datetime_range(pl.datetime(2024, 1, 1), pl.datetime(2024, 2, 15), "3h", eager=True).alias("when")
DAY, COUNTS = HOURS.to_frame(), RNG.poisson(2 + np.sin(np.arange(len(HOURS))))
FRAME = pl.DataFrame(X, schema=["time of day", "<noise> & nothing"])
LEVELS = np.where(Y > 0.3, "high", np.where(Y < -0.3, "low", "middle"))
TOWNS = "a town with quite a long name", "here", "there"
SHALLOW = {"method": "vff", "n_inducing": 4, "max_steps": 30}
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
# Pages in frames of 1280 and 390 pixels, and what they look like, which the page of the frames writes into itself.
MEASURE = """<body><script>
const errors = []; addEventListener('error', event => errors.push(String(event.message)));
function measured(view) {
  const page = view.contentDocument, root = page.documentElement;
  const seen = element => element.getClientRects().length > 0;
  const figures = [...page.querySelectorAll('figure svg')].filter(seen);
  const outside = (inner, outer) => { const a = inner.getBoundingClientRect(), b = outer.getBoundingClientRect();
    return a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1 || a.bottom > b.bottom + 1; };
  const letters = [...page.querySelectorAll('svg text')].filter(seen);
  const words = [...page.querySelectorAll('h1, h2, p, td, th, small, figcaption')].filter(seen);
  const size = text => parseFloat(view.contentWindow.getComputedStyle(text).fontSize);
  const scale = text => { const { a, b } = text.getScreenCTM(); return Math.hypot(a, b) };
  return {
    figures: figures.map(s => { const box = s.getBoundingClientRect(); return [box.width, box.height] }),
    drawn: figures.map(s => s.querySelectorAll('path, use').length),
    captions: page.querySelectorAll('figcaption').length,
    smallest: Math.min(...letters.map(text => size(text) * scale(text)), ...words.map(size)),
    clipped: [...letters.filter(text => outside(text, text.ownerSVGElement)), ...words.filter(word =>
      outside(word, root) || word.scrollWidth > word.clientWidth + 1 && view.contentWindow.getComputedStyle(word)
      .display != 'inline')].map(element => element.textContent),
    broken: [...page.querySelectorAll('.number')].filter(seen).filter(cell => {
      const range = page.createRange(); range.selectNodeContents(cell); return range.getClientRects().length > 1;
    }).map(cell => cell.textContent),
    wide: root.scrollWidth - view.clientWidth };
}
addEventListener('load', () => {
  document.body.dataset.found = JSON.stringify({errors, pages: [...document.querySelectorAll('iframe')].map(measured)});
});
</script>"""


def panel(rows: int = 300) -> tuple[pl.DataFrame, np.ndarray]:
    """A panel of three towns, one of which has many more rows, with another number and a yes or no."""
    towns = RNG.choice(TOWNS, rows, p=[0.6, 0.2, 0.2])
    frame = pl.DataFrame({"when": HOURS.gather(RNG.integers(0, len(HOURS), rows)), "town": towns})
    return frame.with_columns(wind=pl.Series(RNG.random(rows)), open=pl.Series(towns == "here")), RNG.random(rows)


@pytest.fixture(scope="module")
def model():
    return DeepGPRegressor("vff", n_inducing=6, max_steps=200).fit(FRAME, pl.Series('the "target"', Y))


@pytest.fixture(scope="module")
def of_panel():
    return DeepGPRegressor(**SHALLOW).fit(*panel())


@pytest.fixture(scope="module")
def series():
    first = DAY[259::-1]
    return DeepGPRegressor(**SHALLOW).fit(first, COUNTS[259::-1], exposure=np.full(260, 0.5))


@pytest.fixture(scope="module")
def of_classes():
    return DeepGPClassifier(**SHALLOW).fit(X, LEVELS)


@pytest.fixture(scope="module")
def pages(model, of_panel, series, of_classes):
    """One page of each kind, by name."""
    with pytest.warns(OutsideRangeWarning):
        forecast = render_report(series, DAY[260:], COUNTS[260:], exposure=np.full(len(DAY) - 260, 0.5))
    return {
        "table": render_report(model, FRAME, Y, table_name="rows.csv", place=lambda row: f"line {row + 2}"),
        "classes": render_report(of_classes, X, LEVELS),
        "panel": render_report(of_panel, *panel()),
        "series": forecast,
    }


@pytest.mark.parametrize("kind", ["table", "classes", "panel", "series"])
def test_it_is_one_page_that_needs_nothing_else(pages, kind):
    page = pages[kind]
    assert page.startswith("<!doctype html>")
    assert not re.search(r'(src|href)="(?!#|data:)', page)
    assert "<script" not in page
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert len(page) < 600_000
    assert "The rows that surprise most" in page


def test_a_table_has_its_metrics_its_most_relevant_input_first_and_its_worst_row(pages, model):
    page = pages["table"]
    assert "<noise>" not in page
    assert html.escape("<noise> & nothing") in page
    assert "200 rows of rows.csv." in page
    assert "Importance</figcaption>" in page
    assert page.index("Effect of time of day") < page.index("nothing</figcaption>")
    assert "predicted and as it is" in page
    assert f">{shown(model.evaluate(FRAME, Y)['rmse'])}<" in page
    worst = np.argmin(model.log_predictive_density(FRAME, Y))
    assert f'<td>line {worst + 2}</td><td class="number">{shown(Y[worst])}</td>' in page


def test_classes_have_a_confusion_matrix_and_probabilities(pages):
    page = pages["classes"]
    assert "Classes, true and predicted" in page
    assert "P(middle)" in page
    assert "with probability" in page
    assert "Residuals" not in page


def test_a_panel_has_a_picture_for_each_series_and_axes_of_the_calendar(pages):
    page = pages["panel"]
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", page)
    assert captions[0].startswith(f"{TOWNS[0]}, ")
    assert [caption.split(",")[0] for caption in captions[1:3]] in (["here", "there"], ["there", "here"])
    assert "Effect of when: time of day" in captions
    assert ">Mon<" in page
    assert re.search(r">\d\d:00<", page)
    assert "town=" not in page
    assert re.search(r"Trained on rows with when from <[^>]+>2024-01-0\d</span>", page)
    assert re.search(r"<td>row \d+<br><small><[^>]+>2024-0\d-\d\d</span>[ \d:]*, (here|there|a town)", page)


def test_a_series_has_the_training_rows_before_the_forecast(pages):
    page = pages["series"]
    assert plots.PALE in page
    assert "the last training rows" in page
    assert plots.PALE not in pages["panel"]
    assert 'class="wide"' in page


def test_a_file_keeps_the_last_rows_of_a_series_alone(series, model, tmp_path):
    series.save(tmp_path / "series.safetensors")
    again = DeepGPRegressor.load(tmp_path / "series.safetensors")
    again.update(DAY[259:260], COUNTS[300:301], exposure=[0.25])
    x, rates = training_rows(again)
    np.testing.assert_array_equal(x, again.inputs(DAY)[[*range(11, 260), 259], 0])
    np.testing.assert_allclose(rates[:-1, 0], COUNTS[11:260] / 0.5, rtol=1e-6)
    np.testing.assert_allclose(rates[-1, 0], COUNTS[300] / 0.25, rtol=1e-6)
    series.save(tmp_path / "alone.safetensors", neighbours=False)
    model.save(tmp_path / "table.safetensors")
    for name in ("alone", "table"):
        assert DeepGPRegressor.load(tmp_path / f"{name}.safetensors").recent_ is None


def test_it_warns_in_plain_words(model):
    found = model.evaluate(FRAME, Y)
    assert model_warnings(model, X, found, [0.0]) == []
    assert "take those as guesses" in " ".join(model_warnings(model, X + 20, found, [0.0]))
    assert "too sure" in " ".join(model_warnings(model, X, {**found, "coverage_95": 0.6}, [0.0]))
    assert "more frequencies" in " ".join(model_warnings(model, X, found, [0.0, 0.4]))
    assert "Only 3 rows" in " ".join(model_warnings(model, X, {**found, "rows": 3}, [0.0]))
    assert "hardly better" in " ".join(model_warnings(model, X, {**found, "standardised_rmse": 1.0}, [0.0]))


@pytest.mark.skipif(BROWSER is None, reason="no chromium: the report is not looked at in a browser")
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_shows_all_pages_without_errors_and_so_that_they_can_be_read(pages, width, tmp_path):
    path = tmp_path / "frames.html"
    frame = f'<iframe style="border: 0; width: {width}px; height: 900px" srcdoc="{{}}"></iframe>'
    frames = "".join(frame.format(html.escape(page)) for page in pages.values())
    path.write_text(f'<!doctype html><meta charset="utf-8">{MEASURE}{frames}', encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    flags += ["--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}"]
    command = [BROWSER, *flags, "--enable-logging=stderr", "--window-size=1400,900", "--dump-dom", path.as_uri()]
    dumped = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert "CONSOLE" not in dumped.stderr
    found = json.loads(html.unescape(re.search(r'data-found="([^"]+)"', dumped.stdout)[1]))
    assert found["errors"] == []
    assert len(found["pages"]) == len(pages)
    for page in found["pages"]:
        assert len(page["figures"]) == page["captions"] > 3
        assert all(size[0] > 300 and size[1] > 100 for size in page["figures"])
        assert all(num > 5 for num in page["drawn"])
        assert page["smallest"] >= 10
        assert page["clipped"] == page["broken"] == []
        assert page["wide"] <= 0  # nothing sticks out


@pytest.mark.parametrize(
    ("which", "axis", "first"),
    [
        ("wind", "number", None),
        ("town", "levels", TOWNS[0]),
        ("town=here", "levels", TOWNS[0]),
        ("open", "levels", "no"),
        ("when", "date", None),
        ("when: time of day", "hours", None),
        ("when: day of week", "levels", "Mon"),
        (0, "date", None),
    ],
)
def test_an_effect_is_found_by_name_and_has_the_axis_of_what_varies(of_panel, which, axis, first):
    inputs = of_panel.inputs(panel(50)[0])
    sweep = find_sweep(of_panel, inputs, which)
    assert sweep.axis == axis
    assert sweep.labels[:1] == (() if first is None else (first,))
    fixed = [i for i in range(inputs.shape[1]) if i not in sweep.inputs]
    assert any((sweep.rows[0, fixed] == row).all() for row in inputs[:, fixed])  # a row that there is


def test_the_year_is_one_circle_and_an_unknown_input_is_refused():
    days = pl.date_range(pl.date(2020, 1, 1), pl.date(2022, 12, 31), "1d", eager=True).alias("day").to_frame()
    encoder = Encoder.fit(days)
    inputs = encoder.encode(days)
    scaling = SimpleNamespace(shift=inputs.min(axis=0), scale=np.ptp(inputs, axis=0))
    model = SimpleNamespace(encoder_=encoder, input_names=encoder.inputs, x_scaling_=scaling, range_=[[0], [1]])
    year = find_sweep(model, inputs, "day: day of year, sine")
    assert (year.name, year.axis) == ("day: day of year", "year")
    np.testing.assert_allclose(np.sum(year.rows[:, list(year.inputs)] ** 2, axis=1), 1)
    with pytest.raises(ValueError, match="no input 'month'; the model has 'day: trend'"):
        find_sweep(model, inputs, "month")


def test_pictures_of_a_numeric_frame_raise_no_warning_and_are_labelled(model):
    fig, axes = plt.subplots(1, 6)
    plots.prediction(model, FRAME, Y, axes[0])
    assert plots.effect(model, FRAME, "time of day", axes[1]).get_xlabel() == "time of day"
    assert axes[1].get_ylabel() == 'the "target"'
    plots.residuals(model, FRAME, Y, axes[2])
    plots.spectrum(model, FRAME, axes[3], column=1)
    plots.observed(model, FRAME, Y, axes[4])
    plots.importance(model, FRAME, axes[5])
    assert axes[5].get_yticklabels()[0].get_text() == "time of day"
    relevance = plots.relevance(model, FRAME)
    assert list(relevance) == FRAME.columns
    assert relevance["time of day"] > relevance["<noise> & nothing"]
    plt.close(fig)


@pytest.mark.parametrize("num_classes", [2, 3])
def test_probabilities_are_drawn_within_0_and_1(num_classes, of_classes):
    model, rows = of_classes, X
    if num_classes == 2:
        rows = X[:, :1]
        model = DeepGPClassifier(**SHALLOW).fit(rows, Y > 0)
    fig, axes = plt.subplots(1, 2)
    plots.prediction(model, rows, model.predict(rows), axes[0])
    plots.effect(model, rows, 0, axes[1])
    for ax in axes:
        drawn = [path.vertices[:, 1] for bands in ax.collections for path in bands.get_paths()]
        drawn += [line.get_ydata() for line in ax.lines]
        assert min(map(np.min, drawn)) >= 0
        assert max(map(np.max, drawn)) <= 1
    plt.close(fig)
