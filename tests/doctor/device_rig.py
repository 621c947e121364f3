"""A simulated machine that runs a known program and records its events and device operations.

Tests compare the analysis of a capture with the program, and a prediction with the cured program on the same machine.
"""

from dataclasses import replace
from enum import IntEnum

import numpy as np
from tests.doctor.captures import LINES, LOOP, OTHER, STEP_LINE, capture_of

from forebay.doctor.model.capture import Window
from forebay.doctor.model.device_records import RECORD, CopyKind, DeviceRecords, MemoryKind, RecordKind, sort_by_start
from forebay.doctor.model.events import EventKind, LedgerEvent

US = 1_000  # nanoseconds
PAGEABLE, PINNED = 8e9, 55e9  # bytes per second
SMALL_NBYTES = 64 << 10  # CUDA copies smaller uploads to its own buffer, without blocking the call
STREAM, COPY_STREAM, BACK_STREAM = 7, 13, 14
PROFILED, TRACED, UNTRACED = 20, 10, 20  # steps


class ApiCall(IntEnum):
    """CUPTI numbers of runtime calls."""

    MALLOC = 20
    FREE = 22
    MEMCPY_ASYNC = 41
    STREAM_SYNCHRONIZE = 131
    DEVICE_SYNCHRONIZE = 165
    LAUNCH_KERNEL = 211


WAITS = {ApiCall.STREAM_SYNCHRONIZE: 3, ApiCall.DEVICE_SYNCHRONIZE: 4}  # CUPTI synchronization types


