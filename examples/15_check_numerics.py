"""A large product made on the device and checked for NaN and Inf on the CPU: all of it crosses to find out one bit."""

import numpy as np
import tensorflow as tf
from side_by_side import DEVICE, Array, Way, compare, read_options

import forebay as fb


def plain(array: Array, steps: int) -> Way:
    with tf.device(DEVICE):
        x = tf.constant(array)
        while True:
            good = 0
            for _ in range(steps):
                product = tf.matmul(x, x)
                with tf.device("/CPU:0"):
                    tf.debugging.check_numerics(product, "the product holds NaN or Inf")  # raises if it does
                good += 1
            yield good


def forebay(array: Array, steps: int) -> Way:
    with tf.device(DEVICE), fb.Readback() as readback:
        x = tf.constant(array)
        while True:
            good = 0
            for _ in range(steps):
                readback.put(fb.all_finite(tf.matmul(x, x)))
                good += sum(bool(finite) for _, finite in readback.ready())
            yield good + sum(bool(finite) for _, finite in readback.drain())


def main() -> None:
    options = read_options()
    side, steps = options.size(1000, 64), options.size(100, 10)
    array = np.random.default_rng(0).standard_normal((side, side), dtype=np.float32)
    compare(options, plain(array, steps), forebay(array, steps), steps=steps, nbytes=array.nbytes)


if __name__ == "__main__":
    main()
