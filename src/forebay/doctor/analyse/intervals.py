"""Sets of moments, as sorted intervals in arrays: joined, measured, asked how much of a stretch they cover. Pure."""

from typing import Any

import numpy as np

__all__ = ["Intervals", "inner"]


class Intervals:
    """Stretches of time that neither touch nor overlap, in order; nanoseconds.

    >>> Intervals([0, 5, 20], [10, 12, 30]).covered([0, 11], [25, 21]).tolist()
    [17, 2]
    """

    def __init__(self, starts: Any, ends: Any) -> None:
        starts, ends = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
        kept = ends > starts
        order = np.argsort(starts[kept], kind="stable")
        starts, ends = starts[kept][order], ends[kept][order]
        reached = np.maximum.accumulate(ends) if len(ends) else ends
        first = np.ones(len(starts), bool)
        first[1:] = starts[1:] > reached[:-1]
        last = np.append(first[1:], True)[: len(starts)]
        self.starts, self.ends = starts[first], reached[last]
        self._before = np.concatenate([[0], np.cumsum(self.ends - self.starts)])

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def length(self) -> int:
        """Of all of them together."""
        return int(self._before[-1])

    def covered(self, starts: Any, ends: Any) -> Any:
        """How much of each stretch lies inside."""
        return np.maximum(0, self._until(ends) - self._until(starts))

    def holds(self, times: Any) -> Any:
        """Whether each moment lies inside."""
        times = np.asarray(times, np.int64)
        at = np.searchsorted(self.starts, times, "right") - 1
        return (at >= 0) & (times < self.ends[at]) if len(self) else np.zeros(len(times), bool)

    def without(self, other: "Intervals") -> "Intervals":
        """What lies in these and not in the others."""
        return self.within(other.rest(*self._span())) if len(self) else self

    def within(self, other: "Intervals") -> "Intervals":
        """What lies in both."""
        edges = np.unique(np.concatenate([self.starts, self.ends, other.starts, other.ends]))
        starts, ends = edges[:-1], edges[1:]
        both = self.holds(starts) & other.holds(starts)
        return Intervals(starts[both], ends[both])

    def joined(self, other: "Intervals") -> "Intervals":
        """What lies in either."""
        return Intervals(np.concatenate([self.starts, other.starts]), np.concatenate([self.ends, other.ends]))

    def rest(self, start: int, end: int) -> "Intervals":
        """What of a stretch lies between them."""
        starts = np.concatenate([[start], self.ends])
        ends = np.concatenate([self.starts, [end]])
        return Intervals(np.clip(starts, start, end), np.clip(ends, start, end))

    def _span(self) -> tuple[int, int]:
        return int(self.starts[0]), int(self.ends[-1])

    def _until(self, times: Any) -> Any:
        """How much of them has passed at each moment."""
        times = np.asarray(times, np.int64)
        if not len(self):
            return np.zeros(len(times), np.int64)
        at = np.searchsorted(self.starts, times, "right") - 1
        passed = np.minimum(times, self.ends[at]) - self.starts[at]
        return np.where(at >= 0, self._before[at] + passed, 0)


def inner(starts: Any, ends: Any, times: Any) -> Any:
    """For each moment, which of these intervals, sorted by start, holds it; of several the one that began last."""
    around = _around(starts, ends)
    found = np.searchsorted(starts, times, "right") - 1
    while True:
        past = (found >= 0) & (ends[found] < times) if len(starts) else np.zeros(len(times), bool)
        if not past.any():
            return found
        found[past] = around[found[past]]


def _around(starts: Any, ends: Any) -> Any:
    """For each interval, the last one that began before it and ends after it; -1 for none."""
    found = np.full(len(starts), -1, np.int64)
    open_: list[int] = []
    for number, end in enumerate(ends.tolist()):
        while open_ and ends[open_[-1]] < end:
            open_.pop()
        found[number] = open_[-1] if open_ else -1
        open_.append(number)
    return found
