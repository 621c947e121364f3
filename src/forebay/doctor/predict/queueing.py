"""How operations came to the device: which call of the loop's queued each, and which call stood still for which. Pure.

Where CUDA's calls were recorded, they say so. Where they were not, an operation counts as queued by the event that
owns it, by the compiled call before it, or by whatever the loop did when it began; and an event that reads a value
stood still until the last operation that ended meanwhile.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from forebay.doctor.analyse.device import DeviceView
from forebay.doctor.analyse.owners import NOBODY, THREAD_BITS
from forebay.doctor.events import Kind
from forebay.doctor.predict.host import WAITS, Piece
from forebay.doctor.recorded import CopyKind

__all__ = ["Call", "Queued", "calls_in"]

SLACK = 3_000  # nanoseconds that the clocks of host and device may be apart
LONGEST_LAUNCH = 20_000  # nanoseconds: a longer one waits for room in the device's queue
SHORTEST_STAGING = 50_000  # nanoseconds between an upload's end and its copy: somebody made the data ready meanwhile

_ASKS = (1, 3, 4)  # CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_*: of an event, a stream, a context
_CROSSINGS: dict[str, tuple[int, ...]] = {
    Kind.UPLOAD: (CopyKind.HOST_TO_DEVICE,),
    Kind.DOWNLOAD: (CopyKind.DEVICE_TO_HOST,),
    Kind.MOVE: (CopyKind.HOST_TO_DEVICE, CopyKind.DEVICE_TO_HOST),
}


@dataclass(slots=True)
class Call:
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
        return min(own, LONGEST_LAUNCH) if self.launches else own


@dataclass(slots=True)
class Queued:
    """Calls in the order of time, when each operation was queued, and those that had to be made ready before.

    What makes the data of a copy ready is an operation too: its place is that of its copy, behind all of the view's.
    """

    calls: list[Call]
    when: Any  # nanoseconds, beside the view's operations; -1 for those of other steps
    starts: Any  # nanoseconds, beside them: when they began, or would have if the device had not lagged behind
    ends: Any  # of the view's operations, and then of what made each ready
    staged: dict[int, int] = field(default_factory=dict)  # nanoseconds, by place of the copy


def calls_in(view: DeviceView, steps: Sequence[Sequence[Piece]]) -> Queued:
    """Everything that these steps' pieces of the loop's thread queued and waited for."""
    loop = _Loop([piece for pieces in steps for piece in pieces])
    starts, ends = view.operations["start"].astype(np.int64), view.operations["end"].astype(np.int64)
    when = np.full(len(starts), NOBODY, np.int64)
    queued = Queued([], when, starts, np.concatenate([ends, starts]))
    if view.lags:
        queued.starts = _as_if_on_time(len(starts), view.period, steps)
    _add_recorded(queued, view, loop)
    _add_guessed(queued, view, loop)
    if not view.lags:
        _add_told_waits(queued, view, loop)
    queued.calls.sort(key=lambda call: (call.start, bool(call.awaits), call.end))
    return queued


class _Loop:
    """The loop's pieces, asked what went on at a moment."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = pieces
        self._starts = np.array([piece.start for piece in pieces], np.int64)
        self._ends = np.array([piece.end for piece in pieces], np.int64)
        self.runs = [piece for piece in pieces if piece.kind == Kind.RUN]
        self.places = {piece.place: piece for piece in reversed(pieces) if piece.place >= 0}

    def at(self, times: Any) -> Any:
        """Which piece holds each moment; -1 for none."""
        place = np.searchsorted(self._starts, times, "right") - 1
        return np.where((place >= 0) & (times < self._ends[place]), place, NOBODY)


