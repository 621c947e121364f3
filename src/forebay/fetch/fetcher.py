"""Rows that the device fetches itself, or keeps: how each leaf of a group gets into its slot without the CPU.

The source is page-locked where it lies, piece by piece, behind the first batches, which are staged meanwhile. Data
that is to be resident is uploaded behind that, while batches flow: rows that are there already are read from there.
"""

import logging
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from forebay.engines.cuda.copies import Extents, Place, split_at
from forebay.engines.cuda.engine import CudaEngine, page_locks
from forebay.engines.cuda.locks import PIECE_NBYTES, Lock
from forebay.engines.cuda.memory import CudaMemory
from forebay.engines.cuda.transports import FEWEST_SORTED, SORTED_BELOW_NBYTES, Drawn, Mover
from forebay.engines.cuda.workspace import Workspace
from forebay.fetch.edges import Edges, locked_span
from forebay.fetch.narrowing import Narrowing
from forebay.fetch.resident import Kept, Sample
from forebay.fetch.stage import Stage
from forebay.sources.base import Extent, Rows, Source
from forebay.spec import ArraySpec, Layout
from forebay.trace import Recorder

__all__ = ["Fetcher"]

_log = logging.getLogger(__name__)


NOWHERE = Extents.of(np.empty((0, 3), np.int64), row_nbytes=0, rows=0)


@dataclass(slots=True)
class _Leaf:
    """One leaf of the source, and where its rows are now."""

    number: int
    spec: ArraySpec
    way: str  # "dma" or "kernel"
    kept_rows: int  # so many of the first are kept on the device
    far: Extents = NOWHERE  # where they lie in page-locked memory
    extents: Extents = NOWHERE  # where they are read from: there, or from the device where they have arrived
    sample: Sample | None = None  # of what was uploaded
    starts: Any = None  # of rows that cross by DMA: where each begins,
    across: Any = None  # which lie across a seam of the page-locks,
    copied: Any = None  # and which lie at the ends, in memory of our own


class RowSet(Protocol):
    """Which rows a group has."""

    @property
    def count(self) -> int: ...
    def numbers(self) -> Rows:
        """Their numbers, computed here."""
        ...

    def drawn(self) -> Drawn | None:
        """How a device computes them by itself, where it can."""
        ...


