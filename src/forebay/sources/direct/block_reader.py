"""Rows read by blocks: for an order that stays inside a few blocks at a time and comes back to each many times.

The order is known, so blocks are read before anybody asks: groups are looked at in the order in which they will be
filled, and what they need is read until no place in memory is free (`coming.py`). A place is free again when its
block's reads have ended and every group that was seen to need it has been gathered.
"""

import math
import threading
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from forebay.core.source import Array, Rows
from forebay.sources.direct.address_space import Space
from forebay.sources.direct.block_schedule import Coming
from forebay.sources.direct.copy_rows import copy_rows
from forebay.sources.direct.open_files import OpenFiles, aligned_memory
from forebay.sources.direct.read_ranges import Requests, Runs, merge
from forebay.sources.direct.read_threads import STOPPED, PlainThreads, RingThreads, await_reads
from forebay.sources.direct.reader import StoppedReadingError

__all__ = ["BlockPass", "BlockReader", "place_nbytes"]


class BlockReader:
    """Reads blocks of rows to places in memory; `begin` starts a pass over groups, and ends the one before."""

    def __init__(self, space: Space, files: OpenFiles, *, rows: int, block_rows: int, places: int, ring: bool) -> None:
        self.space, self._files = space, files
        self._rows, self.block_rows, self._places = rows, block_rows, places
        self._place_nbytes = place_nbytes(space, block_rows, files.alignment)
        self._threads = RingThreads() if ring else PlainThreads()
        self._current: BlockPass | None = None

    def begin(self, groups: Iterator[tuple[Hashable, Rows]]) -> "BlockPass":
        """Read for these groups, which are gathered in about this order."""
        self.stop()
        memory = aligned_memory(self._places * self._place_nbytes)
        needs = ((group, _blocks(rows, self.block_rows)) for group, rows in groups)
        self._current = BlockPass(self, Coming(needs, self._places), memory)
        return self._current

    def runs(self, block: int, place: int) -> Runs:
        """What a block is made of, at its place."""
        first = block * self.block_rows
        pieces = list(self.space.pieces(first, min(first + self.block_rows, self._rows)))
        starts, nbytes = [piece.address for piece in pieces], [piece.nbytes for piece in pieces]
        runs = merge(np.array(starts), np.array(nbytes), alignment=self._files.alignment)
        assert runs.total_nbytes <= self._place_nbytes  # or it would be written over its neighbour
        return Runs(runs.starts, runs.nbytes, runs.places + place * self._place_nbytes)

    def start(self, blocks: Sequence[Runs], memory: Array) -> "Iterator[Sequence[Future[None]]]":
        """Begin to read, in other threads, several blocks to each; for every block, what it is read by."""
        step = max(1, self._threads.share_nbytes // self._place_nbytes)
        for first in range(0, len(blocks), step):
            share = blocks[first : first + step]
            requests = Requests.all_of([runs.requests() for runs in share])
            yield from [self._threads.start(self._files, requests, memory)] * len(share)

    def stop(self) -> None:
        """Wake whoever waits for a block."""
        if self._current is not None:
            self._current.stop()

    def close(self) -> None:
        """End the threads and close the files; no thread may be gathering any more."""
        self.stop()
        self._threads.close()
        self._files.close()
        if self._current is not None:
            self._current.forget()


class BlockPass:
    """One walk through the order. Reads that are still under way when it is given up keep its memory alive."""

    def __init__(self, reader: BlockReader, coming: Coming, memory: Array) -> None:
        self._reader, self._coming, self._memory = reader, coming, memory
        self._held: dict[int, tuple[Runs, Sequence[Future[None]]]] = {}
        self._changed = threading.Condition()
        self._stopped = False

    def gather(self, group: Hashable, rows: Rows, out: Sequence[Array]) -> None:
        """Write row `rows[i]` of leaf `l` to `out[l][i]`; groups may be asked for by several threads at once."""
        held = self._await_admission(group)
        try:
            await_reads(read for _, reads in held for read in reads)
            self._copy(Runs.all_of([runs for runs, _ in held]), rows, out)
        finally:
            self._release(group)

    def stop(self) -> None:
        """Give the pass up: nothing more is read, and whoever waits is told."""
        with self._changed:
            self._stopped = True
            for read in (read for _, reads in self._held.values() for read in reads):
                read.cancel()
            self._changed.notify_all()

    def forget(self) -> None:
        """Let go of the memory at once: a feed that was closed may be referred to for long."""
        self._held.clear()
        self._memory = aligned_memory(0)

    def _await_admission(self, group: Hashable) -> list[tuple[Runs, "Sequence[Future[None]]"]]:
        with self._changed:
            while True:
                self._read_ahead()
                if self._stopped:
                    raise StoppedReadingError(STOPPED)
                blocks = self._coming.blocks(group)
                if blocks is not None:
                    return [self._held[block] for block in blocks]
                self._changed.wait()

    def _read_ahead(self) -> None:
        if self._stopped:
            return
        blocks = self._coming.admit()
        runs = [self._reader.runs(block, self._coming.place(block)) for block in blocks]
        self._held.update(zip(blocks, zip(runs, self._reader.start(runs, self._memory), strict=True), strict=True))

    def _release(self, group: Hashable) -> None:
        with self._changed:
            for block in self._coming.release(group):
                del self._held[block]
            self._read_ahead()
            self._changed.notify_all()

    def _copy(self, runs: Runs, rows: Rows, out: Sequence[Array]) -> None:
        numbers: Any = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        for leaf, target in enumerate(out):
            copy_rows(self._memory, runs.locate(self._reader.space.addresses(leaf, numbers)), target)


def place_nbytes(space: Space, block_rows: int, alignment: int) -> int:
    """Memory for any block; where it costs little, such that rows of all blocks lie at multiples of their size."""
    needed = space.most_nbytes(block_rows, alignment)
    multiple = math.lcm(alignment, *space.row_nbytes)
    step = multiple if multiple * 8 <= needed else alignment
    return -(-needed // step) * step


def _blocks(rows: Rows, block_rows: int) -> list[int]:
    if isinstance(rows, slice):
        return list(range(rows.start // block_rows, -(-rows.stop // block_rows)))
    found: list[int] = np.unique(rows // block_rows).tolist()
    return found
