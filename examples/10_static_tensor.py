"""TensorFlow: copy a table that every step needs, such as embeddings, to the device once, with `tf.identity`."""

import sys

import numpy as np
import tensorflow as tf
from side_by_side import DEVICE, Variant, compare

import forebay as fb

SIDE, STEPS = (64, 10) if "--quick" in sys.argv else (1024, 100)


def plain(table: np.ndarray) -> Variant:
    on_host = tf.constant(table)
    with tf.device(DEVICE):
        on_device = tf.identity(on_host)
        while True:  # one round per iteration
            for _ in range(STEPS):
                similarity = tf.matmul(on_device, on_device, transpose_b=True)
            yield tf.reduce_mean(similarity)


def forebay(table: np.ndarray) -> Variant:
    with tf.device(DEVICE):
        while True:  # one round per iteration
            for _ in range(STEPS):
                on_device = fb.upload_once(table, to="tensorflow")
                similarity = tf.matmul(on_device, on_device, transpose_b=True)
            yield tf.reduce_mean(similarity)


def main() -> None:
    table = np.random.default_rng(0).random((SIDE, SIDE), dtype=np.float32)
    compare(  # times the rounds of both variants, and checks that their answers are equal
        plain(table),
        forebay(table),
        steps=STEPS,
        nbytes=table.nbytes,
        look_at="both times per step. They should be almost equal, because both variants upload the table once. "
        "upload_once helps if the line that converts the table cannot be moved out of the loop.",
    )


if __name__ == "__main__":
    main()
