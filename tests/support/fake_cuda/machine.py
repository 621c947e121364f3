"""The device of the fake driver: queues of work, device memory and page-locks."""

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

__all__ = ["FIRST_CONSUMER_STREAM", "PACES", "Machine", "Point", "Work", "contexts", "current_machine", "spans_of"]

PACES = ("late", "early", "any")
SCRIBBLE, POISON = 0xA5, 0xDD  # bytes that the last user of pool memory writes, and bytes of memory that is free or new
FIRST_CONSUMER_STREAM = 1000  # the lowest handle of the consumer's streams; the engine's streams have lower ones


_threads = threading.local()


def contexts():
    """Return the devices that this thread has made current, the current one last."""
    if not hasattr(_threads, "machines"):
        _threads.machines = []
    return _threads.machines


def current_machine():
    """Return the current device of this thread."""
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

    act: Any
    ready: Any = lambda: True
    behind: Any = None  # the queue whose work makes this ready; None: any queue


class Queue:
    """The queued work of one stream."""

    def __init__(self, handle):
        self.handle, self.work, self.capturing = handle, deque(), False


class Machine:
    """The device: its queues, its memory and the page-locks."""

    def __init__(self, pace="late", seed=0, capability=(9, 0), locked=None):
        """`locked` are the page-locks of the process, which all devices share."""
        self.capability = capability
        self._pace, self._random = pace, random.Random(seed)
        self._mutex, self._acting = threading.RLock(), False
        self._queues, self._buffers = {}, []
        self.inside = threading.local()
        self.faults, self.memory, self.locked = [], {}, {} if locked is None else locked
        self.refuse_lock = lambda address, nbytes: False
        self.before_lock = lambda address, nbytes: None
        self.launched, self.copied = [], 0

    def check_current(self):
        if not getattr(self.inside, "depth", 0):
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
        """Run the work of a stream, and the work it waits for, until `done()` or until all is done."""
        with self._mutex:
            queue = self.queue(handle)
            while queue.work and not (done and done()):
                if not self._pull(queue, set()):
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

    def _pull(self, queue, seen):
        """Run one operation of a queue, or one that it waits for. Return False if there is none."""
        if self._step(queue):
            return True
        seen.add(queue.handle)
        behind = queue.work[0].behind if queue.work else queue
        others = list(self._queues.values()) if behind is None else [behind]
        return any(self._pull(other, seen) for other in others if other.handle not in seen)

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
        """Allocate from the framework's pool. Work queued before on its stream may still write to the memory."""
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
        """Free memory. Other owners may write to it after the queued work that uses it."""
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
        if not _within(spans_of(self.memory), pointers, nbytes):
            raise self.fault(f"{what} in device memory that was freed")

    def check_read(self, addresses, nbytes):
        spans = [*_joined(spans_of(self.locked)), *spans_of(self.memory)]
        if not _within(sorted(spans), addresses, nbytes):
            raise self.fault("a kernel reads memory that is not page-locked")

    def copy(self, handle, targets, sources, lengths):
        """Queue copies to the device. They are checked now and again when they run."""
        self._check_copies(targets, sources, lengths)

        def act():
            self._check_copies(targets, sources, lengths)
            for copy in zip(targets.tolist()[::-1], sources.tolist()[::-1], lengths.tolist()[::-1], strict=True):
                ctypes.memmove(*copy)

        self.copied += len(targets)
        self.put(handle, Work(act))

    def _check_copies(self, targets, sources, lengths):
        with self._mutex:
            self.check_device(targets, lengths, "a copy ends")
            if not _within(spans_of(self.locked), sources, lengths):
                raise self.fault("a copy reads memory that is not page-locked, or crosses two page-locks")


class Allocation:
    """Device memory that is freed with the last reference."""

    __slots__ = ("__weakref__", "pointer", "streams")

    def __init__(self, pointer, handle):
        self.pointer, self.streams = pointer, {handle}


def spans_of(held):
    return sorted((start, start + nbytes) for start, nbytes in list(held.items()))


def _joined(spans):
    found = []
    for start, stop in spans:
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return found


def _within(spans, addresses, nbytes):
    """Whether each range lies inside one span."""
    if not spans:
        return False
    starts, stops = np.array(spans, np.uint64).T
    addresses, nbytes = np.asarray(addresses, np.uint64), np.asarray(nbytes, np.uint64)
    which = np.searchsorted(starts, addresses, side="right").astype(int) - 1
    return bool(((which >= 0) & (addresses + nbytes <= stops[which])).all())
