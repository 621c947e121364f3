"""`RowMover` moves rows into a slot, by DMA or by a kernel.

    upload_run      consecutive rows: one DMA for each contiguous part
    upload_rows     large rows in any order: one DMA per row, many rows in one driver call
    gather_rows     rows in any order: a kernel of a few blocks reads rows from page-locked host memory, and a kernel of
                    many blocks reads rows from device memory
    narrow_rows     after one of these methods: a kernel converts 64-bit numbers that the framework holds in 32 bits

All methods queue work on a stream and return at once. Call them inside `CudaEngine.fill_scope`. A kernel copies a row
in pieces. One team of threads copies each piece. A team is a warp, a part of a warp, or one thread for bulk copies.
"""

import ctypes
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from forebay.engines.cuda.batch_copy import BatchCopy
from forebay.engines.cuda.copy_plan import (
    Destination,
    RowExtents,
    join_adjacent,
    plan_run_copies,
    split_at_boundaries,
)
from forebay.engines.cuda.driver import Device, Stream
from forebay.engines.cuda.kernel_workspace import MAX_BUCKETS, KernelWorkspace
from forebay.order.device_steps import DeviceSteps

__all__ = ["ComputedRows", "LeafGather", "RowMover"]

# Thread blocks of a kernel that reads host memory. These numbers saturate the host link. More blocks would not be
# faster, and would take multiprocessors from the consumer's kernels.
HOST_READ_BLOCKS = 4
HOST_READ_BLOCKS_SHORT_ROWS = 8  # more blocks, because a short row does not keep all threads of its team busy
HOST_READ_BLOCKS_UNALIGNED = 16  # more blocks, because a team reads one unaligned row at a time
DEVICE_READ_BLOCKS = 528  # four per multiprocessor of an H200, because the kernel reads fast device memory
BULK_BLOCKS = 396  # three per multiprocessor of an H200; fewer blocks keep too few bytes in flight
BULK_THREADS = 32  # one warp; only its first thread works
MIN_BULK_ROW_NBYTES = 8192  # shorter rows keep too few bytes in flight, with any number of blocks
BULK_CAPABILITY = (9, 0)  # Hopper, the first architecture with bulk copies, which copy a piece without registers
THREADS = 512  # threads per block of all kernels except the bulk copy
SORT_BLOCKS = 64  # thread blocks of the kernels that sort or compute row numbers
PIECE_NBYTES = 8192  # largest size of a piece in bytes, as STAGE_NBYTES in gather.cu
# Size of a bucket in bytes. The sort kernels put row numbers into buckets of consecutive source rows. Buckets are
# larger only if there would be more than MAX_BUCKETS buckets.
BUCKET_NBYTES = 1 << 20
MIN_UNSORTED_ROW_NBYTES = 2048  # rows of this size and larger are equally fast in any order
MIN_SORTED_ROWS = 4096  # sorting fewer rows takes more time than it saves


