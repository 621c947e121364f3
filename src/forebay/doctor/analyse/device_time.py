"""The time of selected device work, its source line, and the gain of reducing it.

A step is as long as the slower of host and device. While the device is idle anyway, less device work gains nothing.
"""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.analyse.intervals import Intervals
from forebay.doctor.model.events import EventKind, Line

__all__ = [
    "COLLECTIVE",
    "count_blocks",
    "main_line",
    "mask_kernels_named",
    "main_kernel",
    "seconds_per_step",
    "count_threads",
    "intervals_of",
    "gain_on_device",
]

SMALL_IDLE_SHARE = 0.05  # of a step; a device that is idle for less determines the step time
COLLECTIVE = re.compile(r"^nccl", re.IGNORECASE)  # kernels in which several devices communicate


def mask_kernels_named(device_view: DeviceView, matches: Callable[[str], object]) -> Any:
    """Return which operations are kernels with a matching name."""
    wanted = [place for place, name in enumerate(device_view.names) if name and matches(name)]
    return device_view.is_kernel & np.isin(device_view.operations["name"], wanted)


def intervals_of(device_view: DeviceView, wanted: Any) -> Intervals:
    found, first, last = device_view.operations[wanted], device_view.edges[0], device_view.edges[-1]
    return Intervals(*(found[name].astype(np.int64).clip(first, last) for name in ("start", "end")))


def seconds_per_step(device_view: DeviceView, times: Intervals) -> float:
    """Return the seconds in a mean step."""
    return times.length / 1e9 / device_view.steps_done


def main_line(view: CaptureView, device_view: DeviceView, wanted: Any) -> Line | None:
    """Return the line with most of this time; None if unknown."""
    number = _longest_label(device_view, device_view.lines, wanted)
    return None if number is None else view.line(number)


def main_kernel(device_view: DeviceView, wanted: Any) -> str:
    """Return the name of the kernel with most of this time."""
    number = _longest_label(device_view, device_view.operations["name"].astype(np.int64), wanted)
    return device_view.names[number] if number is not None else ""


def count_blocks(operations: Any) -> Any:
    return operations["grid"].astype(np.int64).prod(axis=1)


def count_threads(operations: Any) -> Any:
    return count_blocks(operations) * operations["block"].astype(np.int64).prod(axis=1)


def gain_on_device(view: CaptureView, device_view: DeviceView, low: float, high: float) -> tuple[float, float]:
    """Return the least and the largest gain of reducing device work by `low` to `high` seconds.

    The least gain is what exceeds the idle time of the device. The largest adds the time of blocking calls.
    """
    idle = max(0.0, view.step_seconds - seconds_per_step(device_view, device_view.busy))  # in an unrecorded step
    beyond = max(0.0, high - idle)
    most = high if idle <= SMALL_IDLE_SHARE * view.step_seconds else min(high, beyond + _blocking_seconds(view))
    most = min(most, view.step_seconds)
    return min(most, max(0.0, low - idle)), most


def _blocking_seconds(view: CaptureView) -> float:
    """Return the seconds per step in calls that wait for earlier device work."""
    return sum(
        site.seconds for site in view.sites_of(EventKind.DOWNLOAD, EventKind.SYNC, EventKind.UPLOAD, EventKind.MOVE)
    )


def _longest_label(device_view: DeviceView, labels: Any, wanted: Any) -> int | None:
    found = device_view.operations[wanted]
    if not len(found):
        return None
    names, places = np.unique(labels[wanted], return_inverse=True)
    lasted = found["end"].astype(np.int64) - found["start"].astype(np.int64)
    return int(names[np.argmax(np.bincount(places, weights=lasted))])
