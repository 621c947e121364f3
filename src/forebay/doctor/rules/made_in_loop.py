"""The rule for batches that the loop itself makes in Python before it uploads them."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.analyse.framework import feed_framework, framework_of, is_framework_function
from forebay.doctor.analyse.host_lines import host_lines, samples_inside
from forebay.doctor.analyse.idle_time import IDLE, PYTHON
from forebay.doctor.model.events import EventKind, LedgerEvent
from forebay.doctor.model.formatting import format_percent, format_seconds
from forebay.doctor.predict.upload_cure_changes import prefetch_batches
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.fitted_code import fit_feed, uses_read_values
from forebay.doctor.rules.input_producers import count_cores
from forebay.doctor.rules.wording import GRAPH_ITERATOR_CODE, SESSION, batch_rows, location, nbytes_per_call

__all__ = ["examine"]

MIN_NBYTES = 1 << 10  # bytes per call; smaller arrays are not batches
MIN_SAMPLES = 10  # samples in all gaps before uploads; fewer do not show what runs in the gaps
MIN_REPORTED_SHARE = 0.1  # share of a step; from this share on, TraceML calls a loop input-bound
_FRAMEWORK_WORK = frozenset(
    {EventKind.STEP, EventKind.INPUT, EventKind.RUN, EventKind.DOWNLOAD, EventKind.SYNC, EventKind.OPS}
)
_DEVICE_WAITS = frozenset({EventKind.DOWNLOAD, EventKind.SYNC})
# Framework -> kinds of events. Between such an event and the next upload, only the user's Python runs; it makes the
# batch. The hooks do not record computations of PyTorch, so only its optimizer step and its input count. The rule skips
# other frameworks.
_PRECEDING_KINDS = {
    "tensorflow": _FRAMEWORK_WORK,
    "keras": _FRAMEWORK_WORK,
    "jax": _FRAMEWORK_WORK,
    "torch": frozenset({EventKind.STEP, EventKind.INPUT}),
}


def examine(view: CaptureView) -> Iterator[Finding]:
    """Yield one finding per upload before which the loop makes its batches in Python."""
    events = sorted(_loop_events(view), key=lambda event: event.end)
    ends = [event.end for event in events]
    for site in view.sites_of(EventKind.UPLOAD):
        gaps = _python_gaps(view, site, events, ends) if site.in_loop and _uploads_batch(view, site) else []
        cost = min(max(0.0, cost_of(view, gaps) - _operation_seconds(view)), _idle_seconds(view))
        is_reported = cost >= MIN_REPORTED_SHARE * view.step_seconds > 0 and _makes_batches(view, site, gaps)
        if is_reported and not uses_read_values(view, site):
            yield _finding(view, site, gaps, cost)


def _uploads_batch(view: CaptureView, site: CallSite) -> bool:
    """Whether the line of a call site uploads more than a few numbers.

    One line may make several calls: in `torch.from_numpy(batch).to(device)`, only the second call copies.
    """
    same_line = [other for other in view.sites_of(EventKind.UPLOAD) if other.line == site.line]
    return any(nbytes_per_call(other) >= MIN_NBYTES for other in same_line)


def _makes_batches(view: CaptureView, site: CallSite, gaps: list[LedgerEvent]) -> bool:
    """Whether the script, not a framework, works in the gaps before uploads.

    The hooks record neither operations of PyTorch on the CPU nor code of libraries around compiled calls. Samples of
    the host show both. If the gaps have few samples, all samples outside of recorded calls count instead. Without any
    samples, a gap of PyTorch on the CPU may be computation, so the result is False.
    """
    samples = samples_inside(view, gaps)
    if len(samples) >= MIN_SAMPLES:
        return sum(is_framework_function(sample.function) for sample in samples) <= len(samples) / 2
    functions = [each for host_line in host_lines(view) for each in host_line.functions]
    if functions:
        of_frameworks = sum(seconds for function, seconds in functions if is_framework_function(function))
        return of_frameworks <= sum(seconds for _, seconds in functions) / 2
    return view.has_gpu or framework_of(view, site.api) != "torch"


def _loop_events(view: CaptureView) -> Iterator[LedgerEvent]:
    """Return the events of the loop's thread, except PREPARE events (code of the script)."""
    thread = view.steps.thread if view.steps else None
    return (event for event in view.capture.events if event.thread == thread and event.kind != EventKind.PREPARE)


