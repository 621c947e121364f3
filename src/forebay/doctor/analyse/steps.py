"""The steps of the training loop in a capture, and the parts of a step."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress, pairwise
from statistics import median
from typing import Any

import numpy as np

from forebay.doctor.analyse.intervals import Intervals
from forebay.doctor.model.capture import Capture, Window
from forebay.doctor.model.events import LOOP_MARKS, EventKind, LedgerEvent

__all__ = [
    "CROSSING_KINDS",
    "MAX_LONG_SHARE",
    "PARTS",
    "RECORDED_KINDS",
    "REST",
    "Steps",
    "find_steps",
    "has_steps",
    "waits_in_bursts",
]

MIN_STEPS = 3  # a loop has at least this many steps
MIN_OPS_EVENTS = 20  # OPS events of one line; fewer may come from one long call, such as building a model
LONG_STEP_FACTOR = 3  # times the median step; a step above this limit, such as the end of an epoch, is a long step
MAX_LONG_SHARE = 0.1  # share of the steps; if more steps are long, they are usual for this loop and are not left out
MIN_SEQUENCE_SHARE = 0.2  # share of the steps that a sequence between two long steps must have to replace all steps
BURST_SHARE = 0.2  # share of the time of all steps; long waits for input that take less are disturbances
MIN_BURSTS = 3  # per capture; fewer bursts, of steps or of batches that arrive together, may be a coincidence
# `find_steps` prefers another loop if the steps come in bursts and the other loop runs between them. The next four
# numbers are least values for this.
MIN_STEPS_OF_BURST = 3  # mean number of steps in a burst
MIN_SHARE_BETWEEN_BURSTS = 0.5  # share of the window that must lie between bursts
MIN_LOOP_SHARE = 0.25  # share of the window that the usual steps of the other loop must take
MIN_LOOP_STEPS = 10  # steps of the other loop in the window
# A burst of transfers is a sequence of transfers in direct succession, such as the transfers of a list of arrays. A
# transfer of a burst does not end a step.
MAX_BURST_NS = 50_000_000  # nanoseconds that a burst of up to FEW_TRANSFERS transfers of one line may take
FEW_TRANSFERS = 30  # per line; MAX_BURST_GAP_NS defines longer bursts, and MAX_CUPY_BURST_NS those of CuPy
# Largest median time in nanoseconds between two transfers of a longer burst. A loop that only converts rows takes 20 to
# 30 us between two conversions on two cores, most of it in the hook. A longer time may be the computation of a step.
MAX_BURST_GAP_NS = 100_000
# The hooks record no operations of CuPy, so the computation of a short step looks like a gap between two transfers.
MAX_CUPY_BURST_NS = 5_000_000  # nanoseconds that a burst of more than FEW_TRANSFERS transfers of CuPy may take
WARM_UP_SHARE = 0.2  # share of the steps that counts as warm-up if the script ended before the doctor found its loop

CROSSING_KINDS = frozenset({EventKind.UPLOAD, EventKind.DOWNLOAD, EventKind.MOVE, EventKind.SYNC})

# Part of a step -> kinds of events. If events of several parts overlap, their common time counts for the first part.
PARTS: dict[str, frozenset[str]] = {
    "compiling": frozenset({EventKind.COMPILE}),
    # An object that a step after the warm-up builds was usually built before, hence "again".
    "building again": frozenset({EventKind.BUILD}),
    "waiting for input": frozenset({EventKind.INPUT}),
    "host to device": frozenset({EventKind.UPLOAD, EventKind.MOVE}),  # moves in any direction count here
    "device to host": frozenset({EventKind.DOWNLOAD, EventKind.SYNC}),
    "compiled calls": frozenset({EventKind.RUN}),
}
RECORDED_KINDS = frozenset().union(*PARTS.values())
REST = "everything else"  # name of the time outside of all PARTS


@dataclass(frozen=True, slots=True)
class Steps:
    """Consecutive steps after the warm-up, on one thread."""

    anchor: tuple[str, str, int]  # `LedgerEvent.site` of the events that end the steps
    thread: int
    edges: tuple[int, ...]  # nanoseconds: the start of each step, and the end of the last

    def __len__(self) -> int:
        return len(self.edges) - 1

    @property
    def start(self) -> int:
        return self.edges[0]

    @property
    def end(self) -> int:
        return self.edges[-1]

    @property
    def seconds(self) -> float:
        """The median step time in seconds."""
        return median(after - before for before, after in pairwise(self.edges)) / 1e9

    @property
    def mean_seconds(self) -> float:
        """The mean step time in seconds."""
        return (self.end - self.start) / 1e9 / len(self)


def find_steps(capture: Capture) -> Steps | None:
    """Return the steps of the profiled window; None if there are too few.

    The anchor of the window marks the ends of the steps. If the script ended before the doctor found an anchor, the
    most frequent call site of the most reliable kind in LOOP_MARKS marks them. If no such call site is frequent enough,
    OPS events may mark them (see `_steps_of_operations`). If the marked steps come in bursts, and another loop takes
    much of the time between the bursts, return the steps of the other loop. For example, a script of reinforcement
    learning acts in many steps, and then learns from them in another loop.
    """
    window, events = capture.window, capture.events
    burst_lines = _find_burst_lines(events, hides_operations="cupy" in capture.facts.get("frameworks", {}))
    if window.anchor is not None and not _has_burst_as_anchor(window, burst_lines):
        inside = [event for event in events if window.start <= event.end <= window.end]
        marks = [event for event in inside if event.site == window.anchor]
        return _find_longer_loop(capture, marks, inside) or _make_steps(window.anchor, marks, events)
    for kinds in LOOP_MARKS:
        frequent = _events_of_most_frequent_site(
            event for event in events if event.kind in kinds and not _is_in_burst(event, burst_lines)
        )
        if frequent is not None:
            return _make_steps(frequent[0].site, frequent[int(len(frequent) * WARM_UP_SHARE) :], events)
    return _steps_of_operations(events)


def has_steps(capture: Capture) -> bool:
    """Whether a capture has steps of a loop."""
    return find_steps(capture) is not None


def _find_longer_loop(capture: Capture, marks: Sequence[LedgerEvent], events: list[LedgerEvent]) -> Steps | None:
    """Return the steps of another loop between bursts of marked steps, or None.

    `marks` end the marked steps; `events` are all events of the window. The time between the bursts must take at least
    MIN_SHARE_BETWEEN_BURSTS of the window, and the usual steps of the other loop at least MIN_LOOP_SHARE. Return None
    also if optimizer steps or batches mark the steps, because these marks are reliable. Return None also if the device
    was recorded, because its records belong to the marked steps.
    """
    window = capture.window
    if capture.device is not None or not marks or marks[0].kind in (EventKind.STEP, EventKind.INPUT):
        return None
    lengths = np.diff([mark.end for mark in marks])
    longest_usual = LONG_STEP_FACTOR * np.median(lengths) if len(lengths) else 0.0
    between_bursts = lengths[lengths > longest_usual]
    are_bursts = 0 < len(between_bursts) <= len(lengths) / MIN_STEPS_OF_BURST
    if not are_bursts or between_bursts.sum() < MIN_SHARE_BETWEEN_BURSTS * (window.end - window.start):
        return None
    if _count_bursts(capture.events, marks[-1], longest_usual) < MIN_BURSTS:
        return None
    sites: dict[tuple[str, str, int], list[LedgerEvent]] = {}
    for event in events:
        is_mark = any(event.kind in kinds for kinds in LOOP_MARKS) and event.thread == marks[-1].thread
        if is_mark and event.line != marks[-1].line:
            sites.setdefault(event.site, []).append(event)
    found = [
        of_site for of_site in sites.values() if len(of_site) > MIN_LOOP_STEPS and not _share_steps(of_site, marks)
    ]
    longest = max(found, key=_usual_nanoseconds, default=[])
    is_long = longest and _usual_nanoseconds(longest) >= MIN_LOOP_SHARE * (window.end - window.start)
    return _make_steps(longest[0].site, longest, events) if is_long else None


def _count_bursts(events: Sequence[LedgerEvent], mark: LedgerEvent, longest_usual: float) -> int:
    """Return the number of bursts of steps in the whole capture.

    `mark` is an event that ends a step. A step of more than `longest_usual` nanoseconds separates two bursts if the
    thread has other events in it.
    """
    on_thread = [event for event in events if event.thread == mark.thread]
    marks = [index for index, event in enumerate(on_thread) if event.site == mark.site]
    burst_starts = [
        after for before, after in pairwise(marks) if on_thread[after].end - on_thread[before].end > longest_usual
    ]
    return 1 + sum(on_thread[start - 1].site != mark.site for start in burst_starts)


def _share_steps(events: Sequence[LedgerEvent], marks: Sequence[LedgerEvent]) -> bool:
    """Whether events and marks belong to one loop: most intervals between events contain a mark."""
    ends, mark_ends = [event.end for event in events], [mark.end for mark in marks]
    return len(np.unique(np.searchsorted(ends, mark_ends))) > len(ends) / 2


def _usual_nanoseconds(events: Sequence[LedgerEvent]) -> float:
    """Return the median interval between consecutive events, times the number of intervals."""
    lengths = np.diff([event.end for event in events])
    return float(np.median(lengths)) * len(lengths)


def _has_burst_as_anchor(window: Window, burst_lines: set[int]) -> bool:
    """Whether the anchor of the window is a transfer of a burst.

    This happens if the script ended before `capture.step_detector` could reject the anchor. In this case, the window
    has no unprofiled steps.
    """
    kind, _, line = window.anchor or ("", "", -1)
    return not window.untraced and kind in CROSSING_KINDS and line in burst_lines


def _find_burst_lines(events: Iterable[LedgerEvent], *, hides_operations: bool) -> set[int]:
    """Return the lines whose transfers and waits form at most MIN_STEPS bursts.

    `hides_operations` tells that the script uses a framework whose operations the hooks do not record.
    """
    bursts: dict[int, list[_Burst]] = {}  # by line
    for successive in _successive_transfers(events):
        positions: dict[int, list[int]] = {}
        for position, event in enumerate(successive):
            positions.setdefault(event.line, []).append(position)
        for line, of_line in positions.items():
            gaps = [successive[at].start - successive[at - 1].end for at in of_line if at]
            span = successive[of_line[-1]].end - successive[of_line[0]].start
            bursts.setdefault(line, []).append(_Burst(len(of_line), span, gaps, len(positions) == 1))
    return {line for line, found in bursts.items() if len(found) <= MIN_STEPS and _are_bursts(found, hides_operations)}


@dataclass(frozen=True, slots=True)
class _Burst:
    """The transfers of one line in a sequence of successive transfers."""

    count: int
    span: int  # nanoseconds from the start of the first transfer to the end of the last
    gaps: list[int]  # nanoseconds between each transfer and the previous transfer of the sequence, of any line
    is_alone: bool  # whether the sequence has no transfers of other lines


def _are_bursts(found: Sequence[_Burst], hides_operations: bool) -> bool:
    """Whether the transfers of a line follow each other too fast for computation between them."""
    count, gaps = sum(burst.count for burst in found), [gap for burst in found for gap in burst.gaps]
    if count < 2 or not gaps:
        return False
    span, is_alone = sum(burst.span for burst in found), all(burst.is_alone for burst in found)
    if hides_operations:
        return is_alone and span <= (MAX_BURST_NS if count <= FEW_TRANSFERS else MAX_CUPY_BURST_NS)
    is_short = is_alone and count <= FEW_TRANSFERS and span <= MAX_BURST_NS
    return is_short or bool(np.median(gaps) <= MAX_BURST_GAP_NS)


def _successive_transfers(events: Iterable[LedgerEvent]) -> Iterator[list[LedgerEvent]]:
    """Yield sequences of transfers and waits of one thread with no other event between them.

    A transfer continues a sequence if its line or its kind equals that of the previous transfer. The kind alone is
    enough, because two lines may convert the features and the labels of a row. If both differ, a new sequence starts: a
    loop that uploads on one line and reads back on another line computes in between.
    """
    sequences: dict[int, list[LedgerEvent]] = {}  # by thread
    for event in events:
        sequence = sequences.setdefault(event.thread, [])
        is_transfer = event.kind in CROSSING_KINDS
        if sequence and not (is_transfer and (event.line == sequence[-1].line or event.kind == sequence[-1].kind)):
            yield sequence
            sequence = sequences[event.thread] = []
        if is_transfer:
            sequence.append(event)
    yield from filter(None, sequences.values())


def _is_in_burst(event: LedgerEvent, burst_lines: set[int]) -> bool:
    return event.kind in CROSSING_KINDS and event.line in burst_lines


def _steps_of_operations(events: Sequence[LedgerEvent]) -> Steps | None:
    """Return the steps of a loop that has only OPS events: one step per event.

    OPS events that lie completely inside of a compilation do not count, because the compiler runs their operations.
    Return None if too few OPS events remain.
    """
    compilations = [event for event in events if event.kind == EventKind.COMPILE]
    compiling = Intervals([event.start for event in compilations], [event.end for event in compilations])
    operations = [event for event in events if event.kind == EventKind.OPS]
    starts, ends = (np.array([getattr(event, name) for event in operations], np.int64) for name in ("start", "end"))
    is_outside = compiling.covered_lengths(starts, ends) < ends - starts
    marks = _events_of_most_frequent_site(compress(operations, is_outside)) or []
    has_enough = len(marks) >= MIN_OPS_EVENTS
    return _make_steps(marks[0].site, marks[int(len(marks) * WARM_UP_SHARE) :], ()) if has_enough else None


def _events_of_most_frequent_site(events: Iterable[LedgerEvent]) -> list[LedgerEvent] | None:
    """Return the events of the call site with the most events; None if too few."""
    sites: dict[tuple[str, str, int], list[LedgerEvent]] = {}
    for event in events:
        sites.setdefault(event.site, []).append(event)
    most_frequent = max(sites.values(), key=len, default=[])
    return most_frequent if len(most_frequent) > MIN_STEPS else None


def _make_steps(
    anchor: tuple[str, str, int], marks: Sequence[LedgerEvent], events: Iterable[LedgerEvent]
) -> Steps | None:
    """Return the longest sequence of steps between these marks without a long step.

    The steps are on the thread of the last mark. Return None if this thread has too few steps. A wait for the device
    does not make a step long, because the loop may wait only in some steps, for the work of all steps.
    """
    thread = marks[-1].thread if marks else 0
    edges = [mark.end for mark in marks if mark.thread == thread]
    if len(edges) <= MIN_STEPS:
        return None
    steps, events = Steps(anchor, thread, tuple(edges)), [*events]
    kinds = PARTS["device to host"] | (PARTS["waiting for input"] if waits_in_bursts(steps, events) else frozenset())
    lengths = np.diff(edges) - _waited_in_each_step(steps, events, kinds)
    return replace(steps, edges=tuple(_longest_usual_sequence(edges, lengths)))


def _waited_in_each_step(steps: Steps, events: Iterable[LedgerEvent], kinds: frozenset[str]) -> Any:
    """Return for each step the nanoseconds that the loop waits in events of these kinds."""
    waits = [event for event in events if event.kind in kinds and event.thread == steps.thread]
    waiting = Intervals([event.start for event in waits], [event.end for event in waits])
    return waiting.covered_lengths(steps.edges[:-1], steps.edges[1:])


def _longest_usual_sequence(edges: list[int], lengths: Any) -> list[int]:
    """Return the edges of the longest sequence of steps without a long step.

    Long steps are left out because they may make calls that usual steps do not make, such as a validation, a checkpoint
    or a first compilation. Return all edges if more than MAX_LONG_SHARE of the steps are long, or if each sequence has
    less than MIN_SEQUENCE_SHARE of the steps. `lengths` are the nanoseconds of each step, without its waits.
    """
    long_steps = np.flatnonzero(lengths > LONG_STEP_FACTOR * np.median(lengths))
    if not len(long_steps) or len(long_steps) > MAX_LONG_SHARE * len(lengths):
        return edges
    starts, ends = [0, *(long_steps + 1).tolist()], [*long_steps.tolist(), len(lengths)]
    start, end = max(zip(starts, ends, strict=True), key=lambda sequence: sequence[1] - sequence[0])
    return edges[start : end + 1] if end - start >= MIN_SEQUENCE_SHARE * len(lengths) else edges


def waits_in_bursts(steps: Steps, events: Iterable[LedgerEvent]) -> bool:
    """Whether batches arrive in bursts, so that a few steps wait long for input.

    At least MIN_BURSTS steps must be long and wait for input during more than half of their time. A single such wait
    has another cause: a loader starts its workers at the start of an epoch. Together, these steps must take more than
    BURST_SHARE of the time.
    """
    lengths = np.diff(steps.edges)
    waited = _waited_in_each_step(steps, events, PARTS["waiting for input"])
    is_burst = (lengths > LONG_STEP_FACTOR * np.median(lengths)) & (waited > lengths / 2)
    return bool(is_burst.sum() >= MIN_BURSTS and lengths[is_burst].sum() > BURST_SHARE * lengths.sum())
