"""A fake CUDA driver. Its device memory is memory of this process. It runs queued work at one of three paces.

    late    only when code waits for the work
    early   work of the engine's streams as soon as possible, work of the consumer only when code waits for it
    any     random work of any stream whenever work is queued

It refuses what the real driver refuses: calls without a context, a second page-lock, copies from memory that is not
page-locked or across two page-locks, use of a stream that captures a graph, and writes to freed memory.
"""

import ctypes
import gc
import random
import threading
import time
import weakref
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

from forebay.core.handoff import StreamMarker
from forebay.engines.cuda import engine, memory, row_mover
from forebay.engines.cuda.page_locks import PageLocks
from forebay.engines.cuda.pull import resident, row_locations, row_puller, staged_rows
from forebay.errors import DeviceError, DeviceMemoryError
from forebay.order import block_shuffle, permutation
from forebay.pipeline import transport

PACES = ("late", "early", "any")
SCRIBBLE, POISON = 0xA5, 0xDD  # bytes that the last user of pool memory writes, and bytes of memory that is free or new
FIRST_CONSUMER_STREAM, MARKER_STREAM = 1000, 2000  # handles of the consumer's streams


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

    def __init__(self, pace="late", seed=0, capability=(9, 0)):
        self.capability = capability
        self._pace, self._random = pace, random.Random(seed)
        self._mutex, self._acting = threading.RLock(), False
        self._queues, self._buffers = {}, []
        self.inside = threading.local()
        self.faults, self.memory, self.locked = [], {}, {}
        self.refuse_lock = lambda address, nbytes: False
        self.before_lock = lambda address, nbytes: None
        self.launched, self.copied = [], 0

    def check_current(self):
        if not getattr(self.inside, "depth", 0):
            raise self.fault("a driver call outside `with device:`")

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
        if not _within(_spans(self.memory), pointers, nbytes):
            raise self.fault(f"{what} in device memory that was freed")

    def check_read(self, addresses, nbytes):
        spans = [*_joined(_spans(self.locked)), *_spans(self.memory)]
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
            if not _within(_spans(self.locked), sources, lengths):
                raise self.fault("a copy reads memory that is not page-locked, or crosses two page-locks")


class Allocation:
    """Device memory that is freed with the last reference."""

    __slots__ = ("__weakref__", "pointer", "streams")

    def __init__(self, pointer, handle):
        self.pointer, self.streams = pointer, {handle}


def _spans(held):
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


# The classes of forebay.engines.cuda.driver


class Device:
    index = 0

    def __init__(self, machine):
        self.machine = machine

    def __enter__(self):
        self.machine.inside.depth = getattr(self.machine.inside, "depth", 0) + 1
        return self

    def __exit__(self, *error):
        self.machine.inside.depth -= 1

    def make_current(self):
        self.__enter__()

    def memory(self):
        return 1 << 30, 1 << 30

    def check_owns(self, pointer):
        assert pointer in self.machine.memory

    @property
    def capability(self):
        return self.machine.capability

    def kernel(self, name):
        return Kernel(self.machine, name)

    def page_lock(self, address, nbytes, *, read_only=False):
        machine = self.machine
        machine.before_lock(address, nbytes)
        overlaps = any(start < address + nbytes and address < stop for start, stop in _spans(machine.locked))
        if overlaps or machine.refuse_lock(address, nbytes):
            raise DeviceError(f"page-locking {nbytes} bytes was refused")
        machine.locked[address] = nbytes

    def page_unlock(self, address):
        if self.machine.locked.pop(address, None) is None:
            raise self.machine.fault("memory was unlocked that was not page-locked")

    def is_page_locked(self, address):
        return any(start <= address < stop for start, stop in _spans(self.machine.locked))


class Event:
    def __init__(self, device):
        self.machine, self.point, self._closed = device.machine, None, False

    def record(self, stream):
        self.machine.check_current()
        assert not self._closed
        handle = stream if isinstance(stream, int) else stream.handle
        point = Point(self.machine.queue(handle))
        self.machine.put(handle, Work(point.reach))
        self.point = point

    @property
    def has_fired(self):
        self.machine.check_current()
        return self.point is None or self.point.reached

    def wait(self):
        if not self.has_fired:
            point = self.point
            self.machine.finish(point.queue.handle, lambda: point.reached)

    def hold(self, handle):
        """Make a stream wait for the last recorded position."""
        point = self.point
        if point is not None:
            self.machine.put(handle, Work(lambda: None, lambda: point.reached, point.queue))

    def close(self):
        self._closed = True


