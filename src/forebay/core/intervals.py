"""The union of half-open intervals."""

from typing import Any

import numpy as np

__all__ = ["merge_intervals"]


def merge_intervals(starts: Any, ends: Any, *, gap: int = 0) -> tuple[Any, Any]:
    """Merge intervals that overlap, touch or are at most `gap` apart; return starts and ends.

    The result is sorted. The intervals [20, 30), [0, 10) and [5, 12) become [0, 12) and [20, 30):

    >>> starts, ends = merge_intervals(np.array([20, 0, 5]), np.array([30, 10, 12]))
    >>> starts.tolist(), ends.tolist()
    ([0, 20], [12, 30])
    """
    order = np.argsort(starts, kind="stable")
    starts, max_ends = starts[order], np.maximum.accumulate(ends[order])
    is_first, is_last = np.ones(len(starts), bool), np.ones(len(starts), bool)
    is_first[1:] = starts[1:] > max_ends[:-1] + gap
    is_last[:-1] = is_first[1:]
    return starts[is_first], max_ends[is_last]
