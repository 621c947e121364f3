"""Emulation for Keras: replaces the batches of `fit` on the JAX and TensorFlow backends.

The module of the backend replaces uploads and read-backs. With PyTorch, `fit` takes its batches from a DataLoader,
which `emulate.torch` replaces.
"""

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

from forebay.doctor.capture.hooks.keras import SWITCHES
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

PREFETCH_BATCHES = 2  # batches that the dataset of `_replace_dataset` prefetches
_UNKNOWN_LENGTH = -2  # cardinality of a tf.data dataset of unknown length; -1: endless

Function = Callable[..., Any]  # a function of Keras


def install(emulator: Emulator) -> None:
    """Replace the functions from which `fit` takes its batches, if the emulation makes batches resident."""
    emulator.settings.disable(emulator.patches, SWITCHES)
    if emulator.kind is not EmulationKind.RESIDENT:
        return
    trainer = sys.modules.get("keras.src.backend.jax.trainer")
    if keras.backend.backend() == "jax" and trainer is not None:
        make_hook = partial(_replace_iterator, emulator)
        emulator.patches.replace(trainer.JAXEpochIterator, "_get_iterator", make_hook, api="fit")
    for adapter in _ADAPTERS if keras.backend.backend() == "tensorflow" else ():
        emulator.patches.replace(adapter, "get_tf_dataset", partial(_replace_dataset, emulator), api="fit")


def wait() -> None:
    """Do nothing: `wait` of the backend's module, such as `emulate.jax`, waits for the device."""


def _replace_iterator(emulator: Emulator, get_iterator: Function) -> Function:
    """Return a hook whose iterator repeats the first batch.

    Calls of lines other than the target line run as written.
    """

    def hook(epoch: Any) -> Any:
        batches, adapter = get_iterator(epoch), epoch.data_adapter
        if not emulator.batches.should_replace():
            return batches
        return emulator.batches.repeat_first(iter(batches), id(adapter), adapter.num_batches)

    return hook


def _replace_dataset(emulator: Emulator, get_dataset: Function) -> Function:
    """Return a hook whose dataset repeats its first batch.

    Calls of lines other than the target line run as written. A compiled function takes the batches, so the dataset
    itself must repeat them.
    """

    def hook(adapter: Any) -> Any:
        dataset = get_dataset(adapter)
        if not emulator.batches.should_replace() or not hasattr(dataset, "take"):
            return dataset  # another line makes the call, or the dataset is distributed
        emulator.batches.replaced += 1
        return dataset.take(1).cache().repeat(_length_of(dataset)).prefetch(PREFETCH_BATCHES)

    return hook


def _length_of(dataset: Any) -> int:
    """Return the number of batches for `repeat`.

    This is MAX_BATCHES if the number is unknown, and -1 for an endless or an empty dataset.
    """
    count = int(dataset.cardinality())
    return count if count > 0 else MAX_BATCHES if count == _UNKNOWN_LENGTH else -1
