"""The loop feeds the same array to the session in every step."""

import numpy as np
import tensorflow as tf

table = np.random.rand(1000, 200).astype("float32")
graph = tf.Graph()
with graph.as_default():
    features = tf.compat.v1.placeholder(tf.float32, (None, 200))
    weights = tf.compat.v1.get_variable("weights", (200, 1))
    loss = tf.reduce_mean(tf.matmul(features, weights) ** 2)
    train = tf.compat.v1.train.GradientDescentOptimizer(0.01).minimize(loss)
    start = tf.compat.v1.global_variables_initializer()

with tf.compat.v1.Session(graph=graph) as session:
    session.run(start)
    for _ in range(60):
        session.run(train, feed_dict={features: table})
