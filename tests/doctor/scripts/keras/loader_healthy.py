"""The model augments whole batches, and tf.data prefetches them."""

import keras
import numpy as np
import tensorflow as tf

images = np.random.randint(0, 256, (1280, 64, 64, 3), dtype="uint8")
labels = np.random.rand(1280, 1).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(32).prefetch(tf.data.AUTOTUNE)
augment = keras.Sequential([keras.layers.RandomCrop(48, 48), keras.layers.Resizing(96, 96, "bicubic")])
model = keras.Sequential([augment, keras.layers.Flatten(), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(dataset, verbose=0)
