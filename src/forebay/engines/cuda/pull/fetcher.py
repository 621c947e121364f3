"""Rows that the device fetches itself, or keeps: how each leaf of a group gets into its slot without the CPU.

Until the source is page-locked (`whereabouts.py`), the first batches are staged.
"""

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Protocol

import numpy as np

from forebay.core.recorder import Recorder
from forebay.core.source import Extent, Rows, Source
from forebay.core.spec import ArraySpec, Layout
from forebay.engines.cuda.copy_plan import Extents, Place, split_at
from forebay.engines.cuda.engine import CudaEngine
from forebay.engines.cuda.kernel_workspace import Workspace
from forebay.engines.cuda.memory import CudaMemory
from forebay.engines.cuda.pull.narrowing import Narrowing
from forebay.engines.cuda.pull.row_locations import Leaf, Whereabouts
from forebay.engines.cuda.pull.staged_rows import Stage
from forebay.engines.cuda.row_mover import FEWEST_SORTED, SORTED_BELOW_NBYTES, Drawn, Mover

__all__ = ["Fetcher"]


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
        self._engine, self._source, self._extents, self._recorder = engine, source, extents, recorder
        self._found = Whereabouts(engine, source, extents, ways=ways, kept_rows=kept_rows, recorder=recorder)
        self._narrowing = Narrowing(engine, source.specs, held, tell=self._found.tell)
        self._stage = Stage(engine.device, source, threads=threads)
        self._issuing = threading.Lock()

    def begin_pass(self) -> None:
        """A pass over the rows begins: they may have been changed."""
        self._found.begin_pass()

    @property
    def keeps_all(self) -> bool:
        """Whether every row is on the device by now."""
        return self._found.all_near

    def queues_only(self, memory: CudaMemory) -> bool:
        """Whether filling this slot takes kernels alone, and all they need is there."""
        if self._found.mover is None or memory.workspace is None or not self._narrowing.is_ready(memory):
            return False
        return all(leaf.way == "kernel" or leaf.kept_rows for leaf in self._found.leaves if leaf.spec.nbytes)

    def fill(self, memory: CudaMemory, layout: Layout, rows: RowSet) -> None:
        """Queue what brings these rows into the slot; they have arrived when its event fires."""
        began = time.perf_counter()
        mover = self._found.mover
        if mover is not None and not self._narrowing.make_room(memory, layout):
            mover = None
        # Gathers inside device memory take all of its bandwidth, DMAs all of the link: two at a time are in each
        # other's way. A kernel that reads over the link leaves it idle while rows are sorted: two make up for that.
        in_turn = mover is not None and (self.keeps_all or any(_is_copied(mover, leaf) for leaf in self._found.leaves))
        with self._engine.filling(memory, in_turn=in_turn):
            if mover is None:
                places = [_place(memory, layout, leaf.number) for leaf in self._found.leaves]
                self._stage.send(memory.stream, places, layout.specs, rows.numbers())
            else:
                self._fetch(mover, memory, layout, rows)
        nbytes = rows.count * sum(spec.nbytes for spec in (self._source.specs if mover else layout.specs))
        self._recorder.add("fetch" if mover else "stage", time.perf_counter() - began, nbytes=nbytes)
        self._found.begin()

    def close(self) -> None:
        """No fill may be begun any more; those under way are waited for."""
        self._found.stop()
        with ExitStack() as stack:  # all of it, whatever fails; the last first
            stack.callback(self._found.close)
            stack.callback(self._stage.close)
            stack.callback(self._engine.drain)

    # Filling

    def _fetch(self, mover: Mover, memory: CudaMemory, layout: Layout, rows: RowSet) -> None:
        by_kernel, by_copy = [], []
        for leaf in self._found.leaves:
            if _is_copied(mover, leaf):
                by_copy.append(leaf)
            elif leaf.spec.nbytes:
                by_kernel.append((leaf, leaf.extents))
        far = any(not extents.near for _, extents in by_kernel)
        if far or any(leaf.copied[rows.numbers()].any() for leaf in by_copy):
            self._found.edges.refresh()
        for leaf in by_copy:
            self._copy(mover, memory, layout, leaf, rows.numbers())
        if by_kernel:
            self._gather(mover, memory, layout, rows, by_kernel)
        place_of = partial(_place, memory, layout)
        self._narrowing.finish(mover, memory, layout, rows.count, place_of)

    def _landing(self, memory: CudaMemory, layout: Layout, leaf: Leaf) -> Place:
        """Where the rows of a leaf arrive: in their places, or beside the slot where they are to be narrowed."""
        beside = self._narrowing.landing(memory, layout, leaf.number, leaf.spec)
        return _place(memory, layout, leaf.number) if beside is None else beside

    def _copy(self, mover: Mover, memory: CudaMemory, layout: Layout, leaf: Leaf, rows: Rows) -> None:
        if isinstance(rows, slice):
            place = self._landing(memory, layout, leaf)
            mover.upload_run(memory.stream, leaf.extents, rows, place, self._found.seams)
            return
        if leaf.number not in memory.targets:
            every = np.arange(layout.batch_rows * layout.batches)
            lengths = np.full(len(every), leaf.spec.nbytes, np.uint64)
            memory.targets[leaf.number] = self._landing(memory, layout, leaf).addresses(every), lengths
        targets, lengths = memory.targets[leaf.number]
        copies = leaf.starts[rows], targets[: len(rows)], lengths[: len(rows)]
        if leaf.across[rows].any():
            copies = split_at(self._found.seams, *copies)
        with self._issuing:  # two threads inside the driver only make each other spin
            mover.upload_rows(memory.stream, *copies)

    def _gather(
        self, mover: Mover, memory: CudaMemory, layout: Layout, rows: RowSet, leaves: list[tuple[Leaf, Extents]]
    ) -> None:
        stream, workspace = memory.stream, self._workspace(memory, layout)
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

    def _workspace(self, memory: CudaMemory, layout: Layout) -> Workspace:
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


def _is_copied(mover: Mover, leaf: Leaf) -> bool:
    """Whether rows cross by a DMA each."""
    return leaf.way == "dma" and not leaf.kept_rows and mover.copies_rows


def _place(memory: CudaMemory, layout: Layout, leaf: int) -> Place:
    pointer = memory.pointer + layout.offsets[leaf]
    return Place(pointer, layout.batch_rows, layout.strides[leaf], layout.specs[leaf].nbytes)
