"""The epochs of a fit: validation, steps per epoch, tracing, and what the feed measures.

`tests/test_framework_cases.py` runs this file once for each backend, in its own process, because Keras cannot change
its backend.
"""

import keras
import numpy as np
import pytest
from tests.adapters.keras.conftest import BATCH, ROWS
from tests.adapters.keras.keras_models import Hook, RowsSeen, make_model, make_recording_model, not_torch

import forebay as fb
from forebay.errors import FeedError


class CountsTraces(keras.Sequential):
    traces = 0

    def train_step(self, *arguments):
        self.traces += 1
        return super().train_step(*arguments)


def test_validation_sees_all_rows_after_each_epoch(arrays, pipeline):
    model = make_model(optimizer=keras.optimizers.SGD(0.0))
    expected = model.evaluate(*arrays, batch_size=BATCH, verbose=0)
    validation = fb.from_arrays(arrays).shuffle(seed=1).batch(BATCH).feed("keras")
    history = model.fit(pipeline.feed("keras"), validation_data=validation, epochs=3, verbose=0)
    np.testing.assert_allclose(history.history["val_loss"], [expected] * 3, rtol=1e-5)


def test_validation_steps_take_the_first_batches(arrays, pipeline):
    model = make_model(optimizer=keras.optimizers.SGD(0.0))
    expected = model.evaluate(*(array[: 2 * BATCH] for array in arrays), batch_size=BATCH, verbose=0)
    validation = pipeline.feed("keras")
    history = model.fit(pipeline.feed("keras"), validation_data=validation, validation_steps=2, epochs=3, verbose=0)
    np.testing.assert_allclose(history.history["val_loss"], [expected] * 3, rtol=1e-5)


def test_with_steps_per_epoch_each_epoch_continues_where_the_last_one_ended(pipeline):
    model, seen = make_recording_model()
    model.fit(pipeline.repeat().feed("keras"), steps_per_epoch=3, epochs=3, verbose=0)
    expected = [*range(0, ROWS, BATCH)] * 2
    assert [batch[0] for batch in seen.batches] == expected[:9]


@not_torch
@pytest.mark.parametrize("steps", [1, 2])
def test_later_epochs_and_calls_are_not_traced_again(pipeline, steps):
    model = make_model(CountsTraces, steps_per_execution=steps)
    feed = pipeline.feed("keras")
    model.fit(feed, epochs=1, verbose=0)
    traces = model.traces
    model.fit(feed, epochs=3, verbose=0)
    assert model.traces == traces


def test_callbacks_get_the_number_of_batches(pipeline):
    totals = []
    hook = Hook(on_train_begin=lambda logs=None: totals.append(hook.params["steps"]))
    make_model().fit(pipeline.feed("keras"), callbacks=[hook], verbose=0)
    assert totals == [5]


@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # Keras warns whenever data of unknown length ends
def test_fit_uses_a_stream_of_unknown_length_to_its_end():
    def rows():
        for row in range(ROWS):
            yield np.zeros(4, "float32"), np.full(1, row, "float32")

    model, seen = make_recording_model()
    feed = fb.from_generator(rows).batch(BATCH).feed("keras")
    assert feed.num_batches is None
    model.fit(feed, epochs=2, verbose=0)
    assert seen.rows == list(range(ROWS)) * 2


def test_every_epoch_of_a_fit_is_measured(pipeline):
    feed = pipeline.feed("keras")
    make_model().fit(feed, epochs=3, verbose=0)
    assert feed.stats()["epochs"] == 3
    assert "over 3 epochs" in feed.explain()


def test_a_fit_from_batches_of_known_number_resumes_after_an_epoch(arrays):
    x, y = arrays
    loader = fb.from_batches([(x[:40], y[:40]), (x[40:], y[40:])])
    first, second = loader.feed("keras"), loader.feed("keras")
    make_model().fit(first, epochs=2, verbose=0)
    assert first.stats()["epochs"] == 2
    second.load_state_dict(first.state_dict())
    model, seen = make_recording_model()
    model.fit(second, verbose=0)
    assert seen.rows == list(range(ROWS))


def test_an_epoch_set_after_the_last_batch_of_a_fit_is_kept(pipeline):
    feed = pipeline.feed("keras")
    move = Hook(on_train_batch_end=lambda step, logs=None: feed.set_epoch(7) if step == 4 else None)
    make_model().fit(feed, callbacks=[move], verbose=0)
    assert feed.state_dict()["epoch"] == 7


def test_after_a_stop_inside_an_epoch_the_next_call_uses_the_next_epoch(pipeline):
    model, seen = make_recording_model()
    feed = pipeline.feed("keras")
    stop = Hook(on_train_batch_end=lambda step, logs=None: setattr(model, "stop_training", True))
    model.fit(feed, callbacks=[stop], verbose=0)
    model.fit(feed, verbose=0)
    assert seen.rows == [*range(BATCH), *range(ROWS)]
    assert feed.state_dict()["epoch"] >= 1


def test_another_use_of_the_feed_inside_an_epoch_is_refused(pipeline):
    model, other = make_model(), make_model()
    feed = pipeline.feed("keras")
    evaluate = Hook(on_train_batch_end=lambda step, logs=None: other.evaluate(feed, verbose=0))
    with pytest.raises(FeedError, match="second feed"):
        model.fit(feed, callbacks=[evaluate], verbose=0)


@pytest.mark.parametrize("is_built", [True, False])
def test_an_unused_feed_begins_at_the_initial_epoch_of_fit(arrays, is_built):
    pipeline = fb.from_arrays(arrays).shuffle(seed=1).batch(BATCH)
    whole, whole_seen = make_recording_model()
    whole.fit(pipeline.feed("keras"), epochs=3, verbose=0)
    inputs = [keras.Input((4,))] * is_built
    model, seen = keras.Sequential([*inputs, keras.layers.Dense(1)]), RowsSeen()
    model.compile("sgd", seen, run_eagerly=True)
    model.fit(pipeline.feed("keras"), initial_epoch=2, epochs=3, verbose=0)
    assert seen.rows == whole_seen.rows[2 * ROWS :]


def test_a_feed_with_a_position_ignores_the_initial_epoch(pipeline):
    model, feed = make_model(), pipeline.feed("keras")
    feed.set_epoch(5)
    model.fit(feed, initial_epoch=2, epochs=3, verbose=0)
    assert feed.state_dict()["epoch"] == 6
    model.fit(feed, initial_epoch=2, epochs=3, verbose=0)
    assert feed.state_dict()["epoch"] == 7


def test_an_initial_epoch_with_steps_per_epoch_causes_a_warning(pipeline):
    feed = pipeline.repeat().feed("keras")
    with pytest.warns(UserWarning, match=r"initial_epoch=2, .* begins at its first row.*feed\.set_epoch\(0\)"):
        make_model().fit(feed, initial_epoch=2, epochs=3, steps_per_epoch=2, verbose=0)
