"""Background decompression of the files that upcoming groups need."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any, Protocol, TypeAlias

from forebay.core.machine import Machine
from forebay.core.rows import Rows
from forebay.sources.lookahead import GroupItems, GroupKey, LookAhead, group_key

__all__ = ["DecompressAhead", "Decompressible"]

RowCounts: TypeAlias = Mapping[int, int]  # file number -> rows of one group in that file

# Maximum number of skipped groups to record. Groups that another feed of the source gathers are recorded too, and never
# removed.
_MAX_SKIPPED = 1024


class Decompressible(Protocol):
    """A source, or a part of a source, that keeps its decompressed rows in memory."""

    def decompress(self) -> None:
        """Decompress all rows, unless an earlier call did. Any thread may call this."""
        ...


class DecompressAhead(LookAhead):
    """Decompresses files in the order in which groups need them, within a memory budget.

    Each background thread decompresses one file at a time. A group is admitted when its files fit in the budget. A file
    stays open until the feed has gathered the rows of the file for all admitted groups. To know when, this class counts
    the pending rows of each file, which are the rows of admitted groups that are not gathered yet.

    A thread that gathers rows never waits for this class. If a file is not ready, the thread decompresses it itself. It
    may then gather a group before the group is admitted. Such a group is skipped: it is never admitted.
    """

    def __init__(
        self,
        upcoming: Iterator[Rows],
        count_rows: Callable[[Rows], RowCounts],
        use: Callable[[int], AbstractContextManager[Any]],  # opens file n as a `Decompressible` for a `with` block
        *,
        nbytes: Sequence[int],  # decompressed size of each file
        budget_nbytes: int,
    ) -> None:
        super().__init__()
        self._count_rows, self._use = count_rows, use
        self._nbytes, self._budget_nbytes = nbytes, budget_nbytes
        self._groups: GroupItems[RowCounts] = GroupItems()  # admitted groups that are not gathered yet
        self._skipped: Counter[GroupKey] = Counter()
        self._pending_rows: dict[int, int] = {}  # file -> rows of admitted groups not gathered yet
        self._open_files: dict[int, ExitStack] = {}  # file -> context that keeps it open while it has pending rows
        self._next_file_lock = threading.Lock()
        self._upcoming = self._files_to_decompress(upcoming)
        self._start_threads(min(Machine.detect().cores, len(nbytes)), "forebay-decompress")

    def release_group(self, rows: Rows) -> bool:
        """Record that the group with these rows was gathered, and release files without pending rows.

        Return False if no group with these rows was admitted. The group may belong to another feed of the source.
        """
        with self.changed:
            counts = self._groups.pop(group_key(rows))
            if counts is None:
                return False
            for file, count in counts.items():
                self._pending_rows[file] -= count
                if not self._pending_rows[file]:
                    self._release_file(file)
            self.changed.notify_all()
            return True

    def skip_group(self, rows: Rows) -> None:
        """Record a group that was gathered before its admission, so that it is never admitted."""
        with self.changed:
            if not self.is_finished and len(self._skipped) < _MAX_SKIPPED:
                self._skipped[group_key(rows)] += 1

    def _drop_items(self) -> None:
        self._groups.drain()
        for file in list(self._pending_rows):
            self._release_file(file)

    def _prepare_groups(self) -> None:
        while (file := self._next_file()) is not None:
            with self._use(file) as source:  # at the end of this block, a `SourcePool` counts the decompressed bytes
                self._keep_open(file)
                source.decompress()

    def _next_file(self) -> int | None:
        with self._next_file_lock:
            return next(self._upcoming, None)

    def _keep_open(self, file: int) -> None:
        with self.changed:
            if file in self._pending_rows:
                self._open_files[file] = ExitStack()
                self._open_files[file].enter_context(self._use(file))

    def _files_to_decompress(self, upcoming: Iterator[Rows]) -> Iterator[int]:
        """Yield the files in the order in which groups need them.

        Before each group, wait until its files fit in the budget. Stop when every file has pending rows, because all
        files then fit in the budget, and no file is left to decompress.
        """
        for rows in upcoming:
            counts, new_files = self._count_rows(rows), list[int]()
            key = group_key(rows)
            fits, add = partial(self._fits, key, counts), partial(self._add_group, key, counts, new_files)
            if not self._admit(fits, add):
                return
            yield from new_files
            if len(self._pending_rows) == len(self._nbytes):
                return

    def _fits(self, key: GroupKey, counts: RowCounts) -> bool:
        """Return whether the group is skipped or its files fit in the budget."""
        nbytes = sum(self._nbytes[file] for file in self._pending_rows.keys() | counts.keys())
        return nbytes <= self._budget_nbytes or self._skipped[key] > 0

    def _add_group(self, key: GroupKey, counts: RowCounts, new_files: list[int]) -> None:
        """Add the rows of a group to the pending rows, unless the group was skipped.

        Append the files that had no pending rows to `new_files`.
        """
        if self._skipped[key] > 0:
            self._skipped -= Counter([key])
            return
        self._groups.add(key, counts)
        new_files.extend(file for file in counts if file not in self._pending_rows)
        for file, rows in counts.items():
            self._pending_rows[file] = self._pending_rows.get(file, 0) + rows

    def _release_file(self, file: int) -> None:
        del self._pending_rows[file]
        open_file = self._open_files.pop(file, None)
        if open_file is not None:
            open_file.close()
