"""Speed of shuffled rows from page-locked memory: pulled by a kernel, or copied by one DMA per row."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np

from forebay.core.ceilings import RowSpeed, RowSpeeds
from forebay.core.spec import Array
from forebay.engines.cuda.batch_copy import BatchCopy
from forebay.engines.cuda.copy_plan import Destination, RowExtents
from forebay.engines.cuda.driver import Stream
from forebay.engines.cuda.kernel_workspace import KernelWorkspace
from forebay.engines.cuda.row_mover import MIN_SORTED_ROWS, MIN_UNSORTED_ROW_NBYTES, LeafGather, RowMover
from forebay.measure.probe.cuda.rig import Rig
from forebay.measure.probe.timing import ROW_NBYTES, WINDOW_NBYTES, measure_median

__all__ = ["PullTarget", "measure_batched_copy", "measure_pull", "open_pull_target", "pull_rows"]

FILLS = 2  # of each of the two targets, per sample
MAX_COPIES = 8192  # a small DMA takes as long as a larger one: enough to measure, without a long wait


def measure_pull(rig: Rig) -> RowSpeeds:
    """Measure a kernel that reads the rows from host memory."""
    mover = RowMover(rig.device)
    return RowSpeeds(tuple(RowSpeed(row_nbytes, _measure_pull(rig, mover, row_nbytes)) for row_nbytes in ROW_NBYTES))


def measure_batched_copy(rig: Rig) -> RowSpeeds:
    """Measure one DMA per row, with many of them queued in one call."""
    copies = BatchCopy()
    return RowSpeeds(tuple(RowSpeed(row_nbytes, _measure_copy(rig, copies, row_nbytes)) for row_nbytes in ROW_NBYTES))


@dataclass(frozen=True, slots=True)
class PullTarget:
    """A device buffer of the rig, with the workspace of the kernels."""

    stream: Stream
    pointer: int
    workspace: KernelWorkspace


def pull_rows(rig: Rig, mover: RowMover, target: PullTarget, row_nbytes: int, indices: Array) -> None:
    """Queue these rows of the source into the target; small rows in the order of their addresses."""
    count, rows = len(indices), len(rig.buffers.source) // row_nbytes
    extents = RowExtents.from_table(np.array([[0, rig.source, row_nbytes]]), row_nbytes=row_nbytes, rows=rows)
    destination = Destination(target.pointer, count, count * row_nbytes, row_nbytes)
    ordered = row_nbytes < MIN_UNSORTED_ROW_NBYTES and count >= MIN_SORTED_ROWS
    target.workspace.load_tables(target.stream, {0: extents.table})
    target.workspace.load_rows(target.stream, indices)
    if ordered:
        mover.sort_rows(target.stream, target.workspace, count=count, rows=rows, row_nbytes=row_nbytes)
    mover.gather_rows(
        target.stream, target.workspace, LeafGather(0, extents, destination), count=count, ordered=ordered
    )


@contextmanager
def open_pull_target(rig: Rig, stream: Stream, pointer: int, rows: int) -> Iterator[PullTarget]:
    """Open a target for at most this many rows."""
    with ExitStack() as cleanup:
        memory = rig.device.allocate(KernelWorkspace.nbytes(rows, [1]))
        cleanup.callback(rig.device.free, memory)
        workspace = KernelWorkspace(rig.device, memory, None, rows=rows, extents=[1], needs_int64=False)
        cleanup.callback(workspace.close)
        cleanup.callback(stream.wait)
        yield PullTarget(stream, pointer, workspace)


def _measure_pull(rig: Rig, mover: RowMover, row_nbytes: int) -> float:
    """Fill two targets in turn, as a feed does: row numbers of one are copied while the other is filled."""
    count = WINDOW_NBYTES // row_nbytes
    with (
        open_pull_target(rig, rig.stream, rig.inbound, count) as one,
        open_pull_target(rig, rig.other_stream, rig.outbound, count) as other,
    ):
        targets = (one, other) * FILLS

        def fill(batches: Array) -> None:
            for target, indices in zip(targets, batches, strict=True):
                target.stream.wait()
                pull_rows(rig, mover, target, row_nbytes, indices)

        return _measure_speed(rig, row_nbytes, (len(targets), count), fill)


def _measure_copy(rig: Rig, copies: BatchCopy, row_nbytes: int) -> float:
    count = min(MAX_COPIES, WINDOW_NBYTES // row_nbytes)
    targets = (np.arange(count) * row_nbytes + rig.inbound).astype(np.uint64)
    lengths = np.full(count, row_nbytes, np.uint64)

    def upload(indices: Array) -> None:
        copies.upload(rig.stream, targets, (indices * row_nbytes + rig.source).astype(np.uint64), lengths)

    return _measure_speed(rig, row_nbytes, (count,), upload)


def _measure_speed(rig: Rig, row_nbytes: int, shape: tuple[int, ...], move: Callable[[Array], None]) -> float:
    random, rows = np.random.default_rng(0), len(rig.buffers.source) // row_nbytes

    def sample() -> float:
        indices = random.integers(rows, size=shape)  # new ones each time, or rows would come from a cache
        start = time.perf_counter()
        move(indices)
        rig.wait()
        return indices.size * row_nbytes / (time.perf_counter() - start)

    return measure_median(sample)
