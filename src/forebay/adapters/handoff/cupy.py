"""Hand-off to CuPy, which has arrays on devices only."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import cupy as cp
import numpy as np

from forebay.core.handoff import Mark, refuse_dtypes
from forebay.core.spec import ArraySpec
from forebay.errors import DeviceError, DeviceMemoryError

__all__ = ["CupyDeviceHandOff", "CupyHandOff"]


class CupyHandOff:
    """CuPy without a GPU is nothing to hand to."""

    name = "cupy"

    def held_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        return dtype

    def check(self, specs: Sequence[ArraySpec], names: Sequence[str]) -> None:
        refuse_dtypes("CuPy", specs, names, "biufc")

    def hand_off(self, roots: Sequence[Any]) -> list[Any]:
        raise DeviceError("CuPy has no arrays in host memory: feed('numpy') on a machine without a GPU.")

    def on_device(self, index: int | None) -> "CupyDeviceHandOff":
        return CupyDeviceHandOff(index)


class CupyDeviceHandOff(CupyHandOff):
    """Arrays on a GPU; CuPy says on which stream each thread works."""

    waits_on_import = False

    def __init__(self, index: int | None) -> None:
        try:
            count = cp.cuda.runtime.getDeviceCount()
        except cp.cuda.runtime.CUDARuntimeError as error:
            raise DeviceError(f"CuPy sees no GPU: {error}. Feed 'numpy' instead.") from error
        if (index or 0) >= count:
            raise DeviceError(f"CuPy sees no device cuda:{index}: it sees {count} GPUs.")
        self.index = int(cp.cuda.runtime.getDevice()) if index is None else index

    def allocate(self, nbytes: int) -> tuple[int, Any]:
        try:
            with cp.cuda.Device(self.index), cp.cuda.Stream.null:
                owner = _Owner(cp.cuda.alloc(nbytes))
        except cp.cuda.memory.OutOfMemoryError as error:
            raise DeviceMemoryError(f"CuPy has no {nbytes} bytes left on cuda:{self.index}: {error}") from error
        return int(owner.memory.ptr), owner

    def available(self, free: int, total: int) -> int:
        with cp.cuda.Device(self.index):
            return free + int(cp.get_default_memory_pool().free_bytes())

    def stream(self) -> int:
        with cp.cuda.Device(self.index):
            return int(cp.cuda.get_current_stream().ptr)

    def keep_for(self, owner: "_Owner") -> Any:
        """CuPy destroys a stream with its last reference, and its pool knows only the stream it allocates on."""
        with cp.cuda.Device(self.index):
            stream = cp.cuda.get_current_stream()
        if stream.ptr:
            owner.streams[stream.ptr] = stream
        return stream

    def mark(self) -> Mark:
        raise AssertionError("CuPy tells its stream")

    def cast(self, array: Any, dtype: np.dtype[Any]) -> Any:
        return array.astype(dtype, copy=False)

    def hand_off(self, roots: Sequence[Any]) -> list[Any]:
        return [cp.from_dlpack(root) for root in roots]


class _Owner:
    """Memory of CuPy's pool, given back only behind what other streams have queued on it."""

    def __init__(self, memory: Any) -> None:
        self.memory, self.streams = memory, dict[int, Any]()

    def __del__(self) -> None:
        with suppress(Exception):  # the interpreter may be on its way out
            for stream in self.streams.values():
                cp.cuda.Stream.null.wait_event(stream.record())
