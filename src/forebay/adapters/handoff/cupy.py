"""The hand-off to CuPy, whose arrays are always on a device."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import cupy as cp
import numpy as np

from forebay.core.array_ops import NumpyArrayOps
from forebay.core.handoff import StreamMarker, refuse_dtypes
from forebay.core.spec import ArraySpec
from forebay.errors import DeviceError, DeviceMemoryError

__all__ = ["CupyDeviceHandOff", "CupyHandOff"]


class CupyHandOff:
    """The hand-off before a device is chosen.

    `hand_off` raises an error, because CuPy has no arrays on the host.
    """

    name = "cupy"

    def framework_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        return dtype

    def check(self, specs: Sequence[ArraySpec], names: Sequence[str]) -> None:
        refuse_dtypes("CuPy", specs, names, supported_kinds="biufc")

    def hand_off(self, roots: Sequence[Any]) -> list[Any]:
        raise DeviceError("CuPy has no arrays in host memory. Use feed('numpy') on a machine without a GPU.")

    def for_device(self, index: int | None) -> "CupyDeviceHandOff":
        return CupyDeviceHandOff(index)


class CupyDeviceHandOff(CupyHandOff):
    """Hands off arrays on a GPU. CuPy reports the current stream of each thread."""

    syncs_on_import = False

    def __init__(self, index: int | None) -> None:
        try:
            count = cp.cuda.runtime.getDeviceCount()
        except cp.cuda.runtime.CUDARuntimeError as error:
            raise DeviceError(f"CuPy finds no GPU: {error}. Use feed('numpy').") from error
        if (index or 0) >= count:
            raise DeviceError(f"CuPy finds no device cuda:{index or 0}. It finds {count} GPUs. Pass one of them.")
        self.index = int(cp.cuda.runtime.getDevice()) if index is None else index

    def allocate(self, nbytes: int) -> tuple[int, Any]:
        try:
            with cp.cuda.Device(self.index), cp.cuda.Stream.null:
                owner = _PoolMemory(cp.cuda.alloc(nbytes))
        except cp.cuda.memory.OutOfMemoryError as error:
            raise DeviceMemoryError(
                f"CuPy could not allocate {nbytes} bytes on cuda:{self.index}. Make batches smaller, or free device "
                f"memory. CuPy reports: {error}"
            ) from error
        return int(owner.memory.ptr), owner

    def available(self, free: int, total: int) -> int:
        with cp.cuda.Device(self.index):
            return free + int(cp.get_default_memory_pool().free_bytes())

    def stream(self) -> int:
        with cp.cuda.Device(self.index):
            return int(cp.cuda.get_current_stream().ptr)

    def record_stream(self, owner: "_PoolMemory") -> Any:
        """Record that the current stream uses the memory, and return the stream.

        CuPy's pool itself waits only for the stream on which the memory was allocated. CuPy destroys a stream when its
        last reference is dropped, so the caller keeps the returned stream.
        """
        with cp.cuda.Device(self.index):
            stream = cp.cuda.get_current_stream()
        if stream.ptr:
            owner.streams[stream.ptr] = stream
        return stream

    def mark(self) -> StreamMarker:
        raise AssertionError("mark() must not be called: stream() returns CuPy's stream")

    def cast(self, array: Any, dtype: np.dtype[Any]) -> Any:
        return array.astype(dtype, copy=False)

    def to_dense(self, values: Any, columns: Any, width: int) -> Any:
        dense = cp.zeros((len(values), width), values.dtype)
        dense[cp.arange(len(values))[:, None], columns] = values
        return dense

    def to_sparse(self, values: Any, columns: Any, counts: Any, width: int) -> Any:
        from cupyx.scipy.sparse import csr_matrix

        is_value = cp.arange(values.shape[1]) < counts[:, None]
        starts = cp.concatenate((cp.zeros(1, np.int32), cp.cumsum(counts, dtype=np.int32)))
        return csr_matrix((values[is_value], columns[is_value], starts), shape=(len(values), width))

    def array_ops(self) -> NumpyArrayOps:
        return NumpyArrayOps(cp)

    def hand_off(self, roots: Sequence[Any]) -> list[Any]:
        return [cp.from_dlpack(root) for root in roots]


class _PoolMemory:
    """Memory from CuPy's pool.

    When this object is deleted, the null stream waits for all streams that used the memory. So the pool reuses the
    memory only after the queued work of these streams.
    """

    def __init__(self, memory: Any) -> None:
        self.memory, self.streams = memory, dict[int, Any]()

    def __del__(self) -> None:
        with suppress(Exception):  # the interpreter may be shutting down
            for stream in self.streams.values():
                cp.cuda.Stream.null.wait_event(stream.record())
