"""The crossings of a run outside of its loop, one by one.

Without a loop, these are all crossings. `report.transfers` has the transfers of the loop, as means per step.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.framework import is_device
from forebay.doctor.analyse.steps import CROSSING_KINDS, Steps
from forebay.doctor.model.capture import Capture
from forebay.doctor.model.events import EventKind, LedgerEvent, Line

__all__ = [
    "MAX_LISTED",
    "WITHIN_HOST",
    "Crossing",
    "CrossingTotal",
    "crossings_of",
    "split_crossings",
    "total_by_line",
    "total_consecutive",
]

MAX_LISTED = 10_000  # crossings that a report lists one by one; it adds up all further crossings by line
TO_DEVICE, TO_HOST, WITHIN_DEVICES = "host to device", "device to host", "device to device"
WITHIN_HOST = "within the host"  # a conversion, or a copy by a framework that sees no device
# Functions that a script calls in order to copy or to wait. A crossing in any other function is an implied crossing.
_EXPLICIT_CALL = re.compile(
    r"""(?:Tensor\.(?:item|tolist|numpy|cpu|to|cuda|copy_)|Module\.(?:to|cuda|cpu)
        |torch\.(?:tensor|as_tensor|from_numpy|asarray)
        |jnp\.(?:array|asarray)|jax\.(?:device_put|device_get)|jax\.Array\.(?:item|tolist|tobytes)
        |jax\.effects_barrier|(?:jax|jax\.Array)\.block_until_ready
        |tf\.(?:constant|convert_to_tensor|identity|Variable)|Variable\.assign
        |cupy\.(?:array|asarray|asanyarray|ascontiguousarray|asnumpy)|cupy\.ndarray\.(?:get|set|item|tolist)
        |(?:float|int|complex)\((?:tensor|array)\)|np\.(?:as)?array\((?:tensor|array)\)
        |.*[sS]ynchronize)""",
    re.VERBOSE,
)
_NUMPY_CALL = re.compile(r"np\.(?:as)?array\((?:tensor|array)\)")


@dataclass(frozen=True, slots=True)
class Crossing:
    """One transfer, one move between devices, or one wait for the device."""

    kind: str  # upload, download, move or sync
    direction: str | None  # TO_DEVICE, TO_HOST, WITHIN_DEVICES or WITHIN_HOST; None for a wait
    api: str
    line: Line | None
    is_implied: bool  # a side effect of a call with another purpose, such as an operation with a NumPy argument
    nbytes: int
    start: float  # seconds since the run started
    seconds: float | None  # duration of the call; None if unknown

    @property
    def call(self) -> tuple[str, str | None, str, Line | None, bool]:
        """The fields that are equal for all crossings of one call on one line."""
        return self.kind, self.direction, self.api, self.line, self.is_implied


@dataclass(frozen=True, slots=True)
class CrossingTotal:
    """The sum of some crossings of one call on one line."""

    kind: str
    direction: str | None
    api: str
    line: Line | None
    is_implied: bool
    count: int
    nbytes: int
    seconds: float | None  # sum of the known durations; None if no duration is known


def crossings_of(view: CaptureView) -> list[Crossing]:
    """Return the crossings in order of time, without those of the loop's steps."""
    events = [event for event in view.capture.events if _is_crossing(event)]
    if view.steps is not None:
        events = list(_events_outside_loop(view, view.steps, events))
    zero = _start_of_run(view.capture)
    return [_make_crossing(view, event, zero) for event in sorted(events, key=lambda event: event.start)]


def split_crossings(crossings: list[Crossing], max_listed: int) -> tuple[list[Crossing], list[CrossingTotal]]:
    """Return the first `max_listed` crossings, and the totals of all further crossings."""
    return crossings[:max_listed], total_by_line(crossings[max_listed:])


def total_by_line(crossings: Iterable[Crossing]) -> list[CrossingTotal]:
    """Return the totals of crossings by call and line, most bytes first."""
    groups: dict[tuple[str, str | None, str, Line | None, bool], list[Crossing]] = {}
    for each in crossings:
        groups.setdefault(each.call, []).append(each)
    return sorted(map(_add_up, groups.values()), key=lambda total: (-total.nbytes, -total.count))


def total_consecutive(crossings: Iterable[Crossing]) -> list[tuple[Crossing, CrossingTotal]]:
    """Add up consecutive crossings of the same call and line.

    Return pairs of the first crossing and the total, in the order of the crossings.
    """
    groups = [list(group) for _, group in groupby(crossings, key=lambda each: each.call)]
    return [(group[0], _add_up(group)) for group in groups]


