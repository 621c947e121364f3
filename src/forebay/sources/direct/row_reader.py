"""A reader of single rows, for rows that are scattered over the files or large."""

from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from forebay.core.rows import Rows, row_count, split_rows
from forebay.core.spec import Array
from forebay.sources.direct.address_space import AddressSpace
from forebay.sources.direct.copy_rows import copy_rows, copy_strided
from forebay.sources.direct.open_files import OpenFiles, aligned_memory
from forebay.sources.direct.read_ranges import ReadRanges, merge_ranges
from forebay.sources.direct.read_threads import IoUringThreads, PreadThreads, wait_for_reads
from forebay.sources.lookahead import GroupItems, LookAhead

__all__ = ["DirectRowReader", "RowReadSession"]

# Bytes. If at most this many bytes are between two rows, one read of both rows takes no longer than two reads.
GAP_NBYTES = 16 << 10


class DirectRowReader:
    """Reads the rows of upcoming groups from files into row buffers.

    A row buffer holds one group, or a part of a group. The reads are direct I/O if the file system supports it.
    """

    def __init__(
        self, space: AddressSpace, files: OpenFiles, *, buffer_nbytes: int, buffers: int, use_io_uring: bool
    ) -> None:
        self.space, self._files = space, files
        self._buffer_nbytes, self._buffers = buffer_nbytes, buffers
        row_nbytes = sum(nbytes + 2 * files.alignment for nbytes in space.row_nbytes)
        self.buffer_rows = max(1, buffer_nbytes // row_nbytes)
        self._threads = IoUringThreads() if use_io_uring else PreadThreads()
        self._session: RowReadSession | None = None

    def begin(self, groups: Iterator[tuple[Hashable, Rows]]) -> "RowReadSession":
        """Begin a session that reads these groups. This ends the previous session."""
        self.stop()
        self._session = RowReadSession(
            self, groups, [aligned_memory(self._buffer_nbytes) for _ in range(self._buffers)]
        )
        return self._session

    def start_reads(self, rows: Rows, buffer: Array) -> "PartRead":
        """Start to read rows into a buffer in other threads."""
        starts, nbytes = self.space.starts_and_nbytes(rows)
        ranges, memory = merge_ranges(starts, nbytes, alignment=self._files.alignment, gap=GAP_NBYTES), buffer
        if ranges.total_nbytes > buffer.nbytes:
            ranges = merge_ranges(starts, nbytes, alignment=self._files.alignment)
        if ranges.total_nbytes > buffer.nbytes:  # the range of consecutive rows includes the bytes between them
            memory = aligned_memory(ranges.total_nbytes)
        return PartRead(rows, buffer, memory, ranges, self._threads.start(self._files, ranges.split(), memory))

    def stop(self) -> None:
        """End the current session and wake all threads that wait for a group."""
        if self._session is not None:
            self._session.close()

    def close(self) -> None:
        """End the threads and close the files. No thread may gather after this call."""
        self.stop()
        self._threads.close()
        self._files.close()
        self._session = None


@dataclass(frozen=True, slots=True)
class PartRead:
    """Reads in progress for a group or a part of a group."""

    rows: Rows
    buffer: Array  # returned to the session after the rows are copied
    memory: Array  # the buffer, or separate memory if the buffer is too small for these rows
    ranges: ReadRanges
    reads: "Sequence[Future[None]]"


class RowReadSession(LookAhead):
    """The reads of one iteration over a feed, into row buffers.

    The threads that gather rows also start the reads of upcoming groups. So the disk reads the next groups while
    the threads wait for the current group. A read in progress refers to its memory. So this memory stays valid if the
    session is closed before the read ends.
    """

    def __init__(self, reader: DirectRowReader, groups: Iterator[tuple[Hashable, Rows]], buffers: list[Array]) -> None:
        super().__init__()
        self._reader, self._free_buffers = reader, buffers
        self._upcoming = _split_groups(groups, reader.buffer_rows)
        self._started_parts: GroupItems[PartRead] = GroupItems()

    def gather(self, group: Hashable, rows: Rows, out: Sequence[Array]) -> None:
        """Write row `rows[i]` of leaf `l` to `out[l][i]`.

        Several threads may call this at the same time.
        """
        start, count = 0, row_count(rows)
        while start < count:
            part = self._wait_for(partial(self._started_parts.pop, group))
            try:
                wait_for_reads(part.reads)
                stop = start + row_count(part.rows)
                _copy_part(self._reader.space, part, [leaf[start:stop] for leaf in out])
            finally:
                self._release(partial(self._free_buffers.append, part.buffer))
            start = stop

    def _advance(self) -> None:
        while self._free_buffers:
            part = next(self._upcoming, None)
            if part is None:
                return
            group, rows = part
            self._started_parts.add(group, self._reader.start_reads(rows, self._free_buffers.pop()))

    def _drop_items(self) -> None:
        for part in self._started_parts.drain():
            for read in part.reads:
                read.cancel()
        self._free_buffers.clear()  # free the memory now, because the user may keep a reference to a closed feed


def _split_groups(groups: Iterator[tuple[Hashable, Rows]], buffer_rows: int) -> Iterator[tuple[Hashable, Rows]]:
    """Yield the groups in parts that fit in a row buffer."""
    for group, rows in groups:
        yield from ((group, part) for _, part in split_rows(rows, buffer_rows))


def _copy_part(space: AddressSpace, part: PartRead, out: Sequence[Array]) -> None:
    if not isinstance(part.rows, slice):
        for leaf, target in enumerate(out):
            copy_rows(part.memory, part.ranges.locate(space.addresses(leaf, part.rows)), target)
        return
    for run in space.row_runs(part.rows.start, part.rows.stop):
        offset: Any = part.ranges.locate(run.address)  # type: ignore[arg-type]  # an int works like an array
        copy_strided(part.memory, int(offset), run.stride, out[run.leaf][run.first : run.first + run.rows])
