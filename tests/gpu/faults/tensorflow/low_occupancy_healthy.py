"""The step computes cumulative sums of many short windows, which run in parallel.

The doctor must not report `low_occupancy` here.
"""

import tensorflow as tf

gpu = bool(tf.config.list_physical_devices("GPU"))
steps, windows, length = (500, 65_536, 1_024) if gpu else (20, 40, 100)

waves = tf.random.normal((windows, length), stddev=1e-3)


@tf.function
def drift(gain):
    return tf.reduce_mean(tf.cumsum(gain * waves, axis=1) ** 2)


drifts = []
gain = tf.constant(1.0)
for step in range(steps):
    average = drift(gain)
    if step % 10 == 9:
        drifts.append(average.numpy())
