"""KerasFeed on the TensorFlow backend: distribution strategies, `tf.function` and shared memory.

`tests/test_framework_cases.py` runs this file in the process of Keras on TensorFlow.
"""

from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from tests.adapters.keras.conftest import BATCH, ROWS
from tests.adapters.keras.keras_models import Hook, make_model, map_on_device

import forebay as fb
from forebay.adapters.keras.tensorflow import TracedBatches
from forebay.errors import FeedError

DEVICES = ["CPU:0", "CPU:1"]

# Two devices on one CPU, for the distribution strategies. TensorFlow must not have started yet.
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration() for _ in DEVICES])


def make_model_under(strategy, **options):
    with strategy.scope():
        return make_model(**options)


def test_fit_under_a_mirrored_strategy_has_the_same_losses(arrays, pipeline):
    model = make_model_under(tf.distribute.MirroredStrategy(DEVICES), optimizer=keras.optimizers.SGD(0.0))
    expected = make_model().evaluate(*arrays, batch_size=BATCH, verbose=0)
    history = model.fit(pipeline.feed("keras"), epochs=2, validation_data=pipeline.feed("keras"), verbose=0)
    np.testing.assert_allclose(history.history["loss"] + history.history["val_loss"], [expected] * 4, rtol=1e-4)


def test_a_device_map_under_a_strategy_is_refused(arrays):
    model = make_model_under(tf.distribute.MirroredStrategy(DEVICES))
    with map_on_device(arrays, lambda x, y: (x, y)) as feed, pytest.raises(FeedError, match="where='device'"):
        model.fit(feed, verbose=0)


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_under_a_strategy_an_error_keeps_its_type(arrays):
    def fail(batch):
        raise KeyError("no such row")

    model = make_model_under(tf.distribute.OneDeviceStrategy("CPU:0"))
    with pytest.raises(KeyError, match="no such row"):
        model.fit(fb.from_arrays(arrays).batch(BATCH).map(fail).feed("keras"), verbose=0)


def test_under_a_strategy_the_state_is_known_only_between_epochs(pipeline):
    model = make_model_under(tf.distribute.OneDeviceStrategy("CPU:0"))
    feed, states = pipeline.feed("keras"), []
    model.fit(
        feed,
        epochs=2,
        callbacks=[Hook(on_epoch_end=lambda epoch, logs=None: states.append(feed.state_dict()))],
        verbose=0,
    )
    assert [(state["epoch"], state["position"]) for state in states] in ([(0, ROWS), (1, ROWS)], [(1, 0), (2, 0)])
    with pytest.raises(FeedError, match="between epochs"):
        model.fit(feed, callbacks=[Hook(on_train_batch_end=lambda step, logs=None: feed.state_dict())], verbose=0)


def test_a_feed_inside_a_tf_function_is_refused(pipeline):
    dataset = pipeline.feed("keras").get_tf_dataset()
    with pytest.raises(FeedError, match=r"inside a tf\.function"):
        tf.function(lambda: next(iter(dataset)), autograph=False)()


def test_a_second_fit_reuses_the_iterator_of_the_compiled_loop(pipeline):
    feed, model, make = pipeline.feed("keras"), make_model(steps_per_execution=2), TracedBatches.__init__
    with mock.patch.object(TracedBatches, "__init__", autospec=True, side_effect=make) as made:
        model.fit(feed, verbose=0)
        model.fit(feed, verbose=0)
    assert made.call_count == 1


def test_the_model_gets_the_memory_of_the_feed_without_a_copy(pipeline):
    given, used = [], []

    class Spy(keras.Sequential):
        def train_step(self, data):
            used.append(_address(data[0]))
            return super().train_step(data)

    feed = pipeline.feed("keras")
    take = feed._epochs.take

    def spy(*arguments, **options):
        batch = take(*arguments, **options)
        given.append(_address(batch[0]))
        return batch

    feed._epochs.take = spy
    make_model(Spy, run_eagerly=True).fit(feed, verbose=0)
    assert used == given


def _address(tensor):
    return np.asarray(tensor).__array_interface__["data"][0]


@pytest.mark.parametrize(
    ("data", "options", "advice"),
    [
        (lambda pipeline: pipeline.feed("tf", device="cpu"), {}, r"pipeline\.feed\('keras'\)"),
        (lambda pipeline: pipeline, {}, r"pipeline\.feed\('keras'\)"),
        (lambda pipeline: pipeline.feed("keras"), {"validation_split": 0.1}, r"pipeline\.split\(0\.9, 0\.1\)"),
    ],
    ids=["a feed to TensorFlow", "a pipeline", "validation_split"],
)
def test_fit_gives_a_hint(pipeline, data, options, advice):
    with pytest.raises(ValueError, match=advice):
        make_model().fit(data(pipeline), **options, verbose=0)
