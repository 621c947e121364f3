"""What some of the device's work takes, whose it is, and what less of it would win. Pure.

A step is as long as the slower of host and device: where the device stands still anyway, saving it work wins nothing.
"""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from forebay.doctor.analyse.case import Case
from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.analyse.intervals import Intervals
from forebay.doctor.model.events import Kind, Line

__all__ = [
    "COLLECTIVE",
    "blocks_of",
    "line_of",
    "named",
    "most_of",
    "seconds_of",
    "threads_of",
    "when",
    "won_on_device",
]

HARDLY = 0.05  # of a step: a device that stands still no longer is what the step waits for
COLLECTIVE = re.compile(r"^nccl", re.IGNORECASE)  # kernels in which several devices work, and wait, together


def named(view: DeviceView, matches: Callable[[str], object]) -> Any:
    """Which of the operations are kernels with such a name."""
    wanted = [place for place, name in enumerate(view.names) if name and matches(name)]
    return view.are_kernels & np.isin(view.operations["name"], wanted)


def when(view: DeviceView, wanted: Any) -> Intervals:
    found, first, last = view.operations[wanted], view.edges[0], view.edges[-1]
    return Intervals(*(found[name].astype(np.int64).clip(first, last) for name in ("start", "end")))


def seconds_of(view: DeviceView, times: Intervals) -> float:
    """Of a mean step."""
    return times.length / 1e9 / view.done


def line_of(case: Case, view: DeviceView, wanted: Any) -> Line | None:
    """The line that most of this time belongs to; None where it is nobody's."""
    number = _largest(view, view.lines, wanted)
    return None if number is None else case.line(number)


def most_of(view: DeviceView, wanted: Any) -> str:
    """The name of the kernel that takes most of this time."""
    number = _largest(view, view.operations["name"].astype(np.int64), wanted)
    return view.names[number] if number is not None else ""


def blocks_of(operations: Any) -> Any:
    return operations["grid"].astype(np.int64).prod(axis=1)


def threads_of(operations: Any) -> Any:
    return blocks_of(operations) * operations["block"].astype(np.int64).prod(axis=1)


def won_on_device(case: Case, view: DeviceView, low: float, high: float) -> tuple[float, float]:
    """At least what is saved beyond the time that the device stands still anyway; at most, what somebody waits for."""
    idle = max(0.0, case.step_seconds - seconds_of(view, view.busy))  # of a step that nobody recorded
    beyond = max(0.0, high - idle)
    most = high if idle <= HARDLY * case.step_seconds else min(high, beyond + _waited_for(case))
    most = min(most, case.step_seconds)
    return min(most, max(0.0, low - idle)), most


def _waited_for(case: Case) -> float:
    """Seconds of a step in calls that return when the device has done what was queued before."""
    return sum(site.seconds for site in case.of(Kind.DOWNLOAD, Kind.SYNC, Kind.UPLOAD, Kind.MOVE))


def _largest(view: DeviceView, labels: Any, wanted: Any) -> int | None:
    found = view.operations[wanted]
    if not len(found):
        return None
    names, places = np.unique(labels[wanted], return_inverse=True)
    lasted = found["end"].astype(np.int64) - found["start"].astype(np.int64)
    return int(names[np.argmax(np.bincount(places, weights=lasted))])
