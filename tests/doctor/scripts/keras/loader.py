"""tf.data augments images one at a time and without prefetch."""

import keras
import numpy as np
import tensorflow as tf

images = np.random.randint(0, 256, (1280, 64, 64, 3), dtype="uint8")
labels = np.random.rand(1280, 1).astype("float32")


def augment(image, label):
    return tf.image.resize(tf.image.random_crop(image, (48, 48, 3)), (96, 96), "bicubic"), label


dataset = tf.data.Dataset.from_tensor_slices((images, labels)).map(augment).batch(32)
model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(dataset, verbose=0)
