"""Why an operation started late: it waited for another stream, or for its launch.

A read-back copies computed data. So assume that it waited for the last operation of another stream that ended after the
host queued the read-back and before the read-back started. Any other operation depends on another stream only if it
starts soon after an operation of that stream ends.
"""

from typing import Any

import numpy as np

from forebay.doctor.analyse.device_view import MAX_SWITCH_NS
from forebay.doctor.analyse.intervals import Intervals
from forebay.doctor.model.device_records import CopyKind, RecordKind

__all__ = ["find_releases", "merge_serial_streams", "stream_gaps"]

# Nanoseconds. An operation that starts within this time after the end of another stream's operation waited for this
# end.
RELEASE_NS = 100_000
SERIAL_SHARE = 0.9  # of the sum of all kernel times; if kernels cover more time, they run one after the other
MAX_LATENCY_NS = 1_000_000  # nanoseconds; a longer delay has an unrecorded cause, which is not simulated


def merge_serial_streams(operations: Any) -> Any:
    """Return the operations with one stream for all kernels, if kernels hardly overlap.

    A library may spread dependent kernels over several streams. CUPTI does not record the dependencies, so a simulation
    would run the kernels at the same time. Streams that copy for longer than they compute keep their numbers.
    """
    streams, is_copy = operations["stream"].astype(np.int64), operations["kind"] == RecordKind.MEMCPY
    starts, ends = operations["start"].astype(np.int64), operations["end"].astype(np.int64)
    numbers, positions = np.unique(streams, return_inverse=True)
    surplus = np.bincount(positions, np.where(is_copy, -1, 1) * (ends - starts))  # computing minus copying, by stream
    computes = surplus[positions] > 0
    is_kernel = computes & ~is_copy
    covered, total = Intervals(starts[is_kernel], ends[is_kernel]).length, (ends - starts)[is_kernel].sum()
    if covered <= SERIAL_SHARE * total:
        return operations
    merged = operations.copy()
    merged["stream"][computes] = numbers[surplus.argmax()]
    return merged


def find_releases(operations: Any, queue_times: Any) -> dict[int, tuple[int, int]]:
    """Return for each operation the operation that released it, and the latency in nanoseconds.

    If an operation waited for the end of another operation, this end releases it. Without a release, the first value is
    -1. The latency is the delay after the release, or after queueing without a release. The result omits operations
    that directly follow the previous operation of their stream, operations whose delay is a gap of their stream (see
    `stream_gaps`), and operations with an unknown queueing time.
    """
    starts, ends = operations["start"].astype(np.int64), operations["end"].astype(np.int64)
    streams = operations["stream"]
    by_end = np.argsort(ends, kind="stable")
    sorted_ends = ends[by_end]
    releases: dict[int, tuple[int, int]] = {}
    stream_ends: dict[int, int] = {}  # end of the last operation of each stream
    for index in np.lexsort((starts,)).tolist():
        stream, start = int(streams[index]), int(starts[index])
        stream_free_at, stream_ends[stream] = stream_ends.get(stream, 0), int(ends[index])
        if queue_times[index] < 0 or start <= stream_free_at + MAX_SWITCH_NS:
            continue
        earliest = max(stream_free_at, int(queue_times[index]) + MAX_SWITCH_NS)
        is_read_back = (
            operations["kind"][index] == RecordKind.MEMCPY and operations["what"][index] == CopyKind.DEVICE_TO_HOST
        )
        releasing = _releasing_operation(
            by_end, sorted_ends, streams, stream, start, earliest if is_read_back else max(earliest, start - RELEASE_NS)
        )
        if releasing < 0 and queue_times[index] < stream_free_at and start - stream_free_at < RELEASE_NS:
            continue  # the operation was already queued, so the delay is a gap of its stream; see `stream_gaps`
        released_at = int(ends[releasing]) if releasing >= 0 else int(queue_times[index])
        releases[index] = releasing, min(max(0, start - released_at), MAX_LATENCY_NS)
    return releases


def stream_gaps(operations: Any, queue_times: Any) -> Any:
    """Return the gap before each operation on its stream, in nanoseconds.

    The records show the gap of an operation that directly follows the previous one, or that the host queued while its
    stream was busy. All other operations get the median of these gaps.
    """
    starts, ends = operations["start"].astype(np.int64), operations["end"].astype(np.int64)
    gaps = np.full(len(starts), -1, np.int64)
    for stream in np.unique(operations["stream"]):
        indices = np.flatnonzero(operations["stream"] == stream)
        indices = indices[np.argsort(starts[indices], kind="stable")]
        stream_free_at = np.maximum.accumulate(ends[indices])[:-1]
        idle_ns = starts[indices][1:] - stream_free_at
        queued_at = queue_times[indices][1:]
        is_measured = (idle_ns <= MAX_SWITCH_NS) | (
            (queued_at >= 0) & (queued_at < stream_free_at) & (idle_ns < RELEASE_NS)
        )
        gaps[indices[1:][is_measured]] = np.maximum(0, idle_ns[is_measured])
    is_known = gaps >= 0
    return np.where(is_known, gaps, int(np.median(gaps[is_known])) if is_known.any() else 0)


def _releasing_operation(by_end: Any, sorted_ends: Any, streams: Any, stream: int, start: int, earliest: int) -> int:
    """Return the last operation on a stream other than `stream` that ended in a period.

    The period lasts from `earliest` to shortly after `start`. Return -1 if there is no such operation.
    """
    position = int(np.searchsorted(sorted_ends, start + MAX_SWITCH_NS, "right")) - 1
    while position >= 0 and sorted_ends[position] >= earliest:
        if streams[by_end[position]] != stream:
            return int(by_end[position])
        position -= 1
    return -1
