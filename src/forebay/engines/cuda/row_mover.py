"""The ways to move rows into a slot: DMA copies and kernels.

    upload_run      a DMA for each contiguous part of consecutive rows
    upload_rows     a DMA per row, many in one driver call: for large rows; it uses no kernel
    gather_rows     a kernel: a few blocks read short rows from page-locked host memory; many blocks read rows that are
                    on the device, or bulk copies if those rows are long
    narrow_rows     a kernel after one of these, for 64-bit numbers that the framework holds in 32 bits

All methods queue work on the slot's stream inside `engine.fill_scope(memory)` and return at once.
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

__all__ = ["LeafGather", "PermutedRows", "RowMover"]

# Blocks of a kernel that reads host memory. These numbers saturate the host link; more blocks only take SMs from the
# consumer's kernels.
HOST_READ_BLOCKS = 4
HOST_READ_BLOCKS_SHORT_ROWS = 8  # more, because a short row seldom gives each thread of a team 16 bytes to read
HOST_READ_BLOCKS_UNALIGNED = 16  # rows of odd length or address are read in smaller steps
DEVICE_READ_BLOCKS = 528  # the whole GPU, because the kernel reads the GPU's own memory
BULK_BLOCKS = 396  # three per multiprocessor of an H200; fewer blocks keep too few bytes in flight
BULK_THREADS = 32  # one warp, of which one thread works
MIN_BULK_ROW_NBYTES = 8192  # shorter rows keep too few bytes in flight, with any number of blocks
BULK_CAPABILITY = (9, 0)  # Hopper is the first architecture with bulk copies
THREADS = 512
SORT_BLOCKS = 64
ROUNDS = 5  # the same as in gather.cu
PIECE_NBYTES = 8192  # part of a row that one team of threads copies
BUCKET_NBYTES = 1 << 20  # rows of one bucket, a part of the source, are read together
MIN_UNSORTED_ROW_NBYTES = 2048  # rows of this size and larger are equally fast in any order
MIN_SORTED_ROWS = 4096  # sorting fewer rows costs more time than it saves


class _GatherJob(ctypes.Structure):
    """The struct of the same fields in gather.cu."""

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


class _PermuteJob(ctypes.Structure):
    """The struct of the same fields in gather.cu."""

    _fields_ = (
        ("rows", ctypes.c_void_p),
        ("first", ctypes.c_ulonglong),
        ("step", ctypes.c_ulonglong),
        ("length", ctypes.c_ulonglong),
        ("mask", ctypes.c_ulonglong),
        ("term", ctypes.c_ulonglong),
        ("factors", ctypes.c_ulonglong * ROUNDS),
        ("shift", ctypes.c_uint),
        ("count", ctypes.c_uint),
        ("needs_int64", ctypes.c_uint),
    )


class _NarrowJob(ctypes.Structure):
    """The struct of the same fields in gather.cu."""

    _fields_ = (
        ("source", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("batch_stride", ctypes.c_longlong),
        ("batch_numbers", ctypes.c_ulonglong),
        ("count", ctypes.c_ulonglong),
        ("is_float", ctypes.c_uint),
    )


class _SortJob(ctypes.Structure):
    """The struct of the same fields in gather.cu."""

    _fields_ = (
        ("rows", ctypes.c_void_p),
        ("order", ctypes.c_void_p),
        ("starts", ctypes.c_void_p),
        ("count", ctypes.c_uint),
        ("needs_int64", ctypes.c_uint),
        ("shift", ctypes.c_uint),
        ("buckets", ctypes.c_uint),
    )


class PermutedRows(Protocol):
    """Rows of a permutation that the device can compute: those at positions first, first + step, ..."""

    @property
    def permutation_params(self) -> Any:
        """Term, factors, mask, shift and length of the permutation."""
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
    """Moves rows on one device. Several threads may use it, each for another slot."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._copies = BatchCopy()
        self._gather_aligned = device.kernel("gather_aligned")
        self._gather_unaligned = device.kernel("gather_unaligned")
        self._gather_bulk = device.kernel("gather_bulk") if device.capability >= BULK_CAPABILITY else None
        self._sort_kernels = [device.kernel(name) for name in ("count_buckets", "start_buckets", "order_rows")]
        self._permute = device.kernel("permute_rows")
        self._narrow = device.kernel("narrow_numbers")

    @property
    def can_batch_copies(self) -> bool:
        """Whether one DMA per row is fast enough. The driver must accept many in one call."""
        return self._copies.is_single_call

    def upload_run(
        self, stream: Stream, extents: RowExtents, rows: slice, destination: Destination, boundaries: Any
    ) -> None:
        """Copy consecutive rows with one DMA for each part that is contiguous in source and slot."""
        if destination.is_contiguous and (extents.table[:, 2] == extents.row_nbytes).all():
            runs = plan_run_copies(extents, rows, destination)
        else:
            sources = extents.addresses(np.arange(rows.start, rows.stop))
            lengths = np.full(len(sources), extents.row_nbytes, np.uint64)
            runs = join_adjacent(sources, destination.addresses(np.arange(len(sources))), lengths)
        sources, targets, lengths = split_at_boundaries(boundaries, *runs)
        self._copies.upload(stream, targets, sources, lengths)

    def upload_rows(self, stream: Stream, sources: Any, targets: Any, lengths: Any) -> None:
        """Copy rows with one DMA each, all in one driver call."""
        self._copies.upload(stream, targets, sources, lengths)

    def permute_rows(self, stream: Stream, workspace: KernelWorkspace, rows: PermutedRows) -> None:
        """Compute row numbers on the device."""
        params = rows.permutation_params
        factors = (ctypes.c_ulonglong * ROUNDS)(*params.factors)
        job = _PermuteJob(
            workspace.rows,
            rows.first,
            rows.step,
            params.length,
            params.mask,
            params.term,
            factors,
            params.shift,
            rows.count,
            workspace.needs_int64,
        )
        self._permute.launch(stream, job, blocks=SORT_BLOCKS, threads=THREADS)

    def sort_rows(self, stream: Stream, workspace: KernelWorkspace, *, count: int, rows: int, row_nbytes: int) -> None:
        """Group reads by buckets of the source. The destination of each row stays the same."""
        shift = max(0, (BUCKET_NBYTES // row_nbytes).bit_length() - 1)
        while (rows >> shift) + 1 > MAX_BUCKETS:
            shift += 1
        stream.clear(workspace.starts, MAX_BUCKETS * 4)
        job = _SortJob(
            workspace.rows, workspace.order, workspace.starts, count, workspace.needs_int64, shift, (rows >> shift) + 1
        )
        shapes = ((SORT_BLOCKS, THREADS), (1, 1024), (SORT_BLOCKS, THREADS))
        for kernel, (blocks, threads) in zip(self._sort_kernels, shapes, strict=True):
            kernel.launch(stream, job, blocks=blocks, threads=threads)

    def gather_rows(
        self, stream: Stream, workspace: KernelWorkspace, gather: LeafGather, *, count: int, ordered: bool
    ) -> None:
        """Gather rows of one leaf with a kernel, from host or device memory."""
        extents, destination = gather.extents, gather.destination
        units = max(1, extents.row_nbytes // 16)
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
        aligned = extents.is_16_byte_aligned and destination.pointer % 16 == 0 and destination.batch_stride % 16 == 0
        if self._gather_bulk and aligned and extents.on_device and extents.row_nbytes >= MIN_BULK_ROW_NBYTES:
            self._gather_bulk.launch(stream, job, blocks=BULK_BLOCKS, threads=BULK_THREADS)
        else:
            kernel = self._gather_aligned if aligned else self._gather_unaligned
            kernel.launch(stream, job, blocks=_gather_blocks(extents, aligned), threads=THREADS)

    def narrow_rows(
        self, stream: Stream, arrived: Destination, destination: Destination, *, count: int, is_float: bool
    ) -> None:
        """Convert contiguous rows of 64-bit numbers to 32 bits, into the slot."""
        numbers = destination.row_nbytes // 4
        job = _NarrowJob(
            arrived.pointer,
            destination.pointer,
            destination.batch_stride,
            destination.batch_rows * numbers,
            count * numbers,
            is_float,
        )
        blocks = min(DEVICE_READ_BLOCKS, -(-count * numbers // THREADS))
        self._narrow.launch(stream, job, blocks=blocks, threads=THREADS)


def _gather_blocks(extents: RowExtents, aligned: bool) -> int:
    if extents.on_device:
        return DEVICE_READ_BLOCKS
    if not aligned:
        return HOST_READ_BLOCKS_UNALIGNED
    return HOST_READ_BLOCKS if extents.row_nbytes >= MIN_UNSORTED_ROW_NBYTES else HOST_READ_BLOCKS_SHORT_ROWS
