"""How rows cross by DMA: every copy is told the right addresses. The device here is plain memory."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.plain_device import Copies, Device

from forebay.engines.cuda import row_mover
from forebay.engines.cuda.copy_plan import Extents, Place, joined, split_at
from forebay.engines.cuda.pull.row_locations import _across
from forebay.engines.cuda.row_mover import Mover

FAR, NEAR = 1 << 44, 1 << 45  # addresses of nothing, on the host and on the device
NO_SEAMS = np.empty(0, np.uint64)


@pytest.fixture
def mover(monkeypatch):
    monkeypatch.setattr(row_mover, "BatchCopy", Copies)
    return Mover(Device())


@st.composite
def extents(draw):
    """Where rows lie, and for each the address that a plain reading of its extent gives."""
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
    return Extents.of(np.array(lines, np.int64), row_nbytes=8, rows=firsts[-1]), addresses


@st.composite
def copies(draw):
    """Some copies: sources anywhere, at times side by side; targets that never overlap."""
    count = draw(st.integers(0, 8))
    lengths = [draw(st.integers(1, 20)) for _ in range(count)]
    sources, targets, source, target = [], [], draw(st.integers(0, 60)), 1000
    for length in lengths:
        sources.append(source)
        targets.append(target)
        source = draw(st.just(source + length) | st.integers(0, 60))
        target += length + draw(st.sampled_from([0, 0, 1, 7]))
    return tuple(np.array(column, np.uint64) for column in (sources, targets, lengths))


seam_lists = st.sets(st.integers(0, 90)).map(lambda seams: np.array(sorted(seams), np.uint64))


def moved(sources, targets, lengths):
    """Which byte goes where, target byte by target byte; each is written once."""
    pairs = [
        (target + byte, source + byte)
        for source, target, length in zip(sources.tolist(), targets.tolist(), lengths.tolist(), strict=True)
        for byte in range(length)
    ]
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def crosses(seams, source, length):
    return any(source < seam < source + length for seam in seams.tolist())


def over(array):
    return Extents.of(
        np.array([[0, array.ctypes.data, array.strides[0]]], np.int64), row_nbytes=array[0].nbytes, rows=len(array)
    )


# Where rows are and where they go


@given(case=extents(), data=st.data())
@settings(max_examples=200, deadline=None)
def test_rows_are_found_where_their_extent_says(case, data):
    found, addresses = case
    rows = data.draw(st.lists(st.integers(0, found.rows - 1), max_size=20))
    assert found.addresses(np.array(rows, np.int64)).tolist() == [addresses[row] for row in rows]
    assert found.addresses(np.array(rows, np.int64)).dtype == np.uint64


@given(
    base=st.integers(0, 1000).map(lambda n: n * 8), stride=st.integers(1, 100), row_nbytes=st.sampled_from([8, 16, 48])
)
@settings(max_examples=200)
def test_rows_can_be_read_sixteen_bytes_at_a_time_exactly_where_all_begin_and_end_so(base, stride, row_nbytes):
    table = np.array([[0, FAR, 16], [3, base, stride]], np.int64)
    rows = Extents.of(table, row_nbytes=row_nbytes, rows=20)
    addresses = rows.addresses(np.arange(20)).tolist()
    assert rows.wide == all(edge % 16 == 0 for address in addresses for edge in (address, address + row_nbytes))


@given(batch_rows=st.integers(1, 9), row_nbytes=st.integers(1, 70), gap=st.sampled_from([0, 1, 100]))
@settings(max_examples=200)
def test_rows_go_batch_by_batch_with_gaps_between(batch_rows, row_nbytes, gap):
    place = Place(NEAR, batch_rows, batch_rows * row_nbytes + gap, row_nbytes)
    expected = [NEAR + i // batch_rows * place.batch_stride + i % batch_rows * row_nbytes for i in range(30)]
    assert place.addresses(np.arange(30)).tolist() == expected
    assert place.addresses(np.arange(30)).dtype == np.uint64
    assert place.packed == (gap == 0)


# Copies


@given(copies=copies())
@settings(max_examples=300, deadline=None)
def test_joined_copies_move_the_same_bytes_and_none_could_be_joined_again(copies):
    together = joined(*copies)
    assert moved(*together) == moved(*copies)
    assert [len(column) for column in joined(*together)] == [len(together[0])] * 3
    assert len(together[0]) <= len(copies[0])


def test_rows_side_by_side_become_one_copy():
    columns = [np.array(column, np.uint64) for column in ([0, 10, 20, 50, 60], [5, 15, 26, 36, 46], [10] * 5)]
    assert [column.tolist() for column in joined(*columns)] == [[0, 20, 50], [5, 26, 36], [20, 10, 20]]


@given(copies=copies(), seams=seam_lists)
@settings(max_examples=300, deadline=None)
def test_pieces_copy_exactly_the_same_bytes_and_none_crosses_a_seam(copies, seams):
    pieces = split_at(seams, *copies)
    assert moved(*pieces) == moved(*copies)
    assert not any(crosses(seams, *piece) for piece in zip(pieces[0].tolist(), pieces[2].tolist(), strict=True))
    assert all(nbytes > 0 for nbytes in pieces[2].tolist())
    assert {column.dtype for column in pieces} == {np.dtype(np.uint64)}


@given(copies=copies(), seams=seam_lists)
@settings(max_examples=200, deadline=None)
def test_no_copy_is_split_without_need(copies, seams):
    cuts = sum(
        source < seam < source + length
        for source, length in zip(copies[0].tolist(), copies[2].tolist(), strict=True)
        for seam in seams.tolist()
    )
    assert len(split_at(seams, *copies)[0]) == len(copies[0]) + cuts


def test_a_copy_that_ends_or_begins_at_a_seam_stays_whole():
    columns = [np.array(column, np.uint64) for column in ([100, 200], [0, 100], [100, 50])]
    pieces = split_at(np.array([100, 200, 250], np.uint64), *columns)
    assert all(piece is column for piece, column in zip(pieces, columns, strict=True))


@given(case=extents(), seams=seam_lists.map(lambda seams: seams * 12000))
@settings(max_examples=200, deadline=None)
def test_rows_across_a_seam_are_those_whose_copies_would_be_split(case, seams):
    rows, addresses = case
    expected = [crosses(seams, address, rows.row_nbytes) for address in addresses]
    assert _across(rows.addresses(np.arange(rows.rows)), rows.row_nbytes, seams).tolist() == expected


@pytest.mark.parametrize("gap", [0, 24])
@pytest.mark.parametrize("seams", [NO_SEAMS, np.array([3, 50, 51, 130, 131], np.uint64)])
@pytest.mark.parametrize("rows", [slice(0, 12), slice(3, 10), slice(11, 12)])
def test_a_run_of_rows_arrives_at_its_places(mover, gap, seams, rows):
    source = np.random.default_rng(0).integers(0, 256, (12, 20)).astype(np.uint8)
    target = np.zeros((3, 4 * 20 + gap), np.uint8)
    place = Place(target.ctypes.data, 4, 80 + gap, 20)
    mover.upload_run(None, over(source), rows, place, seams + np.uint64(source.ctypes.data))
    arrived = target[:, :80].reshape(12, 20)
    count = rows.stop - rows.start
    assert np.array_equal(arrived[:count], source[rows])
    assert not arrived[count:].any()
    assert not target[:, 80:].any()


def test_a_run_of_rows_that_lie_side_by_side_is_one_copy(mover):
    source, target = np.arange(24, dtype=np.int64).reshape(12, 2), np.zeros((12, 2), np.int64)
    mover.upload_run(None, over(source), slice(2, 9), Place(target.ctypes.data, 4, 64, 16), NO_SEAMS)
    assert mover._copies.copied == [(target.ctypes.data, source.ctypes.data + 32, 7 * 16)]


def test_a_run_that_crosses_from_one_file_into_the_next_is_one_copy_for_each(mover):
    parts = [np.full((3, 2), 1.0), np.full((5, 2), 2.0)]
    table = [[0, parts[0].ctypes.data, 16], [3, parts[1].ctypes.data - 3 * 16, 16]]
    rows, target = Extents.of(np.array(table, np.int64), row_nbytes=16, rows=8), np.zeros((8, 2))
    mover.upload_run(None, rows, slice(1, 7), Place(target.ctypes.data, 8, 128, 16), NO_SEAMS)
    assert np.array_equal(target[:6], np.concatenate(parts)[1:7])
    assert [nbytes for _, _, nbytes in mover._copies.copied] == [32, 64]


def test_chosen_rows_are_a_copy_each(mover):
    source, target = np.arange(20.0).reshape(10, 2), np.zeros((3, 2))
    chosen = np.array([7, 0, 8])
    place = Place(target.ctypes.data, 3, 48, 16)
    mover.upload_rows(None, over(source).addresses(chosen), place.addresses(np.arange(3)), np.full(3, 16, np.uint64))
    assert np.array_equal(target, source[chosen])
    assert len(mover._copies.copied) == 3
