"""Speed of shuffled rows from page-locked memory, read by a kernel or by DMA."""

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

FILLS = 2  # how often a sample of `measure_pull` fills each of the two targets
# DMAs per sample. Each DMA takes a fixed time, so one DMA for every row of `WINDOW_NBYTES` would take too long.
MAX_COPIES = 8192


def measure_pull(rig: Rig) -> RowSpeeds:
    """Measure how fast a kernel reads rows of each size from host memory."""
    mover = RowMover(rig.device)
    return RowSpeeds(tuple(RowSpeed(row_nbytes, _measure_pull(rig, mover, row_nbytes)) for row_nbytes in ROW_NBYTES))


def measure_batched_copy(rig: Rig) -> RowSpeeds:
    """Measure how fast DMAs copy rows of each size, one DMA per row.

    One driver call queues many DMAs.
    """
    copies = BatchCopy()
    return RowSpeeds(tuple(RowSpeed(row_nbytes, _measure_copy(rig, copies, row_nbytes)) for row_nbytes in ROW_NBYTES))


@dataclass(frozen=True, slots=True)
class PullTarget:
    """A device buffer, with the stream and the workspace of the kernels that fill it."""

    stream: Stream
    pointer: int  # address of the device buffer
    workspace: KernelWorkspace


def pull_rows(rig: Rig, mover: RowMover, target: PullTarget, row_nbytes: int, indices: Array) -> None:
    """Queue kernels that copy the rows at `indices` from the source to the target.

    As in a feed, many short rows are first sorted by their position in the source.
    """
    count, rows = len(indices), len(rig.buffers.source) // row_nbytes
    extents = RowExtents.from_table(np.array([[0, rig.source, row_nbytes]]), row_nbytes=row_nbytes, rows=rows)
    destination = Destination(target.pointer, count, count * row_nbytes, row_nbytes)
    ordered = row_nbytes < MIN_UNSORTED_ROW_NBYTES and count >= MIN_SORTED_ROWS
    target.workspace.load_tables(target.stream, {0: extents.table})
    target.workspace.load_rows(target.stream, indices)
    if ordered:
        mover.sort_rows(target.stream, target.workspace, count=count, source_rows=rows, row_nbytes=row_nbytes)
    mover.gather_rows(
        target.stream, target.workspace, LeafGather(0, extents, destination), count=count, ordered=ordered
    )


@contextmanager
def open_pull_target(rig: Rig, stream: Stream, pointer: int, rows: int) -> Iterator[PullTarget]:
    """Yield a target for at most `rows` rows. Free its workspace at the end."""
    with ExitStack() as cleanup:
        memory = rig.device.allocate(KernelWorkspace.nbytes(rows, [1]))
        cleanup.callback(rig.device.free, memory)
        workspace = KernelWorkspace(rig.device, memory, None, rows=rows, extents=[1], needs_int64=False)
        cleanup.callback(workspace.close)
        cleanup.callback(stream.wait)
        yield PullTarget(stream, pointer, workspace)


def _measure_pull(rig: Rig, mover: RowMover, row_nbytes: int) -> float:
    """Return bytes per second of kernels that fill two targets in turn.

    The host copies row indices for one target while a kernel fills the other target.
    """
    count = WINDOW_NBYTES // row_nbytes
    with (
        open_pull_target(rig, rig.stream, rig.inbound, count) as first,
        open_pull_target(rig, rig.other_stream, rig.outbound, count) as second,
    ):
        targets = (first, second) * FILLS

        def fill(batches: Array) -> None:
            for target, indices in zip(targets, batches, strict=True):
                target.stream.wait()
                pull_rows(rig, mover, target, row_nbytes, indices)

        return _measure_speed(rig, row_nbytes, (len(targets), count), fill)


def _measure_copy(rig: Rig, copies: BatchCopy, row_nbytes: int) -> float:
    """Return bytes per second of the DMAs that one driver call queues."""
    count = min(MAX_COPIES, WINDOW_NBYTES // row_nbytes)
    targets = (np.arange(count) * row_nbytes + rig.inbound).astype(np.uint64)
    lengths = np.full(count, row_nbytes, np.uint64)

    def upload(indices: Array) -> None:
        copies.upload(rig.stream, targets, (indices * row_nbytes + rig.source).astype(np.uint64), lengths)

    return _measure_speed(rig, row_nbytes, (count,), upload)


def _measure_speed(rig: Rig, row_nbytes: int, shape: tuple[int, ...], move: Callable[[Array], None]) -> float:
    """Return bytes per second of `move`, which receives random row indices of this shape."""
    random, rows = np.random.default_rng(0), len(rig.buffers.source) // row_nbytes

    def sample() -> float:
        indices = random.integers(rows, size=shape)  # new in each sample, because a cache may hold earlier rows
        start = time.perf_counter()
        move(indices)
        rig.wait()
        return indices.size * row_nbytes / (time.perf_counter() - start)

    return measure_median(sample)
