"""The loop waits for the loss of every step before NumPy draws the next moves."""

import keras
import numpy as np
import tensorflow as tf
from stopwatch import Stopwatch

gpu = bool(tf.config.list_physical_devices("GPU"))
steps, moves, batch_rows, side = (500, 16_000, 4096, 42) if gpu else (60, 1000, 32, 20)

generator = np.random.default_rng(0)
priorities = generator.dirichlet(np.full(moves, 5.0))
frames = tf.random.uniform((moves, side, side, 4))
rewards = tf.random.normal((moves,))
layers = [keras.layers.Conv2D(32, 4, 2, activation="relu"), keras.layers.Conv2D(64, 4, 2, activation="relu")]
layers += [keras.layers.Flatten(), keras.layers.Dense(512, "relu"), keras.layers.Dense(6)]
model = keras.Sequential([keras.Input((side, side, 4)), *layers])
target = keras.models.clone_model(model)
optimizer = keras.optimizers.Adam(1e-4)
optimizer.build(model.trainable_variables)


@tf.function
def train(drawn):
    after = tf.reduce_max(target(tf.gather(frames, (drawn + 1) % moves)), axis=1)
    with tf.GradientTape() as tape:
        value = tf.reduce_max(model(tf.gather(frames, drawn)), axis=1)
        loss = tf.reduce_mean((value - tf.gather(rewards, drawn) - 0.99 * after) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


losses = []
stopwatch = Stopwatch(tf.test.experimental.sync_devices)
for _ in range(steps):
    drawn = generator.choice(moves, batch_rows, replace=False, p=priorities)
    loss = train(drawn)
    losses.append(float(loss))
    stopwatch.lap()
stopwatch.print_step_time()
