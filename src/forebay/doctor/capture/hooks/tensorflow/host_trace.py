"""A trace of the host by TensorFlow's profiler: when batches were read from iterators, and their sizes.

The profiler traces the host only, so that another profiler can record the GPU.
"""

from time import perf_counter_ns
from typing import NamedTuple

from tensorflow.python.profiler.internal import _pywrap_profiler
from tensorflow.tsl.profiler.protobuf import trace_events_pb2

__all__ = ["BatchRead", "HostTrace"]

CLOCK_START_SHARE = 0.75  # the clock of the trace starts at this share of the profiler's start, which takes about 50 us
MAX_START_NS = 1_000_000  # after a longer start, another process had the core, and the clock's start is unknown
MAX_STARTS = 5
_READ_OPERATIONS = ("IteratorGetNextOp::DoCompute", "IteratorGetNextAsOptionalOp::DoCompute")


class _IndexOption:
    """An option of the profiler, which accepts objects with `__index__` but ignores `int`."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __index__(self) -> int:
        return self._number


_HOST_ONLY = {
    "host_tracer_level": _IndexOption(2),
    "device_tracer_level": _IndexOption(0),
    "python_tracer_level": _IndexOption(0),
}


class BatchRead(NamedTuple):
    """One batch that was read from an iterator. Times are nanoseconds on the clock of the ledger."""

    start: int
    end: int
    nbytes: int


class HostTrace:
    """Traces from its creation to `stop`. A second trace in the process raises."""

    def __init__(self) -> None:
        took_ns = self._start()
        for _ in range(MAX_STARTS - 1):
            if took_ns <= MAX_START_NS:
                break
            self._session.stop()
            took_ns = self._start()

    def _start(self) -> int:
        """Start the profiler; return how long that took, in nanoseconds."""
        self._session = _pywrap_profiler.ProfilerSession()
        before = perf_counter_ns()
        self._session.start("", _HOST_ONLY)
        took_ns = perf_counter_ns() - before
        self.start = before + int(took_ns * CLOCK_START_SHARE)
        return took_ns

    def stop(self) -> list[BatchRead]:
        """Stop the trace and return all reads in the order of their start."""
        trace = trace_events_pb2.Trace.FromString(self._session.stop())
        reads = []
        for event in trace.trace_events:
            if event.name in _READ_OPERATIONS:
                start = self.start + event.timestamp_ps // 1000
                nbytes = int(event.args.get("element_size", 0))
                reads.append(BatchRead(start, start + event.duration_ps // 1000, nbytes))
        return sorted(reads)
