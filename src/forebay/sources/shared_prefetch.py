"""`SharedPrefetch`: prefetching for a source that consists of several sources, its parts.

Each part prefetches its own rows of the upcoming groups.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from forebay.core.rows import Rows, row_count
from forebay.core.source import AbstractSource, Closeable

__all__ = ["SharedPrefetch"]

# Returns the reads of parts that the gather of a group makes: for each, the index of the part and its row numbers.
SplitGroup: TypeAlias = Callable[[Rows], Iterable[tuple[int, Rows]]]

# While the queue of a part has this many row numbers, no thread reads another group. Without this limit, a part that
# rarely has a row would make `SharedPrefetch` read an epoch of groups to find one, and queue the row numbers of all
# other parts. 2^18 row numbers take 2 MiB.
MAX_WAITING_ROWS = 1 << 18


class SharedPrefetch:
    """Divides upcoming groups among the parts of a source.

    The prefetcher of a part finds a group by its row numbers. So `split` divides a group into the same reads of the
    parts as `gather` of the source. A prefetcher that needs the next group waits while the queue of another part holds
    `MAX_WAITING_ROWS` rows. Prefetchers take upcoming groups in threads of their own, so no gather waits for this.
    """

    def __init__(self, upcoming: Iterator[Rows], parts: Sequence[AbstractSource], split: SplitGroup) -> None:
        self._upcoming, self._split = upcoming, split
        self._changed = threading.Condition()
        self._queues: dict[int, deque[Rows]] = {part: deque() for part in range(len(parts))}
        self._waiting_rows = dict.fromkeys(self._queues, 0)
        self._is_reading = False  # whether a thread is taking the next group from `upcoming`
        self._is_over = False  # whether `upcoming` is exhausted or `close()` was called
        self._prefetches: list[Closeable] = []
        try:
            for number, part in enumerate(parts):
                self._start_part(number, part)
        except BaseException:
            self.close()
            raise

    def __bool__(self) -> bool:
        """Return whether any part prefetches."""
        return bool(self._prefetches)

    def close(self) -> None:
        with self._changed:
            self._is_over = True
            self._queues.clear()
            self._changed.notify_all()
        for prefetch in self._prefetches:
            prefetch.close()

    def _start_part(self, number: int, part: AbstractSource) -> None:
        prefetch = part.prefetch(self._rows_of(number))
        if prefetch is None:
            self._drop_queue(number)
        else:
            self._prefetches.append(prefetch)

    def _drop_queue(self, part: int) -> None:
        with self._changed:
            if self._queues.pop(part, None) is not None:
                del self._waiting_rows[part]
            if not self._queues:  # then the `SharedPrefetch` of an outer source may drop its queue of this source
                self._upcoming = iter(())
            self._changed.notify_all()

    def _rows_of(self, part: int) -> Iterator[Rows]:
        """Yield the rows of one part, group by group.

        A prefetcher that needs no more rows drops this generator. The generator then drops the queue of its part.
        Otherwise the queue would become full, and the other prefetchers would wait.
        """
        try:
            while (rows := self._next_rows(part)) is not None:
                yield rows
        finally:
            self._drop_queue(part)

    def _next_rows(self, part: int) -> Rows | None:
        """Wait for the next rows of a part and return them. None means the end."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._can_continue(part))
                queue = self._queues.get(part)
                if queue:
                    rows = queue.popleft()
                    self._waiting_rows[part] -= row_count(rows)
                    self._changed.notify_all()
                    return rows
                if queue is None or self._is_over:
                    return None
                self._is_reading = True
            self._read_group()

    def _can_continue(self, part: int) -> bool:
        if self._is_over or part not in self._queues or self._queues[part]:
            return True
        return not self._is_reading and max(self._waiting_rows.values()) < MAX_WAITING_ROWS

    def _read_group(self) -> None:
        """Take the next group from `upcoming`, and add its rows to the queues.

        After an error, no part gets further rows.
        """
        reads = None
        try:
            group = next(self._upcoming, None)
            reads = None if group is None else list(self._split(group))
        finally:
            with self._changed:
                self._is_reading = False
                self._is_over |= reads is None
                for part, rows in reads or ():
                    if part in self._queues:
                        self._queues[part].append(rows)
                        self._waiting_rows[part] += row_count(rows)
                self._changed.notify_all()
