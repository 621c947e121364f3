"""Keras: batches that `fit` takes, on any backend. What it uploads and reads is the backend's."""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import keras
from keras.src.trainers.data_adapters import (
    array_data_adapter,
    generator_data_adapter,
    py_dataset_adapter,
    tf_dataset_adapter,
)

from forebay.doctor.emulate.batches import MOST_BATCHES
from forebay.doctor.emulate.emulator import Emulator
from forebay.doctor.model.emulation import Way

__all__ = ["install", "wait"]

_ADAPTERS = (
    array_data_adapter.ArrayDataAdapter,
    generator_data_adapter.GeneratorDataAdapter,
    py_dataset_adapter.PyDatasetAdapter,
    tf_dataset_adapter.TFDatasetAdapter,
)

AHEAD = 2  # batches
_UNKNOWN = -2  # as tf.data says it; -1 is a dataset without an end

Function = Callable[..., Any]  # of Keras's


def install(emulator: Emulator) -> None:
    """With PyTorch the batches come out of a DataLoader, which is PyTorch's."""
    if emulator.way is not Way.RESIDENT:
        return
    trainer = sys.modules.get("keras.src.backend.jax.trainer")
    if keras.backend.backend() == "jax" and trainer is not None:
        make = partial(_iterating, emulator)
        emulator.patches.replace(trainer.JAXEpochIterator, "_get_iterator", make, api="fit")
    for adapter in _ADAPTERS if keras.backend.backend() == "tensorflow" else ():
        emulator.patches.replace(adapter, "get_tf_dataset", partial(_making, emulator), api="fit")


def wait() -> None:
    """The backend's part."""


def _iterating(emulator: Emulator, iterate: Function) -> Function:
    def hook(epoch: Any) -> Any:
        batches, adapter = iterate(epoch), epoch.data_adapter
        if not emulator.batches.is_asked_for():
            return batches
        return emulator.batches.repeated(iter(batches), id(adapter), adapter.num_batches)

    return hook


def _making(emulator: Emulator, make: Function) -> Function:
    """A compiled function takes the batches, so the pipeline itself is made to give the first of them only."""

    def hook(adapter: Any) -> Any:
        dataset = make(adapter)
        if not emulator.batches.is_asked_for() or not hasattr(dataset, "take"):
            return dataset  # somebody else's, or spread over devices
        emulator.batches.replaced += 1
        return dataset.take(1).cache().repeat(_length(dataset)).prefetch(AHEAD)

    return hook


def _length(dataset: Any) -> int:
    """How many batches it has, as `repeat` takes it; more than are needed, where it does not know."""
    count = int(dataset.cardinality())
    return count if count > 0 else MOST_BATCHES if count == _UNKNOWN else -1
