"""The hand-off to TensorFlow, which accepts only unversioned DLPack capsules."""

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from forebay.core.handoff import StreamMarker, refuse_dtypes
from forebay.core.spec import ArraySpec
from forebay.errors import DeviceError, DeviceMemoryError, FeedError

__all__ = ["TensorflowArrayOps", "TensorflowDeviceHandOff", "TensorflowHandOff"]

OUTSIDE_POOL_NBYTES = 5 << 29  # 2.5 GiB of device memory that TensorFlow leaves to contexts, kernels and libraries

_from_dlpack = tf.experimental.dlpack.from_dlpack
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)


class TensorflowHandOff:
    """Hands off eager tensors that use the slot's memory.

    The DLPack capsule of NumPy keeps the root alive.
    """

    name = "tensorflow"

    def framework_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        return dtype

    def check(self, specs: Sequence[ArraySpec], names: Sequence[str]) -> None:
        refuse_dtypes("TensorFlow", specs, names, supported_kinds="biufc")

    def hand_off(self, roots: Sequence[Any]) -> list[Any]:
        return [_from_dlpack(root.__dlpack__()) for root in roots]

    def refuse_tracing(self) -> None:
        """Raise FeedError while TensorFlow traces a function.

        The graph of the function would hold the batch as a constant.
        """
        if not tf.executing_eagerly() and tf.inside_function():  # under init_scope(), both are True
            raise FeedError(
                "a feed was iterated inside a tf.function, whose graph would reuse the first batches forever. Iterate "
                "the feed outside, and pass batches to the function."
            )

    def to_sparse(self, values: Any, columns: Any, counts: Any, width: int) -> Any:
        with tf.device(values.device):
            # Use 64-bit integers: TensorFlow compares and stacks them on a GPU, but 32-bit integers only on the host.
            is_value = tf.sequence_mask(tf.cast(counts, tf.int64), tf.constant(values.shape[1], tf.int64))
            rows = tf.where(is_value)[:, 0]
            indices = tf.stack([rows, tf.cast(columns[is_value], tf.int64)], axis=-1)
            return tf.SparseTensor(indices, values[is_value], (len(values), width))

    def join_ragged(self, values: Any, offsets: Any) -> Any:
        return tf.RaggedTensor.from_row_splits(values, offsets, validate=False)

    def cast(self, array: Any, dtype: np.dtype[Any]) -> Any:
        return tf.cast(array, tf.as_dtype(dtype))

    def array_ops(self) -> "TensorflowArrayOps":
        return TensorflowArrayOps()

    def for_device(self, index: int | None) -> "TensorflowDeviceHandOff":
        return TensorflowDeviceHandOff(index)


