"""Read-back and finite check for TensorFlow.

TensorFlow reports no stream, and it copies to the host only while a thread waits. So a thread of Forebay waits, without
the GIL. Forebay does not read a tensor's address to copy it itself: TensorFlow returns the address only after the
device has done all queued work.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from forebay.adapters.readback.base import CompletedCopy, PendingCopy, start_grouped_copies
from forebay.core.spec import Array
from forebay.errors import SpecError

__all__ = ["HostCopier", "all_finite"]

_CHECKABLE = (tf.float16, tf.bfloat16, tf.float32, tf.float64)


class HostCopier:
    """Copies tensors on a thread. Tensors do not change, so they need no copy on the device."""

    def __init__(self, limit: int) -> None:
        self._waiter: ThreadPoolExecutor | None = None

    def start_copy(self, leaves: Sequence[Any]) -> PendingCopy:
        return start_grouped_copies([_tensor(leaf) for leaf in leaves], _is_on_host, self._start_copy_from)

    def _start_copy_from(self, on_host: bool, tensors: list[Any]) -> PendingCopy:
        if on_host:
            return CompletedCopy(_arrays(tensors))
        if self._waiter is None:
            self._waiter = ThreadPoolExecutor(1, "forebay-readback")
        return _ThreadCopy(self._waiter.submit(_arrays, tensors))

    def close(self) -> None:
        if self._waiter is not None:
            self._waiter.shutdown()
            self._waiter = None


class _ThreadCopy:
    __slots__ = ("_future",)

    def __init__(self, future: Future[list[Array]]) -> None:
        self._future = future

    @property
    def has_arrived(self) -> bool:
        return self._future.done()

    def take(self) -> list[Array]:
        return self._future.result()


def all_finite(leaves: Sequence[Any]) -> Any:
    """Check the leaves, in eager code or inside a tf.function."""
    checks = [tf.reduce_all(tf.math.is_finite(part)) for leaf in leaves for part in _checkable_parts(leaf)]
    return tf.reduce_all(tf.stack(checks)) if checks else tf.constant(True)


def _tensor(leaf: Any) -> Any:
    """Return a dense tensor. A variable is read now."""
    if isinstance(leaf, tf.RaggedTensor):
        raise SpecError("NumPy has no array for a RaggedTensor. put() its to_tensor(), or its values and row_splits.")
    tensor = tf.sparse.to_dense(leaf) if isinstance(leaf, tf.SparseTensor) else tf.convert_to_tensor(leaf)
    if tf.is_symbolic_tensor(tensor):
        raise SpecError(
            "a tensor inside a tf.function has no result yet. Return it from the function, and put() the returned "
            "value."
        )
    return tensor


def _is_on_host(tensor: Any) -> bool:
    return "device:CPU" in tensor.device


def _arrays(tensors: list[Any]) -> list[Array]:
    return [np.asarray(tensor.numpy()) for tensor in tensors]


def _checkable_parts(leaf: Any) -> list[Any]:
    """Return the values that may be NaN or infinite, as real numbers that TensorFlow can check."""
    values = leaf.values if isinstance(leaf, tf.IndexedSlices | tf.SparseTensor) else leaf
    if values.dtype.is_complex:
        return [tf.math.real(values), tf.math.imag(values)]
    if not values.dtype.is_floating:
        return []
    return [values if values.dtype in _CHECKABLE else tf.cast(values, tf.float32)]
