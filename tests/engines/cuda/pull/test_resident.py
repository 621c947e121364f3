"""Resident rows: their extents during the upload, and the sample that notices changes."""

import ctypes
import threading
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.progress_line import ProgressLine
from forebay.core.source import MemoryExtent
from forebay.engines.cuda import row_mover
from forebay.engines.cuda.copy_plan import RowExtents
from forebay.engines.cuda.pull import resident
from forebay.engines.cuda.pull.resident import ChangeSample, ResidentRows
from forebay.engines.cuda.row_mover import RowMover
from forebay.sources.arrays import locate_extents

POINTER = 1 << 40


class HostCopies:
    """Runs copies at once, in memory of this process."""

    def upload(self, stream, targets, sources, lengths):
        for target, source, nbytes in zip(targets.tolist(), sources.tolist(), lengths.tolist(), strict=True):
            ctypes.memmove(target, source, nbytes)


class Engine:
    """An engine whose device memory is host memory."""

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


class AddressOnlyEngine(Engine):
    """An engine with an unused address as device memory."""

    def allocate(self, nbytes):
        return POINTER, None


@pytest.fixture
def mover(monkeypatch):
    monkeypatch.setattr(row_mover, "BatchCopy", HostCopies)
    return RowMover(SimpleNamespace(kernel=lambda name: None, capability=(8, 0)))


@st.composite
def tables(draw):
    """Draw extents of a leaf with arbitrary addresses and strides."""
    row_nbytes, lengths = draw(st.integers(1, 64)), draw(st.lists(st.integers(1, 6), min_size=1, max_size=6))
    firsts = np.cumsum([0, *lengths])
    lines = [(int(first), draw(st.integers(-(1 << 40), 1 << 40)), draw(st.integers(1, 100))) for first in firsts[:-1]]
    return RowExtents.from_table(np.array(lines, np.int64), row_nbytes=row_nbytes, rows=int(firsts[-1]))


def in_memory(arrays):
    """Return the extents of several arrays, and all their rows."""
    lines, first = [], 0
    for array in arrays:
        lines.append((first, array.ctypes.data - first * array.strides[0], array.strides[0]))
        first += len(array)
    return RowExtents.from_table(np.array(lines, np.int64), row_nbytes=array[0].nbytes, rows=first), np.concatenate(
        arrays
    )


def read(extents):
    """Return the bytes of all rows."""
    addresses = extents.addresses(np.arange(extents.rows)).tolist()
    return b"".join(ctypes.string_at(address, extents.row_nbytes) for address in addresses)


@given(host_extents=tables(), data=st.data())
def test_every_row_has_the_right_address(host_extents, data):
    rows = data.draw(st.integers(1, host_extents.rows))
    actual = ResidentRows(AddressOnlyEngine(), host_extents, rows=host_extents.rows)._extents_with_resident(rows)
    every = np.arange(host_extents.rows)
    expected = np.where(
        every < rows, POINTER + every * host_extents.row_nbytes, host_extents.addresses(every).view(np.int64)
    )
    assert actual.addresses(every).view(np.int64).tolist() == expected.tolist()


@given(host_extents=tables(), data=st.data())
def test_tables_stay_sorted_and_grow_by_a_line_at_most(host_extents, data):
    rows = data.draw(st.integers(1, host_extents.rows))
    actual = ResidentRows(AddressOnlyEngine(), host_extents, rows=host_extents.rows)._extents_with_resident(rows)
    assert (np.diff(actual.table[:, 0]) > 0).all()
    assert len(actual.table) <= len(host_extents.table) + 1
    assert (actual.rows, actual.row_nbytes, actual.on_device) == (
        host_extents.rows,
        host_extents.row_nbytes,
        rows == host_extents.rows,
    )


@given(host_extents=tables(), data=st.data())
def test_extents_are_16_byte_aligned_only_if_host_and_device_rows_are(host_extents, data):
    actual = ResidentRows(AddressOnlyEngine(), host_extents, rows=host_extents.rows)._extents_with_resident(
        data.draw(st.integers(1, host_extents.rows))
    )
    every = actual.addresses(np.arange(host_extents.rows))
    assert not actual.is_16_byte_aligned or (host_extents.row_nbytes % 16 == 0 and not (every % 16).any())


def test_the_current_table_is_not_changed():
    arrays = [np.arange(12).reshape(6, 2), np.arange(8).reshape(4, 2)]
    host_extents, _ = in_memory(arrays)
    before = host_extents.table.copy()
    ResidentRows(AddressOnlyEngine(), host_extents, rows=10)._extents_with_resident(3)
    assert np.array_equal(host_extents.table, before)


