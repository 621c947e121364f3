"""One session runs all batches."""

import numpy as np
import tensorflow as tf

batches = np.random.rand(30, 64, 100).astype("float32")
graph = tf.Graph()
with graph.as_default():
    batch = tf.compat.v1.placeholder(tf.float32, (None, 100))
    weights = tf.random.normal((100, 4000))
    norm = tf.reduce_sum(tf.tanh(tf.matmul(batch, weights)))

with tf.compat.v1.Session(graph=graph) as session:
    for rows in batches:
        session.run(norm, feed_dict={batch: rows})
