"""The training loop on problems with known answers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from overtone.data import Batches
from overtone.fit import DivergedWarning, fit
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


X = np.linspace(-1, 1, 50)
BATCHES = Batches(X, 3 * X + 1, batch_size=10, seed=0)
ADAM = optax.adam(0.05)


def run(model, loss=squared_error, steps=400, **settings):
    return fit(model, loss, BATCHES, key=jax.random.key(0), optim=ADAM, steps=steps, **settings)


def test_finds_the_minimum_and_leaves_what_is_fixed():
    model, history = run(Line(Positive(1.0), Fixed(1.0)))
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
    with pytest.warns(DivergedWarning, match="not finite at step .* of 400.*smaller learning rate"):
        model, history = run(Line(jnp.asarray(0.3), jnp.asarray(0.0)), log_loss)
    assert 0 < float(model.slope) < 0.3
    assert np.all(np.isfinite(history.loss))
    assert float(np.exp(history.loss[-1])) == pytest.approx(float(model.slope), rel=1e-6)
    assert "not finite" in history.message


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
    np.testing.assert_array_equal(rows, [range(5), range(5)])


def test_the_loss_carries_its_memory_from_step_to_step():
    """Here: the number of steps so far, which is where the slope is pulled to."""

    def loss(model, memory, key, x, y):
        return (model.slope - memory) ** 2, memory + 1

    steps = 7
    model, history = fit(
        Line(jnp.asarray(0.0), jnp.asarray(0.0)),
        loss,
        BATCHES,
        key=jax.random.key(0),
        optim=optax.sgd(0.5),  # jumps to the minimum of the step's loss
        steps=steps,
        memory=jnp.asarray(0.0),
        chunk=3,
    )
    np.testing.assert_allclose(history.loss, [0, *[1] * (steps - 1)])
    assert float(model.slope) == steps - 2
