"""The training loop on problems with known answers."""

from time import perf_counter

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.tree_util import Partial

from overtone.data import Batches
from overtone.fit import DivergedWarning, fit, two_cycles, warm_up_and_decay
from overtone.params import Fixed, Positive, trainable, unwrap


class Line(eqx.Module):
    slope: jax.Array | Positive
    offset: jax.Array | Fixed


def squared_error(model, memory, key, x, y):
    model = unwrap(model)
    return jnp.mean((model.slope * x + model.offset - y) ** 2), memory


def log_loss(model, memory, key, x, y):
    """Falls without bound, and is not a number for a slope below 0."""
    return jnp.log(model.slope), memory


def constant(step, steps):
    return 1.0


X = np.linspace(-1, 1, 50)
BATCHES = Batches(X, 3 * X + 1, batch_size=10, seed=0)
ADAM = optax.adam(0.05)


def run(model, loss=squared_error, steps=400, **settings):
    settings = {"schedule": constant, "optim": ADAM, **settings}
    return fit(model, loss, BATCHES, key=jax.random.key(0), steps=steps, **settings)


def test_finds_the_minimum_and_leaves_what_is_fixed():
    model, _, history = run(Line(Positive(1.0), Fixed(1.0)))
    assert float(unwrap(model).slope) == pytest.approx(3.0, abs=0.02)
    assert float(unwrap(model).offset) == 1.0
    assert len(history.loss) == 400
    assert history.message == ""


def test_same_key_same_result_whatever_the_chunk():
    start = Line(Positive(1.0), jnp.asarray(0.0))
    results = [run(start, steps=130, chunk=chunk)[0] for chunk in (100, 100, 13, 1000)]
    slopes = {float(r.slope.log) for r in results}
    assert len(slopes) == 1


def test_a_non_finite_loss_stops_and_keeps_the_last_good_parameters():
    with pytest.warns(DivergedWarning, match="not finite, at last at step .* of 400.*smaller learning rate"):
        model, _, history = run(Line(jnp.asarray(0.3), jnp.asarray(0.0)), log_loss, chunk=2)
    assert 0 < float(model.slope) < 0.3
    assert np.all(np.isfinite(history.loss))
    nearest = np.min(np.abs(np.exp(history.loss) / float(model.slope) - 1))
    assert nearest < 1e-6  # they had a finite loss
    assert "not finite" in history.message


def test_a_gradient_that_is_not_finite_is_seen_at_the_last_step_too():
    def kinked(model, memory, key, x, y):
        return jnp.sqrt(jnp.abs(model.slope - 0.2)), memory  # the slope starts where the gradient is not finite

    with pytest.warns(DivergedWarning):
        model, _, _ = run(Line(jnp.asarray(0.2), jnp.asarray(0.0)), kinked, steps=1)
    assert float(model.slope) == pytest.approx(0.2)


def test_a_last_step_that_leads_where_there_is_no_loss_is_taken_back():
    def loss(model, memory, key, x, y):
        return jnp.where(model.slope > 0.96, jnp.abs(model.slope - 1), jnp.nan), memory

    with pytest.warns(DivergedWarning):
        model, _, _ = run(Line(jnp.asarray(1.25), jnp.asarray(0.0)), loss, optim=optax.sgd(0.3), steps=1)
    assert float(model.slope) == 1.25


def test_progress_bar_shows_what_describe_says(capsys):
    run(
        Line(Positive(1.0), Fixed(1.0)),
        progress=True,
        describe=lambda m, v: {"slope": f"{float(m.slope.log):.1f}"},
    )
    assert "slope=1.1" in capsys.readouterr().err


def test_trainable_marks_floating_arrays_outside_fixed():
    marks = trainable(Line(Positive(1.0), Fixed(1.0)))
    assert marks.slope.log is True
    assert marks.offset.value is False


def test_positive_is_positive_and_keeps_its_floor():
    wrapped = Positive(np.float32(1e-3), lower=1e-4)
    assert float(wrapped.unwrap()) == pytest.approx(1e-3, rel=1e-5)
    low = eqx.tree_at(lambda p: p.log, wrapped, jnp.asarray(-100.0))
    assert float(low.unwrap()) == pytest.approx(1e-4)


def test_batches_go_through_every_row_once_in_each_epoch():
    batches = Batches(np.arange(10), batch_size=3, seed=1)
    (rows,) = batches.take(0, 10)
    assert rows.shape == (10, 3)
    epochs = rows.ravel().reshape(3, 10)
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    (later,) = batches.take(4, 3)
    np.testing.assert_array_equal(later, rows[4:7])


