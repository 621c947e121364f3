"""The device: a queue of operations, each of which takes a tenth of a millisecond."""

import time

OPERATION_SECONDS = 1e-4


class _Queue:
    def __init__(self):
        self._done_at = 0.0

    def add(self):
        self._done_at = max(self._done_at, time.perf_counter()) + OPERATION_SECONDS

    def wait(self):
        time.sleep(max(0.0, self._done_at - time.perf_counter()))


QUEUE = _Queue()


class Device:
    def __init__(self, device=0):
        self.id = int(device)

    def __eq__(self, other):
        return isinstance(other, Device) and self.id == other.id

    __hash__ = None

    def synchronize(self):
        QUEUE.wait()
