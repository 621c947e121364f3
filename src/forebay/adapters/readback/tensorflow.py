"""Read-back and check for finite values for TensorFlow.

TensorFlow copies a tensor to the host only while a thread waits for the copy. So a thread of Forebay waits, without the
GIL. Forebay cannot make the copy itself: TensorFlow does not report its stream, and returns the address of a tensor
only after the device has done all queued work.
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

# floating-point dtypes that tf.math.is_finite accepts
_CHECKABLE_DTYPES = (tf.float16, tf.bfloat16, tf.float32, tf.float64)


class HostCopier:
    """Copies device tensors on a thread of Forebay, and host tensors at once.

    Tensors are immutable, so there is no need to copy them on the device first.
    """

    def __init__(self, max_copies: int) -> None:  # unused: TensorFlow manages the memory of its copies
        self._copy_thread: ThreadPoolExecutor | None = None

    def start_copy(self, leaves: Sequence[Any]) -> PendingCopy:
        return start_grouped_copies([_as_dense_tensor(leaf) for leaf in leaves], _is_on_host, self._start_tensor_copy)

    def _start_tensor_copy(self, is_on_host: bool, tensors: list[Any]) -> PendingCopy:
        if is_on_host:
            return CompletedCopy(_as_arrays(tensors))
        if self._copy_thread is None:
            self._copy_thread = ThreadPoolExecutor(1, "forebay-readback")
        return _ThreadCopy(self._copy_thread.submit(_as_arrays, tensors))

    def close(self) -> None:
        if self._copy_thread is not None:
            self._copy_thread.shutdown()
            self._copy_thread = None


class _ThreadCopy:
    """A copy that runs on the thread of a `HostCopier`."""

    __slots__ = ("_future",)

    def __init__(self, future: Future[list[Array]]) -> None:
        self._future = future

    @property
    def has_arrived(self) -> bool:
        return self._future.done()

    def take(self) -> list[Array]:
        return self._future.result()


def all_finite(leaves: Sequence[Any]) -> Any:
    """Return whether all values are finite, in eager code or inside a tf.function."""
    checks = [tf.reduce_all(tf.math.is_finite(part)) for leaf in leaves for part in _checkable_parts(leaf)]
    return tf.reduce_all(tf.stack(checks)) if checks else tf.constant(True)


def _as_dense_tensor(leaf: Any) -> Any:
    """Return a dense tensor with the current value of a leaf, such as a variable."""
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


def _as_arrays(tensors: list[Any]) -> list[Array]:
    return [np.asarray(tensor.numpy()) for tensor in tensors]


def _checkable_parts(leaf: Any) -> list[Any]:
    """Return the values that may be NaN or infinite, as tensors of `_CHECKABLE_DTYPES`."""
    values = leaf.values if isinstance(leaf, tf.IndexedSlices | tf.SparseTensor) else leaf
    if values.dtype.is_complex:
        return [tf.math.real(values), tf.math.imag(values)]
    if not values.dtype.is_floating:
        return []
    return [values if values.dtype in _CHECKABLE_DTYPES else tf.cast(values, tf.float32)]
