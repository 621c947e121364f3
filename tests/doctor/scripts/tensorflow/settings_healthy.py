"""The script turns the check for NaN off after the first computation."""

import tensorflow as tf

tf.debugging.enable_check_numerics()
rows = tf.random.normal((32, 32))
weights = tf.Variable(tf.random.normal((32, 32)) / 6)


@tf.function
def train_step():
    for _ in range(4):
        weights.assign(tf.tanh(rows @ weights) * 0.5)


tf.tanh(rows @ weights)
tf.debugging.disable_check_numerics()
for _ in range(60):
    train_step()
