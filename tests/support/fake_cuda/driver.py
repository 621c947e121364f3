"""The classes and functions of `forebay.engines.cuda.driver`, for the fake device."""

import ctypes
from functools import partial

import numpy as np
from tests.support.fake_cuda.gpu import (
    FIRST_CONSUMER_STREAM,
    Point,
    Work,
    contexts,
    current_gpu,
    spans_of,
)
from tests.support.fake_cuda.kernels import KERNELS

from forebay.errors import DeviceError

__all__ = ["BatchCopy", "Device", "Event", "SingleCopies", "Stream", "is_capturing", "make_stream_wait"]


class Device:
    def __init__(self, gpu, index=0):
        self.gpu, self.index = gpu, index

    def __enter__(self):
        contexts().append(self.gpu)
        self.gpu.context_depth += 1
        return self

    def __exit__(self, *error):
        assert contexts().pop() is self.gpu
        self.gpu.context_depth -= 1

    def make_current(self):
        self.__enter__()

    def memory(self):
        return 1 << 30, 1 << 30

    def check_owns(self, pointer):
        assert pointer in self.gpu.memory

    @property
    def capability(self):
        return self.gpu.capability

    def kernel(self, name, source="gather.cu"):
        return Kernel(self.gpu, name)

    def page_lock(self, address, nbytes, *, read_only=False):
        gpu = self.gpu
        gpu.before_lock(address, nbytes)
        overlaps = any(start < address + nbytes and address < stop for start, stop in spans_of(gpu.locked))
        if overlaps or gpu.refuse_lock(address, nbytes):
            raise DeviceError(f"page-locking {nbytes} bytes was refused")
        gpu.locked[address] = nbytes

    def page_unlock(self, address):
        if self.gpu.locked.pop(address, None) is None:
            raise self.gpu.fault("memory that is not page-locked was unlocked")

    def is_page_locked(self, address):
        return any(start <= address < stop for start, stop in spans_of(self.gpu.locked))


class Event:
    def __init__(self, device):
        self.gpu, self.point, self._closed = device.gpu, None, False

    def record(self, stream):
        self.gpu.check_current()
        assert not self._closed
        handle = stream if isinstance(stream, int) else stream.handle
        point = Point(self.gpu.queue(handle))
        self.gpu.put(handle, Work(point.reach))
        self.point = point

    @property
    def has_fired(self):
        self.gpu.check_current()
        return self.point is None or self.point.reached

    def wait(self):
        if not self.has_fired:
            point = self.point
            self.gpu.finish(point.queue.handle, lambda: point.reached)

    def hold(self, handle):
        """Make a stream wait for the last recorded position."""
        point = self.point
        if point is not None:
            self.gpu.put(handle, Work(lambda: None, lambda: point.reached, point.queue))

    def close(self):
        self._closed = True


class Stream:
    made = 0

    def __init__(self, device, *, high_priority=False):
        Stream.made += 1
        self.gpu, self.handle = device.gpu, Stream.made % (FIRST_CONSUMER_STREAM - 1) + 1

    def wait_for(self, event):
        self.gpu.check_current()
        event.hold(self.handle)

    def wait_for_value(self, pointer, value):
        self.gpu.check_current()
        self.gpu.check_device([pointer], [4], "a stream waits for a number in")
        number = ctypes.c_uint32.from_address(pointer)
        self.gpu.put(self.handle, Work(lambda: None, lambda: (number.value - value) % (1 << 32) < 1 << 31))

    def upload(self, target, source, nbytes):
        self.gpu.check_current()
        self.gpu.copy(self.handle, *(np.array([value], np.uint64) for value in (target, source, nbytes)))

    def copy(self, target, source, nbytes):
        self.gpu.check_current()
        self.gpu.check_device([target, source], [nbytes, nbytes], "a copy uses")
        self.gpu.put(self.handle, Work(partial(ctypes.memmove, target, source, nbytes)))

    def clear(self, pointer, nbytes):
        self.gpu.check_current()
        self.gpu.check_device([pointer], [nbytes], "a stream clears")
        self.gpu.put(self.handle, Work(partial(ctypes.memset, pointer, 0, nbytes)))

    def wait(self):
        self.gpu.check_current()
        self.gpu.finish(self.handle)

    def close(self):
        self.gpu.finish(self.handle)


class BatchCopy:
    """Many copies in one call. The arrays are read before it returns."""

    is_single_call = True

    def upload(self, stream, targets, sources, nbytes):
        stream.gpu.check_current()
        assert targets.dtype == sources.dtype == nbytes.dtype == np.uint64
        assert all(array.flags.c_contiguous for array in (targets, sources, nbytes))
        if len(targets):
            stream.gpu.copy(stream.handle, targets.copy(), sources.copy(), nbytes.copy())


class SingleCopies(BatchCopy):
    """A driver without a call for many copies."""

    is_single_call = False


class Kernel:
    def __init__(self, gpu, name):
        self._gpu, self._name, self._act = gpu, name, KERNELS[name]

    def launch(self, stream, job, *, blocks, threads):
        self._gpu.check_current()
        assert blocks > 0
        assert 0 < threads <= 1024
        held = type(job).from_buffer_copy(job)
        self._gpu.launched.append(self._name)
        self._gpu.put(stream.handle, Work(partial(self._act, self._gpu, held)))


def is_capturing(stream):
    gpu = current_gpu()
    gpu.check_current()
    return gpu.queue(stream).capturing


def make_stream_wait(stream, event):
    if is_capturing(stream):
        return False
    event.hold(stream)
    return True
