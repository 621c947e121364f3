"""TensorFlow: convert a constant array once before the loop.

`upload_once` should be as fast, although the loop calls it in every step.
"""

import sys

import numpy as np
import tensorflow as tf
from side_by_side import DEVICE, Variant, compare

import forebay as fb

SIDE, STEPS = (100, 10) if "--quick" in sys.argv else (1000, 100)


def plain(data: np.ndarray) -> Variant:
    with tf.device(DEVICE):
        tensor = tf.convert_to_tensor(data)
        while True:  # one round per iteration
            for _ in range(STEPS):
                mean = tf.reduce_mean(tensor)
            yield mean.numpy()


def forebay(data: np.ndarray) -> Variant:
    with tf.device(DEVICE):
        while True:  # one round per iteration
            for _ in range(STEPS):
                mean = tf.reduce_mean(fb.upload_once(data, to="tensorflow"))
            yield mean.numpy()


def main() -> None:
    data = np.random.default_rng(0).random((SIDE, SIDE, 3), dtype=np.float32)
    compare(  # times the rounds of both variants, and checks that their answers are equal
        plain(data),
        forebay(data),
        steps=STEPS,
        nbytes=data.nbytes,
        look_at="both times per step. They should be almost equal, because both variants upload the array once. The "
        "difference is the call of upload_once, which finds the tensor of the array in every step.",
    )


if __name__ == "__main__":
    main()
