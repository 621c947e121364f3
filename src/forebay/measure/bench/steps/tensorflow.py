"""TensorFlow step on the device: matrix products in fp32 without TF32, compiled by XLA.

Keras compiles its training steps with XLA too.
"""

from typing import Any

import tensorflow as tf

from forebay.measure.bench.steps import MATRIX_SIZE

__all__ = ["TensorflowStep", "make_step"]


def make_step() -> "TensorflowStep":
    tf.config.experimental.enable_tensor_float_32_execution(False)
    return TensorflowStep("/GPU:0")


class TensorflowStep:
    """Multiplies a matrix, made of a batch's first elements, by random weights.

    The weights have a variance of 1 / MATRIX_SIZE, so repeated products keep their magnitude.
    """

    def __init__(self, device: str) -> None:
        with tf.device(device):
            self._weights = tf.Variable(tf.random.normal((MATRIX_SIZE, MATRIX_SIZE)) / MATRIX_SIZE**0.5)
        self._compiled_multiply = tf.function(self._multiply, jit_compile=True)
        self._hidden: Any = None  # the result of the last step

    def run(self, batch: Any, products: int) -> None:
        self._hidden = self._compiled_multiply(batch, products)

    def wait(self) -> None:
        if self._hidden is not None:
            self._hidden[0, 0].numpy()  # reading one element waits for the step

    def _multiply(self, batch: Any, products: int) -> Any:
        elements = tf.reshape(batch, [-1])[: MATRIX_SIZE * MATRIX_SIZE]
        hidden = tf.cast(tf.reshape(elements, (MATRIX_SIZE, MATRIX_SIZE)), tf.float32)
        for _ in range(products):
            hidden = tf.linalg.matmul(hidden, self._weights)
        return hidden
