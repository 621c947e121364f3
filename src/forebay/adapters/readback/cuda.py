"""Read-back from a GPU, on a stream that waits for the framework's queued work.

The device copies arrays into blocks of page-locked memory, because a copy to other memory would block the caller.
Forebay reuses the blocks, because page-locking takes longer than most copies. So `take` returns a second copy, which
is in ordinary memory.
"""

import mmap
import weakref
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from forebay.adapters.readback.base import DeviceArray
from forebay.core.spec import HOST_ALIGNMENT, Array, align
from forebay.engines.cuda.driver import Device, Event, Stream, is_capturing
from forebay.engines.cuda.engine import device_at
from forebay.engines.cuda.memory import PageLockedMemory
from forebay.errors import DeviceError

__all__ = ["DeviceReader"]


class DeviceReader:
    """Copies arrays of one GPU to the host, in the order of `start_copy` calls."""

    def __init__(self, index: int, max_copies: int) -> None:
        """Prepare for at most `max_copies` pending copies at a time from one GPU."""
        self._device, self._max_blocks = device_at(index), max_copies
        self._stream = Stream(self._device)
        self._blocks: list[_PageLockedBlock] = []
        self._free_blocks: list[_PageLockedBlock] = []
        self.close = weakref.finalize(self, _close, self._device, self._stream, self._blocks)

    def start_copy(self, arrays: Sequence[DeviceArray], stream: int) -> "_PageLockedCopy":
        """Start to copy arrays after all work that is queued on `stream`."""
        with self._device:
            if is_capturing(stream):
                raise DeviceError(
                    "results cannot be read back while a CUDA graph is captured. Call put() after the graph's replay."
                )
            block = self._take_block(sum(align(array.nbytes, HOST_ALIGNMENT) for array in arrays))
            views = self._queue_copies(arrays, block, stream)
        return _PageLockedCopy(self, block, views, arrays)

    def _queue_copies(self, arrays: Sequence[DeviceArray], block: "_PageLockedBlock", stream: int) -> list[Array]:
        """Queue copies into a block, and return one view of the block per array."""
        block.source_ready.record(stream)
        self._stream.wait_for(block.source_ready)
        views, offset = [], 0
        for array in arrays:
            views.append(np.ndarray(array.shape, array.dtype, buffer=block.memory.buffer, offset=offset))
            if array.nbytes:
                self._stream.download(block.memory.address + offset, array.pointer, array.nbytes)
            offset += align(array.nbytes, HOST_ALIGNMENT)
        block.copy_done.record(self._stream)
        return views

    def has_arrived(self, block: "_PageLockedBlock") -> bool:
        """Return whether the copy into the block is done."""
        with self._device:
            return block.copy_done.has_fired

    def wait(self, block: "_PageLockedBlock") -> None:
        """Wait until the copy into the block is done."""
        with self._device:
            block.copy_done.wait()

    def return_block(self, block: "_PageLockedBlock") -> None:
        """Make a block available for the next copy."""
        self._free_blocks.append(block)

    def _take_block(self, nbytes: int) -> "_PageLockedBlock":
        """Return the smallest free block that is large enough, or a new block.

        If there are `_max_blocks` blocks already, the new block replaces the smallest free block.
        """
        large_enough = [block for block in self._free_blocks if block.nbytes >= nbytes]
        if large_enough:
            block = min(large_enough, key=lambda block: block.nbytes)
            self._free_blocks.remove(block)
            return block
        if self._free_blocks and len(self._blocks) >= self._max_blocks:
            smallest = min(self._free_blocks, key=lambda block: block.nbytes)
            self._free_blocks.remove(smallest)
            self._blocks.remove(smallest)
            smallest.close()
        power_of_two = 1 << max(0, nbytes - 1).bit_length()  # later copies of similar size fit into the block
        block = _PageLockedBlock(self._device, max(mmap.PAGESIZE, power_of_two))
        self._blocks.append(block)
        return block


class _PageLockedBlock:
    """Page-locked memory for one copy at a time, with the events of that copy."""

    __slots__ = ("copy_done", "memory", "nbytes", "source_ready")

    def __init__(self, device: Device, nbytes: int) -> None:
        self.nbytes = nbytes
        self.memory = PageLockedMemory(device, nbytes)
        self.source_ready = Event(device)  # fires when the framework has computed the arrays
        self.copy_done = Event(device)  # fires when the arrays are in the block

    def close(self) -> None:
        self.memory.close()
        self.source_ready.close()
        self.copy_done.close()


class _PageLockedCopy:
    """A copy of arrays into a block.

    It keeps the arrays on the device alive until `take`.
    """

    __slots__ = ("_arrays", "_block", "_reader", "_views")

    def __init__(
        self, reader: DeviceReader, block: _PageLockedBlock, views: list[Array], arrays: Sequence[DeviceArray]
    ) -> None:
        self._reader, self._block, self._views, self._arrays = reader, block, views, arrays

    @property
    def has_arrived(self) -> bool:
        return self._reader.has_arrived(self._block)

    def take(self) -> list[Array]:
        self._reader.wait(self._block)
        results = [view.copy() for view in self._views]
        self._reader.return_block(self._block)
        self._arrays = ()
        return results


def _close(device: Device, stream: Stream, blocks: list[_PageLockedBlock]) -> None:
    with suppress(DeviceError):  # `take` has raised an error of the device already
        with device:
            stream.wait()
        stream.close()
        for block in blocks:
            block.close()
