"""What kept each operation back until it began: one of another stream, or the way from the host to the device. Pure.

What is brought back was computed before: such a copy waits for the last operation that was not done when it was asked
for. Others are known to wait for one of another stream where they begin right after it.
"""

from typing import Any

import numpy as np

from forebay.doctor.model.device_records import CopyKind, RecordKind

__all__ = ["find_releases", "stream_gaps"]

LONGEST_SWITCH_NS = 2_000  # nanoseconds: an operation that begins so soon after another on its stream has followed it
RELEASE_NS = (
    100_000  # nanoseconds: one that begins so soon after another stream's, and was queued before, waited for it
)
LONGEST_LATENCY_NS = (
    1_000_000  # nanoseconds from a call to the device; what takes longer is kept back by something unseen
)


def find_releases(operations: Any, when: Any) -> dict[int, tuple[int, int]]:
    """For operations that were queued at known times: which other operation released it (-1 for none), and how long
    it was on its way from there (nanoseconds). Those that simply followed on their stream are left out."""
    starts, ends = operations["start"].astype(np.int64), operations["end"].astype(np.int64)
    streams = operations["stream"]
    done = np.argsort(ends, kind="stable")
    rising = ends[done]
    found: dict[int, tuple[int, int]] = {}
    last: dict[int, int] = {}  # when each stream was done
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
            continue  # it lay in the queue, and its stream took its time: see `turns_of`
        released = int(ends[before]) if before >= 0 else int(when[place])
        found[place] = before, min(max(0, start - released), LONGEST_LATENCY_NS)
    return found


def stream_gaps(operations: Any, when: Any) -> Any:
    """How long each stream takes from one operation to the next, where the next lies ready; nanoseconds. Where none
    did, what it takes for most others."""
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
    """The last operation of another stream that ended before this one began, and after it could have begun."""
    at = int(np.searchsorted(rising, start + LONGEST_SWITCH_NS, "right")) - 1
    while at >= 0 and rising[at] >= since:
        if streams[done[at]] != stream:
            return int(done[at])
        at -= 1
    return -1
