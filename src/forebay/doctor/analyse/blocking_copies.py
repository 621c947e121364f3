"""Copies that block a call: the call that copies, or a compiled call that fetches its batch."""

from typing import Any

import numpy as np

from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.model.device_records import ASYNC, CopyKind
from forebay.doctor.model.events import EventKind

__all__ = ["CLOCK_SLACK_NS", "mask_batch_fetches", "mask_blocking_copies"]

CLOCK_SLACK_NS = 3_000  # largest difference between the clocks of host and device
SMALL_COPY_NBYTES = 64 << 10  # bytes; CUDA stages smaller uploads from pageable memory without blocking (CUDA manual)


def mask_blocking_copies(device_view: DeviceView) -> Any:
    """Return which copies block their call.

    These are synchronous copies, and copies of pageable memory that are too large to stage. A call may return slightly
    before its copy ends.
    """
    copies, calls = device_view.operations, device_view.calls
    to_device = copies["what"] == CopyKind.HOST_TO_DEVICE
    held = device_view.is_pageable & ~(to_device & (copies["nbytes"] <= SMALL_COPY_NBYTES))
    if not len(calls):
        return np.zeros(len(copies), bool)
    begun = (device_view.call_of >= 0) & (copies["start"] <= calls["end"][device_view.call_of] + CLOCK_SLACK_NS)
    return ~device_view.is_kernel & begun & (held | (copies["flags"] & ASYNC == 0))


def mask_batch_fetches(device_view: DeviceView) -> Any:
    """Return which uploads block a compiled call of the loop.

    Such a call fetches its batch itself and launches nothing until the batch has arrived.
    """
    runs = np.array(
        [event.kind == EventKind.RUN and event.thread == device_view.thread for event in device_view.events] + [False]
    )
    to_device = device_view.operations["what"] == CopyKind.HOST_TO_DEVICE
    wanted = mask_blocking_copies(device_view) & to_device & runs[device_view.event_of]
    launched = np.sort(device_view.calls["start"][device_view.is_launch])
    since, until = (
        np.searchsorted(launched, times) for times in (device_view.called_at, device_view.operations["end"])
    )
    return wanted & (since == until)