def _as_if_on_time(count: int, period: int, steps: Sequence[Sequence[Piece]]) -> Any:
    """When operations would begin if the device kept pace: each step's share of them, spread over it."""
    step, place = np.divmod(np.arange(count), period)
    edges = np.array([[pieces[0].start, pieces[-1].end] for pieces in steps], np.int64)
    inside = step < len(steps)
    begin, end = edges[np.minimum(step, len(steps) - 1)].T
    return np.where(inside, begin + (end - begin) * place // period, NOBODY)


def _add_recorded(queued: Queued, view: DeviceView, loop: _Loop) -> None:
    """Calls of the loop's thread; and of others those that queue something, at no cost to the loop."""
    calls = view.calls
    starts, ends = calls["start"].astype(np.int64), calls["end"].astype(np.int64)
    own = calls["thread"] == view.thread & THREAD_BITS
    queues = np.isin(np.arange(len(calls)), view.call_of)
    here, launches = (loop.at(starts) >= 0) & (own | queues), view.are_launches
    found = {
        place: Call(int(starts[place]), int(ends[place] if own[place] else starts[place]), launches=launches[place])
        for place in np.flatnonzero(here).tolist()
    }
    for number in np.flatnonzero(view.call_of >= 0).tolist():
        place = int(view.call_of[number])
        queued.when[number] = starts[place]
        if place in found:
            found[place].queues.append(number)
    _stand_still(view, {place: call for place, call in found.items() if own[place] and not call.launches})
    queued.calls += found.values()


def _stand_still(view: DeviceView, calls: dict[int, Call]) -> None:
    """Let each call that waits know for what: a copy for itself, others for the last operation that ended meanwhile."""
    ends = view.operations["end"].astype(np.int64)
    ended, waits = _Ended(ends), _are_waits(view)
    for place, call in calls.items():
        if call.queues:
            call.awaits += [number for number in call.queues if ends[number] <= call.end + SLACK]
        elif waits[place]:
            call.awaits += ended.last(call.start, call.end + SLACK)


def _are_waits(view: DeviceView) -> Any:
    """Which calls stand still until the device is done: CUPTI counts a wait for them."""
    counted = view.syncs["correlation"][np.isin(view.syncs["what"], _ASKS)]
    return np.isin(view.calls["correlation"], counted)


class _Ended:
    """Operations by when they ended."""

    def __init__(self, ends: Any) -> None:
        self._order = np.argsort(ends, kind="stable")
        self._rising = ends[self._order]

    def last(self, start: int, end: int) -> list[int]:
        """The last one that ended between these times, if any did."""
        at = int(np.searchsorted(self._rising, end, "right")) - 1
        return [int(self._order[at])] if at >= 0 and self._rising[at] > start else []


def _add_guessed(queued: Queued, view: DeviceView, loop: _Loop) -> None:
    """A call for every operation of these steps of which no call was recorded."""
    holding = loop.at(queued.starts)
    for number in np.flatnonzero((queued.when == NOBODY) & (holding >= 0)).tolist():
        piece, start = loop.pieces[holding[number]], int(queued.starts[number])
        owner = _owning(view, loop, number, piece, start)
        if owner is not None:
            asked = min(start, owner.start if owner.kind in WAITS else owner.end - 1)
            staging = start - owner.end
            if owner.kind == Kind.UPLOAD and staging > SHORTEST_STAGING and not view.lags:
                queued.staged[number] = staging
        else:
            asked = _asked_at(start, loop.runs, piece)
        queued.when[number] = asked
        made_ready = [number + len(queued.starts)] if number in queued.staged else []
        call = Call(asked, asked, [*made_ready, number], launches=owner is None)
        queued.calls.append(call)


def _owning(view: DeviceView, loop: _Loop, number: int, piece: Piece, start: int) -> Piece | None:
    """The piece of the event that owns a copy; where the device lags, one like it in the same step."""
    place = int(view.owners[number])
    if place < 0 or not _is_crossing(view, number, place):
        return None
    if not view.lags:
        own = loop.places.get(place)
        return own if own is not None and own.start <= start else None
    event = view.events[place]
    at = loop.pieces.index(piece)
    nearby = sorted(range(len(loop.pieces)), key=lambda other: abs(other - at))
    return next((p for p in map(loop.pieces.__getitem__, nearby) if (p.kind, p.line) == (event.kind, event.line)), None)


def _asked_at(start: int, runs: Sequence[Piece], piece: Piece) -> int:
    """Inside the last compiled call; else when it began, unless the loop was inside an event that launches none."""
    before = next((run for run in reversed(runs) if run.start <= start), None)
    if before is not None:
        return min(start, before.end)
    return start if piece.place < 0 or piece.kind == Kind.TRANSFORM else piece.start


def _add_told_waits(queued: Queued, view: DeviceView, loop: _Loop) -> None:
    """Events that stood still though no recorded call did: those that read, uploads that ended with their copy, and
    calls that went on when somebody had made an upload ready."""
    ended, copied = _Ended(queued.ends[: len(queued.starts)]), _copies_by_owner(view)
    stood = np.array(sorted(call.start for call in queued.calls if call.awaits), np.int64)
    asking = np.sort(view.syncs["start"][np.isin(view.syncs["what"], _ASKS)].astype(np.int64))
    for piece in loop.pieces:
        if piece.place < 0 or np.diff(np.searchsorted(stood, (piece.start, piece.end))).any():
            continue
        limit = piece.end + SLACK
        awaits = [number for number in copied.get(piece.place, ()) if queued.ends[number] <= limit]
        if piece.kind in WAITS and not awaits:
            awaits = ended.last(piece.start, limit)
        elif piece.kind == Kind.RUN:
            ready = (number + len(queued.starts) for number in queued.staged)
            awaits = [number for number in ready if piece.start < queued.ends[number] <= limit]
        if awaits:
            since = max([piece.start, *(int(queued.when[n]) for n in awaits if n < len(queued.when))])
            until = min(piece.end, max(int(queued.ends[number]) for number in awaits))
            sleeps = not np.diff(np.searchsorted(asking, (piece.start, piece.end))).any()
            queued.calls.append(Call(since, max(since, until), awaits=awaits, sleeps=sleeps))


def _copies_by_owner(view: DeviceView) -> dict[int, list[int]]:
    """Those that are most of what their event says it crosses."""
    found: dict[int, list[int]] = {}
    for number in np.flatnonzero(~view.are_kernels & (view.owners >= 0)).tolist():
        place = int(view.owners[number])
        if _is_crossing(view, number, place) and view.operations["nbytes"][number] >= view.events[place].nbytes / 2:
            found.setdefault(place, []).append(number)
    return found


def _is_crossing(view: DeviceView, number: int, place: int) -> bool:
    """Whether an operation is a copy in the direction of the event that owns it."""
    copies = not view.are_kernels[number]
    return copies and int(view.operations["what"][number]) in _CROSSINGS.get(view.events[place].kind, ())
