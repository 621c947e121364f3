"""The device: it is done with what was queued a third of a step later, on a fast machine and on a slow one."""

import time


class _Queue:
    def __init__(self):
        self._begun = 0.0

    def add(self):
        """The first begins it; from then on the device has been at work since it was last waited for."""
        self._begun = self._begun or time.perf_counter()

    def wait(self):
        """Awake: who sleeps is woken when the machine likes."""
        now = time.perf_counter()
        done_at = now + (now - self._begun) / 2 if self._begun else now  # two thirds are what the host took to queue it
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
