"""TensorFlow: check a large product for NaN and Inf on the CPU.

The whole product crosses the link, although the answer is one bit.
"""

import sys

import numpy as np
import tensorflow as tf
from side_by_side import DEVICE, Variant, compare

import forebay as fb

SIDE, STEPS = (64, 10) if "--quick" in sys.argv else (1000, 100)


def plain(array: np.ndarray) -> Variant:
    with tf.device(DEVICE):
        x = tf.constant(array)
        while True:  # one round per iteration
            finite_steps = 0
            for _ in range(STEPS):
                product = tf.matmul(x, x)
                with tf.device("/CPU:0"):  # the check raises an error for NaN or Inf
                    tf.debugging.check_numerics(product, "the product contains NaN or Inf")
                finite_steps += 1
            yield finite_steps


def forebay(array: np.ndarray) -> Variant:
    with tf.device(DEVICE), fb.Readback() as readback:
        x = tf.constant(array)
        while True:  # one round per iteration
            finite_steps = 0
            for _ in range(STEPS):
                readback.put(fb.all_finite(tf.matmul(x, x)))
                finite_steps += sum(bool(finite) for _, finite in readback.ready())
            yield finite_steps + sum(bool(finite) for _, finite in readback.drain())


def main() -> None:
    array = np.random.default_rng(0).standard_normal((SIDE, SIDE), dtype=np.float32)
    compare(  # times the rounds of both variants, and checks that their answers are equal
        plain(array),
        forebay(array),
        steps=STEPS,
        nbytes=array.nbytes,
        look_at="both times per step. plain copies every product to the CPU and waits for it. forebay checks the "
        "product on the GPU, and copies only the answer.",
    )


if __name__ == "__main__":
    main()
