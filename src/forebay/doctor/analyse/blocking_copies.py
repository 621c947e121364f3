"""Masks of copies that block a host call.

A copy may block the CUDA call that starts it, or a compiled call that fetches its batch.
"""

from typing import Any

import numpy as np

from forebay.doctor.analyse.attribution import CLOCK_SLACK_NS
from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.model.device_records import ASYNC, CopyKind
from forebay.doctor.model.events import EventKind

__all__ = ["mask_batch_fetches", "mask_blocking_copies"]

# Bytes. For an upload of at most this size from pageable memory, the call returns as soon as CUDA has copied the data
# to a buffer on the host (CUDA manual). So such an upload does not block its call.
SMALL_COPY_NBYTES = 64 << 10


def mask_blocking_copies(device_view: DeviceView) -> Any:
    """Return a mask of the operations that are copies and block their call.

    A copy blocks its call if it is synchronous, or if it uses pageable memory and is not an upload of at most
    SMALL_COPY_NBYTES. A call may return slightly before its copy ends, so the mask requires only that the copy starts
    before the call ends. Copies without a recorded call are not in the mask.
    """
    operations, calls = device_view.operations, device_view.calls
    to_device = operations["what"] == CopyKind.HOST_TO_DEVICE
    waits_for_staging = device_view.is_pageable & ~(to_device & (operations["nbytes"] <= SMALL_COPY_NBYTES))
    if not len(calls):
        return np.zeros(len(operations), bool)
    starts_in_call = (device_view.call_of >= 0) & (
        operations["start"] <= calls["end"][device_view.call_of] + CLOCK_SLACK_NS
    )
    return ~device_view.is_kernel & starts_in_call & (waits_for_staging | (operations["flags"] & ASYNC == 0))


def mask_batch_fetches(device_view: DeviceView) -> Any:
    """Return a mask of the uploads that block a compiled call of the loop.

    Such a call fetches its batch itself and launches no kernel until the batch has arrived. So the mask has only
    uploads without a launch between the start of their CUDA call and the end of the copy.
    """
    is_run_of_loop = np.array(
        [event.kind == EventKind.RUN and event.thread == device_view.thread for event in device_view.events] + [False]
    )
    to_device = device_view.operations["what"] == CopyKind.HOST_TO_DEVICE
    is_upload_of_run = mask_blocking_copies(device_view) & to_device & is_run_of_loop[device_view.event_of]
    launch_starts = np.sort(device_view.calls["start"][device_view.is_launch])
    launches_before_call, launches_before_end = (
        np.searchsorted(launch_starts, times) for times in (device_view.call_starts, device_view.operations["end"])
    )
    return is_upload_of_run & (launches_before_call == launches_before_end)
