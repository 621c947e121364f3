"""CUDA calls of the training loop, with the operations that they queue and wait for."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from forebay.doctor.analyse.attribution import NO_MATCH
from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.model.device_records import CopyKind
from forebay.doctor.model.events import EventKind
from forebay.doctor.predict.host_time import HostInterval

__all__ = ["CudaCall", "LoopCalls", "LoopIntervals", "is_transfer"]

MAX_LAUNCH_NS = 20_000  # nanoseconds per operation; a longer launch waits for space in the queue of the device

# Kind of an event -> directions of the copies that such an event makes.
_COPY_DIRECTIONS: dict[str, tuple[int, ...]] = {
    EventKind.UPLOAD: (CopyKind.HOST_TO_DEVICE,),
    EventKind.DOWNLOAD: (CopyKind.DEVICE_TO_HOST,),
    EventKind.MOVE: (CopyKind.HOST_TO_DEVICE, CopyKind.DEVICE_TO_HOST),
}


@dataclass(slots=True)
class CudaCall:
    """A recorded or inferred CUDA call; times are in nanoseconds."""

    start: int
    end: int
    queued_operations: list[int] = field(default_factory=list)  # indices into the operations of the device view
    awaited_operations: list[int] = field(default_factory=list)  # indices of the operations that it waits for
    launches: bool = False  # whether the call launches kernels
    sleeps: bool = False  # whether the thread sleeps during the wait; a thread that waits in a CUDA call polls

    def own_nanoseconds(self, operation_ends: Any) -> int:
        """Return the duration of the call without its waits, in nanoseconds.

        A call that launches kernels counts for at most MAX_LAUNCH_NS per operation.
        """
        wait_end = max((int(operation_ends[index]) for index in self.awaited_operations), default=self.start)
        own = self.end - self.start - max(0, min(wait_end, self.end) - self.start)
        return min(own, MAX_LAUNCH_NS * len(self.queued_operations)) if self.launches else own


@dataclass(slots=True)
class LoopCalls:
    """The CUDA calls of the loop in order of time, and the times of operations.

    Before some copies, another thread prepares the data. Such a preparation counts as an operation. Its index is the
    index of the copy plus the number of operations in the device view. All times are in nanoseconds.
    """

    calls: list[CudaCall]
    queue_times: Any  # when the host queued each operation; -1 if unknown
    start_times: Any  # of each operation; if the device lags behind, estimates of the times without the lag
    end_times: Any  # of all operations, then of all preparations
    preparation_ns: dict[int, int] = field(default_factory=dict)  # duration of the preparation, by index of the copy

    def first_queue_time(self, call: CudaCall) -> int:
        """Return when a call queued its first operation, or its end if it queued none."""
        count = len(self.queue_times)
        times = (int(self.queue_times[index]) for index in call.queued_operations if index < count)
        return max(call.start, min(times, default=call.end))


class LoopIntervals:
    """The host intervals of the loop, with lookup by time and by event."""

    def __init__(self, intervals: Sequence[HostInterval]) -> None:
        self.intervals = intervals
        self._starts = np.array([interval.start for interval in intervals], np.int64)
        self._ends = np.array([interval.end for interval in intervals], np.int64)
        self.compiled_calls = [interval for interval in intervals if interval.kind == EventKind.RUN]
        # An event with nested events has several intervals; its first interval counts.
        self.by_event = {
            interval.event_index: interval for interval in reversed(intervals) if interval.event_index >= 0
        }

    def indices_at(self, times: Any) -> Any:
        """Return for each time the index of the interval that contains it, or -1."""
        index = np.searchsorted(self._starts, times, "right") - 1
        return np.where((index >= 0) & (times < self._ends[index]), index, NO_MATCH)


def is_transfer(device_view: DeviceView, operation_index: int, event_index: int) -> bool:
    """Whether an operation is a copy in a direction in which this event copies."""
    is_copy = not device_view.is_kernel[operation_index]
    return is_copy and int(device_view.operations["what"][operation_index]) in _COPY_DIRECTIONS.get(
        device_view.events[event_index].kind, ()
    )
