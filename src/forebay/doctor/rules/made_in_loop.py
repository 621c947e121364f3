"""Batches that the loop itself makes in Python, between two steps."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.analyse.framework import feed_framework, framework_of
from forebay.doctor.analyse.idle_time import IDLE, PYTHON
from forebay.doctor.model.events import EventKind, LedgerEvent
from forebay.doctor.model.formatting import format_percent, format_seconds
from forebay.doctor.predict.cure_changes import prefetch_batches
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.input_producers import count_cores, gain_by_workers
from forebay.doctor.rules.wording import GRAPH_ITERATOR_CODE, SESSION, location

__all__ = ["examine"]

LEAST_SHARE = 0.1  # the smallest reported share of a step; TraceML calls a loop input-bound from here on
_STEP_ENDS = frozenset(
    {EventKind.STEP, EventKind.INPUT, EventKind.RUN, EventKind.DOWNLOAD, EventKind.SYNC, EventKind.OPS}
)
_DEVICE_WAITS = frozenset({EventKind.DOWNLOAD, EventKind.SYNC})
# Events after which only the user's Python can run, so that the time up to the next upload is batch making. PyTorch
# computations are no events, so for torch only the optimizer step and the input are in the table.
_PRECEDING = {
    "tensorflow": _STEP_ENDS,
    "keras": _STEP_ENDS,
    "jax": _STEP_ENDS,
    "torch": frozenset({EventKind.STEP, EventKind.INPUT}),
}


def examine(view: CaptureView) -> Iterator[Finding]:
    own = sorted(_own(view), key=lambda event: event.end)
    ends = [event.end for event in own]
    for site in view.sites_of(EventKind.UPLOAD):
        gaps = _gaps(view, site, own, ends) if site.in_loop else []
        cost = min(max(0.0, cost_of(view, gaps) - _operation_seconds(view)), _idle_seconds(view))
        if cost >= LEAST_SHARE * view.step_seconds > 0:
            yield _finding(view, site, gaps, cost)


def _own(view: CaptureView) -> Iterator[LedgerEvent]:
    """Return the events of the loop's thread, except PREPARE events (the user's own code)."""
    thread = view.steps.thread if view.steps else None
    return (event for event in view.capture.events if event.thread == thread and event.kind != EventKind.PREPARE)


def _gaps(view: CaptureView, site: CallSite, own: list[LedgerEvent], ends: list[int]) -> list[LedgerEvent]:
    """Return the interval before each upload of a line, if only Python can run in it."""
    allowed = _PRECEDING.get(framework_of(view, site.api), frozenset())
    calls = sorted(event.start for event in own if event.kind == EventKind.RUN)
    if view.has_gpu and view.device is None:
        allowed &= _DEVICE_WAITS  # the device was not recorded and may still compute
    gaps = []
    for upload in site.events:
        index = bisect_right(ends, upload.start) - 1
        if index >= 0 and own[index].kind in allowed and upload.thread == own[index].thread:
            begun = bisect_left(calls, own[index].end)
            end = min([upload.start, *calls[begun : begun + 1]])  # a compiled call converts its own arguments
            gaps.append(own[index]._replace(kind=EventKind.PREPARE, start=own[index].end, end=end))
    return gaps


def _operation_seconds(view: CaptureView) -> float:
    """Return the seconds per step in operations; some of them may lie in a gap."""
    return sum(site.seconds for site in view.sites_of(EventKind.OPS))


def _idle_seconds(view: CaptureView) -> float:
    """Return the seconds per step in which the device is idle too."""
    if view.device is None:
        return view.step_seconds
    return view.step_parts.get(PYTHON, 0.0) + view.step_parts.get(IDLE, 0.0)


def _finding(view: CaptureView, site: CallSite, gaps: list[LedgerEvent], cost: float) -> Finding:
    before = Counter(gap.line for gap in gaps).most_common(1)[0][0]
    begin = location(view, view.line(before), gaps[0].api)
    low, high = gain_by_workers(view, site, cost)
    basis = (
        f"batch making is divided among {count_cores(view)} cores and overlaps the "
        "step; no gain if a batch depends on the previous step"
    )
    share = format_percent(cost / view.step_seconds)
    changes = prefetch_batches(view, site, cost, count_cores(view))
    return Finding(
        rule="made_in_loop",
        title=f"The loop makes its batches in Python for {share} of the time, before {site.api} converts them",
        line=site.line,
        seconds=cost,
        cures=tuple(Cure(cure, code, low, high, basis, changes) for cure, code in _cures(view, site)),
        evidence=(
            f"{format_seconds(cost)} of Python per step run between {begin} and {location(view, site.line, site.api)}.",
            "The device computes nothing in this time."
            if view.device
            else "No operation and no compiled call runs in this time.",
        ),
    )


def _cures(view: CaptureView, site: CallSite) -> Iterator[tuple[str, str]]:
    title, framework = "prefetch rows, several at a time", feed_framework(view, site.api)
    if site.api == SESSION:
        yield title, f"{_TF_DATA}\n{GRAPH_ITERATOR_CODE}"
        return
    if framework in _PREFETCH_CODE:
        yield title, _PREFETCH_CODE[framework]
    yield "let a feed prefetch them", _FEED.format(framework)


_FEED = 'import forebay as fb\nfeed = fb.from_source(rows).batch(256).feed("{}")   # rows[i] loads one row'
_TF_DATA = (
    "load_row = lambda i: tf.py_function(load, [i], [tf.float32, tf.int32])\n"
    "dataset = tf.data.Dataset.range(len(rows)).map(load_row, num_parallel_calls=tf.data.AUTOTUNE)\n"
    "dataset = dataset.batch(256).prefetch(tf.data.AUTOTUNE)"
)
_PREFETCH_CODE = {
    "tensorflow": _TF_DATA,
    "keras": _TF_DATA,
    "torch": "loader = DataLoader(rows, batch_size=256, num_workers=4, pin_memory=True)   # rows[i] loads one row",
}
