"""Rows read one by one, many at once: for an order that scatters them over the files, and for rows that are large.

Every thread that gathers has a ring and memory of its own. So a group is read ahead of need by whoever fills its slot,
and the disk is busy for as long as several slots are being filled.
"""

import threading
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Self

from forebay.reading.copying import copy_piece, copy_rows
from forebay.reading.files import OpenFiles, aligned_memory
from forebay.reading.reads import Read, read_all
from forebay.reading.runs import Runs, merge
from forebay.reading.space import Space
from forebay.reading.threads import PlainThreads, ring_of_thread
from forebay.sources.base import Array, Rows, row_count

__all__ = ["RowReader"]

GAP_NBYTES = 16 << 10  # what lies between two rows is read with them: as quick as one read more


class RowReader:
    """Gathers rows by reading them; called from several threads at once."""

    def __init__(self, space: Space, files: OpenFiles, *, memory_nbytes: int, ring: bool) -> None:
        self._space, self._files = space, files
        self._memory_nbytes = memory_nbytes
        row_nbytes = sum(nbytes + 2 * files.alignment for nbytes in space.row_nbytes)
        self._rows_at_once = max(1, memory_nbytes // row_nbytes)
        self._threads = None if ring else PlainThreads()
        self._local = threading.local()

    def begin(self, groups: Iterator[tuple[Hashable, Rows]]) -> Self:
        """Nothing to look ahead for: a group is read when its slot is filled."""
        return self

    def gather(self, group: Hashable, rows: Rows, out: Sequence[Array]) -> None:
        """Write row `rows[i]` of leaf `l` to `out[l][i]`, as a source does."""
        for start in range(0, row_count(rows), self._rows_at_once):
            part = slice(start, min(start + self._rows_at_once, row_count(rows)))
            targets = [leaf[part] for leaf in out]
            if isinstance(rows, slice):
                self._gather_run(slice(rows.start + part.start, rows.start + part.stop), targets)
            else:
                self._gather_scattered(rows[part], targets)

    def stop(self) -> None:
        """Reads end by themselves: nobody waits for anything else."""

    def close(self) -> None:
        """Close the files; no thread may be gathering any more."""
        if self._threads is not None:
            self._threads.close()
        self._files.close()

    def _gather_run(self, rows: slice, out: Sequence[Array]) -> None:
        memory, runs = self._read(rows)
        for piece in self._space.pieces(rows.start, rows.stop):
            place = runs.locate(piece.address)  # type: ignore[arg-type]  # one number is as good as many
            copy_piece(memory, int(place), piece.stride, out[piece.leaf][piece.first : piece.first + piece.rows])

    def _gather_scattered(self, rows: Any, out: Sequence[Array]) -> None:
        memory, runs = self._read(rows)
        for leaf, target in enumerate(out):
            copy_rows(memory, runs.locate(self._space.addresses(leaf, rows)), target)

    def _read(self, rows: Rows) -> tuple[Array, Runs]:
        memory, read = self._own()
        starts, nbytes = self._space.starts_and_nbytes(rows)
        runs = merge(starts, nbytes, alignment=self._files.alignment, gap=GAP_NBYTES)
        if runs.total_nbytes > memory.nbytes:
            runs = merge(starts, nbytes, alignment=self._files.alignment)
        if runs.total_nbytes > memory.nbytes:  # rows with much between them, asked for as a stretch
            memory = aligned_memory(runs.total_nbytes)
        read_all(read, self._files, runs.requests(), memory)
        return memory, runs

    def _own(self) -> tuple[Array, Read]:
        """This thread's memory, which goes with the thread, and its way to read."""
        if not hasattr(self._local, "memory"):
            self._local.memory = aligned_memory(self._memory_nbytes)
        return self._local.memory, ring_of_thread() if self._threads is None else self._threads.read
