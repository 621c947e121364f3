"""Hand-off to TensorFlow: by DLPack, in the old form without a version, which is the only one it takes."""

import ctypes
import os
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from forebay.core.handoff import Mark, refuse_dtypes
from forebay.core.spec import ArraySpec
from forebay.errors import DeviceError, DeviceMemoryError, FeedError

__all__ = ["TensorflowDeviceHandOff", "TensorflowHandOff"]

OUTSIDE_POOL_NBYTES = 5 << 29  # of a device TensorFlow has to itself: contexts, kernels, libraries

_from_dlpack = tf.experimental.dlpack.from_dlpack
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)


class TensorflowHandOff:
    """Eager tensors over the slot; NumPy's own exporter holds the root until TensorFlow gives it back."""

    name = "tensorflow"

    def held_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        return dtype

    def check(self, specs: Sequence[ArraySpec], names: Sequence[str]) -> None:
        refuse_dtypes("TensorFlow", specs, names, "biufc")

    def hand_off(self, roots: Sequence[Any]) -> list[Any]:
        _refuse_tracing()
        return [_from_dlpack(root.__dlpack__()) for root in roots]

    def on_device(self, index: int | None) -> "TensorflowDeviceHandOff":
        return TensorflowDeviceHandOff(index)


class TensorflowDeviceHandOff(TensorflowHandOff):
    """Eager tensors on a GPU. TensorFlow tells no stream: arrivals are waited for here, and a mark says how far it got.

    The mark is a counter that TensorFlow itself adds one to, in place, on the one stream it computes on.
    """

    waits_on_import = False

    def __init__(self, index: int | None) -> None:
        found = tf.config.list_logical_devices("GPU")
        index = index or 0
        if index >= len(found):
            raise DeviceError(
                f"TensorFlow sees no GPU:{index}: it sees {len(found)}. Install tensorflow[and-cuda], or pass "
                "device='cpu'."
            )
        self.index = index
        self._where = found[index].name
        self._lock = threading.Lock()
        self._counter: Any = None
        self._value = 0

    def allocate(self, nbytes: int) -> tuple[int, Any]:
        try:
            with tf.device(self._where):
                # In two axes, since an axis has 32 bits.
                owner = tf.raw_ops.Empty(shape=[-(-nbytes // 256), 256], dtype=tf.uint8, init=False)
        except tf.errors.ResourceExhaustedError as error:
            raise DeviceMemoryError(f"TensorFlow has no {nbytes} bytes left on GPU:{self.index}: {error}") from error
        return _pointer(owner), owner

    def available(self, free: int, total: int) -> int:
        """What its pool may still give: nearly all of the device, taken at first use, unless it was told to grow."""
        in_use = int(tf.config.experimental.get_memory_info(f"GPU:{self.index}")["current"])
        physical = tf.config.list_physical_devices("GPU")[self.index]
        limits = [made.memory_limit for made in tf.config.get_logical_device_configuration(physical) or ()]
        if limits and limits[0] is not None:
            return int(limits[0] * 2**20 - in_use)
        grows = os.environ.get("TF_FORCE_GPU_ALLOW_GROWTH") == "true"
        if grows or tf.config.experimental.get_memory_growth(physical):
            return free
        return max(0, total - OUTSIDE_POOL_NBYTES - in_use)

    def stream(self) -> None:
        return None

    def keep_for(self, owner: Any) -> None:
        """Never asked: TensorFlow computes on one stream, and tells none."""

    def mark(self) -> Mark:
        with self._lock, tf.init_scope(), tf.device(self._where):  # never a node of somebody's graph
            if self._counter is None:
                self._counter = tf.raw_ops.Fill(dims=[1, 1], value=tf.constant(0, tf.int64))
                self._one = tf.raw_ops.Fill(dims=[1, 1], value=tf.constant(1, tf.int64))
                self._first = tf.constant([0], tf.int32)
                self._pointer = _pointer(self._counter)
            tf.raw_ops.InplaceAdd(x=self._counter, i=self._first, v=self._one)
            self._value += 1
            return Mark(self._pointer, self._value & 0xFFFFFFFF)

    def cast(self, array: Any, dtype: np.dtype[Any]) -> Any:
        return tf.cast(array, tf.as_dtype(dtype))

    def hand_off(self, roots: Sequence[Any]) -> list[Any]:
        _refuse_tracing()
        return [_from_dlpack(root.capsule()) for root in roots]


def _refuse_tracing() -> None:
    """What is taken while a function is traced becomes a constant of its graph."""
    if not tf.executing_eagerly() and tf.inside_function():  # init_scope() is eager, and still counts as inside
        raise FeedError(
            "a feed was iterated inside a tf.function, whose graph would hold its first batches for ever: take "
            "batches outside, and pass them to the function."
        )


def _pointer(tensor: Any) -> int:
    """Where a tensor lies, asked through DLPack."""
    capsule = tf.experimental.dlpack.to_dlpack(tensor)
    pointer = ctypes.c_uint64.from_address(_capsule_pointer(capsule, b"dltensor")).value
    _from_dlpack(capsule)  # whoever made it takes it back
    return int(pointer)
