"""Reasons why an operation begins late: an operation of another stream, or launch latency.

A read-back copies computed data, so it waits for the last operation that was not done when the copy was queued. Any
other operation depends on another stream if it begins right after an operation of that stream.
"""

from typing import Any

import numpy as np

from forebay.doctor.model.device_records import CopyKind, RecordKind

__all__ = ["find_releases", "stream_gaps"]

LONGEST_SWITCH_NS = 2_000  # an operation that begins within this time directly follows on its stream
RELEASE_NS = 100_000  # a queued operation that begins within this time waited for the other stream
LONGEST_LATENCY_NS = 1_000_000  # from a call to the device; a longer delay has an unrecorded cause


def find_releases(operations: Any, when: Any) -> dict[int, tuple[int, int]]:
    """Return for each operation the one that released it (-1 for none), and the latency in nanoseconds.

    Operations that directly follow on their stream, or whose queueing time is unknown, are omitted.
    """
    starts, ends = operations["start"].astype(np.int64), operations["end"].astype(np.int64)
    streams = operations["stream"]
    done = np.argsort(ends, kind="stable")
    rising = ends[done]
    found: dict[int, tuple[int, int]] = {}
    last: dict[int, int] = {}  # end of the last operation of each stream
    for place in np.lexsort((starts,)).tolist():
        stream, start = int(streams[place]), int(starts[place])
        free, last[stream] = last.get(stream, 0), int(ends[place])
        if when[place] < 0 or start <= free + LONGEST_SWITCH_NS:
            continue
        since = max(free, int(when[place]) + LONGEST_SWITCH_NS)
        reads = operations["kind"][place] == RecordKind.MEMCPY and operations["what"][place] == CopyKind.DEVICE_TO_HOST
        before = _releasing_operation(
            done, rising, streams, stream, start, since if reads else max(since, start - RELEASE_NS)
        )
        if before < 0 and when[place] < free and start - free < RELEASE_NS:
            continue  # it was in the queue, and its stream was slow; see `turns_of`
        released = int(ends[before]) if before >= 0 else int(when[place])
        found[place] = before, min(max(0, start - released), LONGEST_LATENCY_NS)
    return found


def stream_gaps(operations: Any, when: Any) -> Any:
    """Return the gap before each queued operation on its stream, in nanoseconds.

    Operations without a measured gap get the median.
    """
    starts, ends = operations["start"].astype(np.int64), operations["end"].astype(np.int64)
    turns = np.full(len(starts), -1, np.int64)
    for stream in np.unique(operations["stream"]):
        own = np.flatnonzero(operations["stream"] == stream)
        own = own[np.argsort(starts[own], kind="stable")]
        free = np.maximum.accumulate(ends[own])[:-1]
        taken = starts[own][1:] - free
        ready = (taken <= LONGEST_SWITCH_NS) | ((when[own][1:] >= 0) & (when[own][1:] < free) & (taken < RELEASE_NS))
        turns[own[1:][ready]] = np.maximum(0, taken[ready])
    known = turns >= 0
    return np.where(known, turns, int(np.median(turns[known])) if known.any() else 0)


def _releasing_operation(done: Any, rising: Any, streams: Any, stream: int, start: int, since: int) -> int:
    """Return the last operation of another stream that ended between `since` and `start`."""
    at = int(np.searchsorted(rising, start + LONGEST_SWITCH_NS, "right")) - 1
    while at >= 0 and rising[at] >= since:
        if streams[done[at]] != stream:
            return int(done[at])
        at -= 1
    return -1
