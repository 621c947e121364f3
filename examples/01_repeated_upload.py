"""TensorFlow: convert a constant array to a tensor in every step. Each conversion uploads the array again."""

import sys

import numpy as np
import tensorflow as tf
from side_by_side import DEVICE, Variant, compare

import forebay as fb

SIDE, STEPS = (100, 10) if "--quick" in sys.argv else (1000, 100)


def plain(data: np.ndarray) -> Variant:
    with tf.device(DEVICE):
        while True:  # one round per iteration
            for _ in range(STEPS):
                tensor = tf.convert_to_tensor(data)
                mean = tf.reduce_mean(tensor).numpy()
            yield mean


def forebay(data: np.ndarray) -> Variant:
    with tf.device(DEVICE):
        while True:  # one round per iteration
            for _ in range(STEPS):
                tensor = fb.upload_once(data, to="tensorflow")
                mean = tf.reduce_mean(tensor).numpy()
            yield mean


def main() -> None:
    data = np.random.default_rng(0).random((SIDE, SIDE, 3), dtype=np.float32)
    compare(  # times the rounds of both variants, and checks that their answers are equal
        plain(data),
        forebay(data),
        steps=STEPS,
        nbytes=data.nbytes,
        look_at="both times per step. plain uploads the array in every step. forebay uploads it in the first step, and "
        "then gets the same tensor again. Both read the mean in every step.",
    )


if __name__ == "__main__":
    main()
