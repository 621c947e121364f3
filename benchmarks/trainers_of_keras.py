"""Steps of `fit` of Keras on TensorFlow, for `trainer_overhead.py`."""

import itertools
import os
import time
from collections.abc import Callable
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf

import forebay as fb
from forebay.adapters.keras.internals import DataAdapter
from forebay.adapters.keras.tensorflow import EagerDataset

__all__ = ["TRAINERS", "make_loaders"]

BATCH, SHAPE = 256, (64, 64, 3)


def make_loaders(steps: int, device: str) -> dict[str, Any]:
    """Return data that repeats one batch, and two feeds."""
    generator = np.random.default_rng(0)
    rows = BATCH * steps
    data = generator.random((rows, *SHAPE), dtype=np.float32), generator.integers(0, 10, rows)
    pipeline = fb.from_arrays(data).shuffle(seed=0).batch(BATCH)
    return {
        "one batch": RepeatedBatch(steps, device),
        "forebay streamed": pipeline.feed("keras", device=device, resident="never"),
        "forebay": pipeline.feed("keras", device=device),
    }


class RepeatedBatch(DataAdapter):  # type: ignore[misc]  # Keras is untyped
    """Data for `fit` that repeats one batch on the device."""

    num_batches, batch_size, has_partial_batch, partial_batch_size = 0, BATCH, False, None

    def __init__(self, steps: int, device: str) -> None:
        self.num_batches = steps
        with tf.device("GPU:0" if device == "cuda" else "CPU:0"):
            self._batch = tf.random.uniform((BATCH, *SHAPE)), tf.random.uniform((BATCH,), 0, 10, tf.int64)

    def get_tf_dataset(self) -> Any:
        return EagerDataset(lambda: itertools.repeat(self._batch, self.num_batches))  # type: ignore[arg-type, return-value]

    def on_epoch_begin(self) -> None:
        pass

    def on_epoch_end(self) -> None:
        pass


class Clock(keras.callbacks.Callback):  # type: ignore[misc]  # Keras is untyped
    """Records when each step has ended on the device."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        tf.test.experimental.sync_devices()
        self.times.append(time.perf_counter())


def make_model() -> Any:
    """Return a convolutional network whose step takes a few milliseconds."""
    layers: list[Any] = [keras.Input(SHAPE)]
    for channels in (64, 128, 256):
        layers.append(keras.layers.Conv2D(channels, 3, 2, padding="same"))
        layers += [keras.layers.BatchNormalization(), keras.layers.ReLU()]
    model = keras.Sequential([*layers, keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.01), loss, jit_compile=False)
    return model


def run_keras(data: Any) -> list[float]:
    clock = Clock()
    make_model().fit(data, epochs=1, verbose=0, callbacks=[clock])
    return [after - before for before, after in itertools.pairwise(clock.times)]


TRAINERS: dict[str, Callable[[Any], list[float]]] = {"keras": run_keras}
