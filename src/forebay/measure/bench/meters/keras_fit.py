"""Milliseconds a step inside Keras's `fit`, with its defaults, on a small convolutional network."""

from time import perf_counter
from typing import Any

import keras

from forebay.measure.bench.consumers import require_gpu
from forebay.measure.bench.contenders import ContenderModule
from forebay.measure.bench.contenders.gpu.labelled import CLASSES
from forebay.measure.bench.meters import Gauge, Pace, Sample
from forebay.measure.bench.model import Work

__all__ = ["prepare"]

EPOCHS = 2  # a sample


class EpochClock(keras.callbacks.Callback):  # type: ignore[misc]  # Keras is untyped
    """Times epochs alone: what `fit` does before and after them is done once, not once a step."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self._began = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._began = perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seconds.append(perf_counter() - self._began)


def prepare(contender: ContenderModule, work: Work, pace: Pace) -> Gauge:
    require_gpu(str(work.options["backend"]))
    data, model = contender.epochs(work)(), _small_network(work.shape)

    # Networks are compiled one by one, in warm_up: whoever tunes itself by the clock must be alone with the device.
    def warm_up() -> None:
        _fit(model, data, work)

    def sample() -> Sample:
        seconds = _fit(model, data, work)
        return {"step": sum(seconds) / (len(seconds) * work.batches) * 1e3}

    return Gauge(warm_up, sample)


def _fit(model: Any, data: Any, work: Work) -> list[float]:
    clock = EpochClock()
    options = {"epochs": EPOCHS, "verbose": 0, "callbacks": [clock]}
    if isinstance(data, tuple):
        images, labels = data
        model.fit(images, labels, batch_size=work.batch, **options)
    else:
        model.fit(data, **options)
    return clock.seconds


def _small_network(shape: tuple[int, ...]) -> Any:
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
