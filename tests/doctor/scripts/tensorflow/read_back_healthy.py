"""The losses stay tensors. The script reads all of them back after the loop."""

import tensorflow as tf

x = tf.random.normal((256, 128))
y = tf.reduce_sum(x, axis=1, keepdims=True)
weights = tf.Variable(tf.random.normal((128, 1)))


@tf.function
def train_step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((tf.matmul(x, weights) - y) ** 2)
    weights.assign_sub(0.001 * tape.gradient(loss, weights))
    return loss


losses = [train_step() for _ in range(60)]
log = [f"step {step}: loss {loss:.4f}" for step, loss in enumerate(tf.stack(losses).numpy())]