class Rig:
    """The simulated host and device. Work on the host advances the clock.

    `streams` holds the time at which each stream ends its work.
    """

    def __init__(self, *, launch_cost=0):
        self.now, self.launch_cost = 0, launch_cost
        self.streams, self.events, self.rows = {}, [], []
        self.tracing, self._correlation = False, 0
        self.ready = 0  # time at which the data of another thread is ready

    def python(self, us):
        self.now += us * US

    def launch(self, us, *, host_us=4, stream=STREAM, thread=LOOP):
        start = self.now
        self.now += host_us * US + (self.launch_cost if self.tracing else 0)
        self._call(ApiCall.LAUNCH_KERNEL, start, self.now, thread)
        return self._operation(us * US, stream, kind=RecordKind.CONCURRENT_KERNEL, name=1)

    def allocate(self, us, *, line=None, thread=LOOP):
        """Allocate device memory and free it again. With a line, a compiled function does this."""
        start = self.now
        for what in (ApiCall.MALLOC, ApiCall.FREE):
            called = self.now
            self.now += us * US
            self._call(what, called, self.now, thread)
        if line is not None:
            self._event(EventKind.RUN, "train(x)", line, start)

    def launch_on_full_queue(self, us):
        """Launch a kernel while the device queue is full, so that the call waits."""
        self.launch(0, host_us=us)

    def wait_for_input(self, us, *, line=1):
        start = self.now
        self.now += us * US
        self._event(EventKind.INPUT, "DataLoader", line, start)

    def upload(
        self, nbytes, *, line=2, pinned=False, stream=STREAM, thread=LOOP, has_event=True, conversion_us=0, early_us=-1
    ):
        """Upload bytes. Only a large copy from pageable memory blocks the call.

        A call that blocks returns `early_us` before the copy ends, or after it if `early_us` is negative. Without an
        event, the ledger does not show the call.
        """
        start = self.now
        self.now += (5 + conversion_us) * US
        called = self.now
        self._correlation += 1
        self.now += 3 * US
        memory = MemoryKind.PINNED if pinned else MemoryKind.PAGEABLE
        duration = int(nbytes / (PINNED if pinned else PAGEABLE) * 1e9)
        done = self._copy(CopyKind.HOST_TO_DEVICE, duration, stream, nbytes, memory, MemoryKind.DEVICE)
        self.now = self.now if pinned or nbytes <= SMALL_NBYTES else done - early_us * US
        self._row(called, self.now, kind=RecordKind.RUNTIME, what=ApiCall.MEMCPY_ASYNC, thread=thread)
        self.now += 2 * US
        if has_event:
            detail = {"device": "cuda:0", "pinned": pinned, "non_blocking": pinned, "dtype": "float32"}
            self._event(EventKind.UPLOAD, "Tensor.to", line, start, nbytes, detail)

    def read(self, nbytes=4, *, line=3, api="Tensor.item", stream=STREAM, thread=LOOP):
        start = self.now
        self.now += 5 * US
        called = self.now
        self._correlation += 1
        self.now += 3 * US
        duration = 1 * US + int(nbytes / PINNED * 1e9)
        done = self._copy(CopyKind.DEVICE_TO_HOST, duration, stream, nbytes, MemoryKind.DEVICE, MemoryKind.PINNED)
        self._row(called, self.now, kind=RecordKind.RUNTIME, what=ApiCall.MEMCPY_ASYNC, thread=thread)
        waited = self.now
        self.now = max(self.now, done) + 3 * US
        self._wait(ApiCall.STREAM_SYNCHRONIZE, waited, thread, stream)
        self.now += 2 * US
        self._event(EventKind.DOWNLOAD, api, line, start, nbytes, {"device": "cuda:0", "dtype": "float32"})

    def upload_by_another_thread(self, nbytes, *, ready_us, line=2):
        """Return at once; another thread prepares the data for `ready_us` and then copies it."""
        start = self.now
        self.now += 20 * US
        ready = max(self.now, self.ready) + ready_us * US
        self._correlation += 1
        self._row(ready, ready + 5 * US, kind=RecordKind.RUNTIME, what=ApiCall.MEMCPY_ASYNC, thread=OTHER)
        duration = int(nbytes / PINNED * 1e9)
        to_device = CopyKind.HOST_TO_DEVICE, duration, COPY_STREAM, nbytes, MemoryKind.PINNED, MemoryKind.DEVICE
        self._copy(*to_device, queued_at=ready + 5 * US)
        self.ready = ready
        self._event(EventKind.UPLOAD, "jax.device_put", line, start, nbytes, {"device": "cuda:0"})

    def call_compiled(self, us, *, line=5):
        """Call a program that waits on the host until the upload has started."""
        start = self.now
        self.now = max(self.now, self.ready) + 30 * US
        self.stream_waits(STREAM, COPY_STREAM)
        self.launch(us, host_us=20)
        self._event(EventKind.RUN, "train(x)", line, start)

    def call_jitted(self, us, *, host_us=300, line=5):
        """Call a jitted function; the host needs `host_us` to launch its kernel of `us` microseconds."""
        start = self.now
        self.python(host_us)
        self.launch(us)
        self._event(EventKind.RUN, "jax.jit: step(state, batch)", line, start)

    def call_fetching(self, nbytes, us, *, line=5, prefetched=False):
        """Call a compiled function whose executor thread uploads the batch, unless it was prefetched."""
        start = self.now
        self.python(200)
        if not prefetched:
            self.upload(nbytes, thread=OTHER, has_event=False, stream=COPY_STREAM)
        self.launch(us, thread=OTHER)
        self._event(EventKind.RUN, "tf.function", line, start)

    def read_by_another_thread(self, *, line=3):
        """Read a value that another thread copies; the loop waits for it."""
        start = self.now
        computed = max(self.now, self.streams.get(STREAM, 0)) + 100 * US
        self._correlation += 1
        self._row(computed, computed + 5 * US, kind=RecordKind.RUNTIME, what=ApiCall.MEMCPY_ASYNC, thread=OTHER)
        back = CopyKind.DEVICE_TO_HOST, US, BACK_STREAM, 4, MemoryKind.DEVICE, MemoryKind.PINNED
        self.now = self._copy(*back, queued_at=computed + 5 * US) + 50 * US
        self._event(EventKind.DOWNLOAD, "float(array)", line, start, 4, {"device": "cuda:0"})

    def synchronize(self, *, line=4):
        start = self.now
        self.now = max(self.now, *self.streams.values(), 0) + 3 * US
        self._wait(ApiCall.DEVICE_SYNCHRONIZE, start, LOOP)
        self._event(EventKind.SYNC, "torch.cuda.synchronize", line, start)

    def stream_waits(self, stream, other):
        """Let the next operation of a stream wait for the other stream."""
        self._row(self.now, self.now, kind=RecordKind.SYNCHRONIZATION, what=2, stream=stream)
        self.streams[stream] = max(self.streams.get(stream, 0), self.streams.get(other, 0))

    def end_step(self):
        self.now += US
        self._event(EventKind.STEP, "optimizer.step", STEP_LINE, self.now - US)
        return self.now

    def _operation(self, duration, stream, *, queued_at=None, **fields):
        op_start = max((self.now if queued_at is None else queued_at) + US, self.streams.get(stream, 0))
        self.streams[stream] = op_start + duration
        self._row(op_start, op_start + duration, stream=stream, **fields)
        return op_start + duration

    def _copy(self, direction, duration, stream, nbytes, source, target, *, queued_at=None):
        fields = {"what": direction, "nbytes": nbytes, "source": source, "target": target, "flags": 1}
        return self._operation(duration, stream, queued_at=queued_at, kind=RecordKind.MEMCPY, **fields)

    def _call(self, what, start, ended, thread):
        self._correlation += 1
        self._row(start, ended, kind=RecordKind.RUNTIME, what=what, thread=thread)

    def _wait(self, what, start, thread, stream=0):
        self._call(what, start, self.now, thread)
        self._row(start, self.now, kind=RecordKind.SYNCHRONIZATION, what=WAITS[what], stream=stream)

    def _row(self, start, end, **fields):
        if self.tracing:
            self.rows.append({"start": start, "end": end, "correlation": self._correlation, **fields})

    def _event(self, kind, api, line, start, nbytes=0, detail=None):
        self.events.append(LedgerEvent(kind, api, line, LOOP, start, self.now, nbytes, detail))


