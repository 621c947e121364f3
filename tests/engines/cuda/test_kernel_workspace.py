"""The kernel workspace of a slot: its layout and its uploads."""

import ctypes

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fake_device import Device, Stream, workspace

from forebay.engines.cuda.kernel_workspace import MAX_BUCKETS, KernelWorkspace
from forebay.engines.cuda.order_program import PROGRAM_NBYTES

DEVICE_ADDRESS = 1 << 45  # an unused address


def int64s(pointer, count):
    return np.frombuffer(ctypes.string_at(pointer, count * 8), np.int64)


@given(rows=st.integers(1, 3000), tables=st.lists(st.integers(1, 50), min_size=1, max_size=4))
def test_parts_of_a_workspace_do_not_overlap_and_fit(rows, tables):
    made = KernelWorkspace(Device(), DEVICE_ADDRESS, None, rows=rows, extents=tables, needs_int64=True)
    parts = [(made.table(leaf), count * 24) for leaf, count in enumerate(tables)]
    parts += [
        (made.program, PROGRAM_NBYTES),
        (made.rows, rows * 8),
        (made.order, rows * 4),
        (made.starts, MAX_BUCKETS * 4),
    ]
    ends = [start + nbytes for start, nbytes in parts]
    assert parts[0][0] == DEVICE_ADDRESS
    assert all(start % 256 == 0 for start, _ in parts)
    assert all(end <= start for end, (start, _) in zip(ends, parts[1:], strict=False))
    assert ends[-1] <= DEVICE_ADDRESS + KernelWorkspace.nbytes(rows, tables)


@pytest.mark.parametrize(("needs_int64", "dtype"), [(False, np.int32), (True, np.int64)])
@pytest.mark.parametrize("rows", [slice(40, 60), np.arange(20)[::-1] * 3])
def test_row_numbers_arrive_in_the_width_that_kernels_read(needs_int64, dtype, rows):
    made = workspace(Device(), needs_int64=needs_int64)
    made.load_rows(Stream(), rows)
    actual = np.frombuffer(ctypes.string_at(made.rows, 20 * np.dtype(dtype).itemsize), dtype)
    assert np.array_equal(actual, np.arange(1000)[rows])


def test_tables_are_uploaded_only_if_they_changed():
    made, stream = workspace(Device()), Stream()
    tables = {0: np.arange(9).reshape(3, 3), 1: np.arange(60).reshape(20, 3) + 100}
    made.load_tables(stream, tables)
    assert int64s(made.table(0), 9).tolist() == list(range(9))
    assert int64s(made.table(1), 60).tolist() == list(range(100, 160))
    made.load_tables(stream, dict(tables))
    assert len(stream.uploads) == 1
    made.load_tables(stream, tables | {0: tables[0] + 5})
    assert int64s(made.table(0), 9).tolist() == list(range(5, 14))
    assert int64s(made.table(1), 60).tolist() == list(range(100, 160))
    assert len(stream.uploads) == 2


def test_a_program_is_uploaded_only_if_it_changed():
    made, stream = workspace(Device()), Stream()
    made.load_rows(stream, np.arange(100))
    program = np.arange(20, dtype=np.uint64).reshape(2, 10)
    made.load_program(stream, program)
    made.load_program(stream, program)
    assert int64s(made.program, 20).tolist() == list(range(20))
    assert len(stream.uploads) == 2
    made.load_program(stream, program + np.uint64(5))
    assert int64s(made.program, 20).tolist() == list(range(5, 25))
    assert np.frombuffer(ctypes.string_at(made.rows, 400), np.int32).tolist() == list(range(100))


def test_tables_of_some_leaves_can_be_loaded_without_the_others():
    made = workspace(Device(), tables=(1, 30, 30))
    tables = {1: np.arange(90).reshape(30, 3), 2: np.arange(90).reshape(30, 3) + 100}
    made.load_tables(Stream(), tables)  # the rows of the first leaf use DMA
    assert int64s(made.table(1), 90).tolist() == list(range(90))
    assert int64s(made.table(2), 90).tolist() == list(range(100, 190))


def test_a_leaf_that_uses_a_kernel_again_gets_its_new_table():
    made, stream = workspace(Device(), tables=(1, 1)), Stream()
    tables = {0: np.full((1, 3), 10), 1: np.full((1, 3), 20)}
    made.load_tables(stream, tables)
    made.load_tables(stream, {1: tables[1]})
    made.load_tables(stream, {0: np.full((1, 3), 30), 1: tables[1]})
    assert int64s(made.table(0), 3).tolist() == [30] * 3
    assert int64s(made.table(1), 3).tolist() == [20] * 3


def test_tables_do_not_overwrite_row_numbers():
    made, stream = workspace(Device(), tables=(1, 1), needs_int64=True), Stream()
    made.load_rows(stream, np.arange(100))
    made.load_tables(stream, {0: np.full((1, 3), -1), 1: np.full((1, 3), -1)})
    assert int64s(made.rows, 100).tolist() == list(range(100))


def test_closing_a_workspace_unlocks_its_host_buffer():
    device = Device()
    made = workspace(device)
    assert len(device.locked) == 1
    made.close()
    assert device.locked == {}
