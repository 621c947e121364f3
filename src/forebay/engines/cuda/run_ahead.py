"""How far a consumer may be ahead of its device: by a group, at most."""

import threading
from typing import Any

from forebay.engines.cuda.driver import Device, Event, Stream

__all__ = ["Lead"]


class Lead:
    """Told what the consumer has queued as it comes for each group; holds it back where its device has not followed."""

    def __init__(self, device: Device) -> None:
        self._device, self._stream = device, Stream(device)
        self._passed = Event(device), Event(device)
        self._steps = 0
        self._closing = threading.RLock()  # against a feed that is closed while its consumer is held back
        self._closed = False

    def step(self, mark: Any) -> None:
        """The consumer has queued everything up to this mark; wait until the device is past the one before."""
        with self._closing:
            if self._closed:
                return
            before, now = self._passed if self._steps % 2 else self._passed[::-1]
            self._stream.wait_for_value(mark.pointer, mark.value)
            now.record(self._stream)
            if self._steps:
                before.wait()
            self._steps += 1

    def close(self) -> None:
        with self._closing:
            self._closed = True
            with self._device:
                self._stream.wait()
            self._stream.close()
            for event in self._passed:
                event.close()
