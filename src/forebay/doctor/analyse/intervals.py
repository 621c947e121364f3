"""Sets of disjoint time intervals in sorted arrays."""

from typing import Any

import numpy as np

from forebay.core.intervals import merge_intervals

__all__ = ["Intervals", "innermost"]


class Intervals:
    """Sorted intervals that neither touch nor overlap, in nanoseconds.

    >>> Intervals([0, 5, 20], [10, 12, 30]).covered([0, 11], [25, 21]).tolist()
    [17, 2]
    """

    def __init__(self, starts: Any, ends: Any) -> None:
        starts, ends = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
        kept = ends > starts
        self.starts, self.ends = merge_intervals(starts[kept], ends[kept])
        self._before = np.concatenate([[0], np.cumsum(self.ends - self.starts)])

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def length(self) -> int:
        """The total length."""
        return int(self._before[-1])

    def covered(self, starts: Any, ends: Any) -> Any:
        """Return how much of each given interval these intervals cover."""
        return np.maximum(0, self._until(ends) - self._until(starts))

    def contains(self, times: Any) -> Any:
        """Return whether these intervals contain each time."""
        times = np.asarray(times, np.int64)
        at = np.searchsorted(self.starts, times, "right") - 1
        return (at >= 0) & (times < self.ends[at]) if len(self) else np.zeros(len(times), bool)

    def difference(self, other: "Intervals") -> "Intervals":
        """Return the set difference."""
        return self.intersection(other.gaps_between(*self._span())) if len(self) else self

    def intersection(self, other: "Intervals") -> "Intervals":
        """Return the intersection."""
        edges = np.unique(np.concatenate([self.starts, self.ends, other.starts, other.ends]))
        starts, ends = edges[:-1], edges[1:]
        both = self.contains(starts) & other.contains(starts)
        return Intervals(starts[both], ends[both])

    def union(self, other: "Intervals") -> "Intervals":
        """Return the union."""
        return Intervals(np.concatenate([self.starts, other.starts]), np.concatenate([self.ends, other.ends]))

    def gaps_between(self, start: int, end: int) -> "Intervals":
        """Return the gaps between `start` and `end`."""
        starts = np.concatenate([[start], self.ends])
        ends = np.concatenate([self.starts, [end]])
        return Intervals(np.clip(starts, start, end), np.clip(ends, start, end))

    def _span(self) -> tuple[int, int]:
        return int(self.starts[0]), int(self.ends[-1])

    def _until(self, times: Any) -> Any:
        """Return the length of the intervals before each time."""
        times = np.asarray(times, np.int64)
        if not len(self):
            return np.zeros(len(times), np.int64)
        at = np.searchsorted(self.starts, times, "right") - 1
        passed = np.minimum(times, self.ends[at]) - self.starts[at]
        return np.where(at >= 0, self._before[at] + passed, 0)


def innermost(starts: Any, ends: Any, times: Any) -> Any:
    """Return for each time the index of the interval that contains it, of several the last to begin.

    The intervals are sorted by start and may be nested. -1 means none.
    """
    around = _enclosing(starts, ends)
    found = np.searchsorted(starts, times, "right") - 1
    while True:
        past = (found >= 0) & (ends[found] < times) if len(starts) else np.zeros(len(times), bool)
        if not past.any():
            return found
        found[past] = around[found[past]]


def _enclosing(starts: Any, ends: Any) -> Any:
    """Return for each interval the last one that encloses it; -1 for none."""
    found = np.full(len(starts), -1, np.int64)
    open_: list[int] = []
    for number, end in enumerate(ends.tolist()):
        while open_ and ends[open_[-1]] < end:
            open_.pop()
        found[number] = open_[-1] if open_ else -1
        open_.append(number)
    return found
