"""Keras fits a model to images that tf.data augments one at a time."""

import keras
import numpy as np
import tensorflow as tf

on_gpu = bool(tf.config.list_physical_devices("GPU"))
count, side = (12_800, 128) if on_gpu else (1600, 64)
rng = np.random.default_rng(0)
images = rng.random((count, side, side, 3), dtype=np.float32)
kinds = rng.integers(0, 10, count)


def alter(image, kind):
    image = tf.image.random_hue(tf.image.random_saturation(image, 0.5, 1.5), 0.2)
    return tf.image.random_brightness(image, 0.1), kind


rows = tf.data.Dataset.from_tensor_slices((images, kinds)).map(alter)
batches = rows.batch(32).prefetch(tf.data.AUTOTUNE)

layers = [keras.layers.Conv2D(2, 5, strides=8, activation="relu"), keras.layers.Flatten()]
model = keras.Sequential([keras.Input((side, side, 3)), *layers, keras.layers.Dense(10, activation="softmax")])
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(batches, epochs=2, verbose=0)