class Stream:
    made = 0

    def __init__(self, device, *, high_priority=False):
        Stream.made += 1
        self.machine, self.handle = device.machine, Stream.made % (FIRST_CONSUMER_STREAM - 1) + 1

    def wait_for(self, event):
        self.machine.check_current()
        event.hold(self.handle)

    def wait_for_value(self, pointer, value):
        self.machine.check_current()
        self.machine.check_device([pointer], [4], "a number to wait for")
        number = ctypes.c_uint32.from_address(pointer)
        self.machine.put(self.handle, Work(lambda: None, lambda: (number.value - value) % (1 << 32) < 1 << 31))

    def upload(self, target, source, nbytes):
        self.machine.check_current()
        self.machine.copy(self.handle, *(np.array([value], np.uint64) for value in (target, source, nbytes)))

    def clear(self, pointer, nbytes):
        self.machine.check_current()
        self.machine.check_device([pointer], [nbytes], "clearing")
        self.machine.put(self.handle, Work(partial(ctypes.memset, pointer, 0, nbytes)))

    def wait(self):
        self.machine.check_current()
        self.machine.finish(self.handle)

    def close(self):
        self.machine.finish(self.handle)


class BatchCopy:
    """Many copies in one call. The arrays are read before it returns."""

    is_single_call = True

    def upload(self, stream, targets, sources, nbytes):
        stream.machine.check_current()
        assert targets.dtype == sources.dtype == nbytes.dtype == np.uint64
        assert all(array.flags.c_contiguous for array in (targets, sources, nbytes))
        if len(targets):
            stream.machine.copy(stream.handle, targets.copy(), sources.copy(), nbytes.copy())


class SingleCopies(BatchCopy):
    """A driver without a call for many copies."""

    is_single_call = False


class Kernel:
    def __init__(self, machine, name):
        self._machine, self._name, self._act = machine, name, KERNELS[name]

    def launch(self, stream, job, *, blocks, threads):
        self._machine.check_current()
        assert blocks > 0
        assert 0 < threads <= 1024
        held = type(job).from_buffer_copy(job)
        self._machine.launched.append(self._name)
        self._machine.put(stream.handle, Work(partial(self._act, self._machine, held)))


def is_capturing(machine, stream):
    machine.check_current()
    return machine.queue(stream).capturing


def make_stream_wait(machine, stream, event):
    if is_capturing(machine, stream):
        return False
    event.hold(stream)
    return True


# The kernels of gather.cu


def _array(machine, pointer, count, dtype):
    """Return an array in device memory."""
    nbytes = count * np.dtype(dtype).itemsize
    machine.check_device([pointer], [nbytes], "a kernel works")
    return np.frombuffer((ctypes.c_uint8 * nbytes).from_address(pointer), dtype)


def _rows(machine, job):
    return _array(machine, job.rows, job.count, np.int64 if job.needs_int64 else np.int32).astype(np.int64)


def _sources(machine, job):
    """Return the address of each row."""
    table = _array(machine, job.extents, 3 * job.extent_count, np.int64).reshape(-1, 3)
    rows = _rows(machine, job)
    which = np.maximum(np.searchsorted(table[:, 0], rows, side="right") - 1, 0)
    return table[which, 1] + rows * table[which, 2]


def gather_unaligned(machine, job):
    sources = _sources(machine, job)
    turns = _array(machine, job.order, job.count, np.uint32) if job.order else np.arange(job.count)
    batch, row = np.divmod(np.arange(job.count), job.batch_rows)
    targets = job.out + batch * job.batch_stride + row * job.row_nbytes
    machine.check_read(sources, np.full(job.count, job.row_nbytes))
    machine.check_device(targets, np.full(job.count, job.row_nbytes), "a kernel writes")
    for start in range(0, job.pieces * job.piece_nbytes, job.piece_nbytes):
        nbytes = min(job.piece_nbytes, job.row_nbytes - start)
        for i in turns.tolist():
            ctypes.memmove(int(targets[i]) + start, int(sources[i]) + start, nbytes)