@pytest.mark.parametrize("step_rows", [1, 3, 100])
@pytest.mark.parametrize("kept", [4, 7, 15, 100])
def test_rows_can_be_read_after_every_step_of_an_upload(mover, monkeypatch, step_rows, kept):
    arrays = [np.random.default_rng(rows).random((rows, 3)) for rows in (5, 1, 9)]
    host_extents, expected = in_memory(arrays)
    monkeypatch.setattr(resident, "STEP_NBYTES", step_rows * host_extents.row_nbytes)
    engine, published = Engine(), []
    resident_rows = ResidentRows(engine, host_extents, rows=kept)
    resident_rows.upload(mover, np.empty(0, np.uint64), publish=published.append, is_stopped=lambda: False)
    assert [read(extents) for extents in published] == [expected.tobytes()] * len(published)
    assert len(published) == engine.waits == -(-min(kept, 15) // step_rows)
    assert published[-1].on_device == (kept >= 15)


def test_an_upload_in_another_thread_counts_its_rows(mover, monkeypatch):
    host_extents, _ = in_memory([np.ones((4, 256), np.float32)])
    monkeypatch.setattr(resident, "STEP_NBYTES", 1024)
    rows, lines = ResidentRows(Engine(), host_extents, rows=4), []

    def publish(extents):
        lines.append(ProgressLine._not_shown[-1].render(1.0, 80))

    arguments = {"publish": publish, "is_stopped": lambda: False}
    thread = threading.Thread(target=rows.upload, args=(mover, np.empty(0, np.uint64)), kwargs=arguments)
    thread.start()
    thread.join()
    shares = ["0%", "25%", "50%", "75%"]
    assert lines == [f"forebay: uploading 4.0 KiB to the GPU ({share}, 1 s)" for share in shares]
    assert ProgressLine._not_shown == []


def test_resident_rows_are_a_copy_and_the_others_are_not(mover):
    array = np.arange(40).reshape(10, 4)
    host_extents, before = in_memory([array])
    published = []
    resident_rows = ResidentRows(Engine(), host_extents, rows=6)
    resident_rows.upload(mover, np.empty(0, np.uint64), publish=published.append, is_stopped=lambda: False)
    array += 1000
    actual = np.frombuffer(read(published[-1]), array.dtype).reshape(10, 4)
    assert np.array_equal(actual[:6], before[:6])
    assert np.array_equal(actual[6:], array[6:])


def test_rows_across_a_boundary_of_page_locks_arrive_complete(mover):
    array = np.random.default_rng(0).random((8, 5))
    host_extents, expected = in_memory([array])
    boundaries = np.array([int(host_extents.table[0, 1]) + offset for offset in (0, 7, 100, 101, 320)], np.uint64)
    published = []
    resident_rows = ResidentRows(Engine(), host_extents, rows=8)
    resident_rows.upload(mover, boundaries, publish=published.append, is_stopped=lambda: False)
    assert read(published[-1]) == expected.tobytes()


def test_a_stopped_upload_ends_after_its_step(mover, monkeypatch):
    array = np.zeros((10, 4))
    host_extents, _ = in_memory([array])
    monkeypatch.setattr(resident, "STEP_NBYTES", 2 * host_extents.row_nbytes)
    answers, published = iter([False, False, True]), []
    ResidentRows(Engine(), host_extents, rows=10).upload(
        mover, np.empty(0, np.uint64), publish=published.append, is_stopped=lambda: next(answers)
    )
    assert [extents.table[1, 0] for extents in published] == [2, 4]


# The sample that notices changes


def sample_of(*arrays):
    extents = [located[0] for located in locate_extents(arrays)]
    return ChangeSample(extents, arrays[0][0].nbytes)


@st.composite
def bytes_anywhere(draw):
    """Draw a small array of bytes with any alignment."""
    offset, rows, row_nbytes = draw(st.integers(0, 15)), draw(st.integers(1, 40)), draw(st.integers(1, 12))
    room = np.random.default_rng(0).integers(0, 256, offset + rows * row_nbytes + 16).astype(np.uint8)
    return room[offset : offset + rows * row_nbytes].reshape(rows, row_nbytes)


@given(array=bytes_anywhere())
def test_an_unchanged_array_is_reported_as_unchanged(array):
    sample = sample_of(array)
    array[...] = array.copy()
    assert not sample.has_changed()


@given(array=bytes_anywhere())
def test_a_change_is_noticed_at_every_call(array):
    sample = sample_of(array)
    array += 1
    assert sample.has_changed()
    assert sample.has_changed()


@given(array=bytes_anywhere())
def test_an_array_that_was_changed_back_is_unchanged(array):
    sample = sample_of(array)
    array += 1
    array -= 1
    assert not sample.has_changed()


@given(nbytes=st.integers(1, 7), offset=st.integers(0, 7), place=st.integers(0, 6))
def test_every_byte_of_a_tiny_array_is_sampled(nbytes, offset, place):
    array = np.zeros(32, np.uint8)[offset : offset + nbytes]
    sample = sample_of(array)
    array[place % nbytes] += 1
    assert sample.has_changed()


def test_a_change_of_every_tenth_row_of_a_large_array_is_noticed():
    array = np.zeros((10_000, 64), np.float32)
    sample = sample_of(array)
    array[::10] += 1
    assert sample.has_changed()


def test_nan_values_are_not_a_change():
    array = np.full((100, 3), np.nan)
    sample = sample_of(array)
    assert not sample.has_changed()


@pytest.mark.parametrize("which", range(10))
def test_every_array_is_sampled(monkeypatch, which):
    monkeypatch.setattr(resident, "SAMPLE_NBYTES", 4)
    arrays = [np.zeros((3, 2), np.uint8) for _ in range(10)]
    sample = sample_of(*arrays)
    arrays[which] += 1
    assert sample.has_changed()


def test_read_only_arrays_are_not_sampled():
    array = np.zeros((3, 2))
    array.flags.writeable = False
    assert sample_of(array)._rows == []
    assert not sample_of(array).has_changed()


def test_no_byte_outside_the_array_is_sampled():
    room = np.zeros(64, np.uint8)
    start = -room.ctypes.data % 8 + 8
    sample = ChangeSample([MemoryExtent(0, 8, room.ctypes.data + start + 3, 3, writable=True, own_pages=False)], 3)
    room[: start + 3] += 1
    room[start + 3 + 24 :] += 1
    assert not sample.has_changed()


def test_a_changed_column_of_a_wide_table_is_noticed():
    column = np.zeros((100, 10_000))[:, 0]
    sample = sample_of(column)
    column += 1
    assert sample.has_changed()


def test_a_change_between_the_rows_of_an_array_is_ignored():
    table = np.zeros((100, 10))
    sample = sample_of(table[:, 0])
    table[:, 1:] += 1
    assert not sample.has_changed()
