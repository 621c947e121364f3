"""`RowPuller` fills slots with pulled rows and resident rows.

A background thread page-locks the source (`row_locations.py`). Until the thread has done so, the CPU stages the rows.
"""

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Protocol

import numpy as np

from forebay.core.recorder import Recorder
from forebay.core.rows import Rows
from forebay.core.skipped_rows import SkippedRow
from forebay.core.source import MemoryExtent, Source
from forebay.core.spec import ArraySpec, Layout
from forebay.engines.cuda.copy_plan import Destination, RowExtents, split_at_boundaries
from forebay.engines.cuda.engine import CudaEngine
from forebay.engines.cuda.kernel_workspace import KernelWorkspace
from forebay.engines.cuda.memory import CudaMemory
from forebay.engines.cuda.pull.narrowing import Narrowing
from forebay.engines.cuda.pull.order_tables import OrderTables
from forebay.engines.cuda.pull.row_locations import LeafLocation, PullPlan, RowLocations
from forebay.engines.cuda.pull.staged_rows import StagedRows
from forebay.engines.cuda.row_mover import (
    MIN_SORTED_ROWS,
    MIN_UNSORTED_ROW_NBYTES,
    ComputedRows,
    LeafGather,
    RowMover,
)

__all__ = ["RowPuller", "RowSet"]


class RowSet(Protocol):
    """The rows of one group."""

    @property
    def count(self) -> int: ...
    def numbers(self) -> Rows:
        """Return the row numbers, computed on the host."""
        ...

    def device_computed_rows(self) -> ComputedRows | None:
        """Return what the device needs to compute the row numbers; None if it cannot."""
        ...


