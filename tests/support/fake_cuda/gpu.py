"""The GPU of the fake driver: queues of work, device memory and page-locks."""

import ctypes
import random
import threading
import weakref
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from forebay.errors import DeviceError

__all__ = ["FIRST_CONSUMER_STREAM", "PACES", "FakeGpu", "Point", "Work", "contexts", "current_gpu", "spans_of"]

PACES = ("late", "early", "any")  # when queued work runs; the docstring of the package explains them
SCRIBBLE = 0xA5  # byte that the previous owner still writes to pool memory that Forebay has allocated
POISON = 0xDD  # byte in memory that was never written, or that was freed
FIRST_CONSUMER_STREAM = 1000  # the lowest handle of the consumer's streams; the engine's streams have lower ones


_threads = threading.local()


def contexts():
    """Return the GPUs that this thread has entered with `with device:`. The last one is current."""
    if not hasattr(_threads, "gpus"):
        _threads.gpus = []
    return _threads.gpus


def current_gpu():
    """Return the current GPU of this thread."""
    return contexts()[-1]


@dataclass(slots=True)
class Point:
    """The position in a queue at which an event was recorded."""

    queue: Any
    reached: bool = False

    def reach(self):
        self.reached = True


@dataclass(slots=True)
class Work:
    """One queued operation."""

    act: Any  # runs the operation
    ready: Any = lambda: True  # whether the operation may run
    awaited: Any = None  # the queue on which the operation waits; None: it may wait on any queue


class Queue:
    """The queued work of one stream."""

    def __init__(self, handle):
        self.handle, self.work, self.capturing = handle, deque(), False


