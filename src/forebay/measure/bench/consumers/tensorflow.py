"""TensorFlow receives: the first element of every row, summed by four bare operations.

A `tf.function` or the operators of Python would cost several times as much as they do.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from forebay.measure.bench.model import Skip, Work
from forebay.measure.bench.stamps import first_elements_total

__all__ = ["TensorflowConsumer", "consumer", "require_gpu"]


def require_gpu() -> None:
    if not tf.config.list_physical_devices("GPU"):
        raise Skip("TensorFlow sees no GPU")


def consumer(work: Work) -> "TensorflowConsumer":
    return TensorflowConsumer((work.batch, *work.shape), device="GPU")


class TensorflowConsumer:
    """Keeps a running sum in float64: exact for whole numbers, and on the GPU, where integers often are not."""

    def __init__(self, shape: tuple[int, ...], *, device: str) -> None:
        self._device = device
        self._begin = tf.constant([0] * len(shape))
        self._end = tf.constant([shape[0], *(1 for _ in shape[1:])])
        self._strides = tf.constant([1] * len(shape))
        self._axes = tf.constant(list(range(len(shape))))
        self._elements: Any = None
        self._total: Any = None
        self._epochs: list[Any] = []

    def take(self, batch: Any) -> None:
        self._elements = tf.raw_ops.StridedSlice(input=batch, begin=self._begin, end=self._end, strides=self._strides)
        added = tf.raw_ops.Sum(input=tf.raw_ops.Cast(x=self._elements, DstT=tf.float64), axis=self._axes)
        self._total = added if self._total is None else tf.raw_ops.AddV2(x=self._total, y=added)

    def end_epoch(self) -> None:
        self._epochs.append(self._total)
        self._total = None

    def wait(self) -> list[int]:
        self._refuse_elsewhere()
        if self._total is not None:
            self._total.numpy()
        totals, self._epochs = [int(total.numpy()) for total in self._epochs], []
        return totals

    def download(self, batch: Any) -> np.ndarray[Any, Any]:
        rows: np.ndarray[Any, Any] = batch.numpy()
        return rows

    def expected_total(self, source: np.ndarray[Any, Any]) -> int:
        return first_elements_total(source)

    def _refuse_elsewhere(self) -> None:
        # A batch, or an operation, that is not on the GPU would be moved without a word.
        if self._elements is not None and self._device not in self._elements.device:
            raise RuntimeError(f"TensorFlow read the batch on {self._elements.device}, not on the {self._device}")
