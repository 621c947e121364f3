"""TensorFlow: compute a product on the device and its square root on the CPU.

TensorFlow moves the product from the device to the CPU in every step, and waits for the copy.
"""

import sys

import numpy as np
import tensorflow as tf
from side_by_side import DEVICE, Variant, compare

import forebay as fb

SIDE, STEPS = (64, 10) if "--quick" in sys.argv else (1000, 100)
RNG = np.random.default_rng(0)
with tf.device(DEVICE):
    A, B = (tf.constant(RNG.random((SIDE, SIDE), dtype=np.float32)) for _ in range(2))


def plain() -> Variant:
    while True:  # one round per iteration
        yield sum(mean_root_on_host(multiply_on_device()) for _ in range(STEPS))


def forebay() -> Variant:
    with fb.Readback(limit=4) as readback:  # results are large, so at most four are in flight
        while True:  # one round per iteration
            total = 0.0
            for _ in range(STEPS):
                readback.put(multiply_on_device())
                total += sum(mean_root_on_host(value) for _, value in readback.ready())
            yield total + sum(mean_root_on_host(value) for _, value in readback.drain())


def multiply_on_device() -> tf.Tensor:
    with tf.device(DEVICE):
        return tf.matmul(A, B)


def mean_root_on_host(value: tf.Tensor | np.ndarray) -> float:
    with tf.device("/CPU:0"):
        return float(tf.reduce_mean(tf.sqrt(value)))


def main() -> None:
    advice = (
        "both times per step. Both variants copy every product to the CPU. forebay makes the next products at the same "
        "time. This gains nothing if the CPU takes most of the step. It is better to compute the root on the GPU too."
    )
    # compare() times the rounds of both variants, and checks that their answers are equal.
    compare(plain(), forebay(), steps=STEPS, nbytes=SIDE * SIDE * 4, look_at=advice)


if __name__ == "__main__":
    main()
