"""A reader of whole blocks of rows, for block shuffles.

A block shuffle stays inside a few blocks at a time, so many groups need rows of the same block. The reader reads each
block into memory once per pass.
"""

import math
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial

import numpy as np

from forebay.core.rows import Rows, row_array
from forebay.core.spec import Array
from forebay.sources.direct.address_space import AddressSpace
from forebay.sources.direct.block_schedule import BlockSchedule
from forebay.sources.direct.copy_rows import copy_rows
from forebay.sources.direct.open_files import OpenFiles, aligned_memory
from forebay.sources.direct.read_ranges import DiskReads, ReadRanges, merge_ranges
from forebay.sources.direct.read_threads import IoUringThreads, PreadThreads, wait_for_reads
from forebay.sources.lookahead import LookAhead

__all__ = ["BlockReadSession", "BlockReader", "block_buffer_nbytes"]


class BlockReader:
    """Reads whole blocks into buffers before groups need their rows."""

    def __init__(
        self, space: AddressSpace, files: OpenFiles, *, rows: int, block_rows: int, buffers: int, use_io_uring: bool
    ) -> None:
        self.space, self._files = space, files
        self._rows, self.block_rows, self._buffers = rows, block_rows, buffers
        self._buffer_nbytes = block_buffer_nbytes(space, block_rows, files.alignment)
        self._threads = IoUringThreads() if use_io_uring else PreadThreads()
        self._session: BlockReadSession | None = None

    def begin(self, groups: Iterator[tuple[Hashable, Rows]]) -> "BlockReadSession":
        """Begin a session that reads these groups. This ends the previous session."""
        self.stop()
        memory = aligned_memory(self._buffers * self._buffer_nbytes)
        upcoming = ((group, _find_block_numbers(rows, self.block_rows)) for group, rows in groups)
        self._session = BlockReadSession(self, BlockSchedule(upcoming, self._buffers), memory)
        return self._session

    def block_ranges(self, block: int, buffer: int) -> ReadRanges:
        """Return the byte ranges of a block, with offsets in the memory of all buffers."""
        first = block * self.block_rows
        runs = list(self.space.row_runs(first, min(first + self.block_rows, self._rows)))
        starts, nbytes = [run.address for run in runs], [run.nbytes for run in runs]
        ranges = merge_ranges(np.array(starts), np.array(nbytes), alignment=self._files.alignment)
        assert ranges.total_nbytes <= self._buffer_nbytes  # else the read would overwrite the next buffer
        return ReadRanges(ranges.starts, ranges.nbytes, ranges.buffer_offsets + buffer * self._buffer_nbytes)

    def start_reads(self, blocks: Sequence[ReadRanges], memory: Array) -> "Iterator[Sequence[Future[None]]]":
        """Start to read blocks in other threads, and yield the futures of each block.

        Small blocks are read together, and share the futures of their reads.
        """
        max_blocks = max(1, self._threads.job_nbytes // self._buffer_nbytes)
        for first in range(0, len(blocks), max_blocks):
            together = blocks[first : first + max_blocks]
            reads = DiskReads.concatenate([ranges.split() for ranges in together])
            yield from [self._threads.start(self._files, reads, memory)] * len(together)

    def stop(self) -> None:
        """End the current session and wake all threads that wait for a block."""
        if self._session is not None:
            self._session.close()

    def close(self) -> None:
        """End the threads and close the files. No thread may gather after this call."""
        self.stop()
        self._threads.close()
        self._files.close()
        if self._session is not None:
            self._session.free_memory()


class BlockReadSession(LookAhead):
    """The reads of one iteration over a feed, block by block.

    The threads that gather rows also start the reads of upcoming groups. A read in progress refers to the memory of the
    buffers. So this memory stays valid if the session is closed before the read ends.
    """

    def __init__(self, reader: BlockReader, schedule: BlockSchedule, memory: Array) -> None:
        super().__init__()
        self._reader, self._schedule, self._memory = reader, schedule, memory
        self._block_reads: dict[int, tuple[ReadRanges, Sequence[Future[None]]]] = {}  # block -> its ranges and reads

    def gather(self, group: Hashable, rows: Rows, out: Sequence[Array]) -> None:
        """Write row `rows[i]` of leaf `l` to `out[l][i]`.

        Several threads may call this at the same time.
        """
        blocks = self._wait_for(partial(self._find_blocks, group))
        try:
            wait_for_reads(read for _, reads in blocks for read in reads)
            self._copy(ReadRanges.combine([ranges for ranges, _ in blocks]), rows, out)
        finally:
            self._release(partial(self._free_blocks, group))

    def free_memory(self) -> None:
        """Free the buffers now, because the user may keep a reference to a closed feed."""
        self._block_reads.clear()
        self._memory = aligned_memory(0)

    def _find_blocks(self, group: Hashable) -> list[tuple[ReadRanges, "Sequence[Future[None]]"]] | None:
        """Return the ranges and reads of the group's blocks; None before the group is admitted."""
        blocks = self._schedule.blocks_of(group)
        return None if blocks is None else [self._block_reads[block] for block in blocks]

    def _advance(self) -> None:
        blocks = self._schedule.admit()
        ranges = [self._reader.block_ranges(block, self._schedule.buffer_of(block)) for block in blocks]
        reads = self._reader.start_reads(ranges, self._memory)
        self._block_reads.update(zip(blocks, zip(ranges, reads, strict=True), strict=True))

    def _free_blocks(self, group: Hashable) -> None:
        for block in self._schedule.release(group):
            del self._block_reads[block]

    def _drop_items(self) -> None:
        for read in (read for _, reads in self._block_reads.values() for read in reads):
            read.cancel()

    def _copy(self, ranges: ReadRanges, rows: Rows, out: Sequence[Array]) -> None:
        numbers = row_array(rows)
        for leaf, target in enumerate(out):
            copy_rows(self._memory, ranges.locate(self._reader.space.addresses(leaf, numbers)), target)


def block_buffer_nbytes(space: AddressSpace, block_rows: int, alignment: int) -> int:
    """Return the size in bytes of a buffer that can hold any block.

    The size is a multiple of all row sizes, unless this would make it more than an eighth larger. Distances between
    rows of different buffers are then multiples of the row size too, which makes `copy_rows` faster.
    """
    needed = space.max_read_nbytes(block_rows, alignment)
    multiple = math.lcm(alignment, *space.row_nbytes)
    step = multiple if multiple * 8 <= needed else alignment
    return -(-needed // step) * step


def _find_block_numbers(rows: Rows, block_rows: int) -> list[int]:
    if isinstance(rows, slice):
        return list(range(rows.start // block_rows, -(-rows.stop // block_rows)))
    blocks: list[int] = np.unique(rows // block_rows).tolist()
    return blocks
