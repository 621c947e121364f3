"""Every iteration converts the same image to a tensor and reads its mean back."""

import numpy as np
import tensorflow as tf

picture = np.random.default_rng(0).random((1000, 1000, 3), dtype=np.float32)
device = "/GPU:0" if tf.config.list_physical_devices("GPU") else "/CPU:0"

with tf.device(device):
    for _ in range(100):
        pixels = tf.convert_to_tensor(picture)
        brightness = tf.reduce_mean(pixels)
        answer = brightness.numpy()
