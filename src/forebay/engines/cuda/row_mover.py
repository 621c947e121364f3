"""How the device fetches rows: by DMA or by a kernel.

    upload_rows     a DMA a row (or a run of rows), issued many at a time: for large rows, and no kernel is run
    gather_rows     a kernel of few blocks reads page-locked host memory: small rows, by address where it pays; rows
                    that are on the device by one of many, or by bulk copies where they are long
    narrow_rows     a kernel behind either, for numbers that the framework holds in half the bytes

All queue their work on the slot's own stream, inside `engine.filling(memory)`, and return at once.
"""

import ctypes
from typing import Any, Protocol

import numpy as np

from forebay.engines.cuda.batch_copy import BatchCopy
from forebay.engines.cuda.copy_plan import Extents, Place, joined, runs_of, split_at
from forebay.engines.cuda.driver import Device, Stream
from forebay.engines.cuda.kernel_workspace import MOST_STRETCHES, Workspace

__all__ = ["Drawn", "Mover"]

FAR_BLOCKS = 4  # enough to fill the link: each more takes a processor from whoever computes
FAR_BLOCKS_SHORT = 8  # for rows so short that a team seldom has sixteen bytes a thread to read
FAR_BLOCKS_ANY = 16  # for rows of odd length or address, which are read in smaller steps
NEAR_BLOCKS = 528  # all of the GPU, since it is its own memory that is read
BULK_BLOCKS = 396  # three a processor: with fewer, too little is under way
BULK_THREADS = 32  # a warp, of which one thread is awake
BULK_FROM_NBYTES = 8192  # of shorter rows too little is under way, however many blocks there are
BULK_CAPABILITY = (9, 0)  # Hopper, the first to have them
THREADS = 512
SORT_BLOCKS = 64
ROUNDS = 5  # as in gather.cu
PIECE_NBYTES = 8192  # of a row, for a team of threads
STRETCH_NBYTES = 1 << 20  # rows of a stretch of the source are read together
SORTED_BELOW_NBYTES = 2048  # rows from this on are as fast in any order
FEWEST_SORTED = 4096  # rows, or ordering them costs more than it wins


class _Gather(ctypes.Structure):
    """As in gather.cu."""

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
        ("wide_rows", ctypes.c_uint),
        ("lanes", ctypes.c_uint),
        ("pieces", ctypes.c_uint),
        ("piece_nbytes", ctypes.c_uint),
    )


class _Draw(ctypes.Structure):
    """As in gather.cu."""

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
        ("wide_rows", ctypes.c_uint),
    )


