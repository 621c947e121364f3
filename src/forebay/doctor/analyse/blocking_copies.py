"""Copies that somebody stands still for: the call that copies, or the compiled call whose batch it is. Pure."""

from typing import Any

import numpy as np

from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.model.device_records import ASYNC, CopyKind
from forebay.doctor.model.events import Kind

__all__ = ["SLACK", "are_blocking", "are_held"]

SLACK = 3_000  # nanoseconds that the clocks of host and device may be apart
LITTLE = 64 << 10  # bytes out of ordinary memory that a copy to the device takes along, as CUDA's manual says


def are_blocking(view: DeviceView) -> Any:
    """Which copies their call stands still for: those that were asked for that way, and those of ordinary memory, out
    of which CUDA takes only a little without holding the call. It is told that it is done a little before it is."""
    copies, calls = view.operations, view.calls
    to_device = copies["what"] == CopyKind.HOST_TO_DEVICE
    held = view.are_pageable & ~(to_device & (copies["nbytes"] <= LITTLE))
    if not len(calls):
        return np.zeros(len(copies), bool)
    begun = (view.call_of >= 0) & (copies["start"] <= calls["end"][view.call_of] + SLACK)
    return ~view.are_kernels & begun & (held | (copies["flags"] & ASYNC == 0))


def are_held(view: DeviceView) -> Any:
    """Which copies to the device a compiled call of the loop's stands still for: it fetches its batch by itself, and
    launches nothing until that is there."""
    runs = np.array([event.kind == Kind.RUN and event.thread == view.thread for event in view.events] + [False])
    to_device = view.operations["what"] == CopyKind.HOST_TO_DEVICE
    wanted = are_blocking(view) & to_device & runs[view.owners]
    launched = np.sort(view.calls["start"][view.are_launches])
    since, until = (np.searchsorted(launched, times) for times in (view.asked, view.operations["end"]))
    return wanted & (since == until)
