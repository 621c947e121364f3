"""Separates waits for queued computation from the uploads of JAX in which they occur.

On the CPU, JAX computes in threads of its own, which take work from a queue of limited length. A loop that reads
nothing back fills this queue. After that, each call that needs a place in the queue waits: `jnp.array` of a small batch
may take as long as the computation of a step. Such a wait is not a cost of the upload.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from forebay.doctor.model.capture import Capture
from forebay.doctor.model.events import EventKind, LedgerEvent

__all__ = ["QUEUE_WAIT", "separate_queue_waits"]

QUEUE_WAIT = "wait for computation"  # `LedgerEvent.api` of the waits
FASTEST = 3  # the third-fastest upload shows the duration without a wait, because the fastest one may be an outlier
VARIATION = 2  # times the duration without a wait; a longer upload may have waited
# An upload has waited only if it also takes longer than the slowest conversion on a CPU: SLOWEST_CALL_NS, plus the time
# for its bytes at this rate.
SLOWEST_BYTES_PER_SECOND = 0.5e9
SLOWEST_CALL_NS = 1_000_000  # nanoseconds
MIN_EVENTS = 8  # uploads of equal size on one line; with fewer, the duration without a wait is unknown
MIN_WAIT_SHARE = 0.5  # of the time of the uploads that may wait; shorter waits may come from other programs


def separate_queue_waits(capture: Capture) -> Capture:
    """Return a capture in which each wait for the queue is a separate event.

    An upload that waited ends where its wait begins. Without JAX, or with a GPU, return the capture itself.
    """
    frameworks = capture.facts.get("frameworks") or {}
    has_gpu = any(facts.get("gpus") for facts in frameworks.values())
    if "jax" not in frameworks or has_gpu or capture.device is not None:
        return capture
    own_ns = {index: own for group in _groups(capture.events) for index, own in _own_nanoseconds(group)}
    if not own_ns:
        return capture
    events: list[LedgerEvent] = []
    for index, event in enumerate(capture.events):
        if index not in own_ns:
            events.append(event)
            continue
        middle = event.start + own_ns[index]
        wait = LedgerEvent(EventKind.SYNC, QUEUE_WAIT, event.line, event.thread, middle, event.end)
        events += [event._replace(end=middle), wait]
    return replace(capture, events=tuple(events))


def _groups(events: Iterable[LedgerEvent]) -> Iterator[list[tuple[int, LedgerEvent, bool]]]:
    """Yield one list for all uploads with the same line, call, thread and size.

    An element of the list is the index of an upload, the upload, and whether it may wait. It may wait if its thread has
    called a compiled function since the thread last waited for a result.
    """
    groups: dict[tuple[object, ...], list[tuple[int, LedgerEvent, bool]]] = {}
    has_queued: dict[int, bool] = {}  # by thread
    for index, event in enumerate(events):
        if event.kind == EventKind.UPLOAD:
            group = groups.setdefault((*event.site, event.thread, event.nbytes), [])
            group.append((index, event, has_queued.get(event.thread, False)))
        elif event.kind in (EventKind.RUN, EventKind.DOWNLOAD, EventKind.SYNC):
            has_queued[event.thread] = event.kind == EventKind.RUN
    yield from groups.values()


def _own_nanoseconds(group: list[tuple[int, LedgerEvent, bool]]) -> list[tuple[int, int]]:
    """Return the index of each upload that has waited, and its nanoseconds without the wait."""
    durations = sorted(event.end - event.start for _, event, _ in group)
    if len(durations) < MIN_EVENTS:
        return []
    usual = durations[FASTEST - 1]
    slowest = SLOWEST_CALL_NS + int(group[0][1].nbytes / SLOWEST_BYTES_PER_SECOND * 1e9)
    longest = max(VARIATION * usual, slowest)
    waiting = [(index, event.end - event.start) for index, event, may_wait in group if may_wait]
    excess = sum(max(0, duration - longest) for _, duration in waiting)
    if excess < MIN_WAIT_SHARE * sum(duration for _, duration in waiting) or not excess:
        return []
    # Without its wait, such an upload takes the usual duration.
    return [(index, usual) for index, duration in waiting if duration > longest]
