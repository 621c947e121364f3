"""tf.data prefetches batches of an image array. The loop averages each batch."""

import numpy as np
import tensorflow as tf

on_gpu = bool(tf.config.list_physical_devices("GPU"))
device, count, side = ("/GPU:0", 3200, 128) if on_gpu else ("/CPU:0", 3200, 64)
pictures = np.random.default_rng(0).random((count, side, side, 3), dtype=np.float32)
batches = tf.data.Dataset.from_tensor_slices(pictures).batch(32).prefetch(tf.data.AUTOTUNE)

with tf.device(device):
    for batch in batches:
        brightness = tf.reduce_mean(batch)
answer = float(brightness)
