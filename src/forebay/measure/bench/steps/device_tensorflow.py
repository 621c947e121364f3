"""TensorFlow's step on the device: products in full fp32, compiled by XLA as Keras compiles its own steps."""

from typing import Any

import tensorflow as tf

from forebay.measure.bench.steps.device import EDGE

__all__ = ["TensorflowStep", "step"]


def step() -> "TensorflowStep":
    tf.config.experimental.enable_tensor_float_32_execution(False)
    return TensorflowStep("/GPU:0")


class TensorflowStep:
    """Products of the batch's first bytes with weights that keep their scale."""

    def __init__(self, device: str) -> None:
        with tf.device(device):
            self._weights = tf.Variable(tf.random.normal((EDGE, EDGE)) / EDGE**0.5)
        self._products = tf.function(self._multiply, jit_compile=True)
        self._hidden: Any = None

    def run(self, batch: Any, products: int) -> None:
        self._hidden = self._products(batch, products)

    def wait(self) -> None:
        if self._hidden is not None:
            self._hidden[0, 0].numpy()

    def _multiply(self, batch: Any, products: int) -> Any:
        pixels = tf.reshape(batch, [-1])[: EDGE * EDGE]
        hidden = tf.cast(tf.reshape(pixels, (EDGE, EDGE)), tf.float32)
        for _ in range(products):
            hidden = tf.linalg.matmul(hidden, self._weights)
        return hidden