class TensorflowDeviceHandOff(TensorflowHandOff):
    """Hands off eager tensors on a GPU.

    TensorFlow does not report its stream. So the consumer's thread waits until the rows have arrived on the device. A
    stream marker shows the progress of TensorFlow's stream: TensorFlow increments a counter in device memory, in place
    and on its only compute stream.
    """

    syncs_on_import = False

    def __init__(self, index: int | None) -> None:
        devices = tf.config.list_logical_devices("GPU")
        index = index or 0
        if index >= len(devices):
            advice = "Pass one of them" if devices else "Install tensorflow[and-cuda]"
            raise DeviceError(
                f"TensorFlow finds no GPU:{index}. It finds {len(devices)} GPUs. {advice}, or pass device='cpu'."
            )
        self.index = index
        self._device_name = devices[index].name
        self._lock = threading.Lock()
        self._counter: Any = None
        self._value = 0  # value of the counter after all queued increments

    def allocate(self, nbytes: int) -> tuple[int, Any]:
        try:
            with tf.device(self._device_name):
                # Use two axes, because TensorFlow limits the length of an axis to 32 bits.
                owner = tf.raw_ops.Empty(shape=[-(-nbytes // 256), 256], dtype=tf.uint8, init=False)
        except tf.errors.ResourceExhaustedError as error:
            raise DeviceMemoryError(
                f"TensorFlow could not allocate {nbytes} bytes on GPU:{self.index}. Make batches smaller, or free "
                f"device memory. TensorFlow reports: {error}"
            ) from error
        return _device_address(owner), owner

    def available(self, free: int, total: int) -> int:
        """Return how many bytes TensorFlow's pool can still allocate.

        TensorFlow reserves nearly all device memory at first use, unless memory growth is enabled.
        """
        in_use = int(tf.config.experimental.get_memory_info(f"GPU:{self.index}")["current"])
        physical = tf.config.list_physical_devices("GPU")[self.index]
        limits = [config.memory_limit for config in tf.config.get_logical_device_configuration(physical) or ()]
        if limits and limits[0] is not None:
            return int(limits[0] * 2**20 - in_use)  # limits are in MiB
        growth_forced = os.environ.get("TF_FORCE_GPU_ALLOW_GROWTH") == "true"
        if growth_forced or tf.config.experimental.get_memory_growth(physical):
            return free
        return max(0, total - OUTSIDE_POOL_NBYTES - in_use)

    def stream(self) -> None:
        return None

    def record_stream(self, owner: Any) -> None:
        """Do nothing; the engine does not call this, because `stream` returns None."""

    def mark(self) -> StreamMarker:
        """Queue an increment of the counter, and return the marker.

        `init_scope` makes the increment eager, so that it never becomes a node of a graph.
        """
        with self._lock, tf.init_scope(), tf.device(self._device_name):
            if self._counter is None:
                self._counter = tf.raw_ops.Fill(dims=[1, 1], value=tf.constant(0, tf.int64))
                self._one = tf.raw_ops.Fill(dims=[1, 1], value=tf.constant(1, tf.int64))
                self._row_zero = tf.constant([0], tf.int32)
                self._pointer = _device_address(self._counter)
            tf.raw_ops.InplaceAdd(x=self._counter, i=self._row_zero, v=self._one)
            self._value += 1
            return StreamMarker(self._pointer, self._value & 0xFFFFFFFF)  # the engine waits for a 32-bit value

    def to_dense(self, values: Any, columns: Any, width: int) -> Any:
        with tf.device(values.device):
            # Use 64-bit integers: TensorFlow stacks them on a GPU, but 32-bit integers only on the host.
            rows = tf.broadcast_to(tf.range(len(values), dtype=tf.int64)[:, None], columns.shape)
            indices = tf.stack([rows, tf.cast(columns, tf.int64)], axis=-1)
            zeros = tf.zeros((len(values), width), values.dtype)
            return tf.tensor_scatter_nd_update(zeros, indices, values)

    def hand_off(self, roots: Sequence[Any]) -> list[Any]:
        return [_from_dlpack(root.capsule()) for root in roots]


class TensorflowArrayOps:
    """Array operations of TensorFlow. `ArrayOps` documents the methods."""

    minimum = staticmethod(tf.minimum)
    maximum = staticmethod(tf.maximum)
    floor = staticmethod(tf.floor)
    where = staticmethod(tf.where)

    def dtype_name(self, array: Any) -> str:
        return str(array.dtype.name)

    def upload(self, array: Any, like: Any) -> Any:
        if isinstance(like, tf.Tensor) and tf.executing_eagerly():
            with tf.device(like.device):
                return tf.identity(array)
        return tf.constant(array)

    def to_float(self, array: Any) -> Any:
        return tf.cast(array, tf.float32)

    def to_integer(self, array: Any) -> Any:
        return tf.cast(array, tf.int64)  # TensorFlow computes with 32-bit integers only on the host

    def cast(self, array: Any, dtype: np.dtype[Any]) -> Any:
        return tf.cast(array, tf.as_dtype(dtype))

    def gather(self, array: Any, indices: Any, axis: int) -> Any:
        return tf.gather(array, indices, axis=axis, batch_dims=1)

    def clip(self, array: Any, low: float, high: float | None = None) -> Any:
        at_least = tf.maximum(array, tf.cast(low, array.dtype))
        return at_least if high is None else tf.minimum(at_least, tf.cast(high, array.dtype))

    def flip(self, array: Any, axis: int) -> Any:
        return tf.reverse(array, (axis,))

    def concatenate(self, arrays: Sequence[Any]) -> Any:
        return tf.concat(list(arrays), axis=-1)

    def mean(self, array: Any) -> Any:
        return tf.reduce_mean(array, axis=(1, 2, 3), keepdims=True)

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return tf.function(function)  # type: ignore[no-any-return]  # TensorFlow is untyped here


def _device_address(tensor: Any) -> int:
    """Return the device address of a tensor, from its DLPack capsule."""
    capsule = tf.experimental.dlpack.to_dlpack(tensor)
    # The data pointer is the first field of the DLManagedTensor.
    pointer = ctypes.c_uint64.from_address(_capsule_pointer(capsule, b"dltensor")).value
    _from_dlpack(capsule)  # consumes the capsule, whose memory would leak otherwise
    return int(pointer)
