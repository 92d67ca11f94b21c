"""The training loop and its callbacks on problems with known answers."""

import json
import re
import shutil
from time import perf_counter, sleep

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from overtone.inference.batches import Batches
from overtone.inference.callbacks import Callback, Clock, EarlyStopping, ProgressBar, Retreat, StopWhen
from overtone.inference.checkpoints import Checkpoint, CheckpointWarning, digest
from overtone.inference.log import Log, LogWarning
from overtone.inference.loop import DivergedWarning, fit
from overtone.inference.objective import AbstractObjective
from overtone.inference.schedules import planned, planned_adam, warm_up_and_decay
from overtone.numerics.params import Fixed, Positive, trainable, unwrap
from overtone.storage.files import FileError


class Line(eqx.Module):
    slope: jax.Array | Positive
    offset: jax.Array | Fixed


class Toy(AbstractObjective):
    """Has no state, and finishes nothing."""

    full_batch = False

    def init(self, model, data):
        return model, None

    def finish(self, model, state, key, data=None):
        return model


class SquaredError(Toy):
    def loss(self, model, state, key, batch):
        model = unwrap(model)
        return jnp.mean((model.slope * batch.X + model.offset - batch.y[:, 0]) ** 2), state


class LogSlope(Toy):
    """Falls without bound, and is not a number for a slope below 0."""

    def loss(self, model, state, key, batch):
        return jnp.log(model.slope), state


class Kinked(Toy):
    """Has no finite gradient at a slope of 0.2."""

    def loss(self, model, state, key, batch):
        return jnp.sqrt(jnp.abs(model.slope - 0.2)), state


class Cliff(Toy):
    """Is least at a slope of 1, and not a number a little below."""

    def loss(self, model, state, key, batch):
        return jnp.where(model.slope > 0.96, jnp.abs(model.slope - 1), jnp.nan), state


class Nothing(Toy):
    def loss(self, model, state, key, batch):
        return jnp.nan * model.slope, state


class Counting(Toy):
    """Its state is the number of steps so far, which is where the slope is pulled to."""

    def init(self, model, data):
        return model, jax.device_put(np.zeros((), np.float32))

    def loss(self, model, state, key, batch):
        return (model.slope - state) ** 2, state + 1


class Turns(Callback):
    """Makes turns of so many steps, and remembers where they ended."""

    def __init__(self, length: int):
        self.length, self.ends = length, []

    def start(self, training):
        training.turn_steps = self.length

    def after_turn(self, training):
        self.ends.append(training.step)


def constant(step, steps):
    return 1.0


X = np.linspace(-1, 1, 50)
Y = 3 * X + 1
SQUARED_ERROR = SquaredError()
ADAM = planned(optax.adam(0.05), constant)  # one object, so that the compiled loop is shared
SGD = planned(optax.sgd(0.3), constant)


def run(model, objective=SQUARED_ERROR, steps=400, **settings):
    settings = {"optim": ADAM, "batch_size": 10, **settings}
    return fit(model, objective, (X, Y), key=jax.random.key(0), steps=steps, **settings)


def line(slope: float) -> Line:
    return Line(jnp.asarray(slope), jnp.asarray(0.0))


def test_finds_the_minimum_and_leaves_what_is_fixed():
    model, state, history = run(Line(Positive(1.0), Fixed(1.0)))
    assert float(unwrap(model).slope) == pytest.approx(3.0, abs=0.02)
    assert float(unwrap(model).offset) == 1.0
    assert state is None
    assert len(history.loss) == 400
    assert (history.message, history.scores) == ("", [])
    assert history.seconds > 0


@pytest.mark.parametrize("length", [1, 13, 100])
def test_same_key_same_result_whatever_the_turns(length):
    start, turns = Line(Positive(1.0), jnp.asarray(0.0)), Turns(length)
    usual, again = (run(start, steps=130) for _ in range(2))
    other = run(start, steps=130, callbacks=[turns])
    assert turns.ends == [*range(length, 130, length), 130]
    for result in (again, other):
        assert float(result.model.slope.log) == float(usual.model.slope.log)
        np.testing.assert_array_equal(result.history.loss, usual.history.loss)


