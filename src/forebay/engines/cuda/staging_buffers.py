"""Page-locked buffers that go round."""

import threading
from collections import deque

from forebay.engines.cuda.driver import Device, Event, Stream
from forebay.engines.cuda.memory import LockedMemory

__all__ = ["Staging"]


class Staging:
    """Page-locked buffers that go round: each is written again only when the copy out of it is done."""

    def __init__(self, device: Device, *, buffers: int, nbytes: int) -> None:
        self._device, self._most, self.nbytes = device, buffers, nbytes
        self._made: list[tuple[LockedMemory, Event]] = []
        self._free: deque[tuple[LockedMemory, Event]] = deque()
        self._returned = threading.Condition()

    def take(self) -> tuple[LockedMemory, Event]:
        """A buffer to write to; give it back behind the copy that reads it."""
        with self._returned:
            if not self._free and len(self._made) < self._most:
                made = (LockedMemory(self._device, self.nbytes), Event(self._device))
                self._made.append(made)
                return made
            while not self._free:
                self._returned.wait()
            taken = self._free.popleft()
        try:
            with self._device:
                taken[1].wait()
        except BaseException:
            self._put(taken)
            raise
        return taken

    def give_back(self, buffer: tuple[LockedMemory, Event], stream: Stream) -> None:
        try:
            with self._device:
                buffer[1].record(stream)
        finally:
            self._put(buffer)

    def _put(self, buffer: tuple[LockedMemory, Event]) -> None:
        """Also where the device has failed: whoever comes next is told so, and does not wait for ever."""
        with self._returned:
            self._free.append(buffer)
            self._returned.notify()

    def close(self) -> None:
        """All copies must be done."""
        for memory, event in self._made:
            memory.close()
            event.close()
        self._made, self._free = [], deque()
