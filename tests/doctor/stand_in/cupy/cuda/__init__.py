"""Streams and events, which all wait for the same queue."""

from cupy.cuda import compiler, runtime
from cupy.cuda.device import QUEUE, Device

__all__ = ["Device", "Event", "ExternalStream", "PinnedMemoryPointer", "Stream", "alloc_pinned_memory"]
__all__ += ["compiler", "runtime"]


class _BaseStream:
    def synchronize(self):
        QUEUE.wait()


class Stream(_BaseStream):
    def __init__(self, null=False, non_blocking=False):
        self.ptr = 0


Stream.null = Stream(null=True)


class ExternalStream(_BaseStream):
    def __init__(self, ptr, device_id=-1):
        self.ptr = ptr


class Event:
    def synchronize(self):
        QUEUE.wait()


class PinnedMemoryPointer(bytearray):
    """Stands for page-locked memory, which `np.frombuffer` can read."""


def alloc_pinned_memory(size):
    return PinnedMemoryPointer(size)