def gather_aligned(machine, job):
    table = _array(machine, job.extents, 3 * job.extent_count, np.int64).reshape(-1, 3)
    wide = not (table[:, 1:] % 16).any() and not (job.out | job.batch_stride | job.row_nbytes | job.piece_nbytes) % 16
    if not wide:
        raise machine.fault("a kernel got rows that cannot be read 16 bytes at a time")
    gather_unaligned(machine, job)


def gather_bulk(machine, job):
    if machine.capability < (9, 0) or job.piece_nbytes > 8192:
        raise machine.fault("bulk copies on a device without them, or of more bytes than a stage has")
    machine.check_device(_sources(machine, job), np.full(job.count, job.row_nbytes), "a bulk copy reads")
    gather_aligned(machine, job)


def narrow_numbers(machine, job):
    wide = _array(machine, job.source, job.count, np.float64 if job.is_float else np.int64)
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32 if job.is_float else np.int32)
    for start in range(0, job.count, job.batch_numbers):
        batch, target = (
            narrow[start : start + job.batch_numbers],
            job.out + start // job.batch_numbers * job.batch_stride,
        )
        machine.check_device([target], [batch.nbytes], "a kernel writes")
        ctypes.memmove(target, batch.ctypes.data, batch.nbytes)


def permute_rows(machine, job):
    number = job.first + np.arange(job.count, dtype=np.uint64) * np.uint64(job.step)
    is_outside = np.ones(job.count, bool)
    while is_outside.any():
        drawn = number[is_outside] + np.uint64(job.term)
        for factor in job.factors:
            drawn = drawn * np.uint64(factor) & np.uint64(job.mask)
            drawn ^= drawn >> np.uint64(job.shift)
        number[is_outside] = drawn
        is_outside[is_outside] = drawn >= job.length
    _array(machine, job.rows, job.count, np.int64 if job.needs_int64 else np.int32)[...] = number


def count_buckets(machine, job):
    starts = _array(machine, job.starts, job.buckets, np.uint32)
    starts += np.bincount(_rows(machine, job) >> job.shift, minlength=job.buckets).astype(np.uint32)


def start_buckets(machine, job):
    starts = _array(machine, job.starts, job.buckets, np.uint32)
    starts[...] = np.cumsum(starts) - starts


def order_rows(machine, job):
    starts = _array(machine, job.starts, job.buckets, np.uint32)
    places = _array(machine, job.order, job.count, np.uint32)
    for i, bucket in reversed(list(enumerate((_rows(machine, job) >> job.shift).tolist()))):
        places[starts[bucket]] = i
        starts[bucket] += 1


GATHER_KERNELS = (gather_aligned, gather_unaligned, gather_bulk)
ORDER_KERNELS = (permute_rows, count_buckets, start_buckets, order_rows)
KERNELS = {kernel.__name__: kernel for kernel in (*GATHER_KERNELS, *ORDER_KERNELS, narrow_numbers)}


# Frameworks


class FakeFramework:
    """The common part of the fake frameworks. Arrays are NumPy arrays, read by queued work."""

    name, index, syncs_on_import = "plain", 0, False
    _allocation_stream: int  # handle of the stream on which the framework allocates memory

    def __init__(self, machine, *, available=1 << 28):
        self.machine, self._available = machine, available
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
        made = self.machine.allocate(nbytes, self._allocation_stream)
        return made.pointer, made

    def hand_off(self, roots):
        return [np.asarray(_ArrayOverRoot(root)) for root in roots]

    def queue_read(self, array):
        """Queue a read of an array and return its result. The queued read does not keep the array alive."""
        seen, pointer, nbytes = np.empty_like(array), array.ctypes.data, array.nbytes
        self.machine.put(self.current, Work(lambda: ctypes.memmove(seen.ctypes.data, pointer, nbytes)))
        return seen

    def read(self, array):
        seen = self.queue_read(array)
        self.machine.finish(self.current)
        return seen

    @contextmanager
    def using(self, stream):
        """Do nothing; this framework has one stream."""
        yield

    def synchronize(self):
        for handle in list(self.machine._queues):
            self.machine.finish(handle)


class StreamFramework(FakeFramework):
    """A framework like PyTorch: it reports the stream of each thread, by default the default stream."""

    _allocation_stream = 0

    def __init__(self, machine, **options):
        super().__init__(machine, **options)
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
        queue = self.machine.queue(self.current)
        queue.capturing = True
        yield
        queue.capturing = False

    def stream(self):
        return self.current

    def record_stream(self, owner):
        owner.streams.add(self.current)
        self.recorded_streams.append(self.current)

    def mark(self):
        raise AssertionError("it reports its stream")


