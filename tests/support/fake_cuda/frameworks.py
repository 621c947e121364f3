"""Fake frameworks, which allocate device memory and use arrays like PyTorch, TensorFlow and JAX."""

import ctypes
import threading
from contextlib import contextmanager
from functools import partial

import numpy as np
from tests.support.fake_cuda.gpu import FIRST_CONSUMER_STREAM, Work

from forebay.core.handoff import StreamMarker
from forebay.errors import DeviceMemoryError

__all__ = ["ImportSyncFramework", "MarkerFramework", "StreamFramework"]

MARKER_STREAM = 2000  # handle of the one stream of a framework that does not report streams


class FakeFramework:
    """The common part of the fake frameworks. Arrays are NumPy arrays, read by queued work."""

    name, syncs_on_import = "plain", False
    _allocation_stream: int  # handle of the stream on which the framework allocates memory

    def __init__(self, gpu, *, index=0, available=1 << 28):
        self.gpu, self.index, self._available = gpu, index, available
        self.refuse = lambda nbytes: False
        self.recorded_streams = []

    def framework_dtype(self, dtype):
        return dtype

    def check(self, specs, names):
        pass

    def available(self, free, total):
        return min(free, self._available)

    def allocate(self, nbytes):
        if self.refuse(nbytes):
            raise DeviceMemoryError(f"no {nbytes} bytes left")
        made = self.gpu.allocate(nbytes, self._allocation_stream)
        return made.pointer, made

    def hand_off(self, roots):
        return [np.asarray(_ArrayOverRoot(root)) for root in roots]

    def queue_read(self, array):
        """Queue a read of an array and return its result. The queued read does not keep the array alive."""
        seen, pointer, nbytes = np.empty_like(array), array.ctypes.data, array.nbytes
        self.gpu.put(self.current, Work(lambda: ctypes.memmove(seen.ctypes.data, pointer, nbytes)))
        return seen

    def read(self, array):
        seen = self.queue_read(array)
        self.gpu.finish(self.current)
        return seen

    @contextmanager
    def using(self, stream):
        """Do nothing; this framework has one stream."""
        yield

    def synchronize(self):
        self.gpu.finish_all()


class StreamFramework(FakeFramework):
    """A framework like PyTorch: it reports the stream of each thread, by default the default stream."""

    _allocation_stream = 0

    def __init__(self, gpu, **options):
        super().__init__(gpu, **options)
        self._here = threading.local()

    @property
    def current(self):
        return getattr(self._here, "stream", 0)

    @contextmanager
    def using(self, stream):
        before, self._here.stream = self.current, FIRST_CONSUMER_STREAM + stream
        yield
        self._here.stream = before

    @contextmanager
    def capturing(self):
        queue = self.gpu.queue(self.current)
        queue.capturing = True
        yield
        queue.capturing = False

    def stream(self):
        return self.current

    def record_stream(self, owner):
        owner.streams.add(self.current)
        self.recorded_streams.append(self.current)

    def mark(self):
        raise AssertionError("the engine asked a framework that reports its stream for a marker")


class MarkerFramework(FakeFramework):
    """A framework like TensorFlow: one stream, which it does not report. Its counter soon wraps around."""

    _allocation_stream = current = MARKER_STREAM

    def __init__(self, gpu, **options):
        super().__init__(gpu, **options)
        self._counter = gpu.allocate(8, MARKER_STREAM)
        self._value, self._mutex = (1 << 32) - 3, threading.Lock()
        gpu.put(MARKER_STREAM, Work(partial(self._set, self._value)))

    def _set(self, value):
        ctypes.c_uint32.from_address(self._counter.pointer).value = value

    def stream(self):
        return None

    def record_stream(self, owner):
        raise AssertionError("the engine recorded a stream of a framework that reports none")

    def mark(self):
        with self._mutex:
            self._value = (self._value + 1) % (1 << 32)
            self.gpu.put(MARKER_STREAM, Work(partial(self._set, self._value)))
            return StreamMarker(self._counter.pointer, self._value)


class ImportSyncFramework(MarkerFramework):
    """A framework like JAX: its stream waits for arrivals, and its queued work keeps the arrays it reads."""

    syncs_on_import = True

    def hand_off(self, roots):
        for root in roots:
            root._memory.make_stream_wait_for_arrival(MARKER_STREAM)
        return super().hand_off(roots)

    def queue_read(self, array):
        seen = np.empty_like(array)
        self.gpu.put(MARKER_STREAM, Work(lambda: ctypes.memmove(seen.ctypes.data, array.ctypes.data, array.nbytes)))
        return seen


class _ArrayOverRoot:
    """A root with the array interface of NumPy. Like a DLPack capsule, it keeps the shadow array alive."""

    def __init__(self, root):
        self.shadow = root.shadow
        self.__array_interface__ = root.shadow.__array_interface__ | {"data": (root.pointer, False)}
