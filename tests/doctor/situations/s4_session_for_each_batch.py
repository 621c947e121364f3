"""The loop opens a new session for every batch and closes it after one run."""

import numpy as np
import tensorflow as tf

tf.compat.v1.disable_eager_execution()

batches = np.random.default_rng(0).random((80, 32, 100), dtype=np.float32)
rows = tf.compat.v1.placeholder(tf.float32, (None, 100))
hidden = rows
for width in (200, 100, 200, 100):
    hidden = tf.tanh(tf.matmul(hidden, tf.random.normal((hidden.shape[1], width))))
answer = tf.reduce_mean(hidden)

for batch in batches:
    with tf.compat.v1.Session() as session:
        session.run(answer, feed_dict={rows: batch})
