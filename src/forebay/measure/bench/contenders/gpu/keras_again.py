"""The floor of Keras's `fit`: one batch that is on the device already, again and again. All ratios are to this."""

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import keras
from keras.src.trainers.data_adapters.data_adapter import DataAdapter

from forebay.measure.bench.contenders.gpu.labelled import images_and_labels
from forebay.measure.bench.model import StartEpoch, Work

__all__ = ["epochs"]


def epochs(work: Work) -> StartEpoch:
    images, labels = images_and_labels(work)
    on_device = keras.ops.convert_to_tensor
    batch = on_device(images[: work.batch]), on_device(labels[: work.batch])
    adapter = Again(batch, work)
    return lambda: adapter


class Again(DataAdapter):  # type: ignore[misc]  # Keras is untyped
    """A loader that has nothing to do: Keras takes it as it is, and stops it after the epoch's batches."""

    has_partial_batch = False
    partial_batch_size = None

    def __init__(self, batch: tuple[Any, Any], work: Work) -> None:
        self._batch, self._work = batch, work

    @property
    def num_batches(self) -> int:
        return self._work.batches

    @property
    def batch_size(self) -> int:
        return self._work.batch

    def __iter__(self) -> Iterator[Any]:
        return repeat(self._batch)

    get_tf_dataset = get_jax_iterator = get_torch_dataloader = __iter__
