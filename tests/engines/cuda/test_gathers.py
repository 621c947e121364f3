"""Arguments of the kernels that gather rows, sort them and compute their numbers, on a fake device."""

import ctypes
import re
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fake_device import Copies, Device, Stream, workspace

from forebay.engines.cuda import row_mover
from forebay.engines.cuda.copy_plan import Destination, RowExtents
from forebay.engines.cuda.driver import read_kernels
from forebay.engines.cuda.kernel_workspace import MAX_BUCKETS
from forebay.engines.cuda.row_mover import PIECE_NBYTES, LeafGather, RowMover
from forebay.feed.row_index import DeviceComputedRows

HOST_ADDRESS, DEVICE_ADDRESS = 1 << 44, 1 << 45  # unused addresses
NBYTES = {"uint": 4, "ulong64": 8, "long long": 8}


@pytest.fixture
def device():
    return Device()


@pytest.fixture
def mover(device, monkeypatch):
    monkeypatch.setattr(row_mover, "BatchCopy", Copies)
    return RowMover(device)


def fields_in_kernel_source(struct):
    """Return name and size of the fields of a struct in gather.cu or sort.cu."""
    text = re.sub(r"//.*", "", read_kernels("gather.cu").decode())
    body = re.search(rf"struct {struct} \{{(.*?)\}};", text, re.DOTALL)[1]
    return [field for line in body.split(";") if line.strip() for field in fields_in_line(line.strip())]


def fields_in_line(line):
    kind, names = re.fullmatch(r"((?:const )?(?:long long|\w+)\s*\*?)\s+(.*)", line).groups()
    nbytes = 8 if "*" in kind else NBYTES[kind]
    return [(name.strip(), nbytes) for name in names.split(",")]


@pytest.mark.parametrize("struct", ["GatherJob", "OrderJob", "SortJob", "NarrowJob"])
def test_structs_match_the_kernel_source(struct):
    made = getattr(row_mover, f"_{struct}")
    fields = fields_in_kernel_source(struct)
    assert [(name, ctypes.sizeof(kind)) for name, kind in made._fields_] == fields
    assert len(fields) >= 5


@pytest.mark.parametrize("name", ["MAX_BUCKETS"])
def test_constants_match_the_kernel_source(name):
    text = read_kernels("gather.cu").decode()
    assert int(re.search(rf"const uint {name} = (\d+);", text)[1]) == getattr(row_mover, name)


def test_an_extent_of_the_kernels_is_one_line_of_the_table():
    assert fields_in_kernel_source("Extent") == [("first", 8), ("base", 8), ("stride", 8)]


def test_the_kernel_gets_the_positions_and_the_program_of_the_order(mover, device):
    made = workspace(device, needs_int64=True)
    mover.compute_rows(None, made, DeviceComputedRows((), first=5, step=3, count=90))
    (launch,) = device.launched
    job = launch.job
    assert launch.name == "compute_rows"
    assert (job.rows, job.program, job.needs_int64) == (made.rows, made.program, 1)
    assert (job.first, job.step, job.count) == (5, 3, 90)


