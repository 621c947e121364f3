"""Where the rows of a source are by now: page-locked where they lie, their ends in memory of our own, or on the device.

It is found out on a thread of its own, behind the first batches. The source is page-locked piece by piece; what is to
be resident is uploaded behind that, while batches flow: rows that are there already are read from there.
"""

import logging
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.core.recorder import Recorder
from forebay.core.source import Extent, Source
from forebay.core.spec import ArraySpec
from forebay.engines.cuda.copy_plan import Extents
from forebay.engines.cuda.engine import CudaEngine, page_locks
from forebay.engines.cuda.page_locks import PIECE_NBYTES, Lock
from forebay.engines.cuda.pull.page_edges import Edges, locked_span
from forebay.engines.cuda.pull.resident import Kept, Sample
from forebay.engines.cuda.row_mover import Mover

__all__ = ["Leaf", "Whereabouts"]

_log = logging.getLogger(__name__)

NOWHERE = Extents.of(np.empty((0, 3), np.int64), row_nbytes=0, rows=0)


@dataclass(slots=True)
class Leaf:
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


class Whereabouts:
    """The leaves of a source, as the thread that finds them goes on."""

    def __init__(
        self,
        engine: CudaEngine,
        source: Source,
        extents: Sequence[Sequence[Extent]],
        *,
        ways: Sequence[str],
        kept_rows: int,
        recorder: Recorder,
    ) -> None:
        self._engine, self._rows, self._extents, self._recorder = engine, len(source), extents, recorder
        self.leaves = [
            Leaf(number, spec, way, kept_rows if spec.nbytes else 0)
            for number, (spec, way) in enumerate(zip(source.specs, ways, strict=True))
        ]
        self.edges = Edges(engine.device)
        self.seams: Any = np.empty(0, np.uint64)  # of the page-locks, which no copy may cross
        self.mover: Mover | None = None  # there once everything is page-locked
        self._lock = Lock(page_locks(engine.device))
        self._kept: list[Kept] = []
        self._stop = threading.Event()
        self._begun, self._showing = threading.Lock(), threading.Lock()
        self._thread = threading.Thread(target=self._find, name="forebay-lock", daemon=True)

    def begin(self) -> None:
        """Find out, once: not before the first batch is on its way, since both lock pages."""
        if self._begun.acquire(blocking=False):
            self._thread.start()

    def begin_pass(self) -> None:
        """Rows of an array that was changed since it was uploaded cross again."""
        for leaf in self.leaves:
            with self._showing:
                if leaf.sample is None or not leaf.sample.changed():
                    continue
                _let_go(leaf)
            self.tell("resident", "no longer", "the array was changed since it was uploaded: its rows cross again")

    @property
    def all_near(self) -> bool:
        """Whether every row is on the device by now."""
        return all(leaf.extents.near for leaf in self.leaves if leaf.spec.nbytes)

    def tell(self, name: str, choice: str, why: str) -> None:
        """Something went otherwise than planned: said in the log, and in `explain()`."""
        self._recorder.note(name, choice, why)
        _log.warning("%s %s: %s", name, choice, why)

    def stop(self) -> None:
        """Find nothing more."""
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def close(self) -> None:
        """Nothing may be on its way any more."""
        with ExitStack() as stack:  # all of it, whatever fails; the last first
            stack.callback(self._lock.close)
            stack.callback(self.edges.close)
            stack.callback(self._kept.clear)

    # On the thread

    def _find(self) -> None:
        self._engine.attend()
        try:
            mover = Mover(self._engine.device)
        except Exception as error:  # whatever it is, there is a slower way
            self.tell("kernels", "not to be had", f"rows are staged instead, by the CPU: {error}")
            return
        try:
            if not self._lock_pages():
                return
            self._locate()
        except Exception as error:
            self.tell("page-lock", "refused", f"rows are staged instead, by the CPU: {error}")
            self._lock.close()  # nobody could copy an array that is locked in part
            return
        if not mover.copies_rows and any(leaf.way == "dma" for leaf in self.leaves):
            self._recorder.note("rows", "kernel", "this driver takes no more than one DMA a call, which is slower")
        self.mover = mover
        for leaf in self.leaves:
            if leaf.kept_rows and not self._stop.is_set():
                self._keep(mover, leaf)

    def _lock_pages(self) -> bool:
        """Page-lock the source, piece by piece; False if the feed was closed in the meantime."""
        for leaf, extents in zip(self.leaves, self._extents, strict=True):
            for extent in extents:
                start, stop = locked_span(extent, leaf.spec.nbytes)
                for begin in range(start, stop, PIECE_NBYTES):
                    if self._stop.is_set():
                        return False
                    self._lock.add(begin, min(PIECE_NBYTES, stop - begin), read_only=not extent.writable)
        return True

    def _locate(self) -> None:
        """Where the rows of each leaf are now, the ends of arrays in memory of our own."""
        cut = [
            [part for extent in extents for part in self.edges.cut(extent, leaf.spec.nbytes)]
            for leaf, extents in zip(self.leaves, self._extents, strict=True)
        ]
        self.seams = np.array(self._lock.seams, np.uint64)
        for leaf, parts in zip(self.leaves, cut, strict=True):
            leaf.far = leaf.extents = _table(self.edges.place(parts), leaf.spec, self._rows)
            if leaf.way == "dma":
                leaf.starts = leaf.far.addresses(np.arange(leaf.far.rows))
                leaf.across = _across(leaf.starts, leaf.spec.nbytes, self.seams)
                leaf.copied = self.edges.hold(leaf.starts)

    def _keep(self, mover: Mover, leaf: Leaf) -> None:
        """Upload a leaf while batches flow; given up where the array is changed in the meantime."""
        sample = leaf.sample = Sample(self._extents[leaf.number], leaf.spec.nbytes)
        self.edges.refresh()  # behind the sample, as the rest is uploaded

        def show(extents: Extents) -> None:
            with self._showing:
                if leaf.sample is sample:
                    leaf.extents = extents

        try:
            kept = Kept(self._engine, leaf.far, rows=leaf.kept_rows)
            self._kept.append(kept)
            kept.upload(mover, self.seams, show=show, stopped=lambda: self._stop.is_set() or leaf.sample is not sample)
        except Exception as error:
            with self._showing:
                _let_go(leaf)
            self.tell("resident", "no", f"rows cross every epoch: {error}")


def _let_go(leaf: Leaf) -> None:
    """Its rows are read from where they lie again."""
    leaf.extents, leaf.sample, leaf.kept_rows = leaf.far, None, 0  # in this order: fills read on


def _table(extents: Sequence[Extent], spec: ArraySpec, rows: int) -> Extents:
    lines = [(found.first, found.address - found.first * found.stride, found.stride) for found in extents]
    return Extents.of(np.array(lines, np.int64), row_nbytes=spec.nbytes, rows=rows)


def _across(starts: Any, row_nbytes: int, seams: Any) -> Any:
    """Which rows begin in one page-locked piece and end in another."""
    ends = starts + np.uint64(row_nbytes)
    return np.searchsorted(seams, starts, side="right") != np.searchsorted(seams, ends, side="left")
