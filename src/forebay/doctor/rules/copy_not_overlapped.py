"""The rule for uploads that the device waits for although they could be prefetched.

The rule looks at copies from page-locked memory, and at copies of compiled calls that fetch their own batch. It skips
copies that another rule explains. XProf reports such input time from 5 % of a step on, TraceML from 10 % on.
"""

from collections.abc import Iterator
from functools import reduce
from statistics import mode
from typing import Any

import numpy as np

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.blocking_copies import mask_batch_fetches
from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.device_time import main_line, seconds_per_step
from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.analyse.framework import feed_framework
from forebay.doctor.analyse.intervals import Intervals
from forebay.doctor.model.device_records import CopyKind, MemoryKind, RecordKind
from forebay.doctor.model.events import EventKind
from forebay.doctor.model.formatting import format_percent, format_seconds
from forebay.doctor.predict.upload_cure_changes import overlap_copies, prefetch_line_with_feed
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.fitted_code import fit_feed
from forebay.doctor.rules.precedence import PRECEDENCE, RuleView
from forebay.doctor.rules.wording import feed_code

__all__ = ["examine"]

MIN_REPORTED_SHARE = 0.05  # share of a step, as in XProf
WAIT_NS = 20_000  # nanoseconds; a kernel that starts at most this long after the end of a copy waited for the copy
BASIS = "the copies overlap the computation"


def examine(view: RuleView) -> Iterator[Finding]:
    """Yield a finding if uploads without overlap take a reportable share of a step."""
    device_view = view.device
    if device_view is None or not view.step_seconds:
        return
    unexplained = _unexplained_copies(view, device_view)
    is_page_locked = device_view.operations["source"] == MemoryKind.PINNED
    copies = _mask_awaited(device_view, unexplained & is_page_locked) | (unexplained & mask_batch_fetches(device_view))
    uploads = _upload_intervals(device_view, copies)
    cost = min(seconds_per_step(device_view, uploads.difference(device_view.computing_intervals)), view.step_seconds)
    if cost >= MIN_REPORTED_SHARE * view.step_seconds:
        yield _finding(view, device_view, copies, cost, seconds_per_step(device_view, uploads))


def _unexplained_copies(view: RuleView, device_view: DeviceView) -> Any:
    """Return a mask of the copies to the device that no other rule explains."""
    operations = device_view.operations
    copies = (operations["kind"] == RecordKind.MEMCPY) & (operations["what"] == CopyKind.HOST_TO_DEVICE)
    explained_lines = [
        event.line for rule in PRECEDENCE[EventKind.UPLOAD] for site in view.sites_for(rule) for event in site.events
    ]
    return copies & ~np.isin(device_view.lines, [*{*explained_lines} - {-1}])


def _mask_awaited(device_view: DeviceView, copies: Any) -> Any:
    """Return a mask of the copies after which a kernel starts within WAIT_NS."""
    starts = np.sort(device_view.kernels["start"].astype(np.int64))
    ends = device_view.operations["end"].astype(np.int64)
    next_starts = np.append(starts, np.iinfo(np.int64).max)[np.searchsorted(starts, ends)]
    return copies & (next_starts - ends <= WAIT_NS)


def _upload_intervals(device_view: DeviceView, copies: Any) -> Intervals:
    """Return the intervals in which the host prepares these copies, or in which they run.

    The device waits in both.
    """
    preparations = [
        device_view.upload_preparations[line]
        for line in np.unique(device_view.lines[copies]).tolist()
        if line in device_view.upload_preparations
    ]
    return reduce(Intervals.union, preparations, device_view.intervals_of(copies))


def _finding(view: CaptureView, device_view: DeviceView, copies: Any, cost: float, total: float) -> Finding:
    """Build the finding about these copies.

    `total` is the time of the uploads, in seconds per step. `cost` is the part of `total` in which no kernel runs.
    """
    sizes = device_view.operations["nbytes"][copies]
    nbytes = float(sizes.mean()) * max(1, round(len(sizes) / device_view.steps_done))
    line = main_line(view, device_view, copies)
    site = next((site for site in view.sites_of(EventKind.UPLOAD) if site.line == line), None)
    api = site.api if site is not None else ""
    framework = feed_framework(view, api)
    line_index = mode(device_view.lines[copies].tolist())
    changes = (
        prefetch_line_with_feed(view, line_index)
        if device_view.is_pageable[copies].all()
        else overlap_copies(view, line_index)
    )
    recorded_seconds = device_view.seconds * len(device_view)  # mean seconds of a step, times the number of steps
    computing_share = device_view.computing_intervals.length / 1e9 / recorded_seconds
    stream = Cure("copy the next batch on a separate stream", _STREAM_CODE, BASIS, changes)
    fitted = fit_feed(view, framework, site, line)
    stream_cures = (stream,) if framework == "torch" and not fitted else ()
    return Finding(
        rule="copy_not_overlapped",
        title=f"The device waits for {format_nbytes(nbytes)} to arrive in every step before it computes",
        line=line,
        seconds=cost,
        cures=(
            Cure("let a feed prefetch the next batch", fitted or feed_code(view, framework), BASIS, changes),
            *stream_cures,
        ),
        evidence=(
            f"No kernel ran during {format_seconds(cost)} of the "
            f"{format_seconds(total)} of preparing and copying per step.",
            f"The device computes {format_percent(computing_share)} of the time.",
        ),
    )


_STREAM_CODE = """copies = torch.cuda.Stream()   # before the loop
with torch.cuda.stream(copies):
    next_x = x.to(device, non_blocking=True)   # the next batch, from page-locked memory
torch.cuda.current_stream().wait_stream(copies)   # before the step uses next_x
next_x.record_stream(torch.cuda.current_stream())   # so that its memory is not reused too early"""
