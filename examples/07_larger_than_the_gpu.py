"""Fit a Keras model on arrays that are larger than the GPU memory.

The example limits the GPU memory of TensorFlow to less than the size of the images. On a GPU, `fit(images, labels)`
makes one tensor of all images before the first step.
"""

import keras
import numpy as np
import tensorflow as tf
from side_by_side import GPUS, Array, Options, Variant, compare, read_options

import forebay as fb

BATCH, SHAPE = 256, (64, 64, 3)
MEMORY_LIMIT_MIB = 2048


def plain(images: Array, labels: Array) -> Variant:
    model = make_model()
    while True:  # one round per iteration
        yield model.fit(images, labels, batch_size=BATCH, verbose=0).history["loss"][-1]


def forebay(images: Array, labels: Array) -> Variant:
    model = make_model()
    with fb.from_arrays((images, labels)).shuffle(seed=0).batch(BATCH).feed("keras") as feed:
        while True:  # one round per iteration
            yield model.fit(feed, verbose=0).history["loss"][-1]


def make_model() -> keras.Model:
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input(SHAPE),
            layers.Conv2D(8, 3, strides=2, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy")
    return model


def limit_gpu_memory() -> None:
    for gpu in GPUS[:1]:
        limit = tf.config.LogicalDeviceConfiguration(memory_limit=MEMORY_LIMIT_MIB)
        tf.config.set_logical_device_configuration(gpu, [limit])


def make_data(options: Options) -> tuple[Array, Array]:
    rows, rng = options.size(full=65_536, quick=1_024), np.random.default_rng(0)
    images = np.resize(rng.random((256, *SHAPE), dtype=np.float32), (rows, *SHAPE))
    return images, rng.integers(0, 10, rows, dtype=np.int32)


def main() -> None:
    options = read_options()
    limit_gpu_memory()
    images, labels = make_data(options)
    steps = len(images) // BATCH
    variants = plain(images, labels), forebay(images, labels)
    compare(options, *variants, steps=steps, nbytes=images.nbytes // steps, tolerance=None)


if __name__ == "__main__":
    main()
