"""Check a large product for NaN and Inf on the CPU.

The whole product crosses the link, only to compute one bit.
"""

import numpy as np
import tensorflow as tf
from side_by_side import DEVICE, Array, Variant, compare, read_options

import forebay as fb


def plain(array: Array, steps: int) -> Variant:
    with tf.device(DEVICE):
        x = tf.constant(array)
        while True:  # one round per iteration
            finite_steps = 0
            for _ in range(steps):
                product = tf.matmul(x, x)
                with tf.device("/CPU:0"):  # the check raises an error for NaN or Inf
                    tf.debugging.check_numerics(product, "the product contains NaN or Inf")
                finite_steps += 1
            yield finite_steps


def forebay(array: Array, steps: int) -> Variant:
    with tf.device(DEVICE), fb.Readback() as readback:
        x = tf.constant(array)
        while True:  # one round per iteration
            finite_steps = 0
            for _ in range(steps):
                readback.put(fb.all_finite(tf.matmul(x, x)))
                finite_steps += sum(bool(finite) for _, finite in readback.ready())
            yield finite_steps + sum(bool(finite) for _, finite in readback.drain())


def main() -> None:
    options = read_options()
    side, steps = options.size(full=1000, quick=64), options.size(full=100, quick=10)
    array = np.random.default_rng(0).standard_normal((side, side), dtype=np.float32)
    compare(options, plain(array, steps), forebay(array, steps), steps=steps, nbytes=array.nbytes)


if __name__ == "__main__":
    main()
