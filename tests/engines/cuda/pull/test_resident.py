"""Rows kept on a device: where each is read from while they are being uploaded, and whether the array has changed."""

import ctypes
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.core.source import Extent
from forebay.engines.cuda import row_mover
from forebay.engines.cuda.copy_plan import Extents
from forebay.engines.cuda.pull import resident
from forebay.engines.cuda.pull.resident import Kept, Sample
from forebay.engines.cuda.row_mover import Mover
from forebay.sources.arrays import extents_of

POINTER = 1 << 40


class Memmoves:
    """Copies at once, in this process's own memory."""

    def upload(self, stream, targets, sources, lengths):
        for target, source, nbytes in zip(targets.tolist(), sources.tolist(), lengths.tolist(), strict=True):
            ctypes.memmove(target, source, nbytes)


class Engine:
    """Its device memory is the host's."""

    device = nullcontext()

    def __init__(self):
        self.waits = 0

    def allocate(self, nbytes):
        owner = np.zeros(nbytes, np.uint8)
        return owner.ctypes.data, owner

    def upload_stream(self):
        return SimpleNamespace(wait=self._wait)

    def _wait(self):
        self.waits += 1


class FarAway(Engine):
    """One whose memory is nowhere: only addresses are looked at."""

    def allocate(self, nbytes):
        return POINTER, None


@pytest.fixture
def mover(monkeypatch):
    monkeypatch.setattr(row_mover, "BatchCopy", Memmoves)
    return Mover(SimpleNamespace(kernel=lambda name: None, capability=(8, 0)))


@st.composite
def tables(draw):
    """Where the rows of a leaf lie: in one extent or several, at any addresses and strides."""
    row_nbytes, lengths = draw(st.integers(1, 64)), draw(st.lists(st.integers(1, 6), min_size=1, max_size=6))
    firsts = np.cumsum([0, *lengths])
    lines = [(int(first), draw(st.integers(-(1 << 40), 1 << 40)), draw(st.integers(1, 100))) for first in firsts[:-1]]
    return Extents.of(np.array(lines, np.int64), row_nbytes=row_nbytes, rows=int(firsts[-1]))


def in_memory(arrays):
    """Extents over real arrays, one after the other, and all their rows."""
    found, first = [], 0
    for array in arrays:
        found.append((first, array.ctypes.data - first * array.strides[0], array.strides[0]))
        first += len(array)
    return Extents.of(np.array(found, np.int64), row_nbytes=array[0].nbytes, rows=first), np.concatenate(arrays)


def read(extents):
    """The bytes of all rows, from wherever they are read now."""
    addresses = extents.addresses(np.arange(extents.rows)).tolist()
    return b"".join(ctypes.string_at(address, extents.row_nbytes) for address in addresses)


@given(far=tables(), data=st.data())
@settings(max_examples=300, deadline=None)
def test_every_row_is_read_from_the_right_place(far, data):
    rows = data.draw(st.integers(1, far.rows))
    found = Kept(FarAway(), far, rows=far.rows)._with_near(rows)
    every = np.arange(far.rows)
    expected = np.where(every < rows, POINTER + every * far.row_nbytes, far.addresses(every).view(np.int64))
    assert found.addresses(every).view(np.int64).tolist() == expected.tolist()


@given(far=tables(), data=st.data())
@settings(max_examples=200, deadline=None)
def test_tables_stay_sorted_and_grow_by_a_line_at_most(far, data):
    rows = data.draw(st.integers(1, far.rows))
    found = Kept(FarAway(), far, rows=far.rows)._with_near(rows)
    assert (np.diff(found.table[:, 0]) > 0).all()
    assert len(found.table) <= len(far.table) + 1
    assert (found.rows, found.row_nbytes, found.near) == (far.rows, far.row_nbytes, rows == far.rows)


@given(far=tables(), data=st.data())
@settings(max_examples=200, deadline=None)
def test_rows_are_read_wide_only_where_both_places_allow_it(far, data):
    found = Kept(FarAway(), far, rows=far.rows)._with_near(data.draw(st.integers(1, far.rows)))
    every = found.addresses(np.arange(far.rows))
    assert not found.wide or (far.row_nbytes % 16 == 0 and not (every % 16).any())


def test_the_table_that_rows_are_read_from_now_is_left_as_it_is():
    arrays = [np.arange(12).reshape(6, 2), np.arange(8).reshape(4, 2)]
    far, _ = in_memory(arrays)
    before = far.table.copy()
    Kept(FarAway(), far, rows=10)._with_near(3)
    assert np.array_equal(far.table, before)


