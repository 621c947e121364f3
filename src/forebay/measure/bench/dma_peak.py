"""`DmaCopies`: driver copies of page-locked memory, which show the highest speed of the link."""

from collections.abc import Iterator
from time import perf_counter
from types import TracebackType
from typing import Any

import numpy as np

from forebay.engines.cuda.driver import Device, Event, Stream
from forebay.measure.bench.model import Skip

__all__ = ["DmaCopies", "open_device"]


def open_device() -> Device:
    """Open the first GPU, or skip the entry if there is none."""
    try:
        return Device()
    except RuntimeError as error:  # there is no GPU or no driver
        raise Skip(str(error)) from error


class DmaCopies:
    """Copies blocks of a page-locked array to the device without a gap between two copies.

    Two device buffers are used in turn: one receives a block while the caller reads the other.
    """

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._device, self._array = open_device(), array
        self._device.page_lock(array.ctypes.data, array.nbytes)
        self._stream = Stream(self._device)
        self._events = [Event(self._device), Event(self._device)]
        self._buffers: list[int] = []

    def copy_blocks(self, nbytes: int, count: int) -> Iterator[int]:
        """Yield the device address of each block after its arrival.

        Use a block before you continue the iteration, because a later copy overwrites it. All calls must pass the same
        `nbytes`.
        """
        if not self._buffers:
            self._buffers = [self._device.allocate(nbytes) for _ in self._events]
        for number in range(count):
            self._enqueue(number, nbytes)
            if number:
                yield self._wait_for(number - 1)
        yield self._wait_for(count - 1)

    def seconds_per_block(self, nbytes: int, count: int) -> float:
        """Copy `count` blocks without gaps, and return the mean seconds per block."""
        list(self.copy_blocks(nbytes, 2))
        start = perf_counter()
        for _ in self.copy_blocks(nbytes, count):
            pass
        return (perf_counter() - start) / count

    def download(self, address: int, out: np.ndarray[Any, Any]) -> None:
        """Copy device memory to a host array, and wait for the copy."""
        with self._device:
            self._stream.download(out.ctypes.data, address, out.nbytes)
            self._stream.wait()

    def close(self) -> None:
        with self._device:
            self._stream.wait()
        for address in self._buffers:
            self._device.free(address)
        self._device.page_unlock(self._array.ctypes.data)
        for event in self._events:
            event.close()
        self._stream.close()

    def __enter__(self) -> "DmaCopies":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _enqueue(self, number: int, nbytes: int) -> None:
        start = number % (self._array.nbytes // nbytes) * nbytes
        with self._device:
            self._stream.upload(self._buffers[number % 2], self._array.ctypes.data + start, nbytes)
            self._events[number % 2].record(self._stream)

    def _wait_for(self, number: int) -> int:
        with self._device:
            self._events[number % 2].wait()
        return self._buffers[number % 2]
