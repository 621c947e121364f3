"""The script does not disable compiled functions."""

import tensorflow as tf

x = tf.random.normal((64, 32))
layers = [tf.Variable(tf.random.normal((32, 32)) / 6) for _ in range(12)]
optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.01)


@tf.function
def train_step():
    with tf.GradientTape() as tape:
        values = x
        for weights in layers:
            values = tf.nn.relu(tf.matmul(values, weights))
        loss = tf.reduce_mean(values**2)
    return loss, tape.gradient(loss, layers)


for _ in range(30):
    loss, gradients = train_step()
    optimizer.apply_gradients(zip(gradients, layers, strict=True))
