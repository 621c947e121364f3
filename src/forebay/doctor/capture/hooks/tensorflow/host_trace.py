"""A trace by TensorFlow's profiler: when TensorFlow read batches from iterators, and their sizes.

The profiler traces only the host, so that the doctor can record the GPU at the same time.
"""

from time import perf_counter_ns
from typing import NamedTuple

from tensorflow.python.profiler.internal import _pywrap_profiler
from tensorflow.tsl.profiler.protobuf import trace_events_pb2

__all__ = ["BatchRead", "HostTrace"]

# The start of the profiler takes about 50 us. The times in a trace count from a moment during this start. The doctor
# assumes that this share of the start has then passed.
CLOCK_ZERO_SHARE = 0.75
MAX_START_NS = 1_000_000  # another process has interrupted a start that takes longer, so the estimate would be wrong
MAX_STARTS = 5  # attempts to start without an interruption; after the last attempt, the trace runs in any case
_READ_OPERATIONS = ("IteratorGetNextOp::DoCompute", "IteratorGetNextAsOptionalOp::DoCompute")


class _IndexOption:
    """An option of the profiler, which ignores `int` but accepts objects with `__index__`."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __index__(self) -> int:
        return self._number


_HOST_ONLY = {  # 0: off
    "host_tracer_level": _IndexOption(2),
    "device_tracer_level": _IndexOption(0),
    "python_tracer_level": _IndexOption(0),
}


class BatchRead(NamedTuple):
    """One batch that TensorFlow read from an iterator. Times are nanoseconds of `perf_counter_ns`."""

    start: int
    end: int
    nbytes: int


class HostTrace:
    """Traces from its creation to `stop`. Creation raises if the process is already being traced."""

    def __init__(self) -> None:
        start_duration_ns = self._start()
        for _ in range(MAX_STARTS - 1):
            if start_duration_ns <= MAX_START_NS:
                break
            self._session.stop()
            start_duration_ns = self._start()

    def _start(self) -> int:
        """Start the profiler; return how long the start took, in nanoseconds."""
        self._session = _pywrap_profiler.ProfilerSession()
        before = perf_counter_ns()
        self._session.start("", _HOST_ONLY)
        duration_ns = perf_counter_ns() - before
        self.start = before + int(duration_ns * CLOCK_ZERO_SHARE)  # zero of the times in the trace
        return duration_ns

    def stop(self) -> list[BatchRead]:
        """Stop the trace; return all reads, ordered by start."""
        trace = trace_events_pb2.Trace.FromString(self._session.stop())
        reads = []
        for event in trace.trace_events:
            if event.name in _READ_OPERATIONS:
                start = self.start + event.timestamp_ps // 1000
                nbytes = int(event.args.get("element_size", 0))
                reads.append(BatchRead(start, start + event.duration_ps // 1000, nbytes))
        return sorted(reads)
