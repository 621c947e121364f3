"""Background decompression of the files that upcoming groups need."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any, Protocol, TypeAlias

from forebay.core.machine import Machine
from forebay.core.rows import Rows
from forebay.sources.lookahead import LookAhead

__all__ = ["DecompressAhead", "Decompressible"]

RowCounts: TypeAlias = Mapping[int, int]  # file number -> rows of one group in that file


class Decompressible(Protocol):
    """A source or a part of one that holds its rows in memory after decompression."""

    def decompress(self) -> None:
        """Decompress all rows now, unless this was done before. Any thread may call this."""
        ...


class DecompressAhead(LookAhead):
    """Decompresses files in the order in which groups need them, within a memory budget.

    Each thread decompresses one file at a time. A file stays open until all its rows in the groups seen so far were
    gathered. No consumer waits here: a thread that needs a file that is not ready decompresses it itself.

    Unlike the other prefetchers, it counts rows per file instead of keeping items per group, because one decompressed
    file serves many groups.
    """

    def __init__(
        self,
        upcoming: Iterator[Rows],
        count_rows: Callable[[Rows], RowCounts],
        use: Callable[[int], AbstractContextManager[Any]],  # opens a file as a `Decompressible` for a `with` block
        *,
        nbytes: Sequence[int],  # of each file, decompressed
        budget_nbytes: int,
    ) -> None:
        super().__init__()
        self._upcoming, self._count_rows, self._use = upcoming, count_rows, use
        self._nbytes, self._budget_nbytes = nbytes, budget_nbytes
        self._pending_rows: dict[int, int] = {}  # file -> rows of the groups seen so far that were not gathered yet
        self._open_files: dict[int, ExitStack] = {}  # keeps pending files open
        self._next_file_lock = threading.Lock()
        self._files = self._files_to_decompress()
        self._start_threads(min(Machine.detect().cores, len(nbytes)), "forebay-decompress")

    def on_gathered(self, file: int, rows: int) -> None:
        """Record that rows were gathered; release a file without pending rows."""
        with self.changed:
            if file not in self._pending_rows:
                return
            self._pending_rows[file] -= rows
            if self._pending_rows[file] <= 0:
                self._release_file(file)
                self.changed.notify_all()

    def _drop_items(self) -> None:
        for file in list(self._pending_rows):
            self._release_file(file)

    def _prepare_groups(self) -> None:
        while (file := self._next_file()) is not None:
            with self._use(file) as source:  # the pool counts the memory of the file when this block ends
                self._keep_open(file)
                source.decompress()

    def _next_file(self) -> int | None:
        with self._next_file_lock:
            return next(self._files, None)

    def _keep_open(self, file: int) -> None:
        with self.changed:
            if file in self._pending_rows:
                self._open_files[file] = ExitStack()
                self._open_files[file].enter_context(self._use(file))

    def _files_to_decompress(self) -> Iterator[int]:
        """Yield the files in the order in which groups need them.

        Wait for room before each group. Stop when all files are pending.
        """
        for rows in self._upcoming:
            counts, new_files = self._count_rows(rows), list[int]()
            if not self._admit(partial(self._fits, counts), partial(self._add, counts, new_files)):
                return
            yield from new_files
            if len(self._pending_rows) == len(self._nbytes):
                return

    def _fits(self, counts: RowCounts) -> bool:
        return sum(self._nbytes[file] for file in self._pending_rows.keys() | counts.keys()) <= self._budget_nbytes

    def _add(self, counts: RowCounts, new_files: list[int]) -> None:
        """Add the rows of a group to the pending rows.

        Append the files that had no pending rows to `new_files`.
        """
        new_files.extend(file for file in counts if file not in self._pending_rows)
        for file, rows in counts.items():
            self._pending_rows[file] = self._pending_rows.get(file, 0) + rows

    def _release_file(self, file: int) -> None:
        del self._pending_rows[file]
        opened = self._open_files.pop(file, None)
        if opened is not None:
            opened.close()
