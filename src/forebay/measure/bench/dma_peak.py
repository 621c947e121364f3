"""What the link can do at most: plain copies of page-locked memory, by the driver alone."""

from collections.abc import Iterator
from time import perf_counter
from types import TracebackType
from typing import Any

import numpy as np

from forebay.engines.cuda.driver import Device, Event, Stream
from forebay.measure.bench.model import Skip

__all__ = ["Link", "open_device"]


def open_device() -> Device:
    """The first GPU, or the reason why there is none."""
    try:
        return Device()
    except RuntimeError as error:  # ours where there is no GPU, the bindings' where there is no driver
        raise Skip(str(error)) from error


class Link:
    """Copies pieces of one page-locked array into two places on the device, one always under way."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._device, self._array = open_device(), array
        self._device.lock(array.ctypes.data, array.nbytes)
        self._stream = Stream(self._device)
        self._events = [Event(self._device), Event(self._device)]
        self._places: list[int] = []

    def pieces(self, nbytes: int, count: int) -> Iterator[int]:
        """Where each piece has arrived; it stays there until the one after the next is asked for."""
        if not self._places:
            self._places = [self._device.allocate(nbytes) for _ in self._events]
        for number in range(count):
            self._queue(number, nbytes)
            if number:
                yield self._arrived(number - 1)
        yield self._arrived(count - 1)

    def seconds_each(self, nbytes: int, count: int) -> float:
        """How long one piece takes when another always follows."""
        list(self.pieces(nbytes, 2))
        began = perf_counter()
        for _ in self.pieces(nbytes, count):
            pass
        return (perf_counter() - began) / count

    def download(self, place: int, out: np.ndarray[Any, Any]) -> None:
        with self._device:
            self._stream.download(out.ctypes.data, place, out.nbytes)
            self._stream.wait()

    def close(self) -> None:
        with self._device:
            self._stream.wait()
        for place in self._places:
            self._device.free(place)
        self._device.unlock(self._array.ctypes.data)

    def __enter__(self) -> "Link":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _queue(self, number: int, nbytes: int) -> None:
        start = number % (self._array.nbytes // nbytes) * nbytes
        with self._device:
            self._stream.upload(self._places[number % 2], self._array.ctypes.data + start, nbytes)
            self._events[number % 2].record(self._stream)

    def _arrived(self, number: int) -> int:
        with self._device:
            self._events[number % 2].wait()
        return self._places[number % 2]
