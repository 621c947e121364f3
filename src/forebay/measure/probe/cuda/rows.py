"""Shuffled rows out of page-locked memory, moved as the engine moves them: by a kernel, or by a DMA a row."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np

from forebay.core.ceilings import RowSpeed, RowSpeeds
from forebay.core.spec import Array
from forebay.engines.cuda.batch_copy import BatchCopy
from forebay.engines.cuda.copy_plan import Extents, Place
from forebay.engines.cuda.driver import Stream
from forebay.engines.cuda.kernel_workspace import Workspace
from forebay.engines.cuda.row_mover import FEWEST_SORTED, SORTED_BELOW_NBYTES, Mover
from forebay.measure.probe.cuda.rig import Rig
from forebay.measure.probe.timing import ROW_NBYTES, WINDOW_NBYTES, median

__all__ = ["Slot", "batched_copy", "open_slot", "pull", "pull_rows"]

TURNS = 2  # of each of two slots
MOST_COPIES = 8192  # a DMA takes its time however small the row: enough to measure, few enough not to wait for


def pull(rig: Rig) -> RowSpeeds:
    """A kernel reads the rows where they lie."""
    mover = Mover(rig.device)
    return RowSpeeds(tuple(RowSpeed(row_nbytes, _pull(rig, mover, row_nbytes)) for row_nbytes in ROW_NBYTES))


def batched_copy(rig: Rig) -> RowSpeeds:
    """A DMA a row, queued many in one call."""
    copies = BatchCopy()
    return RowSpeeds(tuple(RowSpeed(row_nbytes, _copy(rig, copies, row_nbytes)) for row_nbytes in ROW_NBYTES))


@dataclass(frozen=True, slots=True)
class Slot:
    """A place of the rig, with what kernels read besides the rows."""

    stream: Stream
    pointer: int
    workspace: Workspace


def pull_rows(rig: Rig, mover: Mover, slot: Slot, row_nbytes: int, chosen: Array) -> None:
    """Queue the chosen rows of the source, one after the other into the slot; small ones in the order of addresses."""
    count, rows = len(chosen), len(rig.buffers.source) // row_nbytes
    extents = Extents.of(np.array([[0, rig.source, row_nbytes]]), row_nbytes=row_nbytes, rows=rows)
    place = Place(slot.pointer, count, count * row_nbytes, row_nbytes)
    ordered = row_nbytes < SORTED_BELOW_NBYTES and count >= FEWEST_SORTED
    slot.workspace.load_tables(slot.stream, {0: extents.table})
    slot.workspace.load_rows(slot.stream, chosen)
    if ordered:
        mover.sort(slot.stream, slot.workspace, count=count, rows=rows, row_nbytes=row_nbytes)
    mover.gather_rows(slot.stream, extents, place, slot.workspace, 0, count=count, ordered=ordered)


@contextmanager
def open_slot(rig: Rig, stream: Stream, pointer: int, rows: int) -> Iterator[Slot]:
    """For fills of so many rows at most."""
    with ExitStack() as cleanup:
        room = rig.device.allocate(Workspace.nbytes(rows, [1]))
        cleanup.callback(rig.device.free, room)
        workspace = Workspace(rig.device, room, None, rows=rows, extents=[1], wide_rows=False)
        cleanup.callback(workspace.close)
        cleanup.callback(stream.wait)
        yield Slot(stream, pointer, workspace)


def _pull(rig: Rig, mover: Mover, row_nbytes: int) -> float:
    """Two slots in turn, as in a feed: while one is filled, row numbers for the other are brought there."""
    count = WINDOW_NBYTES // row_nbytes
    with (
        open_slot(rig, rig.stream, rig.inbound, count) as one,
        open_slot(rig, rig.other_stream, rig.outbound, count) as other,
    ):
        turns = (one, other) * TURNS

        def fill(chosen: Array) -> None:
            for slot, rows in zip(turns, chosen, strict=True):
                slot.stream.wait()
                pull_rows(rig, mover, slot, row_nbytes, rows)

        return _speed_of(rig, row_nbytes, (len(turns), count), fill)


def _copy(rig: Rig, copies: BatchCopy, row_nbytes: int) -> float:
    count = min(MOST_COPIES, WINDOW_NBYTES // row_nbytes)
    targets = (np.arange(count) * row_nbytes + rig.inbound).astype(np.uint64)
    lengths = np.full(count, row_nbytes, np.uint64)

    def upload(chosen: Array) -> None:
        copies.upload(rig.stream, targets, (chosen * row_nbytes + rig.source).astype(np.uint64), lengths)

    return _speed_of(rig, row_nbytes, (count,), upload)


def _speed_of(rig: Rig, row_nbytes: int, shape: tuple[int, ...], move: Callable[[Array], None]) -> float:
    numbers, rows = np.random.default_rng(0), len(rig.buffers.source) // row_nbytes

    def sample() -> float:
        chosen = numbers.integers(rows, size=shape)  # fresh ones each time, or rows would come out of a cache
        began = time.perf_counter()
        move(chosen)
        rig.wait()
        return chosen.size * row_nbytes / (time.perf_counter() - began)

    return median(sample)
