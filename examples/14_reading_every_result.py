"""TensorFlow: read a result with `.numpy()` in every step, as for a log or a progress bar.

Each read waits until the device has done all queued work.
"""

import sys

import numpy as np
import tensorflow as tf
from side_by_side import DEVICE, Variant, compare

import forebay as fb

SIDE, STEPS = (64, 20) if "--quick" in sys.argv else (512, 500)


def plain(left: np.ndarray, right: np.ndarray) -> Variant:
    with tf.device(DEVICE):
        a, b = tf.constant(left), tf.constant(right)
        while True:  # one round per iteration
            total = 0.0
            for _ in range(STEPS):
                total += step(a, b).numpy()
            yield total


def forebay(left: np.ndarray, right: np.ndarray) -> Variant:
    with tf.device(DEVICE), fb.Readback() as readback:
        a, b = tf.constant(left), tf.constant(right)
        while True:  # one round per iteration
            total = 0.0
            for _ in range(STEPS):
                readback.put(step(a, b))
                total += sum(value for _, value in readback.ready())
            yield total + sum(value for _, value in readback.drain())


def step(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.matmul(a + b, a))


def main() -> None:
    rng = np.random.default_rng(0)
    arrays = rng.random((SIDE, SIDE), dtype=np.float32), rng.random((SIDE, SIDE), dtype=np.float32)
    advice = (
        "both times per step. plain waits for the GPU in every step. forebay reads the results while the next steps "
        "run. If the times are almost equal, the wait does not limit the speed."
    )
    # compare() times the rounds of both variants, and checks that their answers are equal.
    compare(plain(*arrays), forebay(*arrays), steps=STEPS, nbytes=4, look_at=advice)


if __name__ == "__main__":
    main()