class _GatherJob(ctypes.Structure):
    """The struct `GatherJob` of gather.cu, where the fields are documented."""

    _fields_ = (
        ("rows", ctypes.c_void_p),
        ("order", ctypes.c_void_p),
        ("extents", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("row_nbytes", ctypes.c_longlong),
        ("batch_stride", ctypes.c_longlong),
        ("batch_rows", ctypes.c_uint),
        ("count", ctypes.c_uint),
        ("extent_count", ctypes.c_uint),
        ("needs_int64", ctypes.c_uint),
        ("lanes", ctypes.c_uint),
        ("pieces", ctypes.c_uint),
        ("piece_nbytes", ctypes.c_uint),
    )


class _OrderJob(ctypes.Structure):
    """The struct `OrderJob` of gather.cu, where the fields are documented."""

    _fields_ = (
        ("rows", ctypes.c_void_p),
        ("program", ctypes.c_void_p),
        ("first", ctypes.c_ulonglong),
        ("step", ctypes.c_ulonglong),
        ("count", ctypes.c_uint),
        ("needs_int64", ctypes.c_uint),
    )


class _NarrowJob(ctypes.Structure):
    """The struct `NarrowJob` of gather.cu, where the fields are documented."""

    _fields_ = (
        ("source", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("batch_stride", ctypes.c_longlong),
        ("batch_numbers", ctypes.c_ulonglong),
        ("count", ctypes.c_ulonglong),
        ("is_float", ctypes.c_uint),
    )


class _SortJob(ctypes.Structure):
    """The struct `SortJob` of sort.cu, where the fields are documented."""

    _fields_ = (
        ("rows", ctypes.c_void_p),
        ("order", ctypes.c_void_p),
        ("starts", ctypes.c_void_p),
        ("count", ctypes.c_uint),
        ("needs_int64", ctypes.c_uint),
        ("shift", ctypes.c_uint),
        ("buckets", ctypes.c_uint),
    )


class ComputedRows(Protocol):
    """Row numbers that the device computes from an order.

    The numbers are those of the rows at the `count` positions first, first + step, ... of the order.
    """

    @property
    def steps(self) -> DeviceSteps:
        """The steps from a position to its row number."""
        ...

    @property
    def first(self) -> int: ...
    @property
    def step(self) -> int: ...
    @property
    def count(self) -> int: ...


@dataclass(frozen=True, slots=True)
class LeafGather:
    """One leaf that a kernel gathers, with its source and destination."""

    leaf: int
    extents: RowExtents
    destination: Destination


class RowMover:
    """Moves rows into slots of one device.

    Several threads may use it, each for its own slot.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._batch_copy = BatchCopy()
        self._gather_aligned = device.kernel("gather_aligned")
        self._gather_unaligned = device.kernel("gather_unaligned")
        self._gather_bulk = device.kernel("gather_bulk") if device.capability >= BULK_CAPABILITY else None
        self._sort_kernels = [device.kernel(name) for name in ("count_buckets", "start_buckets", "order_rows")]
        self._compute_rows = device.kernel("compute_rows")
        self._narrow = device.kernel("narrow_numbers")

    @property
    def can_batch_copies(self) -> bool:
        """Whether the driver accepts many DMAs in one call.

        If False, one DMA per row is slow, because each DMA takes one call.
        """
        return self._batch_copy.is_single_call

    def upload_run(
        self, stream: Stream, extents: RowExtents, rows: slice, destination: Destination, boundaries: Any
    ) -> None:
        """Copy consecutive rows, with one DMA for each contiguous part.

        `boundaries` are addresses where page-locked ranges begin or end. No copy may cross such an address.
        """
        has_same_layout = destination.is_contiguous and destination.row_nbytes == extents.copied_row_nbytes
        if has_same_layout and extents.has_adjacent_rows:
            copies = plan_run_copies(extents, rows, destination)
        else:
            sources = extents.addresses(np.arange(rows.start, rows.stop))
            lengths = np.full(len(sources), extents.row_nbytes, np.uint64)
            copies = join_adjacent(sources, destination.addresses(np.arange(len(sources))), lengths)
        sources, targets, lengths = split_at_boundaries(boundaries, *copies)
        self._batch_copy.upload(stream, targets, sources, lengths)

    def upload_rows(self, stream: Stream, sources: Any, targets: Any, lengths: Any) -> None:
        """Copy rows with one DMA each, all in one driver call."""
        self._batch_copy.upload(stream, targets, sources, lengths)

    def compute_rows(self, stream: Stream, workspace: KernelWorkspace, rows: ComputedRows) -> None:
        """Run the workspace's program on the device, to write row numbers to `workspace.rows`."""
        positions = rows.first, rows.step, rows.count
        job = _OrderJob(workspace.rows, workspace.program, *positions, workspace.needs_int64)
        self._compute_rows.launch(stream, job, blocks=SORT_BLOCKS, threads=THREADS)

    def sort_rows(
        self, stream: Stream, workspace: KernelWorkspace, *, count: int, source_rows: int, row_nbytes: int
    ) -> None:
        """Compute the order in which a kernel reads the rows, bucket by bucket, into `workspace.order`.

        A bucket contains consecutive rows of the source. `count` is the number of rows in `workspace.rows`. Sorting
        changes when the kernel reads a row, not where it writes the row.
        """
        shift = max(0, (BUCKET_NBYTES // row_nbytes).bit_length() - 1)
        while (source_rows >> shift) + 1 > MAX_BUCKETS:
            shift += 1
        stream.clear(workspace.starts, MAX_BUCKETS * 4)
        job = _SortJob(
            workspace.rows,
            workspace.order,
            workspace.starts,
            count,
            workspace.needs_int64,
            shift,
            (source_rows >> shift) + 1,
        )
        shapes = ((SORT_BLOCKS, THREADS), (1, 1024), (SORT_BLOCKS, THREADS))  # the second kernel runs in one block
        for kernel, (blocks, threads) in zip(self._sort_kernels, shapes, strict=True):
            kernel.launch(stream, job, blocks=blocks, threads=threads)

    def gather_rows(
        self, stream: Stream, workspace: KernelWorkspace, gather: LeafGather, *, count: int, ordered: bool
    ) -> None:
        """Gather rows of one leaf with a kernel, from host or device memory.

        With `ordered`, the kernel reads the rows in the order of `workspace.order`.
        """
        extents, destination = gather.extents, gather.destination
        units = max(1, extents.row_nbytes // 16)  # a thread copies 16 bytes at a time
        job = _GatherJob(
            workspace.rows,
            workspace.order if ordered else None,
            workspace.table(gather.leaf),
            destination.pointer,
            extents.row_nbytes,
            destination.batch_stride,
            destination.batch_rows,
            count,
            len(extents.table),
            workspace.needs_int64,
            min(32, 1 << (units - 1).bit_length()),
            -(-extents.row_nbytes // PIECE_NBYTES),
            PIECE_NBYTES,
        )
        is_aligned = extents.is_16_byte_aligned and destination.pointer % 16 == 0 and destination.batch_stride % 16 == 0
        if self._gather_bulk and is_aligned and extents.on_device and extents.row_nbytes >= MIN_BULK_ROW_NBYTES:
            self._gather_bulk.launch(stream, job, blocks=BULK_BLOCKS, threads=BULK_THREADS)
        else:
            kernel = self._gather_aligned if is_aligned else self._gather_unaligned
            kernel.launch(stream, job, blocks=_gather_block_count(extents, is_aligned), threads=THREADS)

    def narrow_rows(
        self, stream: Stream, arrived: Destination, destination: Destination, *, count: int, is_float: bool
    ) -> None:
        """Convert `count` rows of 64-bit numbers at `arrived` to 32 bits, into the slot."""
        numbers_per_row = destination.row_nbytes // 4
        job = _NarrowJob(
            arrived.pointer,
            destination.pointer,
            destination.batch_stride,
            destination.batch_rows * numbers_per_row,
            count * numbers_per_row,
            is_float,
        )
        blocks = min(DEVICE_READ_BLOCKS, -(-count * numbers_per_row // THREADS))
        self._narrow.launch(stream, job, blocks=blocks, threads=THREADS)


def _gather_block_count(extents: RowExtents, is_aligned: bool) -> int:
    if extents.on_device:
        return DEVICE_READ_BLOCKS
    if not is_aligned:
        return HOST_READ_BLOCKS_UNALIGNED
    return HOST_READ_BLOCKS if extents.row_nbytes >= MIN_UNSORTED_ROW_NBYTES else HOST_READ_BLOCKS_SHORT_ROWS