def _python_gaps(view: CaptureView, site: CallSite, events: list[LedgerEvent], ends: list[int]) -> list[LedgerEvent]:
    """Return the gaps before uploads, in which only Python runs, as PREPARE events.

    `events` are sorted by their end times, which are `ends`.
    """
    kinds = _PRECEDING_KINDS.get(framework_of(view, site.api), frozenset())
    run_starts = sorted(event.start for event in events if event.kind == EventKind.RUN)
    if view.has_gpu and view.device is None:
        kinds &= _DEVICE_WAITS  # after other calls, the device, which was not recorded, may still compute
    gaps = []
    for upload in site.events:
        index = bisect_right(ends, upload.start) - 1
        if index >= 0 and events[index].kind in kinds and upload.thread == events[index].thread:
            next_run = bisect_left(run_starts, events[index].end)
            # A compiled call converts its own arguments, so the gap ends when the call starts.
            end = min([upload.start, *run_starts[next_run : next_run + 1]])
            gaps.append(events[index]._replace(kind=EventKind.PREPARE, start=events[index].end, end=end))
    return gaps


def _operation_seconds(view: CaptureView) -> float:
    """Return the seconds per step in recorded operations, which may run inside a gap."""
    return sum(site.seconds for site in view.sites_of(EventKind.OPS))


def _idle_seconds(view: CaptureView) -> float:
    """Return the idle seconds of the device per step that no framework call causes.

    Without device records, return the whole step time.
    """
    if view.device is None:
        return view.step_seconds
    return view.step_parts.get(PYTHON, 0.0) + view.step_parts.get(IDLE, 0.0)


def _finding(view: CaptureView, site: CallSite, gaps: list[LedgerEvent], cost: float) -> Finding:
    preceding_line = Counter(gap.line for gap in gaps).most_common(1)[0][0]
    gap_start = location(view, view.line(preceding_line), gaps[0].api)
    share = format_percent(cost / view.step_seconds)
    return Finding(
        rule="made_in_loop",
        title=f"The loop makes its batches in Python for {share} of the time, before {site.api} converts them",
        line=site.line,
        seconds=cost,
        cures=tuple(_cure(view, site, cost, title, code) for title, code in _cure_texts(view, site)),
        evidence=(
            f"{format_seconds(cost)} of Python per step run between {gap_start} and "
            f"{location(view, site.line, site.api)}.",
            "The device computes nothing in this time."
            if view.device
            else "No operation and no compiled call runs in this time.",
        ),
    )


def _cure(view: CaptureView, site: CallSite, cost: float, title: str, code: str) -> Cure:
    """Return the cure with this code.

    If the code reads an iterable of batches, one thread makes them. If it loads rows, all cores do.
    """
    producers = 1 if "from_batches(" in code else count_cores(view)
    makers = "one thread makes" if producers == 1 else f"{producers} cores make"
    basis = f"{makers} batches during the step; this is not possible if a batch depends on the last step"
    return Cure(title, code, basis, prefetch_batches(view, site, cost, producers))


def _cure_texts(view: CaptureView, site: CallSite) -> Iterator[tuple[str, str]]:
    """Yield the title and the code of each cure."""
    title, framework = "prefetch rows, several at a time", feed_framework(view, site.api)
    if site.api == SESSION:
        yield title, f"{_TF_DATA_CODE.format(batch_rows(*view.sites))}\n{GRAPH_ITERATOR_CODE}"
        return
    rows = batch_rows(*view.sites)
    fitted = fit_feed(view, framework, site)
    if framework in _PREFETCH_CODE and not fitted:
        yield title, _PREFETCH_CODE[framework].format(rows)
    yield "let a feed prefetch batches", fitted or _FEED_CODE.format(rows, framework)


_FEED_CODE = 'import forebay as fb\nfeed = fb.from_source(rows).batch({}).feed("{}")   # rows[i] loads one row'
_TF_DATA_CODE = (
    "load_row = lambda i: tf.py_function(load, [i], [tf.float32, tf.int32])\n"
    "dataset = tf.data.Dataset.range(len(rows)).map(load_row, num_parallel_calls=tf.data.AUTOTUNE)\n"
    "dataset = dataset.batch({}).prefetch(tf.data.AUTOTUNE)"
)
_PREFETCH_CODE = {
    "tensorflow": _TF_DATA_CODE,
    "keras": _TF_DATA_CODE,
    "torch": "loader = DataLoader(rows, batch_size={}, num_workers=4, pin_memory=True)   # rows[i] loads one row",
}
