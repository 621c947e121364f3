"""Copy a table that every step needs, such as embeddings, to the device once, with `tf.identity`."""

import numpy as np
import tensorflow as tf
from side_by_side import DEVICE, Array, Variant, compare, read_options

import forebay as fb


def plain(table: Array, steps: int) -> Variant:
    on_host = tf.constant(table)
    with tf.device(DEVICE):
        on_device = tf.identity(on_host)
        while True:  # one round per iteration
            for _ in range(steps):
                similarity = tf.matmul(on_device, on_device, transpose_b=True)
            yield tf.reduce_mean(similarity)


def forebay(table: Array, steps: int) -> Variant:
    with tf.device(DEVICE):
        while True:  # one round per iteration
            for _ in range(steps):
                on_device = fb.upload_once(table, to="tensorflow")
                similarity = tf.matmul(on_device, on_device, transpose_b=True)
            yield tf.reduce_mean(similarity)


def main() -> None:
    options = read_options()
    side, steps = options.size(full=1024, quick=64), options.size(full=100, quick=10)
    table = np.random.default_rng(0).random((side, side), dtype=np.float32)
    compare(options, plain(table, steps), forebay(table, steps), steps=steps, nbytes=table.nbytes)


if __name__ == "__main__":
    main()
