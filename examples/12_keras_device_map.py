"""Fit a Keras model with a map that should run on the GPU.

`num_parallel_calls` makes the map parallel, but tf.data keeps it on the CPU. Forebay's `where="device"` runs it on the
GPU, with TensorFlow operations. Without a GPU, the example maps in threads. The brightness is random, so the losses
differ slightly.
"""

import keras
import numpy as np
import tensorflow as tf
from side_by_side import GPUS, Array, Options, Variant, compare, read_options

import forebay as fb

BATCH, SHAPE, MAX_DELTA = 32, (64, 64, 3), 0.1
WHERE = "device" if GPUS else "thread"


def plain(images: Array, labels: Array) -> Variant:
    model = make_model()
    dataset = (
        tf.data.Dataset.from_tensor_slices((images, labels))
        .map(brighten, num_parallel_calls=tf.data.AUTOTUNE)
        .batch(BATCH)
        .prefetch(tf.data.AUTOTUNE)
    )
    while True:  # one round per iteration
        yield model.fit(dataset, verbose=0).history["loss"][-1]


def forebay(images: Array, labels: Array) -> Variant:
    model = make_model()
    with fb.from_arrays((images, labels)).batch(BATCH).map(brighten_batch, where=WHERE).feed("keras") as feed:
        while True:  # one round per iteration
            yield model.fit(feed, verbose=0).history["loss"][-1]


def brighten(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.image.random_brightness(image, max_delta=MAX_DELTA), label


def brighten_batch(batch: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    images, labels = batch
    return images + tf.random.uniform((tf.shape(images)[0], 1, 1, 1), -MAX_DELTA, MAX_DELTA), labels


def make_model() -> keras.Model:
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input(SHAPE),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def make_data(options: Options) -> tuple[Array, Array]:
    rows, rng = options.size(full=9_984, quick=64), np.random.default_rng(0)
    return rng.random((rows, *SHAPE), dtype=np.float32), rng.integers(0, 10, rows, dtype=np.int32)


def main() -> None:
    options = read_options()
    images, labels = make_data(options)
    variants = plain(images, labels), forebay(images, labels)
    compare(options, *variants, steps=len(images) // BATCH, nbytes=BATCH * images[0].nbytes, tolerance=None)


if __name__ == "__main__":
    main()
