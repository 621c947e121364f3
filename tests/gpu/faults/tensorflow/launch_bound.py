"""Python calls the compiled cell of a recurrent network for every element of a sequence.

The doctor must report `launch_bound` here.
"""

import keras
import tensorflow as tf

gpu = bool(tf.config.list_physical_devices("GPU"))
steps, moments, batch_rows, width = (80, 32, 256, 512) if gpu else (12, 32, 16, 16)

sequence = tf.unstack(tf.random.normal((moments, batch_rows, width)))
inward, onward = (tf.Variable(tf.random.normal((width, width), stddev=width**-0.5)) for _ in range(2))
optimizer = keras.optimizers.SGD(1e-3)
optimizer.build([inward, onward])


@tf.function
def cell(state, moment):
    return tf.tanh(moment @ inward + state @ onward)


losses = []
for step in range(steps):
    with tf.GradientTape() as tape:
        state = tf.zeros((batch_rows, width))
        for moment in sequence:
            state = cell(state, moment)
        loss = tf.reduce_mean(state**2)
    gradients = tape.gradient(loss, [inward, onward])
    optimizer.apply_gradients(zip(gradients, [inward, onward], strict=True))
    if step % 10 == 9:
        losses.append(loss.numpy())
