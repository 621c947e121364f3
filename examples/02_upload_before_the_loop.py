"""Convert a constant array once before the loop.

`upload_once` should be as fast, although it is called in every step.
"""

import numpy as np
import tensorflow as tf
from side_by_side import DEVICE, Array, Variant, compare, read_options

import forebay as fb


def plain(data: Array, steps: int) -> Variant:
    with tf.device(DEVICE):
        tensor = tf.convert_to_tensor(data)
        while True:  # one round per iteration
            for _ in range(steps):
                mean = tf.reduce_mean(tensor)
            yield mean.numpy()


def forebay(data: Array, steps: int) -> Variant:
    with tf.device(DEVICE):
        while True:  # one round per iteration
            for _ in range(steps):
                mean = tf.reduce_mean(fb.upload_once(data, to="tensorflow"))
            yield mean.numpy()


def main() -> None:
    options = read_options()
    side, steps = options.size(full=1000, quick=100), options.size(full=100, quick=10)
    data = np.random.default_rng(0).random((side, side, 3), dtype=np.float32)
    compare(options, plain(data, steps), forebay(data, steps), steps=steps, nbytes=data.nbytes)


if __name__ == "__main__":
    main()
