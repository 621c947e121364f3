"""A debugging setting that runs compiled functions eagerly was left in the script."""

import tensorflow as tf

tf.config.run_functions_eagerly(True)
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