@pytest.mark.parametrize("chunk", [13, 1000])
def test_same_key_same_result_whatever_the_chunk(monkeypatch, chunk):
    start = Line(Positive(1.0), jnp.asarray(0.0))
    usual = run(start, steps=130)
    monkeypatch.setattr("overtone.inference.loop.CHUNK_STEPS", chunk)
    assert float(run(start, steps=130).model.slope.log) == float(usual.model.slope.log)


def test_another_key_means_other_batches():
    start = line(1.0)
    losses = [
        fit(start, SQUARED_ERROR, (X, Y), key=jax.random.key(seed), optim=ADAM, steps=30, batch_size=10).history.loss
        for seed in (0, 1)
    ]
    assert not np.array_equal(*losses)


@pytest.mark.parametrize("callbacks", [(), (Retreat,)])
def test_a_non_finite_loss_stops_and_keeps_the_last_good_parameters(callbacks):
    with pytest.warns(DivergedWarning, match="not finite, at last at step .* of 400.*smaller learning rate"):
        model, _, history = run(line(0.3), LogSlope(), callbacks=[Turns(2), *(kind() for kind in callbacks)])
    assert 0 < float(model.slope) < 0.3
    assert np.all(np.isfinite(history.loss))
    nearest = np.min(np.abs(np.exp(history.loss) / float(model.slope) - 1))
    assert nearest < 1e-6  # they had a finite loss
    assert "not finite" in history.message


@pytest.mark.parametrize("callbacks", [(), (Retreat,)])
def test_a_gradient_that_is_not_finite_is_seen_at_the_last_step_too(callbacks):
    with pytest.warns(DivergedWarning):
        model, _, _ = run(line(0.2), Kinked(), steps=1, callbacks=[kind() for kind in callbacks])
    assert float(model.slope) == pytest.approx(0.2)


@pytest.mark.parametrize("callbacks", [(), (Retreat,)])
def test_a_last_step_that_leads_where_there_is_no_loss_is_taken_back(callbacks):
    with pytest.warns(DivergedWarning):
        model, _, _ = run(line(1.25), Cliff(), steps=1, optim=SGD, callbacks=[kind() for kind in callbacks])
    assert float(model.slope) == 1.25


def test_a_step_that_is_not_finite_is_taken_back_and_the_next_are_shorter():
    """Down to 1, in steps of 0.3 from 1.25, and 0.95 is too far."""
    model, _, history = run(line(1.25), Cliff(), optim=SGD, callbacks=[Turns(7), Retreat()])
    assert history.message == ""
    assert abs(float(model.slope) - 1.0) < 0.09  # a step's length, by which it goes to and fro
    assert np.all(np.isfinite(history.loss))


def test_retreats_are_few_and_a_loss_that_never_was_finite_has_none():
    retreat = Retreat(times=2)
    with pytest.warns(DivergedWarning):
        run(line(0.3), LogSlope(), callbacks=[Turns(2), retreat])
    assert retreat.taken == 2
    hopeless = Retreat()
    with pytest.warns(DivergedWarning, match="at last at step 100 of 400"):
        model, _, history = run(line(0.5), Nothing(), callbacks=[hopeless])
    assert (hopeless.taken, len(history.loss)) == (0, 0)
    assert float(model.slope) == 0.5


def test_progress_bar_shows_what_describe_says(capsys):
    bar = ProgressBar(lambda model, loss: {"slope": f"{float(model.slope.log):.1f}"})
    run(Line(Positive(1.0), Fixed(1.0)), callbacks=[bar])
    shown = capsys.readouterr().err
    assert "slope=1.1" in shown
    assert "400/400" in shown
    run(Line(Positive(1.0), Fixed(1.0)), callbacks=[ProgressBar()])
    assert "loss=0.0" in capsys.readouterr().err


