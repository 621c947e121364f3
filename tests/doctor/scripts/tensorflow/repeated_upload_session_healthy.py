"""The script copies the array to a graph variable once. Steps feed nothing."""

import numpy as np
import tensorflow as tf

table = np.random.rand(1000, 200).astype("float32")
graph = tf.Graph()
with graph.as_default():
    content = tf.compat.v1.placeholder(tf.float32, (1000, 200))
    features = tf.compat.v1.Variable(content, trainable=False)
    weights = tf.compat.v1.get_variable("weights", (200, 1))
    loss = tf.reduce_mean(tf.matmul(features, weights) ** 2)
    train = tf.compat.v1.train.GradientDescentOptimizer(0.01).minimize(loss)
    start = tf.compat.v1.global_variables_initializer()

with tf.compat.v1.Session(graph=graph) as session:
    session.run(start, feed_dict={content: table})
    for _ in range(60):
        session.run(train)