class Fetcher:
    """Fills slots from page-locked or resident rows; any number of threads at once."""

    def __init__(
        self,
        engine: CudaEngine,
        source: Source,
        extents: Sequence[Sequence[Extent]],
        *,
        ways: Sequence[str],
        kept_rows: int,
        threads: int,
        recorder: Recorder,
        held: Sequence[ArraySpec],
    ) -> None:
        self._engine, self._source, self._recorder = engine, source, recorder
        self._extents, self._edges = extents, Edges(engine.device)
        self._leaves = [
            _Leaf(number, spec, way, kept_rows if spec.nbytes else 0)
            for number, (spec, way) in enumerate(zip(source.specs, ways, strict=True))
        ]
        self._narrowing = Narrowing(engine, source.specs, held, tell=self._tell)
        self._stage = Stage(engine.device, source, threads=threads)
        self._lock = Lock(page_locks(engine.device))
        self._mover: Mover | None = None  # there once everything is page-locked
        self._kept: list[Kept] = []
        self._seams: Any = np.empty(0, np.uint64)
        self._stop = threading.Event()
        self._prepared = threading.Thread(target=self._prepare, name="forebay-lock", daemon=True)
        self._begun, self._showing, self._issuing = (threading.Lock() for _ in range(3))

    def begin_pass(self) -> None:
        """Rows of an array that was changed since it was uploaded cross again."""
        for leaf in self._leaves:
            with self._showing:
                if leaf.sample is None or not leaf.sample.changed():
                    continue
                leaf.extents, leaf.sample, leaf.kept_rows = leaf.far, None, 0  # in this order: fills read on
            self._tell("resident", "no longer", "the array was changed since it was uploaded: its rows cross again")

    @property
    def keeps_all(self) -> bool:
        """Whether every row is on the device by now."""
        return all(leaf.extents.near for leaf in self._leaves if leaf.spec.nbytes)

    def queues_only(self, memory: CudaMemory) -> bool:
        """Whether filling this slot takes kernels alone, and all they need is there."""
        if self._mover is None or memory.workspace is None or not self._narrowing.is_ready(memory):
            return False
        return all(leaf.way == "kernel" or leaf.kept_rows for leaf in self._leaves if leaf.spec.nbytes)

    def fill(self, memory: CudaMemory, layout: Layout, rows: RowSet) -> None:
        """Queue what brings these rows into the slot; they have arrived when its event fires."""
        began = time.perf_counter()
        mover = self._mover
        if mover is not None and not self._narrowing.make_room(memory, layout):
            mover = None
        with self._engine.filling(memory):
            if mover is None:
                places = [_place(memory, layout, leaf.number) for leaf in self._leaves]
                self._stage.send(memory.stream, places, layout.specs, rows.numbers())
            else:
                self._fetch(mover, memory, layout, rows)
        nbytes = rows.count * sum(spec.nbytes for spec in (self._source.specs if mover else layout.specs))
        self._recorder.add("fetch" if mover else "stage", time.perf_counter() - began, nbytes=nbytes)
        if self._begun.acquire(blocking=False):  # once, and not before the first batch is on its way: both lock pages
            self._prepared.start()

    def close(self) -> None:
        """No fill may be begun any more; those under way are waited for."""
        self._stop.set()
        if self._prepared.is_alive() and self._prepared is not threading.current_thread():
            self._prepared.join()
        with ExitStack() as stack:  # all of it, whatever fails; the last first
            stack.callback(self._lock.close)
            stack.callback(self._edges.close)
            stack.callback(self._kept.clear)
            stack.callback(self._stage.close)
            stack.callback(self._engine.drain)

    # Filling

    def _fetch(self, mover: Mover, memory: CudaMemory, layout: Layout, rows: RowSet) -> None:
        by_kernel, by_copy = [], []
        for leaf in self._leaves:
            if leaf.way == "dma" and not leaf.kept_rows and mover.copies_rows:
                by_copy.append(leaf)
            elif leaf.spec.nbytes:
                by_kernel.append((leaf, leaf.extents))
        far = any(not extents.near for _, extents in by_kernel)
        if far or any(leaf.copied[rows.numbers()].any() for leaf in by_copy):
            self._edges.refresh()
        for leaf in by_copy:
            self._copy(mover, memory, layout, leaf, rows.numbers())
        if by_kernel:
            self._gather(mover, memory, layout, rows, by_kernel)
        place_of = partial(_place, memory, layout)
        self._narrowing.finish(mover, memory, layout, rows.count, place_of)

    def _landing(self, memory: CudaMemory, layout: Layout, leaf: _Leaf) -> Place:
        """Where the rows of a leaf arrive: in their places, or beside the slot where they are to be narrowed."""
        beside = self._narrowing.landing(memory, layout, leaf.number, leaf.spec)
        return _place(memory, layout, leaf.number) if beside is None else beside

    def _copy(self, mover: Mover, memory: CudaMemory, layout: Layout, leaf: _Leaf, rows: Rows) -> None:
        if isinstance(rows, slice):
            place = self._landing(memory, layout, leaf)
            mover.upload_run(memory.stream, leaf.extents, rows, place, self._seams)
            return
        if leaf.number not in memory.targets:
            every = np.arange(layout.batch_rows * layout.batches)
            lengths = np.full(len(every), leaf.spec.nbytes, np.uint64)
            memory.targets[leaf.number] = self._landing(memory, layout, leaf).addresses(every), lengths
        targets, lengths = memory.targets[leaf.number]
        copies = leaf.starts[rows], targets[: len(rows)], lengths[: len(rows)]
        if leaf.across[rows].any():
            copies = split_at(self._seams, *copies)
        with self._issuing:  # two threads inside the driver only make each other spin
            mover.upload_rows(memory.stream, *copies)

    def _gather(
        self, mover: Mover, memory: CudaMemory, layout: Layout, rows: RowSet, leaves: list[tuple[_Leaf, Extents]]
    ) -> None:
        stream, workspace = memory.stream, self._workspace(memory, layout, len(leaves))
        workspace.load_tables(stream, {leaf.number: extents.table for leaf, extents in leaves})
        drawn = rows.drawn()
        if drawn is None:
            workspace.load_rows(stream, rows.numbers())
        else:
            mover.draw(stream, workspace, drawn)
        far = [extents.row_nbytes for _, extents in leaves if not extents.near]
        ordered = bool(far) and min(far) < SORTED_BELOW_NBYTES and rows.count >= FEWEST_SORTED
        if ordered:
            mover.sort(stream, workspace, count=rows.count, rows=len(self._source), row_nbytes=max(far))
        for leaf, extents in leaves:
            place = self._landing(memory, layout, leaf)
            mover.gather_rows(stream, extents, place, workspace, leaf.number, count=rows.count, ordered=ordered)

    def _workspace(self, memory: CudaMemory, layout: Layout, leaves: int) -> Workspace:
        """Made once for each slot."""
        if memory.workspace is None:
            rows = layout.batch_rows * layout.batches
            extents = [3 * len(found) + 1 for found in self._extents]
            pointer, owner = self._engine.allocate(Workspace.nbytes(rows, extents))
            memory.workspace = Workspace(
                self._engine.device,
                pointer,
                owner,
                rows=rows,
                extents=extents,
                wide_rows=len(self._source) >= 1 << 31,
            )
        made: Workspace = memory.workspace
        return made

    # Getting ready, on a thread of its own

    def _prepare(self) -> None:
        self._engine.attend()
        try:
            mover = Mover(self._engine.device)
        except Exception as error:  # whatever it is, there is a slower way
            self._tell("kernels", "not to be had", f"rows are staged instead, by the CPU: {error}")
            return
        try:
            if not self._lock_pages():
                return
            self._find_rows()
        except Exception as error:
            self._tell("page-lock", "refused", f"rows are staged instead, by the CPU: {error}")
            self._lock.close()  # nobody could copy an array that is locked in part
            return
        if not mover.copies_rows and any(leaf.way == "dma" for leaf in self._leaves):
            self._recorder.note("rows", "kernel", "this driver takes no more than one DMA a call, which is slower")
        self._mover = mover
        for leaf in self._leaves:
            if leaf.kept_rows and not self._stop.is_set():
                self._keep(mover, leaf)

    def _tell(self, name: str, choice: str, why: str) -> None:
        """Something went otherwise than planned: said in the log, and in `explain()`."""
        self._recorder.note(name, choice, why)
        _log.warning("%s %s: %s", name, choice, why)

    def _lock_pages(self) -> bool:
        """Page-lock the source, piece by piece; False if the feed was closed in the meantime."""
        for leaf, extents in zip(self._leaves, self._extents, strict=True):
            for extent in extents:
                start, stop = locked_span(extent, leaf.spec.nbytes)
                for begin in range(start, stop, PIECE_NBYTES):
                    if self._stop.is_set():
                        return False
                    self._lock.add(begin, min(PIECE_NBYTES, stop - begin), read_only=not extent.writable)
        return True

    def _find_rows(self) -> None:
        """Where the rows of each leaf are now, the ends of arrays in memory of our own."""
        cut = [
            [part for extent in extents for part in self._edges.cut(extent, leaf.spec.nbytes)]
            for leaf, extents in zip(self._leaves, self._extents, strict=True)
        ]
        self._seams = np.array(self._lock.seams, np.uint64)
        for leaf, parts in zip(self._leaves, cut, strict=True):
            leaf.far = leaf.extents = _table(self._edges.place(parts), leaf.spec, len(self._source))
            if leaf.way == "dma":
                leaf.starts = leaf.far.addresses(np.arange(leaf.far.rows))
                leaf.across = _across(leaf.starts, leaf.spec.nbytes, self._seams)
                leaf.copied = self._edges.hold(leaf.starts)

    def _keep(self, mover: Mover, leaf: _Leaf) -> None:
        """Upload a leaf while batches flow; given up where the array is changed in the meantime."""
        sample = leaf.sample = Sample(self._extents[leaf.number], leaf.spec.nbytes)
        self._edges.refresh()  # behind the sample, as the rest is uploaded

        def show(extents: Extents) -> None:
            with self._showing:
                if leaf.sample is sample:
                    leaf.extents = extents

        try:
            kept = Kept(self._engine, leaf.far, rows=leaf.kept_rows)
            self._kept.append(kept)
            kept.upload(mover, self._seams, show=show, stopped=lambda: self._stop.is_set() or leaf.sample is not sample)
        except Exception as error:
            with self._showing:
                leaf.extents, leaf.sample, leaf.kept_rows = leaf.far, None, 0  # in this order: fills read on
            self._tell("resident", "no", f"rows cross every epoch: {error}")


def _table(extents: Sequence[Extent], spec: ArraySpec, rows: int) -> Extents:
    lines = [(found.first, found.address - found.first * found.stride, found.stride) for found in extents]
    return Extents.of(np.array(lines, np.int64), row_nbytes=spec.nbytes, rows=rows)


def _across(starts: Any, row_nbytes: int, seams: Any) -> Any:
    """Which rows begin in one page-locked piece and end in another."""
    ends = starts + np.uint64(row_nbytes)
    return np.searchsorted(seams, starts, side="right") != np.searchsorted(seams, ends, side="left")


def _place(memory: CudaMemory, layout: Layout, leaf: int) -> Place:
    pointer = memory.pointer + layout.offsets[leaf]
    return Place(pointer, layout.batch_rows, layout.strides[leaf], layout.specs[leaf].nbytes)
