"""TensorFlow consumer: sums the first element of every row with four raw operations.

A `tf.function` or Python operators would take several times as long as these operations.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from forebay.measure.bench.model import Skip, Workload
from forebay.measure.bench.row_ids import sum_first_elements

__all__ = ["TensorflowConsumer", "make_consumer", "require_gpu"]


def require_gpu() -> None:
    if not tf.config.list_physical_devices("GPU"):
        raise Skip("TensorFlow sees no GPU")


def make_consumer(work: Workload) -> "TensorflowConsumer":
    return TensorflowConsumer((work.batch, *work.shape), device="GPU")


class TensorflowConsumer:
    """Keeps the sum of the current epoch on the device.

    The sum is float64, which is exact for these whole numbers. TensorFlow runs few integer operations on a GPU.
    """

    def __init__(self, shape: tuple[int, ...], *, device: str) -> None:
        self._device = device
        self._begin = tf.constant([0] * len(shape))
        self._end = tf.constant([shape[0], *(1 for _ in shape[1:])])
        self._strides = tf.constant([1] * len(shape))
        self._axes = tf.constant(list(range(len(shape))))
        self._elements: Any = None
        self._total: Any = None
        self._epoch_totals: list[Any] = []

    def take(self, batch: Any) -> None:
        self._elements = tf.raw_ops.StridedSlice(input=batch, begin=self._begin, end=self._end, strides=self._strides)
        batch_sum = tf.raw_ops.Sum(input=tf.raw_ops.Cast(x=self._elements, DstT=tf.float64), axis=self._axes)
        self._total = batch_sum if self._total is None else tf.raw_ops.AddV2(x=self._total, y=batch_sum)

    def end_epoch(self) -> None:
        self._epoch_totals.append(self._total)
        self._total = None

    def wait(self) -> list[int]:
        self._check_device()
        if self._total is not None:
            self._total.numpy()  # waits for the sums of all batches
        totals, self._epoch_totals = [int(total.numpy()) for total in self._epoch_totals], []
        return totals

    def download(self, batch: Any) -> np.ndarray[Any, Any]:
        rows: np.ndarray[Any, Any] = batch.numpy()
        return rows

    def expected_total(self, source: np.ndarray[Any, Any]) -> int:
        return sum_first_elements(source)

    def _check_device(self) -> None:
        # If a batch is on another device, TensorFlow copies it without a message.
        if self._elements is not None and self._device not in self._elements.device:
            raise RuntimeError(f"TensorFlow read the batch on {self._elements.device} instead of the {self._device}")
