"""How rows cross by kernels: each is told the right addresses and numbers. The device here is plain memory."""

import ctypes
import re
from importlib.resources import files
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.plain_device import Copies, Device, Stream, workspace

from forebay.engines.cuda import row_mover
from forebay.engines.cuda.copy_plan import Extents, Place
from forebay.engines.cuda.kernel_workspace import MOST_STRETCHES
from forebay.engines.cuda.row_mover import PIECE_NBYTES, ROUNDS, Mover
from forebay.feed.row_numbers import Drawn
from forebay.order.orders import Permutation

FAR, NEAR = 1 << 44, 1 << 45  # addresses of nothing, on the host and on the device
NBYTES = {"uint": 4, "ulong64": 8, "long long": 8}


@pytest.fixture
def device():
    return Device()


@pytest.fixture
def mover(device, monkeypatch):
    monkeypatch.setattr(row_mover, "BatchCopy", Copies)
    return Mover(device)


def fields_in_kernel_source(struct):
    """Names and bytes of a struct's fields, read from the kernels' own source."""
    text = re.sub(r"//.*", "", files("forebay.engines.cuda").joinpath("gather.cu").read_text())
    body = re.search(rf"struct {struct} \{{(.*?)\}};", text, re.DOTALL)[1]
    return [field for line in body.split(";") if line.strip() for field in fields_in_line(line.strip())]


def fields_in_line(line):
    kind, names = re.fullmatch(r"((?:const )?(?:long long|\w+)\s*\*?)\s+(.*)", line).groups()
    nbytes = 8 if "*" in kind else NBYTES[kind]
    found = [re.fullmatch(r"(\w+)(\[ROUNDS\])?", name.strip()).groups() for name in names.split(",")]
    return [(name, nbytes * (ROUNDS if many else 1)) for name, many in found]


@pytest.mark.parametrize("struct", ["Gather", "Draw", "Sort"])
def test_structs_are_those_of_the_kernels(struct):
    made = getattr(row_mover, f"_{struct}")
    fields = fields_in_kernel_source(struct)
    assert [(name, ctypes.sizeof(kind)) for name, kind in made._fields_] == fields
    assert len(fields) > 6


@pytest.mark.parametrize("name", ["ROUNDS", "MOST_STRETCHES"])
def test_numbers_are_those_of_the_kernels(name):
    text = files("forebay.engines.cuda").joinpath("gather.cu").read_text()
    assert int(re.search(rf"const uint {name} = (\d+);", text)[1]) == getattr(row_mover, name)


def test_an_extent_is_a_line_of_the_table():
    assert fields_in_kernel_source("Extent") == [("first", 8), ("base", 8), ("stride", 8)]


def test_a_device_draws_the_rows_that_the_order_has(mover, device):
    scramble = Permutation(100_000, 7).scramble
    made = workspace(device, wide_rows=True)
    mover.draw(None, made, Drawn(scramble, first=5, step=3, count=90))
    (launch,) = device.launched
    job = launch.job
    assert launch.name == "draw_rows"
    assert (job.rows, job.first, job.step, job.count, job.wide_rows) == (made.rows, 5, 3, 90, 1)
    assert (job.length, job.mask, job.term, job.shift) == (
        scramble.length,
        scramble.mask,
        scramble.term,
        scramble.shift,
    )
    assert tuple(job.factors) == scramble.factors


