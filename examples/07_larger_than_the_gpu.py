"""Keras: fit a model on arrays that are larger than the GPU memory.

The example limits the GPU memory of TensorFlow to less than the size of the images. On a GPU, `fit(images, labels)`
makes one tensor of all images before the first step.
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from side_by_side import Variant, compare

import forebay as fb

ROWS = 1_024 if "--quick" in sys.argv else 65_536
BATCH, SHAPE = 256, (64, 64, 3)
MEMORY_LIMIT_MIB = 2048


def plain(images: np.ndarray, labels: np.ndarray) -> Variant:
    model = make_model()
    while True:  # one round per iteration
        yield model.fit(images, labels, batch_size=BATCH, verbose=0).history["loss"][-1]


def forebay(images: np.ndarray, labels: np.ndarray) -> Variant:
    model = make_model()
    with fb.from_arrays((images, labels)).shuffle(seed=0).batch(BATCH).feed("keras") as feed:
        while True:  # one round per iteration
            yield model.fit(feed, verbose=0).history["loss"][-1]


def make_model() -> keras.Model:
    convolution = keras.layers.Conv2D(8, 3, strides=2, activation="relu")
    pooling, dense = keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(10, activation="softmax")
    model = keras.Sequential([keras.Input(SHAPE), convolution, pooling, dense])
    model.compile("adam", "sparse_categorical_crossentropy")
    return model


def main() -> None:
    for gpu in tf.config.list_physical_devices("GPU")[:1]:
        limit = tf.config.LogicalDeviceConfiguration(memory_limit=MEMORY_LIMIT_MIB)
        tf.config.set_logical_device_configuration(gpu, [limit])
    rng = np.random.default_rng(0)
    images = np.resize(rng.random((256, *SHAPE), dtype=np.float32), (ROWS, *SHAPE))
    data = images, rng.integers(0, 10, ROWS, dtype=np.int32)
    steps, nbytes = ROWS // BATCH, images[:BATCH].nbytes
    advice = "plain fails on a GPU if one tensor of all images does not fit. forebay uploads batch after batch."
    # compare() times the rounds of both variants. Their losses differ, because the first weights are random.
    compare(plain(*data), forebay(*data), steps=steps, nbytes=nbytes, look_at=advice, random_answers=True)


if __name__ == "__main__":
    main()
