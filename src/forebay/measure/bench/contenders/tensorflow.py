"""TensorFlow: tf.data on arrays, generators, texts and image files, and the conversion of one batch."""

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from forebay.measure.bench.contenders.numpy import convert_ready_batches
from forebay.measure.bench.data import (
    MIX_WEIGHTS,
    bucket_bounds,
    generate_rows,
    make_array,
    make_frame,
    make_series,
    make_texts,
)
from forebay.measure.bench.model import StartEpoch, Workload

__all__ = [
    "SHUFFLE_WINDOW_ROWS",
    "convert_to_tensor",
    "frame_slices",
    "from_generator",
    "image_folder",
    "length_buckets",
    "sample_from_datasets",
    "tensor_slices",
    "timeseries",
]

# Rows in the shuffle buffer. The other contenders shuffle all rows. tf.data would need seconds to fill a buffer of all
# rows, so its users choose a smaller buffer, which is also less work.
SHUFFLE_WINDOW_ROWS = 4096
SHUFFLE_WINDOW_TEXTS = 10_000  # texts in the shuffle buffer


def tensor_slices(work: Workload) -> StartEpoch:
    """Shuffle, batch and prefetch slices of an array, as in the guide of tf.data."""
    slices = tf.data.Dataset.from_tensor_slices(make_array(work))
    shuffled = slices.shuffle(SHUFFLE_WINDOW_ROWS, reshuffle_each_iteration=True)
    dataset = shuffled.batch(work.batch, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    return lambda: dataset


def frame_slices(work: Workload) -> StartEpoch:
    """Shuffle, batch and prefetch slices of all columns, as tf.data's tutorial for DataFrames does."""
    slices = tf.data.Dataset.from_tensor_slices(dict(make_frame(work)))
    shuffled = slices.shuffle(SHUFFLE_WINDOW_ROWS, reshuffle_each_iteration=True)
    dataset = shuffled.batch(work.batch, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    return lambda: dataset


def sample_from_datasets(work: Workload) -> StartEpoch:
    """Mix three shuffled datasets by weight, then batch and prefetch."""
    parts = [
        tf.data.Dataset.from_tensor_slices(rows).shuffle(SHUFFLE_WINDOW_ROWS, reshuffle_each_iteration=True)
        for rows in np.array_split(make_array(work), len(MIX_WEIGHTS))
    ]
    shares = [weight / sum(MIX_WEIGHTS) for weight in MIX_WEIGHTS]
    mixed = tf.data.Dataset.sample_from_datasets(parts, shares)
    dataset = mixed.batch(work.batch, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    return lambda: dataset


def timeseries(work: Workload) -> StartEpoch:
    """Make windows of a series with `keras.utils.timeseries_dataset_from_array`."""
    import keras  # only this contender needs it

    make = keras.utils.timeseries_dataset_from_array
    dataset = make(make_series(work), None, work.shape[0], batch_size=work.batch, shuffle=True)
    return lambda: dataset


def from_generator(work: Workload) -> StartEpoch:
    """Read the rows of a Python generator with tf.data."""
    signature = tf.TensorSpec(work.shape, work.dtype)
    rows = tf.data.Dataset.from_generator(lambda: generate_rows(work), output_signature=signature)
    dataset = rows.batch(work.batch).prefetch(tf.data.AUTOTUNE)
    return lambda: dataset


def image_folder(work: Workload) -> StartEpoch:
    """Decode and resize JPEG files in a parallel map, as in the guide of tf.data.

    `tf.image.resize` returns float32, and its users pass float32 to their models. A cast to uint8 would take more time.
    """
    paths = sorted(map(str, Path(work.path).glob("*/*.jpg")))
    names = sorted({Path(path).parent.name for path in paths})
    labels = [names.index(Path(path).parent.name) for path in paths]

    def load(path: Any, label: Any) -> Any:
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        return tf.image.resize(image, work.shape[:2]), label

    def load_bytes(path: Any, label: Any) -> Any:
        image, label = load(path, label)
        return tf.cast(image, tf.uint8), label

    files = tf.data.Dataset.from_tensor_slices((paths, labels))
    if work.options.get("cache"):  # cache uint8; float32 needs four times the memory and makes every epoch slower
        rows = files.map(load_bytes, num_parallel_calls=tf.data.AUTOTUNE).cache()
        images = rows.shuffle(len(paths), reshuffle_each_iteration=True)
    else:
        shuffled = files.shuffle(len(paths), reshuffle_each_iteration=True)
        images = shuffled.map(load, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = images.batch(work.batch).prefetch(tf.data.AUTOTUNE)
    if work.options.get("cache"):
        for _ in dataset:  # one epoch fills the cache before the measurement
            pass
    return lambda: dataset


def length_buckets(work: Workload) -> StartEpoch:
    """Load padded batches of texts: tf.data shuffles them in a buffer, fills buckets and pads."""
    texts, tokens = make_texts(work), int(work.options["tokens"])
    bounds = bucket_bounds(int(texts.lengths.max()))
    ragged = tf.data.Dataset.from_tensor_slices(tf.RaggedTensor.from_row_splits(texts.values, texts.offsets))
    rows = ragged.map(lambda text: text)  # turns each row into a plain tensor
    dataset = rows.shuffle(SHUFFLE_WINDOW_TEXTS, seed=0).bucket_by_sequence_length(
        lambda text: tf.shape(text)[0],
        bucket_boundaries=[bound + 1 for bound in bounds[:-1]],
        bucket_batch_sizes=[tokens // bound for bound in bounds],
    )
    prefetched = dataset.prefetch(tf.data.AUTOTUNE)
    return lambda: prefetched


def convert_to_tensor(work: Workload) -> StartEpoch:
    """Call `tf.convert_to_tensor` on a ready-made batch, as TensorFlow does with every NumPy array."""
    return convert_ready_batches(work, tf.convert_to_tensor)