class MarkerFramework(FakeFramework):
    """A framework like TensorFlow: one stream, which it does not report. Its counter soon wraps around."""

    _allocation_stream = current = MARKER_STREAM

    def __init__(self, machine, **options):
        super().__init__(machine, **options)
        self._counter = machine.allocate(8, MARKER_STREAM)
        self._value, self._mutex = (1 << 32) - 3, threading.Lock()
        machine.put(MARKER_STREAM, Work(partial(self._set, self._value)))

    def _set(self, value):
        ctypes.c_uint32.from_address(self._counter.pointer).value = value

    def stream(self):
        return None

    def record_stream(self, owner):
        raise AssertionError("it reports no stream")

    def mark(self):
        with self._mutex:
            self._value = (self._value + 1) % (1 << 32)
            self.machine.put(MARKER_STREAM, Work(partial(self._set, self._value)))
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
        self.machine.put(MARKER_STREAM, Work(lambda: ctypes.memmove(seen.ctypes.data, array.ctypes.data, array.nbytes)))
        return seen


class _ArrayOverRoot:
    """A root as NumPy takes it. It keeps the shadow alive, like every capsule."""

    def __init__(self, root):
        self.shadow = root.shadow
        self.__array_interface__ = root.shadow.__array_interface__ | {"data": (root.pointer, False)}


_THREADS_BEFORE = []  # threads that other tests left running


@contextmanager
def fake_cuda(
    *,
    kind=StreamFramework,
    pace="late",
    seed=0,
    is_single_call=True,
    available=1 << 28,
    capability=(9, 0),
    min_dma_cores=1,
):
    """Yield a framework whose engine uses this driver. At the end, no memory and no page-lock may be left.

    All size limits are small, so that small data takes every path.
    """
    machine = Machine(pace, seed, capability)
    device = Device(machine)
    locks = PageLocks(device)
    _THREADS_BEFORE[:] = threading.enumerate()
    with pytest.MonkeyPatch.context() as patch:
        for module in (engine, memory, staged_rows):
            patch.setattr(module, "Event", Event)
        patch.setattr(engine, "Stream", Stream)
        patch.setattr(engine, "device_at", lambda index: device)
        patch.setattr(row_locations, "process_page_locks", lambda device: locks)
        patch.setattr(engine, "is_capturing", partial(is_capturing, machine))
        patch.setattr(memory, "make_stream_wait", partial(make_stream_wait, machine))
        patch.setattr(row_mover, "BatchCopy", BatchCopy if is_single_call else SingleCopies)
        # The device computes the rows of longer permutations.
        patch.setattr(permutation.Permutation, "TABLE_LENGTH", 100)
        patch.setattr(transport, "DMA_ROW_NBYTES", 1024)
        patch.setattr(transport, "MIN_DMA_CORES", min_dma_cores)
        patch.setattr(row_locations, "LOCK_STEP_NBYTES", 8192)
        patch.setattr(row_puller, "MIN_SORTED_ROWS", 16)
        patch.setattr(row_mover, "BUCKET_NBYTES", 1024)
        patch.setattr(row_mover, "MIN_BULK_ROW_NBYTES", 1024)
        patch.setattr(staged_rows, "STAGING_STEP_NBYTES", 8192)
        patch.setattr(resident, "STEP_NBYTES", 16384)
        clear_order_caches()
        framework = kind(machine, available=available)
        yield framework
        framework.synchronize()
    clear_order_caches()
    gc.collect()
    assert machine.faults == []
    assert machine.locked == {}, "page-locks were left behind"
    assert len(machine.memory) == issubclass(kind, MarkerFramework), "device memory was left behind"


def clear_order_caches():
    """Clear permutations that were computed with another TABLE_LENGTH."""
    permutation.cached_permutation.cache_clear()
    block_shuffle.cached_epoch.cache_clear()


def wait_until_located():
    """Wait until all rows are page-locked and uploaded. Call this after the first batch."""
    while any(thread.name == "forebay-lock" for thread in threading.enumerate()):
        time.sleep(0.0005)


def feed_threads():
    """Return the names of threads that feeds on the last device started."""
    started = [thread for thread in threading.enumerate() if thread not in _THREADS_BEFORE]
    return [thread.name for thread in started if thread.name.startswith("forebay")]
