"""Data for Keras's `fit`: Forebay, arrays, tf.data, and a repeated batch as the baseline."""

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import keras
import numpy as np
from keras.src.trainers.data_adapters.data_adapter import DataAdapter

import forebay as fb
from forebay.measure.bench.data import make_array
from forebay.measure.bench.model import StartEpoch, Workload

__all__ = ["CLASSES", "arrays", "forebay_feed", "repeated_batch", "tf_data"]

CLASSES = 10


def repeated_batch(work: Workload) -> StartEpoch:
    """Repeat one batch that is already on the device: the baseline of the Keras cases."""
    images, labels = _images_and_labels(work)
    to_device = keras.ops.convert_to_tensor
    batch = to_device(images[: work.batch]), to_device(labels[: work.batch])
    adapter = RepeatingAdapter(batch, work)
    return lambda: adapter


def forebay_feed(work: Workload) -> StartEpoch:
    """Pass a Forebay feed to `fit`."""
    options = {"resident": work.options["resident"]} if "resident" in work.options else {}
    pipeline = fb.from_arrays(_images_and_labels(work)).shuffle(seed=0).batch(work.batch)
    feed = pipeline.shard(0, 1).feed("keras", device="cuda", **options)
    return lambda: feed


def arrays(work: Workload) -> StartEpoch:
    """Pass NumPy arrays to `fit`."""
    images_and_labels = _images_and_labels(work)
    return lambda: images_and_labels


def tf_data(work: Workload) -> StartEpoch:
    """Pass a tf.data dataset to `fit`, as in the guide of Keras."""
    # Imported here because the other contenders also run on the JAX and PyTorch backends, without TensorFlow.
    import tensorflow as tf

    from forebay.measure.bench.contenders.tensorflow import SHUFFLE_WINDOW_ROWS

    with tf.device("/CPU:0"):  # otherwise TensorFlow first copies all rows to the GPU and back
        slices = tf.data.Dataset.from_tensor_slices(_images_and_labels(work))
    dataset = slices.shuffle(SHUFFLE_WINDOW_ROWS).batch(work.batch, drop_remainder=True).prefetch(tf.data.AUTOTUNE)
    return lambda: dataset


class RepeatingAdapter(DataAdapter):  # type: ignore[misc]  # Keras is untyped
    """A Keras data adapter that repeats one batch. Keras stops after `num_batches`."""

    has_partial_batch = False
    partial_batch_size = None

    def __init__(self, batch: tuple[Any, Any], work: Workload) -> None:
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


def _images_and_labels(work: Workload) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    return make_array(work), np.arange(work.rows) % CLASSES
