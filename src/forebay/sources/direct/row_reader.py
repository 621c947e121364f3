"""Rows read one by one, many at once: for an order that scatters them over the files, and for rows that are large.

The order is known, so groups are read before anybody asks for them: each to a tray, which is memory for one group or a
part of one. Reading threads go from tray to tray; whoever fills a slot waits for the group's trays, copies its rows out
of them and gives them back. So the disk always has the next group's reads while this group's last ones come in.
"""

import threading
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from forebay.core.source import Array, Rows, row_count
from forebay.sources.direct.address_space import Space
from forebay.sources.direct.copy_rows import copy_piece, copy_rows
from forebay.sources.direct.open_files import OpenFiles, aligned_memory
from forebay.sources.direct.read_ranges import Runs, merge
from forebay.sources.direct.read_threads import STOPPED, PlainThreads, RingThreads, await_reads
from forebay.sources.direct.reader import StoppedReadingError

__all__ = ["RowPass", "RowReader"]

GAP_NBYTES = 16 << 10  # what lies between two rows is read with them: as quick as one read more


class RowReader:
    """Reads groups of rows to trays; `begin` starts a pass over groups, and ends the one before."""

    def __init__(self, space: Space, files: OpenFiles, *, tray_nbytes: int, trays: int, ring: bool) -> None:
        self.space, self._files = space, files
        self._tray_nbytes, self._trays = tray_nbytes, trays
        row_nbytes = sum(nbytes + 2 * files.alignment for nbytes in space.row_nbytes)
        self.tray_rows = max(1, tray_nbytes // row_nbytes)
        self._threads = RingThreads() if ring else PlainThreads()
        self._current: RowPass | None = None

    def begin(self, groups: Iterator[tuple[Hashable, Rows]]) -> "RowPass":
        """Read for these groups, which are gathered in about this order."""
        self.stop()
        self._current = RowPass(self, groups, [aligned_memory(self._tray_nbytes) for _ in range(self._trays)])
        return self._current

    def start(self, rows: Rows, tray: Array) -> "Part":
        """Begin to read rows to a tray, in other threads."""
        starts, nbytes = self.space.starts_and_nbytes(rows)
        runs, memory = merge(starts, nbytes, alignment=self._files.alignment, gap=GAP_NBYTES), tray
        if runs.total_nbytes > tray.nbytes:
            runs = merge(starts, nbytes, alignment=self._files.alignment)
        if runs.total_nbytes > tray.nbytes:  # rows with much between them, asked for as a stretch
            memory = aligned_memory(runs.total_nbytes)
        return Part(rows, tray, memory, runs, self._threads.start(self._files, runs.requests(), memory))

    def stop(self) -> None:
        """Wake whoever waits for a group."""
        if self._current is not None:
            self._current.stop()

    def close(self) -> None:
        """End the threads and close the files; no thread may be gathering any more."""
        self.stop()
        self._threads.close()
        self._files.close()
        self._current = None


@dataclass(frozen=True, slots=True)
class Part:
    """Rows on their way to a tray, or to memory of their own where that is too small for them."""

    rows: Rows
    tray: Array
    memory: Array
    runs: Runs
    reads: "Sequence[Future[None]]"


class RowPass:
    """One walk through the order. Reads that are still under way when it is given up keep its memory alive."""

    def __init__(self, reader: RowReader, groups: Iterator[tuple[Hashable, Rows]], trays: list[Array]) -> None:
        self._reader, self._trays = reader, trays
        self._wanted = _parts(groups, reader.tray_rows)
        self._started: dict[Hashable, deque[Part]] = {}
        self._changed = threading.Condition()
        self._stopped = False

    def gather(self, group: Hashable, rows: Rows, out: Sequence[Array]) -> None:
        """Write row `rows[i]` of leaf `l` to `out[l][i]`; groups may be asked for by several threads at once."""
        done, count = 0, row_count(rows)
        while done < count:
            part = self._await_part(group)
            try:
                await_reads(part.reads)
                stop = done + row_count(part.rows)
                _copy(self._reader.space, part, [leaf[done:stop] for leaf in out])
            finally:
                self._release(part)
            done = stop

    def stop(self) -> None:
        """Give the pass up: nothing more is read, and whoever waits is told."""
        with self._changed:
            self._stopped = True
            for part in (part for parts in self._started.values() for part in parts):
                for read in part.reads:
                    read.cancel()
            self._started.clear()
            self._trays.clear()  # a feed that was closed may be referred to for long
            self._changed.notify_all()

    def _await_part(self, group: Hashable) -> Part:
        """The next part of a group, as soon as a tray could be had for it."""
        with self._changed:
            while True:
                self._read_ahead()
                if self._stopped:
                    raise StoppedReadingError(STOPPED)
                if group in self._started:
                    return self._pop(group)
                self._changed.wait()

    def _pop(self, group: Hashable) -> Part:
        parts = self._started[group]
        part = parts.popleft()
        if not parts:
            del self._started[group]
        return part

    def _read_ahead(self) -> None:
        """Begin to read as many parts as there are trays; the first parts of all get them first."""
        while self._trays and not self._stopped:
            wanted = next(self._wanted, None)
            if wanted is None:
                return
            group, rows = wanted
            self._started.setdefault(group, deque()).append(self._reader.start(rows, self._trays.pop()))

    def _release(self, part: Part) -> None:
        with self._changed:
            if self._stopped:
                return
            self._trays.append(part.tray)
            self._read_ahead()
            self._changed.notify_all()


def _parts(groups: Iterator[tuple[Hashable, Rows]], tray_rows: int) -> Iterator[tuple[Hashable, Rows]]:
    """Groups, cut into what a tray can take."""
    for group, rows in groups:
        for start in range(0, row_count(rows), tray_rows):
            stop = min(start + tray_rows, row_count(rows))
            yield group, slice(rows.start + start, rows.start + stop) if isinstance(rows, slice) else rows[start:stop]


def _copy(space: Space, part: Part, out: Sequence[Array]) -> None:
    """From a tray to their places in a batch."""
    if not isinstance(part.rows, slice):
        for leaf, target in enumerate(out):
            copy_rows(part.memory, part.runs.locate(space.addresses(leaf, part.rows)), target)
        return
    for piece in space.pieces(part.rows.start, part.rows.stop):
        place: Any = part.runs.locate(piece.address)  # type: ignore[arg-type]  # one number is as good as many
        copy_piece(part.memory, int(place), piece.stride, out[piece.leaf][piece.first : piece.first + piece.rows])
