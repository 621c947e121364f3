"""What only TensorFlow can show: graphs, its memory limit, and Keras."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tests.gpu.frameworks import stamped

import forebay as fb
from forebay.errors import FeedError


def test_a_feed_inside_a_function_is_refused():
    with fb.from_arrays(stamped(1_000)).batch(100).feed("tensorflow", device="cuda") as feed:

        @tf.function(autograph=False)  # which would wrap the error in one of its own
        def epoch():
            return [tf.reduce_sum(batch["x"]) for batch in feed]

        with pytest.raises(FeedError, match=r"inside a tf\.function"):
            epoch()
        assert sum(1 for _ in feed) == 10


@pytest.mark.parametrize("jit", [True, False])
def test_a_compiled_step_sees_every_batch(jit):
    step = tf.function(lambda x: tf.reduce_sum(tf.cast(x % 251, tf.int64)), jit_compile=jit)
    data = stamped(40_000)
    with fb.from_arrays(data).batch(400).feed("tensorflow", device="cuda", resident="never") as feed:
        for _ in range(3):
            sums = [step(batch["x"]) for batch in feed]
            expected = (data["x"].astype("i8") % 251).reshape(100, -1).sum(1)
            assert np.array_equal([int(total) for total in sums], expected)


@pytest.mark.parametrize("steps", [1, 4])
def test_keras_trains_on_the_device(steps):
    x, y = np.random.default_rng(0).random((2_050, 8), dtype="f4"), np.zeros((2_050, 1), "f4")
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=steps)
    pipeline = fb.from_arrays((x, y)).shuffle(seed=0).batch(100)
    with pipeline.feed("keras", device="cuda") as feed, pipeline.feed("keras", device="cuda") as held_out:
        history = model.fit(feed, epochs=3, verbose=0, validation_data=held_out)
        assert feed.explain().startswith("feed to tensorflow on cuda")
    assert history.history["loss"][-1] < history.history["loss"][0]


def test_keras_trains_on_what_a_map_on_the_device_returns():
    """Which is known only when a batch was taken."""
    rng = np.random.default_rng(0)
    rows, sums = rng.random((256, 8), dtype=np.float32), np.zeros((256, 1), np.float32)
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
    model.compile("sgd", "mean_squared_error", metrics=["mean_absolute_error"])
    pipeline = fb.from_arrays((rows, sums)).batch(32)
    summed = pipeline.map(lambda batch: (batch[0], tf.reduce_sum(batch[0], axis=1, keepdims=True)), where="device")
    with summed.feed("keras", device="cuda") as feed:
        assert model.evaluate(feed, verbose=0)[1] < 1e-5
        model.fit(feed, epochs=2, verbose=0)