def run(program, *, launch_cost=0, frameworks=None):
    """Return the capture of a program: profiled steps, steps with device records, then only timed steps."""
    rig = Rig(launch_cost=launch_cost)
    edges = _steps(rig, program, PROFILED + 1)
    rig.tracing = True
    traced = _steps(rig, program, TRACED + 1)
    rig.tracing = False
    events = list(rig.events)
    untraced = np.diff(_steps(rig, program, UNTRACED + 1))[1:] / 1e9
    window = Window(edges[0], edges[-1], ("step", "optimizer.step", STEP_LINE), tuple(untraced.tolist()), tuple(traced))
    return replace(capture_of(events, window=window, frameworks=frameworks), device=device_records(rig.rows))


def without_calls(capture):
    """Return the capture without records of CUDA calls."""
    records = capture.device.records
    return replace(capture, device=replace(capture.device, records=records[records["kind"] != RecordKind.RUNTIME]))


def running_ahead(*kernels, host_us):
    """Return a program whose steps launch kernels faster than the device runs them.

    `kernels` are the durations of the kernels in microseconds. The device has no work when the recording starts. In
    steps without recording, the queue is full, so the last call waits.
    """

    def program(machine):
        if machine.tracing and not machine.rows:
            machine.synchronize()
        for us in kernels:
            machine.launch(us, host_us=host_us)
        if not machine.tracing:
            machine.launch_on_full_queue(sum(kernels) - len(kernels) * host_us)

    return program


def without_unfinished(capture):
    """Return the capture as CUPTI records it: without operations that end after the recording, and their calls."""
    records = capture.device.records
    unfinished = records[records["end"] > capture.window.traced[-1]]["correlation"]
    finished = records[~np.isin(records["correlation"], unfinished)]
    return replace(capture, device=replace(capture.device, records=finished))


def step_seconds(program):
    """Return the duration of an unprofiled step, including the work of the device."""
    rig = Rig()
    _steps(rig, program, 50)
    half = _done(rig)
    _steps(rig, program, 50)
    return (_done(rig) - half) / 50 / 1e9


def device_records(rows):
    records = np.zeros(len(rows), RECORD)
    for field in sorted({name for row in rows for name in row}):
        records[field] = [row.get(field, 0) for row in rows]
    return DeviceRecords(sort_by_start(records), ("", "gemm"), 0, 26)


def _done(rig):
    """Return the time at which host and device are done."""
    return max(rig.now, *rig.streams.values(), 0)


def _steps(rig, program, count):
    edges = []
    for _ in range(count):
        program(rig)
        edges.append(rig.end_step())
    return edges


def capture_of_kernels(steps, kernels):
    """Return a capture of steps of one millisecond with `kernels` kernels each."""
    edges = np.arange(steps + 1, dtype=np.int64) * 1_000 * US + 1_000 * US
    gap = 900 * US // kernels
    starts = (edges[:-1, None] + np.arange(kernels) * gap).ravel()
    calls, done = np.zeros(len(starts), RECORD), np.zeros(len(starts), RECORD)
    calls["start"], calls["end"], calls["kind"] = starts, starts + gap // 3, RecordKind.RUNTIME
    calls["what"], calls["thread"] = ApiCall.LAUNCH_KERNEL, LOOP
    done["start"], done["end"], done["kind"] = starts + gap // 3, starts + gap // 2, RecordKind.CONCURRENT_KERNEL
    calls["correlation"] = done["correlation"] = np.arange(len(starts))
    events = [LedgerEvent("step", "optimizer.step", STEP_LINE, LOOP, int(edge) - US, int(edge)) for edge in edges]
    events += [LedgerEvent("run", "step(x)", 5, LOOP, int(edge), int(edge) + 450 * US) for edge in edges[:-1]]
    window = Window(int(edges[0]), int(edges[-1]), ("step", "optimizer.step", STEP_LINE), (), tuple(edges.tolist()))
    capture = capture_of(events, window=window, lines=LINES)
    return replace(capture, device=DeviceRecords(sort_by_start(np.concatenate([calls, done])), ("",), 0, 26))


__all__ = [
    "COPY_STREAM",
    "ApiCall",
    "OTHER",
    "PAGEABLE",
    "PINNED",
    "STREAM",
    "US",
    "Rig",
    "capture_of_kernels",
    "device_records",
    "run",
    "running_ahead",
    "step_seconds",
    "without_calls",
    "without_unfinished",
]
