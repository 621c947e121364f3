"""CUDA calls that allocate or free device memory in the loop, and fragmented memory.

Frameworks keep freed memory for later steps, so a loop normally makes no such calls after its first steps. A call takes
up to a millisecond, and a call that frees memory also waits for the device.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.doctor.analyse.attribution import THREAD_ID_MASK, innermost_events
from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.analyse.intervals import Intervals
from forebay.doctor.model.device_records import MEMORY_CALLS, RecordKind, mask_memory_calls
from forebay.doctor.model.events import Line

__all__ = ["Allocations", "Fragmentation", "count_retries", "find_allocations", "find_fragmentation"]


@dataclass(frozen=True, slots=True)
class Allocations:
    """CUDA calls that allocate or free device memory. Numbers are means per recorded step."""

    seconds: float  # time in which at least one thread was in such a call
    calls: float  # number of calls
    function: str  # the CUDA function that takes most of this time, such as cudaFree
    line: Line | None  # the line whose calls take most of this time; None if unknown


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """Free pieces of device memory between tensors.

    A large tensor does not fit into a piece, and PyTorch cannot return the pieces to CUDA.
    """

    device: str
    inactive_nbytes: int  # size of all free pieces
    reserved_nbytes: int  # size of all memory that PyTorch holds on the device
    total_nbytes: int  # size of the device's memory


def find_allocations(view: CaptureView, device_view: DeviceView) -> Allocations | None:
    """Return the allocations in the recorded steps; None if there are none.

    Captures of Forebay 0.1 contain none.
    """
    assert view.capture.device is not None
    records, edges = view.capture.device.records, device_view.edges
    calls = records[mask_memory_calls(records) & (records["start"] >= edges[0]) & (records["start"] < edges[-1])]
    if not len(calls):
        return None
    starts, ends = (calls[name].astype(np.int64).clip(edges[0], edges[-1]) for name in ("start", "end"))
    durations = ends - starts
    functions, positions = np.unique(np.stack([calls["kind"], calls["what"]], 1), axis=0, return_inverse=True)
    kind, number = functions[np.argmax(np.bincount(positions.ravel(), weights=durations))].tolist()
    return Allocations(
        seconds=Intervals(starts, ends).length / 1e9 / len(device_view),
        calls=len(calls) / len(device_view),
        function=MEMORY_CALLS[RecordKind(kind)][number],
        line=_main_line(view, device_view, calls, durations),
    )


def _main_line(view: CaptureView, device_view: DeviceView, calls: Any, durations: Any) -> Line | None:
    """Return the line whose events contain most of the time of the calls, or None."""
    events, starts = device_view.events, calls["start"]
    event_of = innermost_events(events, calls["thread"], starts)
    # A thread that a framework started has no events. It works for the call that the loop makes at that time.
    loop_event_of = innermost_events(events, np.full(len(calls), device_view.thread & THREAD_ID_MASK), starts)
    event_of = np.where(event_of >= 0, event_of, loop_event_of)
    lines = np.array([event.line for event in events] + [-1])[event_of]
    unique_lines, positions = np.unique(lines, return_inverse=True)
    return view.line(int(unique_lines[np.argmax(np.bincount(positions.ravel(), weights=durations))]))


def count_retries(view: CaptureView) -> int:
    """Return how often a failed allocation made PyTorch empty its cache in the loop.

    With several devices, return the largest count of one device.
    """
    counts: dict[str, list[int]] = {}  # by device
    for reading in view.capture.facts.get("memory") or ():
        for device in reading["devices"] if reading["steps"] else ():
            if device.get("retries") is not None:
                counts.setdefault(device["device"], []).append(device["retries"])
    return max((max(readings) - readings[0] for readings in counts.values()), default=0)


def find_fragmentation(view: CaptureView) -> Fragmentation | None:
    """Return the device with the largest share of inactive memory; None if unknown.

    The values are those of the last reading of device memory in the loop.
    """
    readings = [reading for reading in view.capture.facts.get("memory") or () if reading["steps"]]
    found = [
        Fragmentation(device["device"], device["inactive_nbytes"], device["reserved_nbytes"], device["total_nbytes"])
        for device in (readings[-1]["devices"] if readings else ())
        if all(device.get(name) for name in ("inactive_nbytes", "reserved_nbytes", "total_nbytes"))
    ]
    return max(found, key=lambda each: each.inactive_nbytes / each.reserved_nbytes, default=None)
