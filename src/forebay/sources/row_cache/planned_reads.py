"""Which rows of upcoming groups a cache lets its inner source prefetch.

An inner source finds prefetched rows by the row numbers of a whole group. So a gather must read the rows that were
missing when the group was planned, even if another thread has stored some of them since.
"""

import threading
from collections.abc import Iterator

import numpy as np

from forebay.core.rows import Rows, row_array
from forebay.core.source import Closeable
from forebay.core.spec import Array
from forebay.sources.lookahead import GroupItems, group_key
from forebay.sources.row_cache.stored_rows import StoredRows

__all__ = ["PlannedReads"]


class PlannedReads:
    """The rows of upcoming groups that the inner source prefetches, until `close()`."""

    def __init__(self, store: StoredRows, rows: int, *, keeps_slices: bool) -> None:
        """`rows` is the length of the source.

        `keeps_slices` tells whether a gather of a slice without stored rows passes the slice to the inner source.
        """
        self._store, self._rows, self._keeps_slices = store, rows, keeps_slices
        self._groups: GroupItems[tuple[Array, Array]] = GroupItems()  # row numbers, and whether each row was stored
        self._lock = threading.Lock()
        self.prefetch: Closeable | None = None
        self.is_closed = False

    def plan(self, upcoming: Iterator[Rows]) -> Iterator[Rows]:
        """Yield the rows of each upcoming group that are not stored.

        A thread of the inner source runs this generator.
        """
        passed_rows = 0  # rows since the last group with a missing row
        for rows in upcoming:
            numbers = row_array(rows)
            is_stored = self._store.find(numbers)
            if self.is_closed or passed_rows > self._rows:  # `upcoming` may be endless
                return
            if is_stored.all():
                passed_rows += len(numbers)
                continue
            passed_rows = 0
            with self._lock:
                self._groups.add(group_key(rows), (numbers, is_stored))
            yield rows if self._keeps_slices and not is_stored.any() else numbers[~is_stored]

    def take(self, rows: Rows, numbers: Array) -> Array | None:
        """Return which rows of a group were stored when the group was planned.

        Return None if the group was not planned.
        """
        with self._lock:
            planned = self._groups.pop(group_key(rows)) if self._groups and len(numbers) else None
        if planned is None or not np.array_equal(planned[0], numbers):  # several groups may have the same key
            return None
        return planned[1]

    def close(self) -> None:
        self.is_closed = True
        if self.prefetch is not None:
            self.prefetch.close()
        with self._lock:
            self._groups.drain()