class FakeGpu:
    """A GPU: its queues, its memory and the page-locks."""

    def __init__(self, pace="late", seed=0, capability=(9, 0), locked=None):
        """`locked` maps addresses of page-locks to their bytes. All GPUs of the process share it."""
        self.capability = capability
        self._pace, self._random = pace, random.Random(seed)
        self._mutex, self._acting = threading.RLock(), False
        self._queues, self._buffers = {}, []
        self._thread = threading.local()
        self.faults, self.memory, self.locked = [], {}, {} if locked is None else locked
        self.refuse_lock = lambda address, nbytes: False
        self.before_lock = lambda address, nbytes: None
        self.launched, self.copied = [], 0

    @property
    def context_depth(self):
        """The number of `with device:` blocks of this GPU that the current thread has entered."""
        return getattr(self._thread, "context_depth", 0)

    @context_depth.setter
    def context_depth(self, depth):
        self._thread.context_depth = depth

    def check_current(self):
        if not self.context_depth:
            raise self.fault("a driver call outside `with device:`")
        if contexts()[-1] is not self:
            raise self.fault("a driver call while another device is current")

    def fault(self, message):
        """Record an error, so that the test fails even if other code catches it."""
        error = DeviceError(message)
        self.faults.append(message)
        return error

    # Queues

    def queue(self, handle):
        with self._mutex:
            return self._queues.setdefault(handle, Queue(handle))

    def put(self, handle, work):
        with self._mutex:
            queue = self.queue(handle)
            if queue.capturing:
                raise self.fault(f"stream {handle} was used while it captured a graph")
            queue.work.append(work)
            self._run_some()

    def finish(self, handle, done=None):
        """Run the work of a stream, and all work that it waits for. Stop early when `done()` is true."""
        with self._mutex:
            queue = self.queue(handle)
            while queue.work and not (done and done()):
                if not self._advance(queue, set()):
                    raise self.fault(f"stream {handle} waits for work that was never queued")

    def finish_all(self):
        for handle in list(self._queues):
            self.finish(handle)

    def _run_some(self):
        if self._acting:
            return
        if self._pace == "early":
            for queue in [queue for handle, queue in self._queues.items() if 0 < handle < FIRST_CONSUMER_STREAM]:
                while self._step(queue):
                    pass
        elif self._pace == "any":
            for _ in range(self._random.randrange(6)):
                self._step(self._random.choice(list(self._queues.values())))

    def _advance(self, queue, seen):
        """Run the first operation of a queue, or one for which it waits. Return False if none can run.

        `seen` are the handles of the queues that were tried.
        """
        if self._step(queue):
            return True
        seen.add(queue.handle)
        awaited = queue.work[0].awaited if queue.work else queue
        others = list(self._queues.values()) if awaited is None else [awaited]
        return any(self._advance(other, seen) for other in others if other.handle not in seen)

    def _step(self, queue):
        """Run the first operation of a queue if it is ready. Return whether it ran."""
        if not queue.work or not queue.work[0].ready():
            return False
        work, self._acting = queue.work.popleft(), True
        try:
            work.act()
        finally:
            self._acting = False
        return True

    # Memory

    def allocate(self, nbytes, handle):
        """Allocate from the framework's pool.

        The previous owner of the memory may have queued work that still writes to it. To simulate this, the GPU queues
        a write of SCRIBBLE on the same stream.
        """
        buffer = np.full(nbytes + 256, POISON, np.uint8)
        pointer = -(-buffer.ctypes.data // 256) * 256
        with self._mutex:
            self._buffers.append(buffer)
            self.memory[pointer] = nbytes
        made = Allocation(pointer, handle)
        weakref.finalize(made, self._free, pointer, nbytes, handle, made.streams).atexit = False
        self.put(handle, Work(partial(ctypes.memset, pointer, SCRIBBLE, nbytes)))
        return made

    def _free(self, pointer, nbytes, handle, streams):
        """Free memory, and queue a write of POISON, like a write of the next owner.

        The write runs after all work that is queued now on the streams that use the memory.
        """
        with self._mutex:
            del self.memory[pointer]
            queue = self.queue(handle)
            others = [Point(self.queue(stream)) for stream in streams if not self.queue(stream).capturing]
            for point in others:
                point.queue.work.append(Work(point.reach))
            ready = lambda: all(point.reached for point in others)  # noqa: E731
            if not queue.capturing:
                queue.work.append(Work(partial(ctypes.memset, pointer, POISON, nbytes), ready))

    def check_device(self, pointers, nbytes, what):
        """Check that ranges are in allocated device memory. `what` begins the error, such as "a copy reads"."""
        if not _are_within(spans_of(self.memory), pointers, nbytes):
            raise self.fault(f"{what} device memory that is not allocated")

    def check_read(self, addresses, nbytes):
        """Check that a kernel may read ranges: they are in device memory, or page-locked."""
        spans = [*_join_spans(spans_of(self.locked)), *spans_of(self.memory)]
        if not _are_within(sorted(spans), addresses, nbytes):
            raise self.fault("a kernel reads memory that is neither page-locked nor allocated on the device")

    def copy(self, handle, targets, sources, lengths):
        """Queue copies to the device. Check their addresses twice: now, and when the copies run."""
        self._check_copies(targets, sources, lengths)

        def act():
            self._check_copies(targets, sources, lengths)
            # In reverse, because the copies of one batch have no guaranteed order.
            for copy in zip(targets.tolist()[::-1], sources.tolist()[::-1], lengths.tolist()[::-1], strict=True):
                ctypes.memmove(*copy)

        self.copied += len(targets)
        self.put(handle, Work(act))

    def _check_copies(self, targets, sources, lengths):
        with self._mutex:
            self.check_device(targets, lengths, "a copy writes to")
            if not _are_within(spans_of(self.locked), sources, lengths):
                raise self.fault("a copy reads memory that is not page-locked, or crosses two page-locks")


class Allocation:
    """Device memory that is freed with the last reference."""

    __slots__ = ("__weakref__", "pointer", "streams")

    def __init__(self, pointer, handle):
        self.pointer, self.streams = pointer, {handle}


def spans_of(held):
    return sorted((start, start + nbytes) for start, nbytes in list(held.items()))


def _join_spans(spans):
    found = []
    for start, stop in spans:
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return found


def _are_within(spans, addresses, nbytes):
    """Return whether each range lies inside one span."""
    if not spans:
        return False
    starts, stops = np.array(spans, np.uint64).T
    addresses, nbytes = np.asarray(addresses, np.uint64), np.asarray(nbytes, np.uint64)
    which = np.searchsorted(starts, addresses, side="right").astype(int) - 1
    return bool(((which >= 0) & (addresses + nbytes <= stops[which])).all())