@given(rows=st.integers(1, 1 << 40), row_nbytes=st.integers(1, 2047))
@settings(max_examples=200, deadline=None)
def test_every_row_has_a_stretch_and_there_are_not_too_many(rows, row_nbytes):
    device, made = Device(), SimpleNamespace(rows=0, order=0, starts=0, wide_rows=1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(row_mover, "BatchCopy", Copies)
        Mover(device).sort(SimpleNamespace(clear=lambda *_: None), made, count=5000, rows=rows, row_nbytes=row_nbytes)
    job = device.launched[0].job
    assert (rows - 1) >> job.shift < job.stretches <= MOST_STRETCHES
    assert [launch.name for launch in device.launched] == ["count_stretches", "start_stretches", "place_rows"]
    assert device.launched[1].blocks == 1


def test_counters_are_zero_before_rows_are_sorted(mover, device):
    made = workspace(device)
    ctypes.memset(made.starts, 255, MOST_STRETCHES * 4)
    mover.sort(Stream(), made, count=50, rows=1000, row_nbytes=64)
    assert not any(ctypes.string_at(made.starts, MOST_STRETCHES * 4))


def gathered(mover, device, *, row_nbytes, base=FAR, pointer=NEAR, batch_stride=None, near=False, ordered=False):
    """What a kernel is told about ten rows in batches of five."""
    made = workspace(device, tables=(1, 1))
    rows = Extents.of(np.array([[0, base, row_nbytes]], np.int64), row_nbytes=row_nbytes, rows=100, near=near)
    place = Place(pointer, 5, batch_stride or 5 * row_nbytes, row_nbytes)
    mover.gather_rows(None, rows, place, made, 1, count=10, ordered=ordered)
    return made, device.launched[-1]


@given(row_nbytes=st.integers(1, 100_000))
@settings(max_examples=200, deadline=None)
def test_a_team_of_threads_and_its_pieces_cover_a_row(row_nbytes):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(row_mover, "BatchCopy", Copies)
        device = Device()
        _, launch = gathered(Mover(device), device, row_nbytes=row_nbytes)
    job = launch.job
    assert job.lanes in (1, 2, 4, 8, 16, 32)
    assert launch.threads % job.lanes == 0
    assert (job.pieces - 1) * PIECE_NBYTES < row_nbytes <= job.pieces * job.piece_nbytes
    assert job.piece_nbytes == PIECE_NBYTES
    assert PIECE_NBYTES % 16 == 0


@pytest.mark.parametrize(
    ("row_nbytes", "near", "kernel"),
    [
        (8192, True, "gather_bulk"),
        (150_528, True, "gather_bulk"),
        (8176, True, "gather_wide"),
        (8200, True, "gather_any"),
        (150_528, False, "gather_wide"),
    ],
)
def test_long_rows_on_the_device_are_copied_in_bulk(mover, device, row_nbytes, near, kernel):
    _, launch = gathered(mover, device, row_nbytes=row_nbytes, near=near)
    assert launch.name == kernel


def test_a_piece_fits_a_stage_of_the_bulk_kernel():
    source = files("forebay.engines.cuda").joinpath("gather.cu").read_text()
    assert int(re.search(r"STAGE_NBYTES = (\d+)", source)[1]) == PIECE_NBYTES


def test_a_kernel_is_told_where_rows_are_and_where_they_go(mover, device):
    made, launch = gathered(mover, device, row_nbytes=48, batch_stride=256)
    job = launch.job
    assert (job.rows, job.order, job.extents, job.out) == (made.rows, None, made.table(1), NEAR)
    assert (job.row_nbytes, job.batch_stride, job.batch_rows, job.count) == (48, 256, 5, 10)
    assert (job.extent_count, job.wide_rows) == (1, 0)


def test_rows_are_taken_in_the_order_that_was_made_for_them(mover, device):
    made, launch = gathered(mover, device, row_nbytes=48, ordered=True)
    assert launch.job.order == made.order


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"row_nbytes": 48}, "gather_wide"),
        ({"row_nbytes": 48, "batch_stride": 256}, "gather_wide"),
        ({"row_nbytes": 40}, "gather_any"),
        ({"row_nbytes": 48, "base": FAR + 8}, "gather_any"),
        ({"row_nbytes": 48, "pointer": NEAR + 4}, "gather_any"),
        ({"row_nbytes": 48, "batch_stride": 248}, "gather_any"),
    ],
)
def test_rows_are_read_wide_only_where_both_ends_are_aligned(mover, device, options, name):
    assert gathered(mover, device, **options)[1].name == name


@pytest.mark.parametrize(
    ("options", "blocks"),
    [
        ({"row_nbytes": 4096}, row_mover.FAR_BLOCKS),
        ({"row_nbytes": 64}, row_mover.FAR_BLOCKS_SHORT),
        ({"row_nbytes": 63}, row_mover.FAR_BLOCKS_ANY),
        ({"row_nbytes": 63, "near": True}, row_mover.NEAR_BLOCKS),
    ],
)
def test_few_blocks_read_over_the_link_and_all_of_the_device_its_own_memory(mover, device, options, blocks):
    assert gathered(mover, device, **options)[1].blocks == blocks