def test_a_log_has_a_line_for_each_turn(tmp_path):
    fitted = run(line(0.0), steps=25, callbacks=[Turns(10), Log(tmp_path / "log.jsonl", "toy")])
    lines = [json.loads(text) for text in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [each["step"] for each in lines] == [10, 20, 25]
    assert lines[-1]["objective"] == pytest.approx(-fitted.history.loss[20:].mean(), rel=1e-5)
    assert {each["stage"] for each in lines} == {"toy"}
    assert lines[0]["score"] is None
    assert lines[0]["seconds"] <= lines[1]["seconds"]


def test_a_log_is_valid_json_where_training_diverges(tmp_path):
    """Numbers that are not finite are null, also in a turn after which training retreats and goes on."""
    retreat, log = Retreat(), Log(tmp_path / "log.jsonl")
    callbacks = [Turns(20), retreat, log, EarlyStopping(lambda *_: np.nan, timed=False)]
    run(line(1.0), Noisy(), steps=160, optim=planned(optax.adam(0.05)), callbacks=callbacks)
    assert retreat.taken == 2

    def refused(name):
        raise AssertionError(name)

    text = (tmp_path / "log.jsonl").read_text()
    lines = [json.loads(each, parse_constant=refused) for each in text.splitlines()]
    assert [each["objective"] for each in lines].count(None) == 2
    assert all(each["score"] is None for each in lines)


def test_a_log_that_cannot_be_written_is_named_and_does_not_end_a_training_that_has_begun(tmp_path):
    with pytest.raises(OSError, match=r"nowhere/log.jsonl cannot be written: No such file or directory"):
        run(line(0.0), callbacks=[Log(tmp_path / "nowhere" / "log.jsonl")])
    (tmp_path / "gone").mkdir()

    class Gone(Callback):
        def after_turn(self, training):
            shutil.rmtree(tmp_path / "gone", ignore_errors=True)

    with pytest.warns(LogWarning, match=r"gone/log.jsonl cannot be written: No such .*; training goes on without"):
        fitted = run(line(0.0), steps=20, callbacks=[Gone(), Log(tmp_path / "gone" / "log.jsonl")])
    assert len(fitted.history.loss) == 20


class Compiling(Callback):
    """Makes the first turn take as long as if something were compiled."""

    def after_turn(self, training):
        sleep(0.5 if training.step == 100 else 0.0)


def test_progress_bar_estimates_nothing_from_a_first_turn_that_compiles(capsys):
    run(Line(Positive(1.0), Fixed(1.0)), steps=1000, callbacks=[Compiling(), ProgressBar(label="one layer")])
    shown = capsys.readouterr().err.split("\r")
    assert all(text.startswith("one layer: ") for text in shown if text.strip())
    assert "?step/s" in shown[1]
    assert set(re.findall(r"<([\d:]+)", "".join(shown))) == {"00:00"}  # two seconds, had compilation counted


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


class SeenRows(Toy):
    """Its state is the sum of the batch's inputs at the last step, and the number of its rows."""

    full_batch: bool = eqx.field(static=True)

    def init(self, model, data):
        return model, jax.device_put(np.zeros(2, np.float32))

    def loss(self, model, state, key, batch):
        seen = jnp.stack([jnp.sum(batch.X), jnp.asarray(len(batch.X), batch.X.dtype)])
        return model.slope**2, seen


@pytest.mark.parametrize(("full_batch", "size", "rows"), [(False, 10, 10), (False, None, 50), (True, 10, 50)])
def test_batches_have_the_size_that_was_asked_for_unless_the_objective_needs_all_rows(full_batch, size, rows):
    fitted = fit(line(1.0), SeenRows(full_batch), (X, Y), key=jax.random.key(0), optim=SGD, steps=3, batch_size=size)
    total, num = np.asarray(fitted.state)
    assert num == rows
    seed = int(jax.random.key_data(jax.random.key(0))[-1])
    expected = Batches(X, batch_size=rows, seed=seed).take(2, 1)[0].sum()
    assert total == pytest.approx(expected, abs=1e-5)


def test_the_objective_carries_its_state_from_step_to_step():
    steps, sgd = 7, optax.sgd(0.5)  # jumps to the minimum of the step's loss
    fitted = run(line(0.0), Counting(), steps=steps, optim=sgd, callbacks=[Turns(3)])
    assert float(fitted.state) == steps
    np.testing.assert_allclose(fitted.history.loss, [0, *[1] * (steps - 1)])
    assert float(fitted.model.slope) == steps - 1


class Finished(SquaredError):
    """Says in closed form what the offset is."""

    def init(self, model, data):
        assert data.y.shape == (50, 1)
        return eqx.tree_at(lambda m: m.offset, model, Fixed(np.float32(0.5))), None

    def finish(self, model, state, key, data=None):
        return eqx.tree_at(lambda m: m.offset, model, jnp.mean(jnp.asarray(data.y)))


def test_the_objective_prepares_the_model_and_finishes_it_unless_it_should_not():
    finished = run(line(1.0), Finished(), steps=100)
    assert float(finished.model.offset) == pytest.approx(1.0, abs=1e-6)
    left = run(line(1.0), Finished(), steps=100, finish=False)
    assert float(unwrap(left.model).offset) == 0.5
    assert float(left.model.slope) == float(finished.model.slope)


def test_a_turn_has_no_more_steps_than_batches():
    """Each of 250 steps takes a batch of its own, and has a loss, whatever a callback asks for."""
    fitted = run(line(0.0), Counting(), steps=250, optim=optax.sgd(0.5), callbacks=[turns := Turns(250)])
    assert len(fitted.history.loss) == float(fitted.state) == 250
    assert turns.ends == [100, 200, 250]


def test_a_time_limit_is_kept():
    began = perf_counter()
    optim, clock = planned(optax.adam(0.05)), Clock(3.0)
    _, _, history = run(Line(Positive(1.0), jnp.asarray(0.0)), steps=10**9, optim=optim, callbacks=[clock])
    assert 2 < perf_counter() - began < 6
    assert 10 < len(history.loss) < 10**9


def test_warm_up_and_decay_rise_stay_and_fall():
    steps = jnp.asarray(1000)
    scale = np.asarray(jax.vmap(lambda step: warm_up_and_decay(step, steps))(jnp.arange(1000)))
    assert scale[0] == pytest.approx(0.01)
    np.testing.assert_allclose(scale[100:500], 1, atol=1e-5)
    assert np.all(np.diff(scale[501:]) < 0)
    assert scale[-1] == pytest.approx(0.01, abs=1e-3)


class Slide(Toy):
    """A gradient of 1 everywhere: the slope falls by the length of each step."""

    def loss(self, model, state, key, batch):
        return model.slope, state


def test_a_planned_optimiser_heeds_step_steps_and_factor_and_others_are_left_as_they_are():
    steps = 40
    scales = np.asarray(jax.vmap(lambda step: warm_up_and_decay(step, jnp.asarray(steps)))(jnp.arange(steps)))
    slid = run(line(0.0), Slide(), steps=steps, optim=planned(optax.sgd(1.0)))
    assert float(slid.model.slope) == pytest.approx(-scales.sum(), rel=1e-5)
    np.testing.assert_allclose(-slid.history.loss, np.cumsum(scales) - scales, atol=1e-5)
    plain = run(line(0.0), Slide(), steps=steps, optim=optax.sgd(1.0))
    assert float(plain.model.slope) == -steps

    class Shorter(Callback):
        def start(self, training):
            training.factor = 0.5

    half = run(line(0.0), Slide(), steps=steps, optim=planned(optax.sgd(1.0), constant), callbacks=[Shorter()])
    assert float(half.model.slope) == pytest.approx(-steps / 2)
    assert planned_adam(0.05) is planned_adam(0.05)


def score(model, state):
    """Is best at a slope of 2, on the way from 1 to 3."""
    return -abs(float(unwrap(model).slope) - 2.0)


def test_training_ends_when_the_score_no_longer_rises_and_the_best_model_is_kept():
    stopping = EarlyStopping(score, timed=False, least_steps=1000)
    model, _, history = run(Line(Positive(1.0), Fixed(1.0)), steps=20_000, callbacks=[Turns(5), stopping])
    assert 1000 < len(history.loss) < 3000
    best = max(history.scores, key=lambda pair: pair[1])
    assert -abs(float(unwrap(model).slope) - 2.0) == pytest.approx(best[1])
    assert best[1] > history.scores[-1][1] + 0.5


def test_scores_that_are_not_finite_do_not_count_and_the_state_of_the_best_model_is_kept():
    def of_state(model, state):
        return {3: np.nan, 6: 2.0, 9: np.inf}.get(int(state), 1.0)

    stopping = EarlyStopping(of_state, timed=False)
    fitted = run(line(0.0), Counting(), steps=12, optim=optax.sgd(0.5), callbacks=[Turns(3), stopping])
    assert fitted.history.scores == [(6, 2.0), (12, 1.0)]
    assert (float(fitted.state), float(fitted.model.slope)) == (6, 5)


def test_training_can_be_stopped_with_the_model_of_the_moment():
    turns = Turns(10)
    stop = StopWhen(lambda: len(turns.ends) == 3)
    stopped = run(line(1.0), callbacks=[turns, stop])
    assert stopped.history.message == "Training was stopped at step 30 of 400; the model is the best so far."
    assert len(stopped.history.loss) == 30
    assert 1 < float(stopped.model.slope) < 3
    at_once = run(line(1.0), callbacks=[StopWhen(lambda: True)])
    assert (len(at_once.history.loss), float(at_once.model.slope)) == (0, 1.0)
    assert "stopped at step 0 of 400" in at_once.history.message


def watched(folder, *others, identity=(), steps=330, retreat=None):
    """A run with all that a checkpoint has to keep: an average over batches, a best model, retreats."""
    stopping = EarlyStopping(score, timed=False, least_steps=100)
    checkpoint = [Checkpoint(folder, "one", dict(identity))] if folder else []
    callbacks = [Turns(20), retreat or Retreat(), stopping, *others, *checkpoint]
    return run(line(1.0), Noisy(), steps=steps, optim=planned(optax.adam(0.05)), callbacks=callbacks)


RARE = 0.0075  # this is the second step, and the 139th


class Noisy(Toy):
    """Squared error plus a random slope, not a number once in a while, with a state that depends on all steps."""

    def init(self, model, data):
        return model, jax.device_put(np.zeros((), np.float32))

    def loss(self, model, state, key, batch):
        error = (
            SQUARED_ERROR.loss(model, None, key, batch)[0]
            + 0.1 * jax.random.normal(key, dtype=jnp.float32) * model.slope
        )
        broken = jax.random.uniform(key, dtype=jnp.float32) < RARE
        return jnp.where(broken, jnp.nan, error), 0.9 * state + model.slope


class Killed(Callback):
    """Ends the process, as it were, after so many turns: nothing is told that it ends."""

    def __init__(self, turns: int):
        self.turns = turns

    def after_turn(self, training):
        self.turns -= 1
        if self.turns < 0:
            raise KeyboardInterrupt


def assert_same(ours, theirs):
    for a, b in zip(
        jax.tree.leaves((ours.model, ours.state)), jax.tree.leaves((theirs.model, theirs.state)), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(ours.history.loss, theirs.history.loss)
    assert ours.history.scores == theirs.history.scores
    assert ours.history.message == theirs.history.message


def test_a_run_that_was_killed_goes_on_from_its_checkpoint_as_if_nothing_had_happened(tmp_path, monkeypatch):
    monkeypatch.setenv("OVERTONE_CHECKPOINT_SECONDS", "0")
    retreat = Retreat()
    whole = watched(None, retreat=retreat)
    assert retreat.taken == 2
    assert len(whole.history.scores) > 2
    for turns in (2, 3, 2):
        with pytest.raises(KeyboardInterrupt):
            watched(tmp_path, Killed(turns))
    seen = Turns(20)
    assert_same(watched(tmp_path, seen), whole)
    assert seen.ends[0] == 20 * (2 + 3 + 2 + 1)
    done = Turns(20)
    assert_same(watched(tmp_path, done), whole)  # a run that is over has nothing to do
    assert done.ends == []


def test_a_run_goes_on_with_other_callbacks_that_keep_nothing(tmp_path, monkeypatch):
    """Such as without a terminal, and so without a progress bar, or with a log."""
    monkeypatch.setenv("OVERTONE_CHECKPOINT_SECONDS", "0")
    with pytest.raises(KeyboardInterrupt):
        watched(tmp_path, ProgressBar(), Killed(5))
    with pytest.raises(KeyboardInterrupt):
        watched(tmp_path, Killed(2))
    resumed = watched(tmp_path, Turns(20), ProgressBar(), StopWhen(lambda: False), Log(tmp_path / "log.jsonl"))
    assert_same(resumed, watched(None))


class Paces(Callback):
    """Notes what a clock and an early stopping know of the time that turns and scores take, and the turn's own pace."""

    def __init__(self, clock: Clock, stopping: EarlyStopping):
        self.clock, self.stopping, self.seen = clock, stopping, []

    def after_turn(self, training):
        self.seen.append((self.clock.pace, self.stopping.cost, training.pace))


def test_the_first_turn_and_the_first_score_of_a_run_that_goes_on_say_nothing_about_the_pace(tmp_path, monkeypatch):
    """They take the time of any compilation, as in a run that begins."""
    monkeypatch.setenv("OVERTONE_CHECKPOINT_SECONDS", "0")
    for turns in (4, 2):
        clock, stopping = Clock(60.0), EarlyStopping(score, timed=False)
        paces = Paces(clock, stopping)
        callbacks = [clock, stopping, paces, Killed(turns), Checkpoint(tmp_path, "one", {})]
        with pytest.raises(KeyboardInterrupt):
            run(line(1.0), steps=10**6, optim=planned(optax.adam(0.05)), callbacks=callbacks)
        (first, first_cost, _), (second, second_cost, pace) = paces.seen[:2]
        assert (first, first_cost) == (None, 0.0)
        assert second == pace
        assert second_cost > 0


def test_a_run_that_was_stopped_goes_on_too(tmp_path):
    turns = Turns(20)
    stopped = watched(tmp_path, turns, StopWhen(lambda: len(turns.ends) == 4))
    assert "stopped at step 80" in stopped.history.message
    assert_same(watched(tmp_path), watched(None))


def test_a_checkpoint_that_cannot_be_written_does_not_end_the_training(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("OVERTONE_CHECKPOINT_SECONDS", "0")
    monkeypatch.setattr("overtone.storage.files.replace_file", full)
    with pytest.warns(CheckpointWarning, match=r"one.checkpoint cannot be written: No space left .*; training goes on"):
        result = watched(tmp_path, steps=60)
    assert len(result.history.loss) > 20


def test_a_checkpoint_of_another_fit_is_refused(tmp_path):
    watched(tmp_path, identity={"data": digest(X, Y), "rate": 0.05}.items(), steps=60)
    with pytest.raises(
        FileError, match=r"checkpoint is of another fit: rate was 0\.05, is 0\.1; width was not set, is 3"
    ):
        watched(tmp_path, identity={"data": digest(X, Y), "rate": 0.1, "width": 3}.items(), steps=60)
    assert digest(X, Y) != digest(X, Y.astype(np.float32)) != digest(X[:-1], Y)
    left_over = tmp_path / ".one.checkpoint.123.new"
    left_over.write_bytes(b"half of it")
    Checkpoint(tmp_path, "one", {})
    assert not left_over.exists()


class Quadratic(Toy):
    """A long valley, where steps along the gradient take forever."""

    full_batch = True

    def loss(self, model, state, key, batch):
        return 500 * (model.slope - 3) ** 2 + 0.5 * (model.offset + model.slope - 4) ** 2, state


def test_optimisers_with_line_searches_work():
    """They need the loss, its gradient and the function itself at every step; a handful of steps are enough then."""
    fitted = fit(line(1.0), Quadratic(), (X, Y), key=jax.random.key(0), optim=optax.lbfgs(), steps=12)
    assert float(fitted.model.slope) == pytest.approx(3.0, abs=1e-3)
    assert float(fitted.model.offset) == pytest.approx(1.0, abs=1e-3)
    assert fitted.history.loss[-1] < 1e-6