class RowPuller:
    """Fills slots from page-locked or resident rows. Several threads may use it."""

    def __init__(
        self,
        engine: CudaEngine,
        source: Source,
        extents: Sequence[Sequence[MemoryExtent]],
        plan: PullPlan,
        output_specs: Sequence[ArraySpec],
        recorder: Recorder,
    ) -> None:
        self._engine, self._source, self._extents, self._recorder = engine, source, extents, recorder
        self._locations = RowLocations(engine, source, extents, plan, recorder)
        self._narrowing = Narrowing(engine, source.specs, output_specs, report=self._locations.report)
        self._order_tables = OrderTables(engine, report=self._locations.report)
        self._staged = StagedRows(engine.device, source, threads=plan.threads)
        self._copy_lock = threading.Lock()

    def begin_pass(self) -> None:
        """Stop using resident rows of arrays that have changed since their upload.

        The feed calls this at the start of a pass.
        """
        self._locations.begin_pass()

    @property
    def all_resident(self) -> bool:
        """Whether every row is on the device."""
        return self._locations.all_resident

    def only_enqueues(self, memory: CudaMemory) -> bool:
        """Return whether a fill of this slot only queues kernels.

        Such a fill allocates no memory, stages no rows and copies no rows by DMA.
        """
        if self._locations.mover is None or memory.workspace is None or not self._narrowing.is_ready(memory):
            return False
        leaves = [leaf for leaf in self._locations.leaves if leaf.spec.nbytes]
        return all(leaf.method == "kernel" or leaf.resident_rows for leaf in leaves)

    def fill(self, memory: CudaMemory, layout: Layout, rows: RowSet) -> list[SkippedRow]:
        """Queue the work that brings these rows into the slot.

        Return an empty list, because no row in host memory is unreadable. The arrival event of the slot fires when the
        rows are in the slot.
        """
        began = time.perf_counter()
        mover = self._locations.mover
        if mover is not None and not self._narrowing.allocate_buffers(memory, layout):
            mover = None
        # A gather in device memory uses all memory bandwidth, and a DMA uses the whole link to the host. Two such fills
        # at a time would slow each other down, so one runs after the other. A fill with kernels that read host memory
        # leaves the link idle while it sorts rows, so two of these fills run at a time.
        is_serial = mover is not None and (
            self.all_resident or any(_uses_dma(mover, leaf) for leaf in self._locations.leaves)
        )
        with self._engine.fill_scope(memory, is_serial=is_serial):
            if mover is None:
                destinations = [memory.destination(layout, leaf.number) for leaf in self._locations.leaves]
                self._staged.upload(memory.stream, destinations, layout.specs, rows.numbers())
            else:
                self._pull(mover, memory, layout, rows)
        nbytes = rows.count * sum(spec.nbytes for spec in (self._source.specs if mover else layout.specs))
        self._recorder.add_span("fetch" if mover else "stage", time.perf_counter() - began, nbytes=nbytes)
        self._locations.start()
        return []

    def close(self) -> None:
        """Wait for queued fills, then release memory and page-locks. No fill may follow."""
        self._locations.stop()
        with ExitStack() as stack:  # runs all callbacks, the last one first, even after an error
            stack.callback(self._locations.close)
            stack.callback(self._staged.close)
            stack.callback(self._order_tables.close)
            stack.callback(self._engine.drain)

    def _pull(self, mover: RowMover, memory: CudaMemory, layout: Layout, rows: RowSet) -> None:
        by_kernel, by_dma = [], []
        for leaf in self._locations.leaves:
            if _uses_dma(mover, leaf):
                by_dma.append(leaf)
            elif leaf.spec.nbytes:
                by_kernel.append((leaf, leaf.extents))
        # The previous fill of the slot is done, so it reads none of the rows whose owners this replaces.
        memory.row_owners = [extents.owner for _, extents in by_kernel]
        reads_host = any(not extents.on_device for _, extents in by_kernel)
        if reads_host or any(leaf.in_edge_copy[rows.numbers()].any() for leaf in by_dma):
            self._locations.edges.refresh()
        for leaf in by_dma:
            self._copy_by_dma(mover, memory, layout, leaf, rows.numbers())
        if by_kernel:
            self._gather_by_kernel(mover, memory, layout, rows, by_kernel)
        self._narrowing.queue_conversion(mover, memory, layout, rows.count)

    def _arrival_destination(self, memory: CudaMemory, layout: Layout, leaf: LeafLocation) -> Destination:
        """Return where pulled rows of a leaf arrive: the slot, or a narrowing buffer."""
        buffer = self._narrowing.arrival_destination(memory, layout, leaf.number, leaf.spec)
        return memory.destination(layout, leaf.number) if buffer is None else buffer

    def _copy_by_dma(self, mover: RowMover, memory: CudaMemory, layout: Layout, leaf: LeafLocation, rows: Rows) -> None:
        if isinstance(rows, slice):
            destination = self._arrival_destination(memory, layout, leaf)
            mover.upload_run(memory.stream, leaf.extents, rows, destination, self._locations.boundaries)
            return
        if leaf.number not in memory.copy_targets:
            positions = np.arange(layout.batch_rows * layout.batches)
            lengths = np.full(len(positions), leaf.spec.nbytes, np.uint64)
            targets = self._arrival_destination(memory, layout, leaf).addresses(positions)
            memory.copy_targets[leaf.number] = targets, lengths
        targets, lengths = memory.copy_targets[leaf.number]
        copies = leaf.row_addresses[rows], targets[: len(rows)], lengths[: len(rows)]
        if leaf.crosses_boundary[rows].any():
            copies = split_at_boundaries(self._locations.boundaries, *copies)
        with self._copy_lock:  # a second thread inside the driver would only spin
            mover.upload_rows(memory.stream, *copies)

    def _gather_by_kernel(
        self,
        mover: RowMover,
        memory: CudaMemory,
        layout: Layout,
        rows: RowSet,
        leaves: list[tuple[LeafLocation, RowExtents]],
    ) -> None:
        stream, workspace = memory.stream, self._get_workspace(memory, layout)
        workspace.load_tables(stream, {leaf.number: extents.table for leaf, extents in leaves})
        computed_rows = rows.device_computed_rows()
        program = None if computed_rows is None else self._order_tables.program(computed_rows.steps)
        if computed_rows is None or program is None:
            workspace.load_rows(stream, rows.numbers())
        else:
            workspace.load_program(stream, program)
            mover.compute_rows(stream, workspace, computed_rows)
        host_row_nbytes = [extents.row_nbytes for _, extents in leaves if not extents.on_device]
        has_short_rows = bool(host_row_nbytes) and min(host_row_nbytes) < MIN_UNSORTED_ROW_NBYTES
        ordered = has_short_rows and rows.count >= MIN_SORTED_ROWS
        if ordered:
            row_nbytes = max(host_row_nbytes)
            mover.sort_rows(stream, workspace, count=rows.count, source_rows=len(self._source), row_nbytes=row_nbytes)
        for leaf, extents in leaves:
            gather = LeafGather(leaf.number, extents, self._arrival_destination(memory, layout, leaf))
            mover.gather_rows(stream, workspace, gather, count=rows.count, ordered=ordered)

    def _get_workspace(self, memory: CudaMemory, layout: Layout) -> KernelWorkspace:
        """Return the workspace of a slot, allocated at first use."""
        if memory.workspace is None:
            rows = layout.batch_rows * layout.batches
            # `UnlockableEdges` splits an extent into at most three extents. Resident rows are one more extent.
            max_extents = [3 * len(extents) + 1 for extents in self._extents]
            pointer, owner = self._engine.allocate(KernelWorkspace.nbytes(rows, max_extents))
            memory.workspace = KernelWorkspace(
                self._engine.device,
                pointer,
                owner,
                rows=rows,
                extents=max_extents,
                needs_int64=len(self._source) >= 1 << 31,
            )
        workspace: KernelWorkspace = memory.workspace
        return workspace


def _uses_dma(mover: RowMover, leaf: LeafLocation) -> bool:
    """Return whether the device copies the rows of the leaf by DMA."""
    return leaf.method == "dma" and not leaf.resident_rows and mover.can_batch_copies
