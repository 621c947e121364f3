"""Batches made by the loop itself, in Python, after one step is done and before the next is converted."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator

from forebay.doctor.analyse.case import Case, Site
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.analyse.framework import feeds, framework_of
from forebay.doctor.analyse.idle_time import IDLE, PYTHON
from forebay.doctor.model.events import Event, Kind
from forebay.doctor.model.formatting import percent, seconds
from forebay.doctor.predict.cure_changes import made_ahead
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.input_producers import cores_of, won_by_workers
from forebay.doctor.rules.wording import IN_A_GRAPH, SESSION, place

__all__ = ["examine"]

LEAST_SHARE = 0.1  # of a step, as TraceML begins to call a loop bound by its input
_DONE = frozenset({Kind.STEP, Kind.INPUT, Kind.RUN, Kind.DOWNLOAD, Kind.SYNC, Kind.OPS})
_WAITED = frozenset({Kind.DOWNLOAD, Kind.SYNC})
# What may come right before a batch is made: nothing but the user's own Python runs from then on. What PyTorch computes
# is no event, so there only the optimizer's step is known to be the last of it.
_BEFORE = {"tensorflow": _DONE, "keras": _DONE, "jax": _DONE, "torch": frozenset({Kind.STEP, Kind.INPUT})}


def examine(case: Case) -> Iterator[Finding]:
    own = sorted(_own(case), key=lambda event: event.end)
    ends = [event.end for event in own]
    for site in case.of(Kind.UPLOAD):
        gaps = _gaps(case, site, own, ends) if site.in_loop else []
        cost = min(max(0.0, cost_of(case, gaps) - _operations(case)), _standing_still(case))
        if cost >= LEAST_SHARE * case.step_seconds > 0:
            yield _finding(case, site, gaps, cost)


def _own(case: Case) -> Iterator[Event]:
    """What the loop's own thread did; the user's code inside it is what is looked for."""
    thread = case.steps.thread if case.steps else None
    return (event for event in case.capture.events if event.thread == thread and event.kind != Kind.PREPARE)


def _gaps(case: Case, site: Site, own: list[Event], ends: list[int]) -> list[Event]:
    """The Python in front of each upload of a line, where it is known to be nothing else."""
    allowed = _BEFORE.get(framework_of(case, site.api), frozenset())
    calls = sorted(event.start for event in own if event.kind == Kind.RUN)
    if case.has_gpu and case.device is None:
        allowed &= _WAITED  # else it may compute meanwhile, and nobody saw
    gaps = []
    for upload in site.events:
        index = bisect_right(ends, upload.start) - 1
        if index >= 0 and own[index].kind in allowed and upload.thread == own[index].thread:
            begun = bisect_left(calls, own[index].end)
            end = min([upload.start, *calls[begun : begun + 1]])  # a compiled call converts what it is given
            gaps.append(own[index]._replace(kind=Kind.PREPARE, start=own[index].end, end=end))
    return gaps


def _operations(case: Case) -> float:
    """Seconds of a step spent in operations: they are counted several together, so some may lie in a gap."""
    return sum(site.seconds for site in case.of(Kind.OPS))


def _standing_still(case: Case) -> float:
    """Seconds of a step in which nothing else goes on: a device may compute what it was told to before."""
    if case.device is None:
        return case.step_seconds
    return case.step_parts.get(PYTHON, 0.0) + case.step_parts.get(IDLE, 0.0)


def _finding(case: Case, site: Site, gaps: list[Event], cost: float) -> Finding:
    before = Counter(gap.line for gap in gaps).most_common(1)[0][0]
    begin = place(case, case.line(before), gaps[0].api)
    low, high = won_by_workers(case, site, cost)
    how = (
        f"the making shared by {cores_of(case)} cores, beside the step; nothing where a batch needs the step before it"
    )
    share = percent(cost / case.step_seconds)
    made = made_ahead(case, site, cost, cores_of(case))
    return Finding(
        rule="made_in_loop",
        title=f"The loop makes its own batches in Python, {share} of the time, before {site.api} converts them",
        line=site.line,
        seconds=cost,
        cures=tuple(Cure(cure, code, low, high, how, made) for cure, code in _cures(case, site)),
        evidence=(
            f"{seconds(cost)} of Python a step, from {begin} to {place(case, site.line, site.api)}",
            "nothing is computed meanwhile" if case.device else "no operation and no compiled call runs meanwhile",
        ),
    )


def _cures(case: Case, site: Site) -> Iterator[tuple[str, str]]:
    ahead, framework = "load rows ahead of the loop, several at a time", feeds(case, site.api)
    if site.api == SESSION:
        yield ahead, f"{_TF_DATA}\n{IN_A_GRAPH}"
        return
    if framework in _AHEAD:
        yield ahead, _AHEAD[framework]
    yield "let a feed load them ahead", _FEED.format(framework)


_FEED = 'import forebay as fb\nfeed = fb.from_source(rows).batch(256).feed("{}")   # rows[i] loads one'
_TF_DATA = (
    "load_row = lambda i: tf.py_function(load, [i], [tf.float32, tf.int32])\n"
    "dataset = tf.data.Dataset.range(len(rows)).map(load_row, num_parallel_calls=tf.data.AUTOTUNE)\n"
    "dataset = dataset.batch(256).prefetch(tf.data.AUTOTUNE)"
)
_AHEAD = {
    "tensorflow": _TF_DATA,
    "keras": _TF_DATA,
    "torch": "loader = DataLoader(rows, batch_size=256, num_workers=4, pin_memory=True)   # rows[i] loads one",
}
