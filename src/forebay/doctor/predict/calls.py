"""CUDA calls of a loop, with the operations they queue and wait for."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from forebay.doctor.analyse.attribution import NO_MATCH
from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.model.device_records import CopyKind
from forebay.doctor.model.events import EventKind
from forebay.doctor.predict.host_time import HostInterval

__all__ = ["CudaCall", "LoopIntervals", "QueuedCalls", "is_transfer"]

LONGEST_LAUNCH_NS = 20_000  # per operation; a longer launch waits for space in the queue of the device

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
    queues: list[int] = field(default_factory=list)  # operations, by their index in the device view
    awaits: list[int] = field(default_factory=list)
    launches: bool = False  # whether it launches kernels, inside or outside an event
    sleeps: bool = False  # whether the thread sleeps during the wait; CUDA itself polls

    def own_nanoseconds(self, ends: Any) -> int:
        """Return the duration without waits."""
        until = max((int(ends[number]) for number in self.awaits), default=self.start)
        own = self.end - self.start - max(0, min(until, self.end) - self.start)
        return min(own, LONGEST_LAUNCH_NS * len(self.queues)) if self.launches else own


@dataclass(slots=True)
class QueuedCalls:
    """Calls in order of time, with the queueing time of each operation.

    The preparation of the data of a copy is an operation too. Its index is that of the copy plus the number of
    operations in the device view.
    """

    calls: list[CudaCall]
    when: Any  # nanoseconds when each operation was queued; -1 for other steps
    starts: Any  # nanoseconds when each operation began, or would begin without lag
    ends: Any  # end times of all operations, then of all preparations
    staged: dict[int, int] = field(default_factory=dict)  # nanoseconds of preparation, by index of the copy

    def at(self, call: CudaCall) -> int:
        """Return when a call queued its first operation; its end if it queued none."""
        return max(call.start, min((int(self.when[n]) for n in call.queues if n < len(self.when)), default=call.end))


class LoopIntervals:
    """The host intervals of the loop, with lookup by time and by event."""

    def __init__(self, pieces: Sequence[HostInterval]) -> None:
        self.pieces = pieces
        self._starts = np.array([piece.start for piece in pieces], np.int64)
        self._ends = np.array([piece.end for piece in pieces], np.int64)
        self.runs = [piece for piece in pieces if piece.kind == EventKind.RUN]
        self.places = {piece.place: piece for piece in reversed(pieces) if piece.place >= 0}

    def at(self, times: Any) -> Any:
        """Return the index of the interval that contains each time; -1 for none."""
        place = np.searchsorted(self._starts, times, "right") - 1
        return np.where((place >= 0) & (times < self._ends[place]), place, NO_MATCH)


def is_transfer(device_view: DeviceView, number: int, place: int) -> bool:
    """Whether an operation is a copy in the direction of its event."""
    copies = not device_view.is_kernel[number]
    return copies and int(device_view.operations["what"][number]) in _COPY_DIRECTIONS.get(
        device_view.events[place].kind, ()
    )