@pytest.mark.parametrize("step_rows", [1, 3, 100])
@pytest.mark.parametrize("kept", [4, 7, 15, 100])
def test_rows_can_be_read_after_every_step_of_an_upload(mover, monkeypatch, step_rows, kept):
    arrays = [np.random.default_rng(rows).random((rows, 3)) for rows in (5, 1, 9)]
    far, expected = in_memory(arrays)
    monkeypatch.setattr(resident, "STEP_NBYTES", step_rows * far.row_nbytes)
    engine, shown = Engine(), []
    keeping = Kept(engine, far, rows=kept)
    keeping.upload(mover, np.empty(0, np.uint64), show=shown.append, stopped=lambda: False)
    assert [read(extents) for extents in shown] == [expected.tobytes()] * len(shown)
    assert len(shown) == engine.waits == -(-min(kept, 15) // step_rows)
    assert shown[-1].near == (kept >= 15)


def test_what_is_kept_is_a_copy_and_the_rest_is_not(mover):
    array = np.arange(40).reshape(10, 4)
    far, before = in_memory([array])
    shown = []
    keeping = Kept(Engine(), far, rows=6)
    keeping.upload(mover, np.empty(0, np.uint64), show=shown.append, stopped=lambda: False)
    array += 1000
    found = np.frombuffer(read(shown[-1]), array.dtype).reshape(10, 4)
    assert np.array_equal(found[:6], before[:6])
    assert np.array_equal(found[6:], array[6:])


def test_rows_across_a_seam_of_the_page_locks_arrive_whole(mover):
    array = np.random.default_rng(0).random((8, 5))
    far, expected = in_memory([array])
    seams = np.array([int(far.table[0, 1]) + offset for offset in (0, 7, 100, 101, 320)], np.uint64)
    shown = []
    keeping = Kept(Engine(), far, rows=8)
    keeping.upload(mover, seams, show=shown.append, stopped=lambda: False)
    assert read(shown[-1]) == expected.tobytes()


def test_a_feed_that_is_closed_uploads_no_further(mover, monkeypatch):
    array = np.zeros((10, 4))
    far, _ = in_memory([array])
    monkeypatch.setattr(resident, "STEP_NBYTES", 2 * far.row_nbytes)
    answers, shown = iter([False, False, True]), []
    Kept(Engine(), far, rows=10).upload(mover, np.empty(0, np.uint64), show=shown.append, stopped=lambda: next(answers))
    assert [extents.table[1, 0] for extents in shown] == [2, 4]


# Whether an array has changed


def sample_of(*arrays):
    extents = [found[0] for found in extents_of(arrays)]
    return Sample(extents, arrays[0][0].nbytes)


@st.composite
def bytes_anywhere(draw):
    """An array of some bytes at any distance from a whole word, tiny ones too."""
    offset, rows, row_nbytes = draw(st.integers(0, 15)), draw(st.integers(1, 40)), draw(st.integers(1, 12))
    room = np.random.default_rng(0).integers(0, 256, offset + rows * row_nbytes + 16).astype(np.uint8)
    return room[offset : offset + rows * row_nbytes].reshape(rows, row_nbytes)


@given(array=bytes_anywhere())
@settings(max_examples=200, deadline=None)
def test_an_array_that_was_not_changed_is_not_taken_for_changed(array):
    sample = sample_of(array)
    array[...] = array.copy()
    assert not sample.changed()


@given(array=bytes_anywhere())
@settings(max_examples=200, deadline=None)
def test_an_array_that_was_changed_is_seen_and_stays_seen(array):
    sample = sample_of(array)
    array += 1
    assert sample.changed()
    assert sample.changed()


@given(array=bytes_anywhere())
@settings(max_examples=200, deadline=None)
def test_an_array_that_was_changed_back_is_as_it_was(array):
    sample = sample_of(array)
    array += 1
    array -= 1
    assert not sample.changed()


@given(nbytes=st.integers(1, 7), offset=st.integers(0, 7), place=st.integers(0, 6))
@settings(max_examples=100, deadline=None)
def test_in_an_array_smaller_than_a_word_every_byte_counts(nbytes, offset, place):
    array = np.zeros(32, np.uint8)[offset : offset + nbytes]
    sample = sample_of(array)
    array[place % nbytes] += 1
    assert sample.changed()


def test_a_change_of_one_row_in_ten_of_a_large_array_is_seen():
    array = np.zeros((10_000, 64), np.float32)
    sample = sample_of(array)
    array[::10] += 1
    assert sample.changed()


def test_numbers_that_are_not_equal_to_themselves_have_not_changed():
    array = np.full((100, 3), np.nan)
    sample = sample_of(array)
    assert not sample.changed()


@pytest.mark.parametrize("which", range(10))
def test_every_array_is_looked_at_however_many_there_are(monkeypatch, which):
    monkeypatch.setattr(resident, "SAMPLED", 4)
    arrays = [np.zeros((3, 2), np.uint8) for _ in range(10)]
    sample = sample_of(*arrays)
    arrays[which] += 1
    assert sample.changed()


def test_arrays_that_cannot_be_written_to_are_not_looked_at():
    array = np.zeros((3, 2))
    array.flags.writeable = False
    assert sample_of(array)._rows == []
    assert not sample_of(array).changed()


def test_nothing_beyond_the_array_is_looked_at():
    room = np.zeros(64, np.uint8)
    start = -room.ctypes.data % 8 + 8
    sample = Sample([Extent(0, 8, room.ctypes.data + start + 3, 3, writable=True, own_pages=False)], 3)
    room[: start + 3] += 1
    room[start + 3 + 24 :] += 1
    assert not sample.changed()


def test_a_column_of_a_wide_table_that_was_changed_as_a_whole_is_seen():
    column = np.zeros((100, 10_000))[:, 0]
    sample = sample_of(column)
    column += 1
    assert sample.changed()


def test_a_change_between_the_rows_of_an_array_is_none_of_it():
    table = np.zeros((100, 10))
    sample = sample_of(table[:, 0])
    table[:, 1:] += 1
    assert not sample.changed()
