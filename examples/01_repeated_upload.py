"""Convert a constant array to a tensor in every step. Each conversion uploads the array again."""

import numpy as np
import tensorflow as tf
from side_by_side import DEVICE, Array, Variant, compare, read_options

import forebay as fb


def plain(data: Array, steps: int) -> Variant:
    with tf.device(DEVICE):
        while True:  # one round per iteration
            for _ in range(steps):
                tensor = tf.convert_to_tensor(data)
                mean = tf.reduce_mean(tensor).numpy()
            yield mean


def forebay(data: Array, steps: int) -> Variant:
    with tf.device(DEVICE):
        while True:  # one round per iteration
            for _ in range(steps):
                tensor = fb.upload_once(data, to="tensorflow")
                mean = tf.reduce_mean(tensor).numpy()
            yield mean


def main() -> None:
    options = read_options()
    side, steps = options.size(full=1000, quick=100), options.size(full=100, quick=10)
    data = np.random.default_rng(0).random((side, side, 3), dtype=np.float32)
    compare(options, plain(data, steps), forebay(data, steps), steps=steps, nbytes=data.nbytes)


if __name__ == "__main__":
    main()
