"""Read a result with `.numpy()` in every step, as for a log or a progress bar.

Each read waits until the device has done all queued work.
"""

import numpy as np
import tensorflow as tf
from side_by_side import DEVICE, Array, Variant, compare, read_options

import forebay as fb


def plain(left: Array, right: Array, steps: int) -> Variant:
    with tf.device(DEVICE):
        a, b = tf.constant(left), tf.constant(right)
        while True:  # one round per iteration
            total = 0.0
            for _ in range(steps):
                total += step(a, b).numpy()
            yield total


def forebay(left: Array, right: Array, steps: int) -> Variant:
    with tf.device(DEVICE), fb.Readback() as readback:
        a, b = tf.constant(left), tf.constant(right)
        while True:  # one round per iteration
            total = 0.0
            for _ in range(steps):
                readback.put(step(a, b))
                total += sum(value for _, value in readback.ready())
            yield total + sum(value for _, value in readback.drain())


def step(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.matmul(a + b, a))


def main() -> None:
    options = read_options()
    side, steps, rng = options.size(full=512, quick=64), options.size(full=500, quick=20), np.random.default_rng(0)
    arrays = rng.random((side, side), dtype=np.float32), rng.random((side, side), dtype=np.float32)
    compare(options, plain(*arrays, steps), forebay(*arrays, steps), steps=steps, nbytes=4)


if __name__ == "__main__":
    main()
