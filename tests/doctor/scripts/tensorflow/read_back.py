"""The loop reads the loss in every step, to store, compare and log it."""

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


losses, log = [], []
for step in range(60):
    loss = train_step()
    losses.append(loss.numpy())
    if loss < 1e-3:
        break
    log.append(f"step {step}: loss {loss:.4f}")
