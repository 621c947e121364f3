"""The step computes cumulative sums of four long signals.

Its kernel uses only one thread block per signal.

The doctor must report `low_occupancy` here.
"""

import tensorflow as tf

gpu = bool(tf.config.list_physical_devices("GPU"))
steps, signals, length = (500, 4, 4_000_000) if gpu else (20, 4, 1_000)

waves = tf.random.normal((signals, length), stddev=1e-3)


@tf.function
def drift(gain):
    return tf.reduce_mean(tf.cumsum(gain * waves, axis=1) ** 2)


drifts = []
gain = tf.constant(1.0)
for step in range(steps):
    average = drift(gain)
    if step % 10 == 9:
        drifts.append(average.numpy())
