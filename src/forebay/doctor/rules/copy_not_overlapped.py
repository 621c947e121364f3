"""Batches cross while the device waits for them, out of page-locked memory or inside the compiled call that fetches
them: sent ahead they would not be waited for. XProf counts them as input, from 5 % of a step; TraceML from 10 %.

Copies that another rule charges for are left to it: what need not cross need not overlap.
"""

from collections.abc import Iterator
from functools import reduce
from statistics import mode
from typing import Any

import numpy as np

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.blocking_copies import are_held
from forebay.doctor.analyse.case import Case
from forebay.doctor.analyse.device_time import line_of, seconds_of, when, won_on_device
from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.analyse.framework import feeds
from forebay.doctor.analyse.intervals import Intervals
from forebay.doctor.model.device_records import CopyKind, MemoryKind, RecordKind
from forebay.doctor.model.events import Kind
from forebay.doctor.model.formatting import percent, seconds
from forebay.doctor.predict.cure_changes import overlapped, sent_ahead
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.precedence import PRECEDENCE, charged
from forebay.doctor.rules.wording import feed_code

__all__ = ["examine"]

LEAST_SHARE = 0.05  # of a step
SOON_NS = 20_000
HOW = "the copies beside the computing, which they can hide behind at most; less what the device stands still anyway"


def examine(case: Case) -> Iterator[Finding]:
    view = case.device
    if view is None or not case.step_seconds:
        return
    own = _own(case, view)
    locked = view.operations["source"] == MemoryKind.PINNED
    wanted = _awaited(view, own & locked) | (own & are_held(view))
    sending = _sending(view, wanted)
    cost = min(seconds_of(view, sending.without(view.computing)), case.step_seconds)
    if cost >= LEAST_SHARE * case.step_seconds:
        yield _finding(case, view, wanted, cost, seconds_of(view, sending))


def _own(case: Case, view: DeviceView) -> Any:
    """Copies to the device that are nobody else's to charge for."""
    operations = view.operations
    copies = (operations["kind"] == RecordKind.MEMCPY) & (operations["what"] == CopyKind.HOST_TO_DEVICE)
    taken = [event.line for rule in PRECEDENCE[Kind.UPLOAD] for site in charged(case, rule) for event in site.events]
    return copies & ~np.isin(view.lines, [*{*taken} - {-1}])


def _awaited(view: DeviceView, copies: Any) -> Any:
    """Those after which a kernel begins at once: others end before anybody wants what they bring."""
    starts = np.sort(view.kernels["start"].astype(np.int64))
    ends = view.operations["end"].astype(np.int64)
    following = np.append(starts, np.iinfo(np.int64).max)[np.searchsorted(starts, ends)]
    return copies & (following - ends <= SOON_NS)


def _sending(view: DeviceView, copies: Any) -> Intervals:
    """From when they were asked for: what makes their data ready to cross is waited for too."""
    asked = [view.pending[line] for line in np.unique(view.lines[copies]).tolist() if line in view.pending]
    return reduce(Intervals.joined, asked, when(view, copies))


def _finding(case: Case, view: DeviceView, wanted: Any, cost: float, total: float) -> Finding:
    hidden = min(cost, seconds_of(view, view.computing.without(when(view, wanted))))
    low, high = won_on_device(case, view, hidden, hidden)
    found = view.operations["nbytes"][wanted]
    nbytes = float(found.mean()) * max(1, round(len(found) / view.done))
    line = line_of(case, view, wanted)
    api = next((site.api for site in case.of(Kind.UPLOAD) if site.line == line), "")
    framework = feeds(case, api)
    number = mode(view.lines[wanted].tolist())
    beside = sent_ahead(case, number) if view.are_pageable[wanted].all() else overlapped(case, number)
    return Finding(
        rule="copy_not_overlapped",
        title=f"The device waits for {format_nbytes(nbytes)} to arrive before it computes, every step",
        line=line,
        seconds=cost,
        cures=(
            Cure("let a feed send the next batch meanwhile", feed_code(case, framework), low, high, HOW, beside),
            *(
                [Cure("copy the next batch on a stream of its own", _STREAM, low, high, HOW, beside)]
                * (framework == "torch")
            ),
        ),
        evidence=(
            f"{seconds(cost)} of {seconds(total)} of sending a step, while no kernel ran",
            f"the device computes {percent(view.computing.length / 1e9 / len(view) / view.seconds)} of the time",
        ),
    )


_STREAM = """copies = torch.cuda.Stream()   # in front of the loop
with torch.cuda.stream(copies):
    coming = x.to(device, non_blocking=True)   # the next batch, from page-locked memory
torch.cuda.current_stream().wait_stream(copies)   # before it is used; coming.record_stream(...) where it is kept"""