def test_a_batch_of_everything_keeps_the_order():
    (rows,) = Batches(np.arange(5), batch_size=100, seed=1).take(7, 2)
    np.testing.assert_array_equal(rows, [range(5)])  # one batch for all steps


def test_the_loss_carries_its_memory_from_step_to_step():
    """Here: the number of steps so far, which is where the slope is pulled to."""

    def loss(model, memory, key, x, y):
        return (model.slope - memory) ** 2, memory + 1

    steps = 7
    model, memory, history = fit(
        Line(jnp.asarray(0.0), jnp.asarray(0.0)),
        loss,
        BATCHES,
        key=jax.random.key(0),
        optim=optax.sgd(0.5),  # jumps to the minimum of the step's loss
        steps=steps,
        memory=jnp.asarray(0.0),
        schedule=constant,
        chunk=3,
    )
    assert float(memory) == steps
    np.testing.assert_allclose(history.loss, [0, *[1] * (steps - 1)])
    assert float(model.slope) == steps - 1


def test_a_step_that_is_not_finite_is_taken_back_and_the_next_are_shorter():
    """Down to 1, in steps of 0.3 from 1.25, and 0.95 is too far."""

    def loss(model, memory, key, x, y):
        return jnp.where(model.slope > 0.96, jnp.abs(model.slope - 1), jnp.nan), memory

    start = Line(jnp.asarray(1.25), jnp.asarray(0.0))
    model, _, history = run(start, loss, optim=optax.sgd(0.3), chunk=7)
    assert history.message == ""
    assert abs(float(model.slope) - 1.0) < 0.09  # a step's length, by which it goes to and fro
    assert np.all(np.isfinite(history.loss))


def test_a_time_limit_is_kept():
    began = perf_counter()
    _, _, history = run(Line(Positive(1.0), jnp.asarray(0.0)), steps=10**9, seconds=3.0, schedule=warm_up_and_decay)
    assert 2 < perf_counter() - began < 6
    assert 10 < len(history.loss) < 10**9


def test_warm_up_and_decay_rise_stay_and_fall():
    steps = jnp.asarray(1000)
    scale = np.asarray(jax.vmap(lambda step: warm_up_and_decay(step, steps))(jnp.arange(1000)))
    assert scale[0] == pytest.approx(0.01)
    np.testing.assert_allclose(scale[100:500], 1, atol=1e-5)
    assert np.all(np.diff(scale[501:]) < 0)
    assert scale[-1] == pytest.approx(0.01, abs=1e-3)


def test_two_cycles_are_a_short_one_and_a_long_one_if_steps_are_many():
    def scales(schedule, steps):
        return np.asarray(jax.vmap(lambda step: schedule(step, jnp.asarray(steps)))(jnp.arange(steps)))

    cycles = Partial(two_cycles, many=jnp.asarray(1001))
    short, long = scales(warm_up_and_decay, 250), scales(warm_up_and_decay, 751)
    np.testing.assert_allclose(scales(cycles, 1001), np.concatenate([short, long]), atol=1e-6)
    np.testing.assert_allclose(scales(cycles, 1000), scales(warm_up_and_decay, 1000), atol=1e-6)
    for steps in (1, 2, 3, 4, 5, 9):
        few = scales(Partial(two_cycles, many=jnp.asarray(1)), steps)
        assert np.all((few > 0) & (few <= 1))


def test_training_ends_when_the_score_no_longer_rises_and_the_best_model_is_kept(monkeypatch):
    """The score is best at a slope of 2, on the way from 1 to 3."""
    monkeypatch.setattr("overtone.fit.LEAST_STEPS", 1000)

    def score(model, memory):
        return -abs(float(unwrap(model).slope) - 2.0)

    model, _, history = run(Line(Positive(1.0), Fixed(1.0)), steps=20_000, score=score)
    assert len(history.loss) < 3000
    best = max(history.scores, key=lambda pair: pair[1])
    assert -abs(float(unwrap(model).slope) - 2.0) == pytest.approx(best[1])
    assert best[1] > history.scores[-1][1]


@pytest.mark.parametrize("chunk", [10, 100])
def test_a_model_is_asked_once_whether_it_is_too_small(chunk):
    asked = []

    def outgrown(model):
        asked.append(float(unwrap(model).slope))
        return len(asked) > 1

    model, _, history = run(Line(Positive(1.0), Fixed(1.0)), steps=200, outgrown=outgrown, chunk=chunk)
    assert len(asked) == 1
    assert (len(history.loss), history.outgrown) == (200, False)
    model, _, history = run(Line(Positive(1.0), Fixed(1.0)), steps=200, outgrown=outgrown, chunk=chunk)
    assert (len(history.loss), history.outgrown) == (max(50, chunk), True)
    assert float(unwrap(model).slope) == asked[1]
