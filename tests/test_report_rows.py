"""The report about rows that training did not see: of new categories, taken in later, or with exposures as lists."""

import html
import re

import numpy as np
import polars as pl
import pytest

from overtone.app.loading import describe
from overtone.app.report import model_warnings, render_report
from overtone.sklearn import DeepGPClassifier, DeepGPRegressor

RNG = np.random.default_rng(0)
NUM = 60
SHALLOW = {"method": "vff", "n_inducing": 4, "max_steps": 3}
TABLE = pl.DataFrame({"x": RNG.random(NUM), "town": RNG.choice(["here", "there"], NUM)})
COUNTS, HOURS = RNG.poisson(3, NUM), RNG.uniform(1, 2, NUM)


@pytest.fixture(scope="module")
def counts():
    return DeepGPRegressor(**SHALLOW).fit(TABLE, COUNTS, exposure=pl.Series("hours", HOURS))


def test_of_rows_in_unknown_categories_alone_the_effects_are_those_of_the_known_ones(counts):
    new = TABLE.with_columns(town=pl.lit("elsewhere"))
    page = render_report(counts, new, COUNTS, exposure=HOURS)
    assert "Effect of town" in page
    assert ">there<" in page
    assert f"Rows with categories that no training row has: {NUM}." in page
    assert "categories that no training row has" not in render_report(counts, TABLE, COUNTS, exposure=HOURS)


@pytest.mark.parametrize("kind", [list, pl.Series, np.array])
def test_exposures_are_taken_in_any_form_and_named(counts, kind):
    page = render_report(counts, TABLE, COUNTS, exposure=kind(HOURS.tolist()))
    assert "<td>x, town; exposure: hours</td>" in page
    assert "exposure" not in describe(DeepGPRegressor(**SHALLOW).fit(TABLE, HOURS), ["x", "town"], "y")["inputs"]


@pytest.mark.filterwarnings("ignore::overtone.sklearn.OutsideRangeWarning")
def test_rows_in_the_range_that_a_model_has_learned_since_are_not_outside(counts):
    wide, hours = DeepGPRegressor(**SHALLOW).fit(TABLE, COUNTS, exposure=HOURS), {"exposure": HOURS}
    assert "outside the training data" in warnings_of(wide, TABLE.with_columns(pl.col("x") + 1), **hours)
    wide.range_ = np.array([[0.0], [2.0]])  # as after an update of a model that learns outside
    assert "outside the training data" not in warnings_of(wide, TABLE.with_columns(pl.col("x") + 1), **hours)
    assert "outside the training data" in warnings_of(wide, TABLE.with_columns(pl.col("x") + 3), **hours)


def warnings_of(model: DeepGPRegressor, rows: pl.DataFrame, **exposure) -> str:
    X = model.inputs(rows)
    return " ".join(model_warnings(model, X, model.evaluate(X, COUNTS, **exposure), [0.0]))


@pytest.mark.parametrize("labels", [(0.0, 1.0), (np.float32(0), np.float32(1)), (0, 1)])
def test_classes_that_are_numbers_are_written_alike_everywhere(labels):
    y = np.array(labels)[(TABLE["x"].to_numpy() > 0.5).astype(int)]
    page = render_report(DeepGPClassifier(**SHALLOW).fit(TABLE, y), TABLE, y.astype(int))
    assert ">P(1)<" in page
    assert "(0, 1)</td>" in page
    assert re.search(r"<td>row \d+<br><small>[^<]*</small></td><td>[01]</td><td>[01]</td>", page)
    assert not re.search(
        r">\(?(P\()?[01]\.0\)?<", page.partition("Classes, true and predicted")[2].partition("</svg>")[0]
    )


def test_names_are_text_whatever_signs_they_have():
    names = {"x": "cost in $ or \\frac$", "town": "a $^$ <b>\"'"}
    rows = TABLE.rename(names).with_columns(pl.col(names["town"]).replace("here", "<i>&amp;$_$"))
    model = DeepGPRegressor(**SHALLOW).fit(rows, pl.Series("_y $z$ <u>", HOURS))
    page = render_report(model, rows, HOURS, table_name="<script>alert(1)</script>")
    assert not re.search("<(script|i|b|u)>", page)
    for name in (*names.values(), "<i>&amp;$_$", "_y $z$ <u>", "<script>alert(1)</script>"):
        assert html.escape(name) in page
    assert html.escape("<i>&amp;$_$", quote=False) in page.partition("Effect of a $^$")[2]  # on an axis
