"""The CUDA kernels equal NumPy for many row sizes, addresses and numbers of rows.

test_kernels.py runs this file alone and under compute-sanitizer. The file loads no framework, because the sanitizer
needs a small process.
"""

import ctypes
import sys
from dataclasses import dataclass

import numpy as np

from forebay.core.c_functions import address_of
from forebay.engines.cuda import row_mover
from forebay.engines.cuda.copy_plan import Destination, RowExtents
from forebay.engines.cuda.driver import Stream
from forebay.engines.cuda.engine import device_at
from forebay.engines.cuda.kernel_workspace import KernelWorkspace
from forebay.engines.cuda.memory import PageLockedMemory
from forebay.engines.cuda.order_program import assemble
from forebay.engines.cuda.row_mover import LeafGather, RowMover
from forebay.order.choices import Selected
from forebay.order.combined import Concatenated, Interleaved, OrderPart
from forebay.order.orders import Sequential, Shuffled
from forebay.order.permutation import Permutation
from forebay.order.sampling import Sampled

SHAPES = [  # row bytes, stride, first address, batch rows, gap between batches, number of rows
    (400, 400, 0, 100, 0, 5000),
    (64, 64, 0, 128, 256, 6000),
    (16, 16, 0, 10, 96, 4500),
    (4, 4, 4, 100, 12, 4100),
    (1, 1, 3, 7, 1, 300),
    (77, 77, 5, 33, 3, 1000),
    (40, 40, 8, 100, 24, 5000),
    (773, 800, 1, 10, 57, 200),
    (2050, 2048, 2, 64, 0, 3000),
    (20_000, 20_000, 0, 4, 0, 30),
    (20_001, 20_003, 2, 4, 5, 30),
    (150_528, 150_528, 0, 3, 0, 8),
]
DEVICE_SHAPES = [  # rows in device memory; bulk copies for rows of at least 8 KiB if all sizes are multiples of 16
    (400, 400, 0, 100, 0, 5000),
    (8176, 8176, 16, 9, 32, 100),
    (8192, 8192, 0, 4, 0, 300),
    (8208, 8224, 32, 7, 16, 301),
    (8193, 8193, 0, 4, 0, 100),
    (404, 404, 4, 100, 0, 5000),
    (150_528, 150_528, 0, 3, 0, 27),
]
SOURCE_NBYTES = 8 << 20


