"""Compute a product on the device and its square root on the CPU.

TensorFlow moves the product from the device to the CPU in every step, and waits for the copy.
"""

from typing import Any

import numpy as np
import tensorflow as tf
from side_by_side import DEVICE, Array, Variant, compare, read_options

import forebay as fb


def plain(left: Array, right: Array, steps: int) -> Variant:
    a, b = on_device(left), on_device(right)
    while True:  # one round per iteration
        total = 0.0
        for _ in range(steps):
            total += mean_root_on_host(multiply_on_device(a, b))
        yield total


def forebay(left: Array, right: Array, steps: int) -> Variant:
    a, b = on_device(left), on_device(right)
    with fb.Readback(limit=4) as readback:  # results are large, so at most four are in flight
        while True:  # one round per iteration
            total = 0.0
            for _ in range(steps):
                readback.put(multiply_on_device(a, b))
                total += sum(mean_root_on_host(value) for _, value in readback.ready())
            yield total + sum(mean_root_on_host(value) for _, value in readback.drain())


def on_device(array: Array) -> tf.Tensor:
    with tf.device(DEVICE):
        return tf.constant(array)


def multiply_on_device(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    with tf.device(DEVICE):
        return tf.matmul(a, b)


def mean_root_on_host(value: Any) -> float:
    with tf.device("/CPU:0"):
        return float(tf.reduce_mean(tf.sqrt(value)))


def main() -> None:
    options = read_options()
    side, steps, rng = options.size(full=1000, quick=64), options.size(full=100, quick=10), np.random.default_rng(0)
    arrays = rng.random((side, side), dtype=np.float32), rng.random((side, side), dtype=np.float32)
    compare(options, plain(*arrays, steps), forebay(*arrays, steps), steps=steps, nbytes=arrays[0].nbytes)


if __name__ == "__main__":
    main()