def _add_up(crossings: list[Crossing]) -> CrossingTotal:
    """Return the total of crossings of the same call."""
    seconds = [each.seconds for each in crossings if each.seconds is not None]
    nbytes = sum(each.nbytes for each in crossings)
    return CrossingTotal(*crossings[0].call, len(crossings), nbytes, sum(seconds) if seconds else None)


def _is_crossing(event: LedgerEvent) -> bool:
    """Whether an event is a transfer, a move between devices or a wait.

    Hooks record the move of a whole model to a device as a BUILD event with the detail `moved_nbytes`.
    """
    return event.kind in CROSSING_KINDS or "moved_nbytes" in (event.detail or {})


def _start_of_run(capture: Capture) -> int:
    """Return when the run started, in nanoseconds.

    Captures of Forebay 0.1 do not store this time. Without a loop, their window starts with the run. With a loop, the
    window starts after the warm-up, so the first event is the best estimate.
    """
    if capture.started is not None:
        return capture.started
    first_event = min((event.start for event in capture.events), default=0)
    return first_event if capture.window.anchor else min(capture.window.start, first_event)


def _events_outside_loop(view: CaptureView, steps: Steps, events: Iterable[LedgerEvent]) -> Iterator[LedgerEvent]:
    """Yield the events that belong to no step, not even to one of the warm-up.

    If no profiled step has events of a call site, assume that all its events are outside of the loop.

    A call site of the loop may also run before or after the loop, for example in a function that other code calls too.
    Let n be the mean number of its events per step. Each anchor event ends a step. So the last n events of a call site
    before the first anchor event belong to the first step. The first n events after the last anchor event belong to a
    step that did not end.
    """
    ends = [event.end for event in view.capture.events if event.site == steps.anchor]
    first, last = min(ends, default=steps.start), max(ends, default=steps.end)
    per_step = {(site.kind.value, site.api, site.line): round(site.per_step) or 1 for site in view.sites}
    groups: dict[tuple[str, str, Line | None], list[LedgerEvent]] = {}
    for event in events:
        groups.setdefault((event.kind, event.api, view.line(event.line)), []).append(event)
    for site, group in groups.items():
        if site not in per_step:
            yield from group
            continue
        before, after = [e for e in group if e.end <= first], [e for e in group if e.start >= last]
        yield from before[: -per_step[site]]
        yield from after[per_step[site] :]


def _make_crossing(view: CaptureView, event: LedgerEvent, zero: int) -> Crossing:
    detail, line, direction = event.detail or {}, view.line(event.line), _direction(view, event)
    kind, nbytes = str(event.kind), event.nbytes
    if event.kind == EventKind.BUILD:  # the move of a model to a device
        kind, nbytes = _KINDS.get(direction or "", EventKind.MOVE).value, int(detail["moved_nbytes"] or 0)
    return Crossing(
        kind=kind,
        direction=direction,
        api=event.api,
        line=line,
        is_implied=bool(detail.get("implied")) or not _is_explicit(event.api, line),
        nbytes=nbytes,
        start=max(0, event.start - zero) / 1e9,
        seconds=None if detail.get("timed") is False else event.seconds,
    )


_KINDS = {TO_DEVICE: EventKind.UPLOAD, TO_HOST: EventKind.DOWNLOAD}  # direction of a moved model -> kind of crossing
_DIRECTIONS = {  # (whether the source is a device, whether the target is a device) -> direction
    (False, False): WITHIN_HOST,
    (False, True): TO_DEVICE,
    (True, False): TO_HOST,
    (True, True): WITHIN_DEVICES,
}


def _direction(view: CaptureView, event: LedgerEvent) -> str | None:
    """Return the direction of a transfer; None for a wait.

    If the event does not name the device, assume that the array is on a GPU if a framework sees one.
    """
    detail = event.detail or {}
    if event.kind == EventKind.SYNC:
        return None
    if event.kind in (EventKind.MOVE, EventKind.BUILD) and detail.get("source"):
        return _DIRECTIONS[is_device(detail["source"]), is_device(detail.get("target") or detail.get("device"))]
    has_device = is_device(detail["device"]) if detail.get("device") else view.has_gpu
    is_read = event.kind == EventKind.DOWNLOAD
    return _DIRECTIONS[has_device and is_read, has_device and not is_read]


def _is_explicit(api: str, line: Line | None) -> bool:
    """Whether the script calls a function whose purpose is to copy or to wait.

    The hooks may record any NumPy function that converts its argument, such as `np.mean(tensor)`, as `np.asarray`. So a
    NumPy conversion is explicit only if the source line contains `array(`.
    """
    if _NUMPY_CALL.fullmatch(api) and line is not None and line.text:
        return "array(" in line.text
    return _EXPLICIT_CALL.fullmatch(api) is not None