@given(rows=st.integers(1, 1 << 40), row_nbytes=st.integers(1, 2047))
def test_every_row_has_a_bucket_and_buckets_are_limited(rows, row_nbytes):
    device, made = Device(), SimpleNamespace(rows=0, order=0, starts=0, needs_int64=1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(row_mover, "BatchCopy", Copies)
        RowMover(device).sort_rows(
            SimpleNamespace(clear=lambda *_: None), made, count=5000, source_rows=rows, row_nbytes=row_nbytes
        )
    job = device.launched[0].job
    assert (rows - 1) >> job.shift < job.buckets <= MAX_BUCKETS
    assert [launch.name for launch in device.launched] == ["count_buckets", "start_buckets", "order_rows"]
    assert device.launched[1].blocks == 1


def test_counters_are_zero_before_rows_are_sorted(mover, device):
    made = workspace(device)
    ctypes.memset(made.starts, 255, MAX_BUCKETS * 4)
    mover.sort_rows(Stream(), made, count=50, source_rows=1000, row_nbytes=64)
    assert not any(ctypes.string_at(made.starts, MAX_BUCKETS * 4))


def gather_ten_rows(
    mover,
    device,
    *,
    row_nbytes,
    base=HOST_ADDRESS,
    pointer=DEVICE_ADDRESS,
    batch_stride=None,
    on_device=False,
    ordered=False,
):
    """Gather ten rows in batches of five, and return the workspace and the launch."""
    made = workspace(device, tables=(1, 1))
    rows = RowExtents.from_table(
        np.array([[0, base, row_nbytes]], np.int64), row_nbytes=row_nbytes, rows=100, on_device=on_device
    )
    place = Destination(pointer, 5, batch_stride or 5 * row_nbytes, row_nbytes)
    mover.gather_rows(None, made, LeafGather(1, rows, place), count=10, ordered=ordered)
    return made, device.launched[-1]


@given(row_nbytes=st.integers(1, 100_000))
def test_pieces_of_a_team_of_threads_cover_a_row(row_nbytes):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(row_mover, "BatchCopy", Copies)
        device = Device()
        _, launch = gather_ten_rows(RowMover(device), device, row_nbytes=row_nbytes)
    job = launch.job
    assert job.lanes in (1, 2, 4, 8, 16, 32)
    assert launch.threads % job.lanes == 0
    assert (job.pieces - 1) * PIECE_NBYTES < row_nbytes <= job.pieces * job.piece_nbytes
    assert job.piece_nbytes == PIECE_NBYTES
    assert PIECE_NBYTES % 16 == 0


@pytest.mark.parametrize(
    ("row_nbytes", "on_device", "kernel"),
    [
        (8192, True, "gather_bulk"),
        (150_528, True, "gather_bulk"),
        (8176, True, "gather_aligned"),
        (8200, True, "gather_unaligned"),
        (150_528, False, "gather_aligned"),
    ],
)
def test_long_rows_on_the_device_use_bulk_copies(mover, device, row_nbytes, on_device, kernel):
    _, launch = gather_ten_rows(mover, device, row_nbytes=row_nbytes, on_device=on_device)
    assert launch.name == kernel


def test_a_piece_fits_into_a_stage_of_the_bulk_kernel():
    source = read_kernels("gather.cu").decode()
    assert int(re.search(r"STAGE_NBYTES = (\d+)", source)[1]) == PIECE_NBYTES


def test_the_gather_kernel_gets_extents_and_destination(mover, device):
    made, launch = gather_ten_rows(mover, device, row_nbytes=48, batch_stride=256)
    job = launch.job
    assert (job.rows, job.order, job.extents, job.out) == (made.rows, None, made.table(1), DEVICE_ADDRESS)
    assert (job.row_nbytes, job.batch_stride, job.batch_rows, job.count) == (48, 256, 5, 10)
    assert (job.extent_count, job.needs_int64) == (1, 0)


def test_the_gather_kernel_gets_the_sorted_order(mover, device):
    made, launch = gather_ten_rows(mover, device, row_nbytes=48, ordered=True)
    assert launch.job.order == made.order


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"row_nbytes": 48}, "gather_aligned"),
        ({"row_nbytes": 48, "batch_stride": 256}, "gather_aligned"),
        ({"row_nbytes": 40}, "gather_unaligned"),
        ({"row_nbytes": 48, "base": HOST_ADDRESS + 8}, "gather_unaligned"),
        ({"row_nbytes": 48, "pointer": DEVICE_ADDRESS + 4}, "gather_unaligned"),
        ({"row_nbytes": 48, "batch_stride": 248}, "gather_unaligned"),
    ],
)
def test_the_aligned_kernel_needs_aligned_source_and_destination(mover, device, options, name):
    assert gather_ten_rows(mover, device, **options)[1].name == name


@pytest.mark.parametrize(
    ("options", "blocks"),
    [
        ({"row_nbytes": 4096}, row_mover.HOST_READ_BLOCKS),
        ({"row_nbytes": 64}, row_mover.HOST_READ_BLOCKS_SHORT_ROWS),
        ({"row_nbytes": 63}, row_mover.HOST_READ_BLOCKS_UNALIGNED),
        ({"row_nbytes": 63, "on_device": True}, row_mover.DEVICE_READ_BLOCKS),
    ],
)
def test_few_blocks_read_host_memory_and_many_read_device_memory(mover, device, options, blocks):
    assert gather_ten_rows(mover, device, **options)[1].blocks == blocks
