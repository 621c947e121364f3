"""The script converts the image to a tensor once. The loop only computes its mean."""

import numpy as np
import tensorflow as tf

on_gpu = bool(tf.config.list_physical_devices("GPU"))
device, side, passes = ("/GPU:0", 8000, 30_000) if on_gpu else ("/CPU:0", 1000, 300)
picture = np.random.default_rng(0).random((side, side, 3), dtype=np.float32)

with tf.device(device):
    pixels = tf.convert_to_tensor(picture)
    for _ in range(passes):
        brightness = tf.reduce_mean(pixels)
answer = brightness.numpy()
