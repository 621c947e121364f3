"""Results in device memory: copied to the host behind what their framework has queued, on a stream of our own.

The copy lands in page-locked memory that is used again and again, since only there a copy does not stop whoever asks
for it, and page-locking costs more than most results take to cross. What is handed out is ordinary memory.
"""

import mmap
import weakref
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from forebay.adapters.readback.device_readers import DeviceArray
from forebay.core.spec import HOST_ALIGNMENT, Array, align
from forebay.engines.cuda.driver import Device, Event, Stream, captures
from forebay.engines.cuda.engine import device_at
from forebay.engines.cuda.memory import LockedMemory
from forebay.errors import DeviceError

__all__ = ["DeviceReader"]


class DeviceReader:
    """Brings results of one device to the host, in the order they were asked for."""

    def __init__(self, index: int, limit: int) -> None:
        self._device, self._limit = device_at(index), limit
        self._stream = Stream(self._device)
        self._blocks: list[_Block] = []
        self._free: list[_Block] = []
        self.close = weakref.finalize(self, _close, self._device, self._stream, self._blocks)

    def fetch(self, arrays: Sequence[DeviceArray], stream: int) -> "_Copies":
        """Copy what these arrays hold once this stream has reached the point where it is now."""
        with self._device:
            if captures(stream):
                raise DeviceError(
                    "results cannot be read back from inside a CUDA graph: call put() after the graph was replayed."
                )
            block = self._take(sum(align(array.nbytes, HOST_ALIGNMENT) for array in arrays))
            views = self._copy(arrays, block, stream)
        return _Copies(self, block, views, arrays)

    def _copy(self, arrays: Sequence[DeviceArray], block: "_Block", stream: int) -> list[Array]:
        block.produced.record(stream)
        self._stream.wait_for(block.produced)
        views, offset = [], 0
        for array in arrays:
            views.append(np.ndarray(array.shape, array.dtype, buffer=block.memory.buffer, offset=offset))
            if array.nbytes:
                self._stream.download(block.memory.address + offset, array.pointer, array.nbytes)
            offset += align(array.nbytes, HOST_ALIGNMENT)
        block.arrived.record(self._stream)
        return views

    def has_arrived(self, block: "_Block") -> bool:
        with self._device:
            return block.arrived.fired

    def wait(self, block: "_Block") -> None:
        with self._device:
            block.arrived.wait()

    def give_back(self, block: "_Block") -> None:
        self._free.append(block)

    def _take(self, nbytes: int) -> "_Block":
        """The smallest free block that is large enough; a new one in place of one that is not, where there are many."""
        fitting = [block for block in self._free if block.nbytes >= nbytes]
        if fitting:
            block = min(fitting, key=lambda block: block.nbytes)
            self._free.remove(block)
            return block
        if self._free and len(self._blocks) >= self._limit:
            smallest = min(self._free, key=lambda block: block.nbytes)
            self._free.remove(smallest)
            self._blocks.remove(smallest)
            smallest.close()
        block = _Block(self._device, max(mmap.PAGESIZE, 1 << max(0, nbytes - 1).bit_length()))
        self._blocks.append(block)
        return block


class _Block:
    """Page-locked memory for one fetch at a time, with its events."""

    __slots__ = ("arrived", "memory", "nbytes", "produced")

    def __init__(self, device: Device, nbytes: int) -> None:
        self.nbytes = nbytes
        self.memory = LockedMemory(device, nbytes)
        self.produced, self.arrived = Event(device), Event(device)

    def close(self) -> None:
        self.memory.close()
        self.produced.close()
        self.arrived.close()


class _Copies:
    """What one fetch brings; the arrays on the device stay until it has."""

    __slots__ = ("_arrays", "_block", "_reader", "_views")

    def __init__(self, reader: DeviceReader, block: _Block, views: list[Array], arrays: Sequence[DeviceArray]) -> None:
        self._reader, self._block, self._views, self._arrays = reader, block, views, arrays

    @property
    def arrived(self) -> bool:
        return self._reader.has_arrived(self._block)

    def take(self) -> list[Array]:
        self._reader.wait(self._block)
        found = [view.copy() for view in self._views]
        self._reader.give_back(self._block)
        self._arrays = ()
        return found


def _close(device: Device, stream: Stream, blocks: list[_Block]) -> None:
    with suppress(DeviceError):  # a device that failed has said so to whoever waited for it
        with device:
            stream.wait()
        stream.close()
        for block in blocks:
            block.close()
