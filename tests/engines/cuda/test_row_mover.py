"""Planned copies and DMA uploads of rows, on a fake device."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fake_device import Copies, Device

from forebay.engines.cuda import row_mover
from forebay.engines.cuda.copy_plan import Destination, RowExtents, join_adjacent, split_at_boundaries
from forebay.engines.cuda.pull.row_locations import _crosses_boundary
from forebay.engines.cuda.row_mover import RowMover

HOST_ADDRESS, DEVICE_ADDRESS = 1 << 44, 1 << 45  # unused addresses
NO_BOUNDARIES = np.empty(0, np.uint64)


@pytest.fixture
def mover(monkeypatch):
    monkeypatch.setattr(row_mover, "BatchCopy", Copies)
    return RowMover(Device())


@st.composite
def extents(draw):
    """Draw extents, and the address of each row computed without RowExtents."""
    lengths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    strides = [draw(st.integers(1, 200)) for _ in lengths]
    starts = [draw(st.integers(0, 1 << 20)) for _ in lengths]
    firsts = np.cumsum([0, *lengths]).tolist()
    lines = [
        (first, start - first * stride, stride) for first, start, stride in zip(firsts, starts, strides, strict=False)
    ]
    addresses = [
        start + row * stride
        for start, stride, length in zip(starts, strides, lengths, strict=True)
        for row in range(length)
    ]
    return RowExtents.from_table(np.array(lines, np.int64), row_nbytes=8, rows=firsts[-1]), addresses


@st.composite
def copies(draw):
    """Draw copies with arbitrary sources, some adjacent, and targets that never overlap."""
    count = draw(st.integers(0, 8))
    lengths = [draw(st.integers(1, 20)) for _ in range(count)]
    sources, targets, source, target = [], [], draw(st.integers(0, 60)), 1000
    for length in lengths:
        sources.append(source)
        targets.append(target)
        source = draw(st.just(source + length) | st.integers(0, 60))
        target += length + draw(st.sampled_from([0, 0, 1, 7]))
    return tuple(np.array(column, np.uint64) for column in (sources, targets, lengths))


boundary_lists = st.sets(st.integers(0, 90)).map(lambda boundaries: np.array(sorted(boundaries), np.uint64))


def sources_by_target(sources, targets, lengths):
    """Return the source of each target byte. Each target byte is written once."""
    pairs = [
        (target + byte, source + byte)
        for source, target, length in zip(sources.tolist(), targets.tolist(), lengths.tolist(), strict=True)
        for byte in range(length)
    ]
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def crosses_boundary(boundaries, source, length):
    return any(source < boundary < source + length for boundary in boundaries.tolist())


def extents_of(array):
    return RowExtents.from_table(
        np.array([[0, array.ctypes.data, array.strides[0]]], np.int64), row_nbytes=array[0].nbytes, rows=len(array)
    )


# Extents and destinations


@given(case=extents(), data=st.data())
def test_addresses_of_rows_follow_their_extents(case, data):
    found, addresses = case
    rows = data.draw(st.lists(st.integers(0, found.rows - 1), max_size=20))
    assert found.addresses(np.array(rows, np.int64)).tolist() == [addresses[row] for row in rows]
    assert found.addresses(np.array(rows, np.int64)).dtype == np.uint64


@given(
    base=st.integers(0, 1000).map(lambda n: n * 8), stride=st.integers(1, 100), row_nbytes=st.sampled_from([8, 16, 48])
)
def test_extents_are_16_byte_aligned_exactly_if_all_rows_begin_and_end_aligned(base, stride, row_nbytes):
    table = np.array([[0, HOST_ADDRESS, 16], [3, base, stride]], np.int64)
    rows = RowExtents.from_table(table, row_nbytes=row_nbytes, rows=20)
    addresses = rows.addresses(np.arange(20)).tolist()
    assert rows.is_16_byte_aligned == all(
        edge % 16 == 0 for address in addresses for edge in (address, address + row_nbytes)
    )


@given(batch_rows=st.integers(1, 9), row_nbytes=st.integers(1, 70), gap=st.sampled_from([0, 1, 100]))
def test_the_addresses_of_a_destination_include_gaps_between_batches(batch_rows, row_nbytes, gap):
    place = Destination(DEVICE_ADDRESS, batch_rows, batch_rows * row_nbytes + gap, row_nbytes)
    expected = [DEVICE_ADDRESS + i // batch_rows * place.batch_stride + i % batch_rows * row_nbytes for i in range(30)]
    assert place.addresses(np.arange(30)).tolist() == expected
    assert place.addresses(np.arange(30)).dtype == np.uint64
    assert place.is_contiguous == (gap == 0)


# Copies


@given(copies=copies())
def test_joined_copies_move_the_same_bytes_and_cannot_be_joined_again(copies):
    together = join_adjacent(*copies)
    assert sources_by_target(*together) == sources_by_target(*copies)
    assert [len(column) for column in join_adjacent(*together)] == [len(together[0])] * 3
    assert len(together[0]) <= len(copies[0])


def test_adjacent_rows_become_one_copy():
    columns = [np.array(column, np.uint64) for column in ([0, 10, 20, 50, 60], [5, 15, 26, 36, 46], [10] * 5)]
    assert [column.tolist() for column in join_adjacent(*columns)] == [[0, 20, 50], [5, 26, 36], [20, 10, 20]]


@given(copies=copies(), boundaries=boundary_lists)
def test_split_copies_move_the_same_bytes_and_none_crosses_a_boundary(copies, boundaries):
    pieces = split_at_boundaries(boundaries, *copies)
    assert sources_by_target(*pieces) == sources_by_target(*copies)
    assert not any(
        crosses_boundary(boundaries, *piece) for piece in zip(pieces[0].tolist(), pieces[2].tolist(), strict=True)
    )
    assert all(nbytes > 0 for nbytes in pieces[2].tolist())
    assert {column.dtype for column in pieces} == {np.dtype(np.uint64)}


@given(copies=copies(), boundaries=boundary_lists)
def test_only_copies_across_a_boundary_are_split(copies, boundaries):
    cuts = sum(
        source < boundary < source + length
        for source, length in zip(copies[0].tolist(), copies[2].tolist(), strict=True)
        for boundary in boundaries.tolist()
    )
    assert len(split_at_boundaries(boundaries, *copies)[0]) == len(copies[0]) + cuts


def test_a_copy_that_ends_or_begins_at_a_boundary_is_not_split():
    columns = [np.array(column, np.uint64) for column in ([100, 200], [0, 100], [100, 50])]
    pieces = split_at_boundaries(np.array([100, 200, 250], np.uint64), *columns)
    assert all(piece is column for piece, column in zip(pieces, columns, strict=True))


@given(case=extents(), boundaries=boundary_lists.map(lambda boundaries: boundaries * 12000))
def test_rows_across_a_boundary_are_those_whose_copies_are_split(case, boundaries):
    rows, addresses = case
    expected = [crosses_boundary(boundaries, address, rows.row_nbytes) for address in addresses]
    assert _crosses_boundary(rows.addresses(np.arange(rows.rows)), rows.row_nbytes, boundaries).tolist() == expected


@pytest.mark.parametrize("gap", [0, 24])
@pytest.mark.parametrize("boundaries", [NO_BOUNDARIES, np.array([3, 50, 51, 130, 131], np.uint64)])
@pytest.mark.parametrize("rows", [slice(0, 12), slice(3, 10), slice(11, 12)])
def test_a_run_of_rows_arrives_at_its_destination(mover, gap, boundaries, rows):
    source = np.random.default_rng(0).integers(0, 256, (12, 20)).astype(np.uint8)
    target = np.zeros((3, 4 * 20 + gap), np.uint8)
    place = Destination(target.ctypes.data, 4, 80 + gap, 20)
    mover.upload_run(None, extents_of(source), rows, place, boundaries + np.uint64(source.ctypes.data))
    arrived = target[:, :80].reshape(12, 20)
    count = rows.stop - rows.start
    assert np.array_equal(arrived[:count], source[rows])
    assert not arrived[count:].any()
    assert not target[:, 80:].any()


def test_a_contiguous_run_of_rows_is_one_copy(mover):
    source, target = np.arange(24, dtype=np.int64).reshape(12, 2), np.zeros((12, 2), np.int64)
    mover.upload_run(None, extents_of(source), slice(2, 9), Destination(target.ctypes.data, 4, 64, 16), NO_BOUNDARIES)
    assert mover._batch_copy.copied == [(target.ctypes.data, source.ctypes.data + 32, 7 * 16)]


def test_a_run_over_two_files_is_one_copy_for_each_file(mover):
    parts = [np.full((3, 2), 1.0), np.full((5, 2), 2.0)]
    table = [[0, parts[0].ctypes.data, 16], [3, parts[1].ctypes.data - 3 * 16, 16]]
    rows, target = RowExtents.from_table(np.array(table, np.int64), row_nbytes=16, rows=8), np.zeros((8, 2))
    mover.upload_run(None, rows, slice(1, 7), Destination(target.ctypes.data, 8, 128, 16), NO_BOUNDARIES)
    assert np.array_equal(target[:6], np.concatenate(parts)[1:7])
    assert [nbytes for _, _, nbytes in mover._batch_copy.copied] == [32, 64]


def test_each_selected_row_is_one_copy(mover):
    source, target = np.arange(20.0).reshape(10, 2), np.zeros((3, 2))
    chosen = np.array([7, 0, 8])
    place = Destination(target.ctypes.data, 3, 48, 16)
    mover.upload_rows(
        None, extents_of(source).addresses(chosen), place.addresses(np.arange(3)), np.full(3, 16, np.uint64)
    )
    assert np.array_equal(target, source[chosen])
    assert len(mover._batch_copy.copied) == 3
