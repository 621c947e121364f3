"""Read-back from a GPU, on a stream that waits for the framework's queued work.

The device copies into page-locked memory, because any other copy would block the caller. Forebay reuses that memory,
because page-locking takes longer than most copies. The caller gets a second copy in ordinary memory.
"""

import mmap
import weakref
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from forebay.adapters.readback.device_readers import DeviceArray
from forebay.core.spec import HOST_ALIGNMENT, Array, align
from forebay.engines.cuda.driver import Device, Event, Stream, is_capturing
from forebay.engines.cuda.engine import device_at
from forebay.engines.cuda.memory import PageLockedMemory
from forebay.errors import DeviceError

__all__ = ["DeviceReader"]


class DeviceReader:
    """Copies results of one device to the host, in the order of `start_copy` calls."""

    def __init__(self, index: int, limit: int) -> None:
        self._device, self._limit = device_at(index), limit
        self._stream = Stream(self._device)
        self._blocks: list[_Block] = []
        self._free: list[_Block] = []
        self.close = weakref.finalize(self, _close, self._device, self._stream, self._blocks)

    def start_copy(self, arrays: Sequence[DeviceArray], stream: int) -> "_BlockCopy":
        """Copy the arrays as they are after all work that is now queued on the stream."""
        with self._device:
            if is_capturing(stream):
                raise DeviceError(
                    "results cannot be read back while a CUDA graph is captured. Call put() after its replay."
                )
            block = self._take(sum(align(array.nbytes, HOST_ALIGNMENT) for array in arrays))
            views = self._copy(arrays, block, stream)
        return _BlockCopy(self, block, views, arrays)

    def _copy(self, arrays: Sequence[DeviceArray], block: "_Block", stream: int) -> list[Array]:
        block.produced.record(stream)
        self._stream.wait_for(block.produced)
        views, offset = [], 0
        for array in arrays:
            views.append(np.ndarray(array.shape, array.dtype, buffer=block.memory.buffer, offset=offset))
            if array.nbytes:
                self._stream.download(block.memory.address + offset, array.pointer, array.nbytes)
            offset += align(array.nbytes, HOST_ALIGNMENT)
        block.copied.record(self._stream)
        return views

    def has_arrived(self, block: "_Block") -> bool:
        with self._device:
            return block.copied.has_fired

    def wait(self, block: "_Block") -> None:
        with self._device:
            block.copied.wait()

    def give_back(self, block: "_Block") -> None:
        self._free.append(block)

    def _take(self, nbytes: int) -> "_Block":
        """Return the smallest free block that is large enough, or a new one.

        At the limit, the new block replaces the smallest free one.
        """
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
    """Page-locked memory for one copy at a time, with its events."""

    __slots__ = ("copied", "memory", "nbytes", "produced")

    def __init__(self, device: Device, nbytes: int) -> None:
        self.nbytes = nbytes
        self.memory = PageLockedMemory(device, nbytes)
        self.produced, self.copied = Event(device), Event(device)

    def close(self) -> None:
        self.memory.close()
        self.produced.close()
        self.copied.close()


class _BlockCopy:
    """One copy to the host. It keeps the arrays on the device alive until it is taken."""

    __slots__ = ("_arrays", "_block", "_reader", "_views")

    def __init__(self, reader: DeviceReader, block: _Block, views: list[Array], arrays: Sequence[DeviceArray]) -> None:
        self._reader, self._block, self._views, self._arrays = reader, block, views, arrays

    @property
    def has_arrived(self) -> bool:
        return self._reader.has_arrived(self._block)

    def take(self) -> list[Array]:
        self._reader.wait(self._block)
        results = [view.copy() for view in self._views]
        self._reader.give_back(self._block)
        self._arrays = ()
        return results


def _close(device: Device, stream: Stream, blocks: list[_Block]) -> None:
    with suppress(DeviceError):  # the code that waited for the device has raised this error already
        with device:
            stream.wait()
        stream.close()
        for block in blocks:
            block.close()
