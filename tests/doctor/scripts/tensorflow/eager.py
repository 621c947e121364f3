"""Python runs the operations of a training step one by one."""

import keras
import tensorflow as tf

x = tf.random.normal((32, 20))
y = tf.random.normal((32, 1))
model = keras.Sequential([keras.layers.Dense(16, activation="relu") for _ in range(6)] + [keras.layers.Dense(1)])
optimizer = keras.optimizers.Adam()


def train_step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))


for _ in range(30):
    train_step()
