"""Results in TensorFlow, which tells no stream and copies to the host only while somebody waits.

So a thread waits, without the interpreter. Asking for a tensor's address instead, to copy it ourselves, would stop the
caller until the device has done all that was ever queued.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from forebay.adapters.readback.base import Arrived, Pending, fetch_grouped
from forebay.core.spec import Array
from forebay.errors import SpecError

__all__ = ["Fetcher", "all_finite"]

_CHECKABLE = (tf.float16, tf.bfloat16, tf.float32, tf.float64)


class Fetcher:
    """Tensors do not change, so nothing is copied on the device; variables are read at once."""

    def __init__(self, limit: int) -> None:
        self._waiter: ThreadPoolExecutor | None = None

    def fetch(self, leaves: Sequence[Any]) -> Pending:
        return fetch_grouped([_tensor(leaf) for leaf in leaves], _on_host, self._fetch_from)

    def _fetch_from(self, on_host: bool, tensors: list[Any]) -> Pending:
        if on_host:
            return Arrived(_arrays(tensors))
        if self._waiter is None:
            self._waiter = ThreadPoolExecutor(1, "forebay-readback")
        return _Waiting(self._waiter.submit(_arrays, tensors))

    def close(self) -> None:
        if self._waiter is not None:
            self._waiter.shutdown()
            self._waiter = None


class _Waiting:
    __slots__ = ("_future",)

    def __init__(self, future: Future[list[Array]]) -> None:
        self._future = future

    @property
    def arrived(self) -> bool:
        return self._future.done()

    def take(self) -> list[Array]:
        return self._future.result()


def all_finite(leaves: Sequence[Any]) -> Any:
    """In eager code or inside a tf.function."""
    checks = [tf.reduce_all(tf.math.is_finite(part)) for leaf in leaves for part in _floats(leaf)]
    return tf.reduce_all(tf.stack(checks)) if checks else tf.constant(True)


def _tensor(leaf: Any) -> Any:
    if isinstance(leaf, tf.RaggedTensor):
        raise SpecError("NumPy has no array for a RaggedTensor: put() its to_tensor(), or its values and row_splits.")
    tensor = tf.sparse.to_dense(leaf) if isinstance(leaf, tf.SparseTensor) else tf.convert_to_tensor(leaf)
    if tf.is_symbolic_tensor(tensor):
        raise SpecError(
            "a tensor inside a tf.function has no result yet: return it from the function, and put() what comes out."
        )
    return tensor


def _on_host(tensor: Any) -> bool:
    return "device:CPU" in tensor.device


def _arrays(tensors: list[Any]) -> list[Array]:
    return [np.asarray(tensor.numpy()) for tensor in tensors]


def _floats(leaf: Any) -> list[Any]:
    """The values that can be anything but finite, as real numbers that can be checked."""
    values = leaf.values if isinstance(leaf, tf.IndexedSlices | tf.SparseTensor) else leaf
    if values.dtype.is_complex:
        return [tf.math.real(values), tf.math.imag(values)]
    if not values.dtype.is_floating:
        return []
    return [values if values.dtype in _CHECKABLE else tf.cast(values, tf.float32)]
