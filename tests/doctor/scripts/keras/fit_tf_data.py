"""Keras fits a model to a tf.data pipeline."""

import keras
import numpy as np
import tensorflow as tf

x = np.random.rand(2000, 32).astype("float32")
y = np.random.rand(2000, 1).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(500).batch(32).prefetch(tf.data.AUTOTUNE)
model = keras.Sequential([keras.layers.Dense(32, activation="relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(dataset, epochs=2, verbose=0)
