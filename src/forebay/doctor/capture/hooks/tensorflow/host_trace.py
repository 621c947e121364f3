"""TensorFlow's own record of what the host does, for as long as it is wanted: when batches were taken, and how large.

Its profiler is told to look at the host alone: the GPU's records are left to whoever wants them.
"""

from time import perf_counter_ns
from typing import NamedTuple

from tensorflow.python.profiler.internal import _pywrap_profiler
from tensorflow.tsl.profiler.protobuf import trace_events_pb2

__all__ = ["Record", "Taken"]

ITS_CLOCK_STARTS = 0.75  # of the way through the profiler's start, which takes some 50 us
LONGEST_START_NS = 1_000_000  # else another process had its turn in it, and nobody knows when the clock started
MOST_STARTS = 5
_TAKES_A_BATCH = ("IteratorGetNextOp::DoCompute", "IteratorGetNextAsOptionalOp::DoCompute")


class _Number:
    """An option of the profiler: it takes what can be an index, and passes over Python's own numbers."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __index__(self) -> int:
        return self._number


_HOST_ALONE = {"host_tracer_level": _Number(2), "device_tracer_level": _Number(0), "python_tracer_level": _Number(0)}


class Taken(NamedTuple):
    """A batch was taken from an iterator."""

    start: int
    end: int
    nbytes: int


class Record:
    """It goes on from when it is made; there can be one in a process, and a second raises."""

    def __init__(self) -> None:
        took = self._start()
        for _ in range(MOST_STARTS - 1):
            if took <= LONGEST_START_NS:
                break
            self._session.stop()
            took = self._start()

    def _start(self) -> int:
        """How long that took."""
        self._session = _pywrap_profiler.ProfilerSession()
        before = perf_counter_ns()
        self._session.start("", _HOST_ALONE)
        took = perf_counter_ns() - before
        self.began = before + int(took * ITS_CLOCK_STARTS)
        return took

    def stop(self) -> list[Taken]:
        """End it, and tell of all batches in the order they were taken."""
        trace = trace_events_pb2.Trace.FromString(self._session.stop())
        taken = []
        for event in trace.trace_events:
            if event.name in _TAKES_A_BATCH:
                start = self.began + event.timestamp_ps // 1000
                nbytes = int(event.args.get("element_size", 0))
                taken.append(Taken(start, start + event.duration_ps // 1000, nbytes))
        return sorted(taken)
