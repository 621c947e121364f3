"""Small models, callbacks and feeds that the Keras cases share."""

import contextlib

import keras
import numpy as np
import pytest
from tests.adapters.keras.conftest import BATCH
from tests.feed.test_build import DeviceLikeEngine, FakeDeviceHandOff

import forebay as fb

__all__ = [
    "Hook",
    "RowsSeen",
    "assert_same_weights",
    "make_model",
    "make_recording_model",
    "map_on_device",
    "not_torch",
    "staged_feed",
    "states_of",
    "weights_of",
]

not_torch = pytest.mark.skipif(
    keras.backend.backend() == "torch", reason="the torch backend runs one step per execution and traces no function"
)


class RowsSeen(keras.losses.Loss):
    """A loss that records the rows that an eager model gets, by their targets."""

    def __init__(self):
        super().__init__()
        self.batches = []

    def call(self, y_true, y_pred):
        with contextlib.suppress(Exception):  # the tensor is symbolic while Keras builds the model
            self.batches.append(np.asarray(y_true).ravel().astype(int).tolist())
        return keras.ops.mean(keras.ops.square(y_true - y_pred), axis=-1)

    @property
    def rows(self):
        return [row for batch in self.batches for row in batch]


class Hook(keras.callbacks.Callback):
    """A callback made of functions: `Hook(on_epoch_end=...)` calls each function at its event."""

    def __init__(self, **hooks):
        super().__init__()
        for name, hook in hooks.items():
            setattr(self, name, hook)


def make_model(kind=keras.Sequential, **options):
    keras.utils.set_random_seed(0)
    model = kind([keras.Input((4,)), keras.layers.Dense(3, activation="tanh"), keras.layers.Dense(1)])
    model.compile(**{"optimizer": "sgd", "loss": "mse"} | options)
    return model


def make_recording_model(**options):
    loss = RowsSeen()
    return make_model(loss=loss, run_eagerly=True, **options), loss


def weights_of(model):
    return [np.asarray(weight) for weight in model.get_weights()]


def assert_same_weights(model, expected):
    for got, weight in zip(weights_of(model), weights_of(expected), strict=True):
        np.testing.assert_allclose(got, weight, rtol=1e-4, atol=1e-6)


def states_of(feed, model, epochs):
    """Return the states after each batch and each epoch of a fit."""
    batch_states, epoch_states = [], []
    hook = Hook(
        on_train_batch_end=lambda step, logs=None: batch_states.append(feed.state_dict()),
        on_epoch_end=lambda epoch, logs=None: epoch_states.append(feed.state_dict()),
    )
    model.fit(feed, epochs=epochs, callbacks=[hook], verbose=0)
    return batch_states, epoch_states


def staged_feed(arrays, *, on_device=True, function=None, **fields):
    """Feed rows that must be staged to a fake device, or without `on_device` to the CPU.

    `function` maps the batches on the fake device, or in worker threads.
    """
    x, y = arrays
    pipeline = fb.from_arrays((np.asfortranarray(x), y)).batch(BATCH)
    if function is not None:
        pipeline = pipeline.map(function, where="device" if on_device else "thread")
    return pipeline.feed("keras", device=DeviceLikeEngine(FakeDeviceHandOff()) if on_device else "cpu", **fields)


def map_on_device(arrays, function, **fields):
    """Feed a fake device, on which `function` maps each batch of tensors."""
    return staged_feed(arrays, function=lambda batch: function(*map(keras.ops.convert_to_tensor, batch)), **fields)
