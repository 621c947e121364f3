"""Keras: fit a model on a dataset whose `map` changes single images on the CPU.

Forebay maps whole batches with NumPy in threads. The brightness of each image is random.
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from side_by_side import Variant, compare

import forebay as fb

ROWS = 64 if "--quick" in sys.argv else 9_984
BATCH, SHAPE, MAX_DELTA = 32, (64, 64, 3), 0.1


def plain(images: np.ndarray, labels: np.ndarray) -> Variant:
    model, rows = make_model(), tf.data.Dataset.from_tensor_slices((images, labels))
    brightened = rows.map(lambda x, y: (tf.image.random_brightness(x, MAX_DELTA), y))
    dataset = brightened.batch(BATCH).prefetch(tf.data.AUTOTUNE)
    while True:  # one round per iteration
        yield model.fit(dataset, verbose=0).history["loss"][-1]


def forebay(images: np.ndarray, labels: np.ndarray) -> Variant:
    model = make_model()
    with fb.from_arrays((images, labels)).batch(BATCH).map(brighten_batch, where="thread").feed("keras") as feed:
        while True:  # one round per iteration
            yield model.fit(feed, verbose=0).history["loss"][-1]


def brighten_batch(batch: tuple, rng: np.random.Generator) -> tuple:
    images, labels = batch
    return images + rng.uniform(-MAX_DELTA, MAX_DELTA, (len(images), 1, 1, 1)).astype(np.float32), labels


def make_model() -> keras.Model:
    features = [keras.layers.Conv2D(32, 3, activation="relu"), keras.layers.MaxPooling2D(2), keras.layers.Flatten()]
    model = keras.Sequential([keras.Input(SHAPE), *features, keras.layers.Dense(10, activation="softmax")])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def main() -> None:
    rng = np.random.default_rng(0)
    data = rng.random((ROWS, *SHAPE), dtype=np.float32), rng.integers(0, 10, ROWS, dtype=np.int32)
    steps, nbytes = ROWS // BATCH, data[0][:BATCH].nbytes
    advice = (
        "both times per step, and the first rounds, which include the set-up. plain calls the map for each image. "
        "forebay calls it for each batch, in threads, while the model trains on earlier batches."
    )
    # compare() times the rounds of both variants. Their losses differ, because the brightness is random.
    compare(plain(*data), forebay(*data), steps=steps, nbytes=nbytes, look_at=advice, random_answers=True)


if __name__ == "__main__":
    main()
