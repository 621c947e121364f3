"""A simulated device. On any machine, a wait for it lasts half of the time since the previous wait."""

import time


class _Queue:
    def __init__(self):
        self._begun = 0.0

    def add_work(self):
        """Store the time of the first operation."""
        self._begun = self._begun or time.perf_counter()

    def wait(self):
        """Wait without sleeping: after a sleep, the system may resume the thread late."""
        now = time.perf_counter()
        done_at = now + (now - self._begun) / 2 if self._begun else now
        while time.perf_counter() < done_at:
            pass
        self._begun = time.perf_counter()


QUEUE = _Queue()


class Device:
    def __init__(self, device=0):
        self.id = int(device)

    def __eq__(self, other):
        return isinstance(other, Device) and self.id == other.id

    __hash__ = None

    def synchronize(self):
        QUEUE.wait()
