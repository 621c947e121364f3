"""Meter of the milliseconds per step in Keras's `fit`, with a small convolutional network."""

from time import perf_counter
from typing import Any

import keras

from forebay.measure.bench.consumers import require_gpu
from forebay.measure.bench.contenders import ContenderFunction
from forebay.measure.bench.contenders.gpu.keras import CLASSES
from forebay.measure.bench.meters import ColumnValues, RunSettings, Sampler
from forebay.measure.bench.model import Workload

__all__ = ["prepare"]

EPOCHS = 2  # epochs of `fit` in one sample


def prepare(contender: ContenderFunction, work: Workload, settings: RunSettings) -> Sampler:
    require_gpu(str(work.options["backend"]))
    data, model = contender(work)(), _make_network(work.shape)

    # Keras compiles the network in warm_up. Only one process uses the device then, so the autotuner measures correctly.
    def warm_up() -> None:
        _fit(model, data, work)

    def sample() -> ColumnValues:
        seconds = _fit(model, data, work)
        return {"step": sum(seconds) / (len(seconds) * work.batches) * 1e3}

    return Sampler(warm_up, sample)


class EpochClock(keras.callbacks.Callback):  # type: ignore[misc]  # Keras is untyped
    """Times the epochs, without the work that `fit` does once before and after them."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self._start = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._start = perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seconds.append(perf_counter() - self._start)


def _fit(model: Any, data: Any, work: Workload) -> list[float]:
    """Run `fit`, and return the seconds of each epoch."""
    clock = EpochClock()
    options = {"epochs": EPOCHS, "verbose": 0, "callbacks": [clock]}
    if isinstance(data, tuple):
        images, labels = data
        model.fit(images, labels, batch_size=work.batch, **options)
    else:
        model.fit(data, **options)
    return clock.seconds


def _make_network(shape: tuple[int, ...]) -> Any:
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input(shape),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(CLASSES, activation="softmax"),
        ]
    )
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
