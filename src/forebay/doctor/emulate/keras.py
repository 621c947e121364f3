"""Emulations for Keras: batches that `fit` takes, on any backend. Uploads and reads belong to the backend."""

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

from forebay.doctor.emulate.batches import MAX_BATCHES
from forebay.doctor.emulate.emulator import Emulator
from forebay.doctor.model.emulation import EmulationKind

__all__ = ["install", "wait"]

_ADAPTERS = (
    array_data_adapter.ArrayDataAdapter,
    generator_data_adapter.GeneratorDataAdapter,
    py_dataset_adapter.PyDatasetAdapter,
    tf_dataset_adapter.TFDatasetAdapter,
)

PREFETCH_BATCHES = 2
_UNKNOWN_LENGTH = -2  # of a tf.data dataset; -1 is an endless dataset

Function = Callable[..., Any]  # a function of Keras


def install(emulator: Emulator) -> None:
    """Replace the batches of `fit`. With PyTorch they come from a DataLoader, which the PyTorch module replaces."""
    if emulator.kind is not EmulationKind.RESIDENT:
        return
    trainer = sys.modules.get("keras.src.backend.jax.trainer")
    if keras.backend.backend() == "jax" and trainer is not None:
        make = partial(_replace_iterator, emulator)
        emulator.patches.replace(trainer.JAXEpochIterator, "_get_iterator", make, api="fit")
    for adapter in _ADAPTERS if keras.backend.backend() == "tensorflow" else ():
        emulator.patches.replace(adapter, "get_tf_dataset", partial(_replace_dataset, emulator), api="fit")


def wait() -> None:
    """Nothing to do: the module of the backend waits."""


def _replace_iterator(emulator: Emulator, get_iterator: Function) -> Function:
    def hook(epoch: Any) -> Any:
        batches, adapter = get_iterator(epoch), epoch.data_adapter
        if not emulator.batches.applies():
            return batches
        return emulator.batches.repeat_first(iter(batches), id(adapter), adapter.num_batches)

    return hook


def _replace_dataset(emulator: Emulator, get_dataset: Function) -> Function:
    """Let the pipeline itself repeat its first batch, because a compiled function takes the batches."""

    def hook(adapter: Any) -> Any:
        dataset = get_dataset(adapter)
        if not emulator.batches.applies() or not hasattr(dataset, "take"):
            return dataset  # not the emulated line, or a distributed dataset
        emulator.batches.replaced += 1
        return dataset.take(1).cache().repeat(_length_of(dataset)).prefetch(PREFETCH_BATCHES)

    return hook


def _length_of(dataset: Any) -> int:
    """Return the number of batches in the form that `repeat` takes."""
    count = int(dataset.cardinality())
    return count if count > 0 else MAX_BATCHES if count == _UNKNOWN_LENGTH else -1