class Rig:
    """A device, a stream and random source bytes, in page-locked memory and in device memory."""

    def __init__(self):
        self.device = device_at(0)
        self.device.make_current()
        self.stream, self.mover = Stream(self.device), RowMover(self.device)
        self.locked = PageLockedMemory(self.device, SOURCE_NBYTES)
        self.bytes = np.frombuffer(self.locked.buffer, np.uint8)
        self.bytes[:] = np.random.default_rng(0).integers(0, 256, SOURCE_NBYTES, dtype=np.uint8)
        self.on_device = self.device.allocate(SOURCE_NBYTES)
        self.stream.upload(self.on_device, self.locked.address, SOURCE_NBYTES)

    def gather(
        self,
        table,
        rows,
        make_destination,
        *,
        row_nbytes,
        count,
        ordered,
        computed_rows=None,
        needs_int64=False,
        on_device=False,
    ):
        """Gather rows like a slot filler, with given or computed row numbers.

        Return the target's bytes.
        """
        extents = RowExtents.from_table(
            table, row_nbytes=row_nbytes, rows=SOURCE_NBYTES // row_nbytes, on_device=on_device
        )
        place, target_nbytes = make_destination(self.device.allocate(1 << 23))
        own = self.device.allocate(KernelWorkspace.nbytes(count, [len(table)]))
        workspace = KernelWorkspace(self.device, own, None, rows=count, extents=[len(table)], needs_int64=needs_int64)
        self.stream.clear(place.pointer // 256 * 256, 1 << 22)
        workspace.load_tables(self.stream, {0: table})
        if computed_rows is None:
            workspace.load_rows(self.stream, rows)
        else:
            workspace.load_program(self.stream, assemble(computed_rows.steps, self.table_pointer))
            self.mover.compute_rows(self.stream, workspace, computed_rows)
        if ordered:
            self.mover.sort_rows(self.stream, workspace, count=count, source_rows=extents.rows, row_nbytes=row_nbytes)
        self.mover.gather_rows(self.stream, workspace, LeafGather(0, extents, place), count=count, ordered=ordered)
        found = np.empty(target_nbytes, np.uint8)
        self.stream.wait()
        self.stream.download(address_of(found), place.pointer, target_nbytes)
        self.stream.wait()
        workspace.close()
        self.device.free(place.pointer // 256 * 256)
        self.device.free(own)
        return found

    def table_pointer(self, table):
        """Upload a table of an order, and return its address."""
        pointer = self.device.allocate(table.nbytes)
        self.stream.upload(pointer, address_of(table), table.nbytes)
        self.stream.wait()
        return pointer


def check_shape(rig, shape, *, ordered, needs_int64, on_device=False):
    row_nbytes, stride, first, batch_rows, gap, count = shape
    available = (SOURCE_NBYTES - first - row_nbytes) // stride
    rows = np.random.default_rng(1).integers(0, available, count)
    batch_stride = batch_rows * row_nbytes + gap
    table = np.array([[0, (rig.on_device if on_device else rig.locked.address) + first, stride]], np.int64)
    batches = -(-count // batch_rows)

    def make_destination(pointer):
        return Destination(pointer, batch_rows, batch_stride, row_nbytes), batches * batch_stride

    options = {
        "row_nbytes": row_nbytes,
        "count": count,
        "ordered": ordered,
        "needs_int64": needs_int64,
        "on_device": on_device,
    }
    found = rig.gather(table, rows, make_destination, **options)
    for place, row in enumerate(rows):
        at = place // batch_rows * batch_stride + place % batch_rows * row_nbytes
        start = first + row * stride
        assert np.array_equal(found[at : at + row_nbytes], rig.bytes[start : start + row_nbytes]), (shape, place)


def check_extents(rig):
    """Gather rows of several extents."""
    table = np.array([[0, 64, 64], [100, 500_000 - 100 * 64, 64], [250, 3_000_000 - 250 * 64, 64]], np.int64)
    table[:, 1] += rig.locked.address
    rows = np.random.default_rng(2).integers(0, 1000, 700)
    found = rig.gather(
        table,
        rows,
        lambda pointer: (Destination(pointer, 700, 700 * 64, 64), 700 * 64),
        row_nbytes=64,
        count=700,
        ordered=False,
    )
    starts = np.where(
        rows < 100, 64 + rows * 64, np.where(rows < 250, 500_000 + (rows - 100) * 64, 3_000_000 + (rows - 250) * 64)
    )
    for place, start in enumerate(starts):
        assert np.array_equal(found[place * 64 : place * 64 + 64], rig.bytes[start : start + 64])


@dataclass
class ComputedRows:
    """Row numbers that the device computes: at every `step`-th position of an order, from `first` on."""

    steps: tuple
    first: int
    step: int
    count: int


def orders(length):
    """Return orders of `length` rows that together use all operations of the kernel."""
    rows, weights = Sequential(length), np.random.default_rng(3).random(length)
    shuffled = Shuffled(rows, 1)
    selected = Selected.of_positions(rows, np.random.default_rng(4).permutation(length))
    wide = Selected(rows, selected.table.astype(np.int64), "", ascends=False, repeats=False)
    half = length // 2
    parts = [OrderPart(Shuffled(Sequential(half), 1), 0), OrderPart(Shuffled(Sequential(length - half), 2), half)]
    sampled = Sampled.of(rows, weights, seed=3, count=length, replacement=True)
    mixed = [Interleaved.of(parts, (7, 3), "all", seed) for seed in (None, 5)]
    return [rows, shuffled, Shuffled(selected, 1), wide, sampled, Shuffled(Concatenated.of(parts), 4), *mixed]


def check_computed(rig, order, count):
    """Compare row numbers computed on the device with those of the order."""
    expected = order.rows(6, np.arange(17, 17 + 3 * count, 3))
    table = np.array([[0, rig.locked.address, 64]], np.int64)
    for needs_int64 in (False, True):
        found = rig.gather(
            table,
            None,
            lambda pointer: (Destination(pointer, count, count * 64, 64), count * 64),
            row_nbytes=64,
            count=count,
            ordered=True,
            computed_rows=ComputedRows(order.device_steps(6), 17, 3, count),
            needs_int64=needs_int64,
        )
        assert np.array_equal(found.reshape(count, 64), rig.bytes.reshape(-1, 64)[expected]), order


def check_narrowed(rig, dtype, batch_numbers, gap, count):
    """Compare narrowed 64-bit numbers with those of NumPy."""
    wide = rig.bytes[: count * 8].view(dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = wide.astype(f"{dtype[0]}4")
    batch_stride, batches = batch_numbers * 4 + gap, -(-count // batch_numbers)
    pointer = rig.device.allocate(batches * batch_stride)
    arrived = Destination(rig.locked.address, batch_numbers, batch_numbers * 8, 8)
    place = Destination(pointer, batch_numbers, batch_stride, 4)
    rig.mover.narrow_rows(rig.stream, arrived, place, count=count, is_float=dtype == "f8")
    found = np.empty(batches * batch_stride, np.uint8)
    rig.stream.wait()
    rig.stream.download(address_of(found), pointer, len(found))
    rig.stream.wait()
    rig.device.free(pointer)
    held = [found[start : start + batch_numbers * 4] for start in range(0, len(found), batch_stride)]
    numbers = np.concatenate(held).view(expected.dtype)[:count]
    assert np.array_equal(numbers, expected, equal_nan=dtype == "f8"), (dtype, batch_numbers)


class Sum(ctypes.Structure):
    _fields_ = (("pairs", ctypes.c_void_p), ("count", ctypes.c_ulonglong), ("total", ctypes.c_void_p))


def check_sum(rig, pairs):
    """Check that every word is counted once, also the remainder of the last threads."""
    total = rig.device.allocate(8)
    rig.stream.clear(total, 8)
    job = Sum(rig.locked.address, pairs, total)
    rig.device.kernel("sum_words", "sum.cu").launch(rig.stream, job, blocks=3, threads=64)
    found = np.empty(1, np.uint64)
    rig.stream.download(address_of(found), total, 8)
    rig.stream.wait()
    rig.device.free(total)
    assert found[0] == rig.bytes[: pairs * 16].view(np.uint64).sum()


def main():
    rig = Rig()
    for shape in SHAPES:
        check_shape(rig, shape, ordered=False, needs_int64=False)
        check_shape(rig, shape, ordered=True, needs_int64=True)
    for blocks in (row_mover.BULK_BLOCKS, 1, 3):  # with few blocks, each block reuses its shared memory often
        row_mover.BULK_BLOCKS = blocks
        for shape in DEVICE_SHAPES:
            check_shape(rig, shape, ordered=False, needs_int64=False, on_device=True)
            check_shape(rig, shape, ordered=True, needs_int64=True, on_device=True)
    check_extents(rig)
    for order in orders(SOURCE_NBYTES // 64):
        check_computed(rig, order, 5000)
    check_computed(rig, Shuffled(Sequential(Permutation.TABLE_LENGTH + 1), 3), 2000)
    for dtype in ("i8", "u8", "f8"):
        check_narrowed(rig, dtype, 256, 0, 100_000)
        check_narrowed(rig, dtype, 33, 124, 1000)
        check_narrowed(rig, dtype, 7, 4, 5)
    for pairs in (1, 191, 192, 769, 100_000):
        check_sum(rig, pairs)
    sys.stdout.write("all rows are right\n")


if __name__ == "__main__":
    main()