class _Narrow(ctypes.Structure):
    """As in gather.cu."""

    _fields_ = (
        ("source", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("batch_stride", ctypes.c_longlong),
        ("batch_numbers", ctypes.c_ulonglong),
        ("count", ctypes.c_ulonglong),
        ("real", ctypes.c_uint),
    )


class _Sort(ctypes.Structure):
    """As in gather.cu."""

    _fields_ = (
        ("rows", ctypes.c_void_p),
        ("order", ctypes.c_void_p),
        ("starts", ctypes.c_void_p),
        ("count", ctypes.c_uint),
        ("wide_rows", ctypes.c_uint),
        ("shift", ctypes.c_uint),
        ("stretches", ctypes.c_uint),
    )


class Drawn(Protocol):
    """Rows of a shuffled order that can be computed: those at positions first, first + step, ..."""

    @property
    def scramble(self) -> Any:
        """Term, factors, mask, shift and length, as in forebay.order.orders."""
        ...

    @property
    def first(self) -> int: ...
    @property
    def step(self) -> int: ...
    @property
    def count(self) -> int: ...


class Mover:
    """Moves rows on one device; any number of threads at once, each with a slot of its own."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._copies = BatchCopy()
        self._gathers = {wide: device.kernel("gather_wide" if wide else "gather_any") for wide in (True, False)}
        self._bulk = device.kernel("gather_bulk") if device.capability >= BULK_CAPABILITY else None
        self._sorts = [device.kernel(name) for name in ("count_stretches", "start_stretches", "place_rows")]
        self._draw = device.kernel("draw_rows")
        self._narrow = device.kernel("narrow_numbers")

    @property
    def copies_rows(self) -> bool:
        """Whether a DMA a row is worth asking for: not where each takes a call of its own."""
        return self._copies.at_once

    def upload_run(self, stream: Stream, extents: Extents, rows: slice, place: Place, seams: Any) -> None:
        """Rows that follow each other: a DMA for each stretch that does so in the source and in the slot."""
        if place.packed and (extents.table[:, 2] == extents.row_nbytes).all():
            runs = runs_of(extents, rows, place)
        else:
            sources = extents.addresses(np.arange(rows.start, rows.stop))
            lengths = np.full(len(sources), extents.row_nbytes, np.uint64)
            runs = joined(sources, place.addresses(np.arange(len(sources))), lengths)
        sources, targets, lengths = split_at(seams, *runs)
        self._copies.upload(stream, targets, sources, lengths)

    def upload_rows(self, stream: Stream, sources: Any, targets: Any, lengths: Any) -> None:
        """A DMA a row, all of them issued together."""
        self._copies.upload(stream, targets, sources, lengths)

    def draw(self, stream: Stream, workspace: Workspace, drawn: Drawn) -> None:
        """Row numbers computed on the device."""
        scramble = drawn.scramble
        factors = (ctypes.c_ulonglong * ROUNDS)(*scramble.factors)
        job = _Draw(
            workspace.rows, drawn.first, drawn.step, scramble.length, scramble.mask, scramble.term, factors,
            scramble.shift, drawn.count, workspace.wide_rows,
        )  # fmt: skip
        self._draw.launch(stream, job, blocks=SORT_BLOCKS, threads=THREADS)

    def sort(self, stream: Stream, workspace: Workspace, *, count: int, rows: int, row_nbytes: int) -> None:
        """Let rows be read stretch by stretch of the source; where each goes stays the same."""
        shift = max(0, (STRETCH_NBYTES // row_nbytes).bit_length() - 1)
        while (rows >> shift) + 1 > MOST_STRETCHES:
            shift += 1
        stream.clear(workspace.starts, MOST_STRETCHES * 4)
        job = _Sort(
            workspace.rows, workspace.order, workspace.starts, count, workspace.wide_rows, shift, (rows >> shift) + 1
        )
        shapes = ((SORT_BLOCKS, THREADS), (1, 1024), (SORT_BLOCKS, THREADS))
        for kernel, (blocks, threads) in zip(self._sorts, shapes, strict=True):
            kernel.launch(stream, job, blocks=blocks, threads=threads)

    def narrow_rows(self, stream: Stream, arrived: Place, place: Place, *, count: int, real: bool) -> None:
        """Rows of 64-bit numbers, side by side, to where they are held in half the bytes."""
        numbers = place.row_nbytes // 4
        job = _Narrow(
            arrived.pointer, place.pointer, place.batch_stride, place.batch_rows * numbers, count * numbers, real
        )
        blocks = min(NEAR_BLOCKS, -(-count * numbers // THREADS))
        self._narrow.launch(stream, job, blocks=blocks, threads=THREADS)

    def gather_rows(
        self,
        stream: Stream,
        extents: Extents,
        place: Place,
        workspace: Workspace,
        leaf: int,
        *,
        count: int,
        ordered: bool,
    ) -> None:
        """A kernel reads the rows from wherever they lie."""
        units = max(1, extents.row_nbytes // 16)
        job = _Gather(
            workspace.rows,
            workspace.order if ordered else None,
            workspace.table(leaf),
            place.pointer,
            extents.row_nbytes,
            place.batch_stride,
            place.batch_rows,
            count,
            len(extents.table),
            workspace.wide_rows,
            min(32, 1 << (units - 1).bit_length()),
            -(-extents.row_nbytes // PIECE_NBYTES),
            PIECE_NBYTES,
        )
        wide = extents.wide and place.pointer % 16 == 0 and place.batch_stride % 16 == 0
        if self._bulk is not None and wide and extents.near and extents.row_nbytes >= BULK_FROM_NBYTES:
            self._bulk.launch(stream, job, blocks=BULK_BLOCKS, threads=BULK_THREADS)
        else:
            self._gathers[wide].launch(stream, job, blocks=_blocks(extents, wide), threads=THREADS)


def _blocks(extents: Extents, wide: bool) -> int:
    if extents.near:
        return NEAR_BLOCKS
    if not wide:
        return FAR_BLOCKS_ANY
    return FAR_BLOCKS if extents.row_nbytes >= SORTED_BELOW_NBYTES else FAR_BLOCKS_SHORT
