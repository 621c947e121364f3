"""The memory from which the device reads the rows of a source.

A row is in page-locked host memory, in an edge copy, or in device memory. The edges of an array are the memory pages
that it may share with other data. Forebay does not page-lock them, but copies their rows to its own page-locked memory.

While the feed stages the first batches, a background thread page-locks the source step by step. Then, while the feed
returns batches, the thread uploads the rows that the plan makes resident.
"""

import logging
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from forebay.core.recorder import Recorder
from forebay.core.source import MemoryExtent, Source, find_overlap
from forebay.core.spec import ArraySpec
from forebay.engines.cuda.copy_plan import RowExtents
from forebay.engines.cuda.engine import CudaEngine, process_page_locks
from forebay.engines.cuda.page_locks import LOCK_STEP_NBYTES, PageLockSet
from forebay.engines.cuda.pull.page_edges import UnlockableEdges, locked_span
from forebay.engines.cuda.pull.resident import ChangeSample, ResidentRows
from forebay.engines.cuda.row_mover import RowMover

__all__ = ["LeafLocation", "PullPlan", "RowLocations"]

_log = logging.getLogger(__name__)

NO_EXTENTS = RowExtents.from_table(np.empty((0, 3), np.int64), row_nbytes=0, rows=0)


class PullPlan(Protocol):
    """The part of a plan that says how the device reads rows from host memory."""

    @property
    def pull_methods(self) -> Sequence[str]:
        """For each leaf: "dma" or "kernel"."""
        ...

    @property
    def resident_rows(self) -> int:
        """Number of rows, from row 0 on, that stay on the device."""
        ...

    @property
    def threads(self) -> int: ...


@dataclass(slots=True)
class LeafLocation:
    """One leaf of the source, and the addresses of its rows."""

    number: int  # index of the leaf in a row
    spec: ArraySpec
    method: str  # how the device reads rows from host memory: "dma" or "kernel"
    resident_rows: int  # number of rows, from row 0 on, that the plan makes resident
    host_extents: RowExtents = NO_EXTENTS  # addresses of all rows in page-locked host memory
    extents: RowExtents = NO_EXTENTS  # where the device reads rows: on the device if resident, else on the host
    sample: ChangeSample | None = None  # some bytes of the array before its upload; None if no rows are resident
    # Arrays with one entry per row, only for "dma".
    row_addresses: Any = None  # host address
    crosses_boundary: Any = None  # whether the row crosses the start or end of a page-locked range
    in_edge_copy: Any = None  # whether the device reads the row from an edge copy


