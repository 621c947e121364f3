"""Keras training on a GPU, with the backend in KERAS_BACKEND.

test_feed.py runs this file once for each backend, in its own process, because Keras cannot change its backend.
"""

import keras
import numpy as np
import pytest

import forebay as fb

BACKEND = keras.backend.backend()
STEPS = [1] if BACKEND == "torch" else [1, 4]  # values of steps_per_execution; Keras on torch supports only 1


def linear(**options):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", **options)
    return model


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return rng.random((2_050, 8), dtype="f4"), rng.random((2_050, 1), dtype="f4")


@pytest.mark.parametrize("resident", ["always", "never"])
@pytest.mark.parametrize("steps", STEPS)
def test_fit_on_a_feed_trains_like_fit_on_arrays(arrays, steps, resident):
    expected, model = linear(steps_per_execution=steps), linear(steps_per_execution=steps)
    expected.fit(*arrays, batch_size=100, shuffle=False, epochs=3, verbose=0)
    pipeline = fb.from_arrays(arrays).batch(100)
    with pipeline.feed("keras", device="cuda", resident=resident) as feed:
        model.fit(feed, epochs=3, verbose=0)
        assert feed.explain().startswith(f"feed to {BACKEND} on cuda")
    for found, right in zip(model.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("steps", STEPS)
def test_fit_validates_on_another_feed(arrays, steps):
    pipeline = fb.from_arrays(arrays).shuffle(seed=0).batch(100)
    with pipeline.feed("keras", device="cuda") as feed, pipeline.feed("keras", device="cuda") as held_out:
        history = linear(steps_per_execution=steps).fit(feed, epochs=3, verbose=0, validation_data=held_out).history
    assert history["loss"][-1] < history["loss"][0]
    assert history["val_loss"][-1] < history["loss"][0]


def test_the_state_counts_batches_of_finished_steps(arrays):
    positions = []
    with fb.from_arrays(arrays).batch(100).feed("keras", device="cuda") as feed:
        record = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: positions.append(feed.state_dict()["batches"]))
        linear().fit(feed, steps_per_epoch=5, epochs=3, callbacks=[record], verbose=0)
    assert positions == [5, 10, 15]


def test_fit_trains_on_the_output_of_a_device_map(arrays):
    """The feed knows the shapes and dtypes of the map's output only after the first batch."""
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
    model.compile("sgd", "mean_squared_error", metrics=["mean_absolute_error"])
    pipeline = fb.from_arrays(arrays).batch(50)
    summed = pipeline.map(lambda batch: (batch[0], keras.ops.sum(batch[0], axis=1, keepdims=True)), where="device")
    with summed.feed("keras", device="cuda") as feed:
        assert model.evaluate(feed, verbose=0)[1] < 1e-5
        model.fit(feed, epochs=2, verbose=0)
