"""What a loop asked of its device, as values: calls, what they queued and waited for, and the loop's time. Pure."""

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

LONGEST_LAUNCH_NS = 20_000  # nanoseconds for an operation: a longer one waits for room in the device's queue

_COPY_DIRECTIONS: dict[str, tuple[int, ...]] = {
    EventKind.UPLOAD: (CopyKind.HOST_TO_DEVICE,),
    EventKind.DOWNLOAD: (CopyKind.DEVICE_TO_HOST,),
    EventKind.MOVE: (CopyKind.HOST_TO_DEVICE, CopyKind.DEVICE_TO_HOST),
}


@dataclass(slots=True)
class CudaCall:
    """Something the host asked of CUDA, or must have asked; nanoseconds."""

    start: int
    end: int
    queues: list[int] = field(default_factory=list)  # operations, by their place in the view
    awaits: list[int] = field(default_factory=list)
    launches: bool = False  # kernels, whatever event they fall into
    sleeps: bool = False  # while it waits; a wait of CUDA's own asks all the time whether it is over

    def own_nanoseconds(self, ends: Any) -> int:
        """Without the time it stood still."""
        until = max((int(ends[number]) for number in self.awaits), default=self.start)
        own = self.end - self.start - max(0, min(until, self.end) - self.start)
        return min(own, LONGEST_LAUNCH_NS * len(self.queues)) if self.launches else own


@dataclass(slots=True)
class QueuedCalls:
    """Calls in the order of time, when each operation was queued, and those that had to be made ready before.

    What makes the data of a copy ready is an operation too: its place is that of its copy, behind all of the view's.
    """

    calls: list[CudaCall]
    when: Any  # nanoseconds, beside the view's operations; -1 for those of other steps
    starts: Any  # nanoseconds, beside them: when they began, or would have if the device had not lagged behind
    ends: Any  # of the view's operations, and then of what made each ready
    staged: dict[int, int] = field(default_factory=dict)  # nanoseconds, by place of the copy

    def at(self, call: CudaCall) -> int:
        """When a call queued the first of its operations; its end where it queued none."""
        return max(call.start, min((int(self.when[n]) for n in call.queues if n < len(self.when)), default=call.end))


class LoopIntervals:
    """The loop's pieces, asked what went on at a moment."""

    def __init__(self, pieces: Sequence[HostInterval]) -> None:
        self.pieces = pieces
        self._starts = np.array([piece.start for piece in pieces], np.int64)
        self._ends = np.array([piece.end for piece in pieces], np.int64)
        self.runs = [piece for piece in pieces if piece.kind == EventKind.RUN]
        self.places = {piece.place: piece for piece in reversed(pieces) if piece.place >= 0}

    def at(self, times: Any) -> Any:
        """Which piece holds each moment; -1 for none."""
        place = np.searchsorted(self._starts, times, "right") - 1
        return np.where((place >= 0) & (times < self._ends[place]), place, NO_MATCH)


def is_transfer(device_view: DeviceView, number: int, place: int) -> bool:
    """Whether an operation is a copy in the direction of the event that owns it."""
    copies = not device_view.is_kernel[number]
    return copies and int(device_view.operations["what"][number]) in _COPY_DIRECTIONS.get(
        device_view.events[place].kind, ()
    )