class RowLocations:
    """The leaves of a source. A background thread updates the addresses of their rows."""

    def __init__(
        self,
        engine: CudaEngine,
        source: Source,
        extents: Sequence[Sequence[MemoryExtent]],
        plan: PullPlan,
        recorder: Recorder,
    ) -> None:
        self._engine, self._rows, self._extents, self._recorder = engine, len(source), extents, recorder
        self.leaves = [
            LeafLocation(number, spec, method, plan.resident_rows if spec.nbytes else 0)
            for number, (spec, method) in enumerate(zip(source.specs, plan.pull_methods, strict=True))
        ]
        self.edges = UnlockableEdges(engine.device)
        # Addresses where page-locked ranges begin or end. No copy may cross such an address.
        self.boundaries: Any = np.empty(0, np.uint64)
        self.mover: RowMover | None = None  # None until the whole source is page-locked
        self._locks = PageLockSet(process_page_locks(engine.device))
        self._stop = threading.Event()
        self._start_lock = threading.Lock()  # the first call of `start` acquires it and keeps it
        self._publish_lock = threading.Lock()  # a thread holds it while it replaces `extents` of a leaf
        self._thread = threading.Thread(target=self._locate_rows, name="forebay-lock", daemon=True)

    def start(self) -> None:
        """Start the background thread, unless it was started before.

        Call this method after the first fill is queued. Both the fill and the thread page-lock memory. The fill must be
        first, because the consumer waits for the fill.
        """
        if self._start_lock.acquire(blocking=False):
            self._thread.start()

    def begin_pass(self) -> None:
        """Stop using resident rows of arrays that have changed since their upload."""
        for leaf in self.leaves:
            with self._publish_lock:
                if leaf.sample is None or not leaf.sample.has_changed():
                    continue
                _drop_resident(leaf)
            why = "the array was changed since its upload, so the device pulls its rows from the host again"
            self.report("resident", "no longer", why)

    @property
    def all_resident(self) -> bool:
        """Whether every row is on the device."""
        return all(leaf.extents.on_device for leaf in self.leaves if leaf.spec.nbytes)

    def report(self, name: str, choice: str, why: str) -> None:
        """Report a decision that differs from the plan, in the log and in `explain()`."""
        self._recorder.note(name, choice, why)
        _log.warning("%s: %s (%s)", name, choice, why)

    def stop(self) -> None:
        """Stop the background thread and wait until it ends."""
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def close(self) -> None:
        """Release all memory and page-locks. All copies must be done."""
        with ExitStack() as stack:  # runs all callbacks, the last one first, even after an error
            stack.callback(self._locks.close)
            stack.callback(self.edges.close)
            for leaf in self.leaves:
                _drop_resident(leaf)

    # The methods below run on the background thread.

    def _locate_rows(self) -> None:
        """Page-lock the source, set the addresses of its rows, and upload the resident rows.

        If a step fails, report the fallback, and do not raise the error.
        """
        self._engine.enter_worker_thread()
        try:
            mover = RowMover(self._engine.device)
        except Exception as error:  # not fatal: staging needs no kernels
            self.report("kernels", "unavailable", f"the CPU stages rows instead: {error}")
            return
        try:
            if not self._lock_pages():
                return
            self._find_extents()
        except Exception as error:
            self.report("page-lock", "refused", f"the CPU stages rows instead: {error}")
            self._locks.close()  # the driver refuses copies from an array that is only partly locked
            return
        if not mover.can_batch_copies and any(leaf.method == "dma" for leaf in self.leaves):
            self._recorder.note("rows", "kernel", "this driver accepts only one DMA per call, which is slower")
        self.mover = mover
        for leaf in self.leaves:
            if leaf.resident_rows and not self._stop.is_set():
                self._make_resident(mover, leaf)

    def _lock_pages(self) -> bool:
        """Page-lock the source step by step. Return False if `stop` was called meanwhile."""
        for leaf, extents in zip(self.leaves, self._extents, strict=True):
            for extent in extents:
                start, stop = locked_span(extent, leaf.spec.nbytes)
                for address in range(start, stop, LOCK_STEP_NBYTES):
                    if self._stop.is_set():
                        return False
                    self._locks.add(address, min(LOCK_STEP_NBYTES, stop - address), read_only=not extent.writable)
        return True

    def _find_extents(self) -> None:
        """Set the host extents of every leaf.

        The extents of rows on array edges have the addresses of the edge copies.
        """
        parts_by_leaf = [
            [part for extent in extents for part in self.edges.split(extent, leaf.spec.nbytes)]
            for leaf, extents in zip(self.leaves, self._extents, strict=True)
        ]
        self.boundaries = np.array(self._locks.boundaries, np.uint64)
        for leaf, parts in zip(self.leaves, parts_by_leaf, strict=True):
            overlap = find_overlap(self._extents[leaf.number], leaf.spec.nbytes)
            located = _row_extents(self.edges.locate(parts), leaf.spec, self._rows, overlap)
            leaf.host_extents = leaf.extents = located
            if leaf.method == "dma":
                leaf.row_addresses = leaf.host_extents.addresses(np.arange(leaf.host_extents.rows))
                leaf.crosses_boundary = _crosses_boundary(leaf.row_addresses, leaf.spec.nbytes, self.boundaries)
                leaf.in_edge_copy = self.edges.contains(leaf.row_addresses)

    def _make_resident(self, mover: RowMover, leaf: LeafLocation) -> None:
        """Upload the resident rows of a leaf.

        End early if `stop` is called, or if `begin_pass` notices that the array has changed.
        """
        sample = leaf.sample = ChangeSample(self._extents[leaf.number], leaf.spec.nbytes)
        self.edges.refresh()  # after the sample, so that the sample notices changes after this copy

        def publish(extents: RowExtents) -> None:
            with self._publish_lock:
                if leaf.sample is sample:
                    leaf.extents = extents

        def is_stopped() -> bool:
            return self._stop.is_set() or leaf.sample is not sample

        try:
            resident = ResidentRows(self._engine, leaf.host_extents, rows=leaf.resident_rows)
            resident.upload(mover, self.boundaries, publish=publish, is_stopped=is_stopped)
        except Exception as error:
            with self._publish_lock:
                _drop_resident(leaf)
            self.report("resident", "no", f"the device pulls rows from the host in every epoch: {error}")


def _drop_resident(leaf: LeafLocation) -> None:
    """Let the device read the rows of a leaf from the host again.

    The memory of the resident rows is freed when no fill reads them (`CudaMemory.row_owners`).
    """
    # Fills read these attributes without a lock, so `extents` must change first.
    leaf.extents, leaf.sample, leaf.resident_rows = leaf.host_extents, None, 0


def _row_extents(extents: Sequence[MemoryExtent], spec: ArraySpec, rows: int, overlap: int) -> RowExtents:
    lines = [(extent.first, extent.address - extent.first * extent.stride, extent.stride) for extent in extents]
    table = np.array(lines, np.int64)
    return RowExtents.from_table(table, row_nbytes=spec.nbytes, rows=rows, copied_row_nbytes=spec.nbytes - overlap)


def _crosses_boundary(addresses: Any, row_nbytes: int, boundaries: Any) -> Any:
    """Return for each row whether a page-locked range begins or ends inside it."""
    ends = addresses + np.uint64(row_nbytes)
    return np.searchsorted(boundaries, addresses, side="right") != np.searchsorted(boundaries, ends, side="left")
