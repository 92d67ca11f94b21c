"""What is left to the data: depth, frequencies, widths and likelihoods."""

import numpy as np
import pytest

from overtone.autopilot.build import build
from overtone.autopilot.spectrum import TooFewFrequenciesWarning
from tests.planned import LONG, SERIES, TABLE, WAVES, planned

RNG = np.random.default_rng(1)


def test_a_series_decides_its_frequencies_and_a_short_one_is_fitted_in_closed_form():
    plan = planned(SERIES, WAVES)
    assert 40 < plan.num_inducing < 80
    assert (plan.output, plan.likelihood, plan.covariance) == ("collapsed", "gaussian", "block")
    assert plan.depths == (1, 2)
    long = np.linspace(0, 1, 2000)[:, None]
    many = planned(long, np.sin(2 * np.pi * 150 * long))
    assert many.num_inducing > 150
    assert many.depths == (1,)
    jumps = np.where(np.floor(10 * SERIES) % 2, 1.0, -1.0)
    steps = planned(SERIES, jumps)
    assert steps.num_inducing > 100
    assert steps.depths == (1, 2)  # a jump has many frequencies, and depth is what it needs


def test_a_table_gets_two_layers_natural_gradients_and_flexible_noise():
    plan = planned(TABLE, TABLE[:, :1])
    assert (plan.depths, plan.output, plan.likelihood) == ((2,), "natural", "flexible")
    wide = planned(RNG.uniform(size=(3000, 30)), TABLE[:, :1])
    assert wide.covariance == "mean-field"
    assert wide.num_inducing < 10


def test_a_small_table_starts_with_an_exact_process_unless_a_certain_model_is_asked_for():
    X, y = TABLE[:400], TABLE[:400, :1]
    plan = planned(X, y)
    assert (plan.exact_kernel, plan.depths, plan.held_out) == ("matern52", (1,), 0)
    timed = planned(X, y, max_time=60.0)
    assert (timed.depths, timed.held_out, timed.output, timed.likelihood) == ((1, 2), 80, "natural", "flexible")
    assert planned(X, y, kernel="matern32").exact_kernel == "matern32"
    for asked in (
        {"n_layers": 2},
        {"n_inducing": 5},
        {"output": "adam"},
        {"preset": "paper"},
        {"likelihood": "student-t"},
    ):
        assert planned(X, y, **asked).exact_kernel is None
    assert planned(X, np.where(np.arange(400)[:, None] == 3, np.nan, y)).exact_kernel is None
    assert planned(TABLE, TABLE[:, :1]).exact_kernel is None
    assert planned(X, y, n_inducing=5).likelihood == "flexible"  # which 80 rows test
    assert planned(X[:200], y[:200], n_inducing=5).likelihood == "gaussian"  # nothing tests more


def test_a_short_series_starts_with_an_exact_process_that_its_rows_can_carry():
    plan = planned(SERIES, WAVES)
    assert (plan.exact_kernel, plan.depths, plan.held_out) == ("matern52", (1, 2), 0)
    for X, y, asked in (
        (SERIES, WAVES, {"n_inducing": 60}),
        (np.linspace(0, 1, 2001)[:, None], np.sin(np.arange(2001.0))[:, None], {}),
        (LONG, np.sin(2 * np.pi * 300 * LONG) + 0.1 * RNG.standard_normal(LONG.shape), {}),  # 1,000 points, 300 cycles
    ):
        assert planned(X, y, **asked).exact_kernel is None


def test_frequencies_are_counted_on_the_interval_that_carries_them():
    """Cycles over the data: on [-2, 3] they need five times the frequencies."""
    tight = planned(SERIES, WAVES, kernel="matern32")
    wide = planned(SERIES, WAVES, features="fourier", kernel="matern32")
    asked = planned(SERIES, WAVES, kernel="matern32", interval=(-0.5, 1.5))
    assert wide.num_inducing >= 5 * 40
    assert asked.num_inducing >= 1.9 * 40
    assert tight.num_inducing < 80


@pytest.mark.parametrize(("inputs", "units"), [(2, 8), (4, 16), (5, 16), (7, 13), (9, 10), (30, 10)])
def test_hidden_layers_have_as_many_units_as_can_have_full_covariances(inputs, units):
    X, y = RNG.uniform(size=(3000, inputs)), TABLE[:, :1]
    plan = planned(X, y)
    assert plan.hidden_width == units
    assert plan.covariance == ("block" if (2 * inputs + 1) * units <= 200 else "mean-field")
    assert planned(X, y, method="dgp").hidden_width == min(inputs, 10)
    assert build(plan, X, y).output.features.num_features <= 1000  # of the output layer, which pays for wide layers


def test_the_paper_and_inducing_points_keep_to_the_book():
    wide = np.tile(TABLE, (1, 30))[:, :27]
    for method, features in (("id-dgp", "fourier"), ("dgp", "points")):
        paper = planned(wide, TABLE[:, :1], method, preset="paper")
        assert (paper.features, paper.num_inducing, paper.interval) == (features, 50, None)  # None is [-2, 3] there
        assert (paper.output, paper.optimiser, paper.learning_rate) == ("adam", "plain adam", 0.01)
        assert (paper.likelihood, paper.depths, paper.hidden_width, paper.covariance) == ("gaussian", (2,), 27, "block")
        assert (paper.kl_anneal_steps, paper.kl_addends, paper.held_out) == (0, 1.0, 0)
        assert not any((paper.calibrated, paper.neighbours, paper.exact_kernel, paper.fine_inputs, paper.start))
    points = planned(TABLE, TABLE[:, :1], "svgp")
    assert (points.num_inducing, points.features, points.kernel) == (100, "points", "rbf")


def test_settings_that_are_given_stay():
    chosen = {
        "output": "adam",
        "likelihood": "gaussian",
        "covariance": "joint",
        "fine_inputs": (),
        "hidden_width": 2,
        "features": "bsplines",
        "kernel": "matern12",
        "interval": (-0.5, 1.5),
        "learning_rate": 0.003,
        "batch_size": 77,
        "dtype": "float64",
    }
    plan = planned(
        SERIES,
        np.zeros_like(WAVES),
        n_inducing=7,
        n_layers=3,
        n_samples=3,
        max_steps=11,
        max_time=5.0,
        random_state=4,
        n_projections=2,
        held_out="last",
        band_limited="no",
        **chosen,
    )
    assert {name: getattr(plan, name) for name in chosen} == chosen
    assert (plan.num_inducing, plan.depths, plan.num_samples) == (7, (3,), 3)
    assert (plan.steps, plan.seconds, plan.seed) == (11, 5.0, 4)
    assert (plan.directions, plan.held_out_last, plan.band_limited) == ((2, 2), True, False)
    limited = planned(SERIES, WAVES, "vff", n_inducing=50, band_limited="yes")
    assert (limited.band_limited, limited.num_inducing) == (True, 50)


def test_far_too_few_frequencies_are_worth_a_sentence():
    with pytest.warns(TooFewFrequenciesWarning, match="n_inducing=3 frequencies are far too few .* ask for about"):
        planned(SERIES, WAVES, n_inducing=3)


def test_flexible_noise_has_no_closed_form():
    with pytest.raises(ValueError, match="output='collapsed' needs likelihood='gaussian'"):
        planned(TABLE, TABLE[:, :1], output="collapsed", likelihood="flexible")
