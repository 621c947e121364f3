"""Sets of time intervals, stored as sorted arrays of starts and ends."""

from typing import Any

import numpy as np

from forebay.core.intervals import merge_intervals

__all__ = ["Intervals", "find_innermost"]


class Intervals:
    """A set of time intervals in nanoseconds. Intervals that touch or overlap are merged.

    >>> Intervals([0, 5, 20], [10, 12, 30]).covered_lengths([0, 11], [25, 21]).tolist()
    [17, 2]
    """

    def __init__(self, starts: Any, ends: Any) -> None:
        starts, ends = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
        is_not_empty = ends > starts
        self.starts, self.ends = merge_intervals(starts[is_not_empty], ends[is_not_empty])
        self._length_before = np.concatenate([[0], np.cumsum(self.ends - self.starts)])

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def length(self) -> int:
        """The total length of all intervals, in nanoseconds."""
        return int(self._length_before[-1])

    def covered_lengths(self, starts: Any, ends: Any) -> Any:
        """Return how many nanoseconds this set covers between each start and its end."""
        return np.maximum(0, self._length_until(ends) - self._length_until(starts))

    def contains(self, times: Any) -> Any:
        """Return a mask of the times inside an interval. Ends of intervals are outside."""
        times = np.asarray(times, np.int64)
        index = np.searchsorted(self.starts, times, "right") - 1
        return (index >= 0) & (times < self.ends[index]) if len(self) else np.zeros(len(times), bool)

    def difference(self, other: "Intervals") -> "Intervals":
        """Return the times in this set that are not in `other`."""
        return self.intersection(other.gaps_between(*self._span())) if len(self) else self

    def intersection(self, other: "Intervals") -> "Intervals":
        """Return the times that are in both sets."""
        edges = np.unique(np.concatenate([self.starts, self.ends, other.starts, other.ends]))
        starts, ends = edges[:-1], edges[1:]
        is_in_both = self.contains(starts) & other.contains(starts)
        return Intervals(starts[is_in_both], ends[is_in_both])

    def union(self, other: "Intervals") -> "Intervals":
        """Return the times that are in at least one of the sets."""
        return Intervals(np.concatenate([self.starts, other.starts]), np.concatenate([self.ends, other.ends]))

    def gaps_between(self, start: int, end: int) -> "Intervals":
        """Return the times from `start` to `end` that are not in this set."""
        starts = np.concatenate([[start], self.ends])
        ends = np.concatenate([self.starts, [end]])
        return Intervals(np.clip(starts, start, end), np.clip(ends, start, end))

    def _span(self) -> tuple[int, int]:
        return int(self.starts[0]), int(self.ends[-1])

    def _length_until(self, times: Any) -> Any:
        """Return the total length of this set before each time."""
        times = np.asarray(times, np.int64)
        if not len(self):
            return np.zeros(len(times), np.int64)
        index = np.searchsorted(self.starts, times, "right") - 1
        length_in_interval = np.minimum(times, self.ends[index]) - self.starts[index]
        return np.where(index >= 0, self._length_before[index] + length_in_interval, 0)


def find_innermost(starts: Any, ends: Any, times: Any) -> Any:
    """Return for each time the index of the innermost interval that contains it, or -1.

    The intervals are sorted by start and may be nested.
    """
    parents = _find_parents(starts, ends)
    indices = np.searchsorted(starts, times, "right") - 1
    while True:
        has_ended = (indices >= 0) & (ends[indices] < times) if len(starts) else np.zeros(len(times), bool)
        if not has_ended.any():
            return indices
        indices[has_ended] = parents[indices[has_ended]]


def _find_parents(starts: Any, ends: Any) -> Any:
    """Return for each interval the index of the innermost interval around it, or -1."""
    parents = np.full(len(starts), -1, np.int64)
    enclosing: list[int] = []  # indices of the intervals that enclose the current one, outermost first
    for index, end in enumerate(ends.tolist()):
        while enclosing and ends[enclosing[-1]] < end:
            enclosing.pop()
        parents[index] = enclosing[-1] if enclosing else -1
        enclosing.append(index)
    return parents
