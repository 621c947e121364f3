"""Edges of arrays: which rows are copied, and where the device reads them."""

import ctypes
import mmap
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from forebay.core.source import MemoryExtent
from forebay.engines.cuda.pull.page_edges import UnlockableEdges, locked_span

PAGE = mmap.PAGESIZE
ROOM = 6 * PAGE


class RecordingDevice:
    """A device that only records page-locks."""

    def __init__(self):
        self.locked = {}

    def page_lock(self, address, nbytes, *, read_only=False):
        self.locked[address] = nbytes

    def page_unlock(self, address):
        del self.locked[address]


@contextmanager
def random_memory():
    """Yield random bytes over several pages, and their address."""
    memory = mmap.mmap(-1, ROOM)
    numbers = np.frombuffer(memory, np.uint8)
    numbers[:] = np.random.default_rng(0).integers(0, 256, ROOM)
    yield numbers, numbers.__array_interface__["data"][0]


@st.composite
def shapes(draw):
    """Draw offset, row size, stride and number of rows of an extent. Rows may have gaps or overlap."""
    row_nbytes = draw(st.integers(1, 2 * PAGE) | st.integers(1, 64))
    stride = draw(st.just(row_nbytes) | st.integers(1, 2 * PAGE) | st.integers(1, 64))
    offset = draw(st.integers(0, 2 * PAGE) | st.integers(0, 40) | st.sampled_from([PAGE - 1, PAGE, PAGE + 1]))
    assume(offset + row_nbytes <= ROOM)
    rows = draw(st.integers(1, min(400, (ROOM - offset - row_nbytes) // stride + 1)))
    return offset, row_nbytes, stride, rows


def extent(base, shape, *, first=0, own_pages=False):
    offset, _, stride, rows = shape
    return MemoryExtent(first, rows, base + offset, stride, writable=True, own_pages=own_pages)


def row_numbers(parts):
    return [row for part in parts for row in range(part.first, part.first + part.rows)]


def row_addresses(parts):
    return [part.address + number * part.stride for part in parts for number in range(part.rows)]


def row_bytes(parts, row_nbytes):
    return [ctypes.string_at(address, row_nbytes) for address in row_addresses(parts)]


def split_and_locate(edges, extents, row_nbytes):
    return edges.locate([part for whole in extents for part in edges.split(whole, row_nbytes)])


@given(shape=shapes(), first=st.integers(0, 1000), own_pages=st.booleans())
def test_parts_cover_every_row_once_and_in_order(shape, first, own_pages):
    with random_memory() as (_, base):
        whole = extent(base, shape, first=first, own_pages=own_pages)
        parts = UnlockableEdges(RecordingDevice()).split(whole, shape[1])
    extents = [part.extent for part in parts]
    assert row_numbers(extents) == list(range(first, first + whole.rows))
    assert len(parts) <= 3
    assert {(part.stride, part.writable, part.own_pages) for part in extents} == {(whole.stride, True, own_pages)}


@given(shape=shapes())
def test_only_rows_outside_whole_pages_are_copied(shape):
    with random_memory() as (_, base):
        whole = extent(base, shape)
        parts = UnlockableEdges(RecordingDevice()).split(whole, shape[1])
        start, stop = locked_span(whole, shape[1])
    inside = [start <= address and address + shape[1] <= stop for address in row_addresses([whole])]
    assert [part.copy_offset is None for part in parts for _ in range(part.extent.rows)] == inside
    assert start % PAGE == stop % PAGE == 0


@given(shape=shapes())
def test_located_rows_have_the_same_bytes_and_alignment(shape):
    device = RecordingDevice()
    with random_memory() as (_, base):
        whole, edges = extent(base, shape), UnlockableEdges(device)
        parts = split_and_locate(edges, [whole], shape[1])
        assert row_bytes(parts, shape[1]) == row_bytes([whole], shape[1])
        assert [address % 16 for address in row_addresses(parts)] == [
            address % 16 for address in row_addresses([whole])
        ]
        edges.close()
    assert device.locked == {}


@given(several=st.lists(shapes(), min_size=2, max_size=4))
def test_edges_of_several_extents_do_not_overlap(several):
    with random_memory() as (_, base):
        edges, extents = UnlockableEdges(RecordingDevice()), [extent(base, shape) for shape in several]
        parts_by_extent = [edges.split(whole, shape[1]) for whole, shape in zip(extents, several, strict=True)]
        located = [edges.locate(parts) for parts in parts_by_extent]
        actual = [row_bytes(parts, shape[1]) for parts, shape in zip(located, several, strict=True)]
        assert actual == [row_bytes([whole], shape[1]) for whole, shape in zip(extents, several, strict=True)]


@given(shape=shapes())
def test_a_refresh_copies_changes_of_the_user(shape):
    with random_memory() as (numbers, base):
        whole, edges = extent(base, shape), UnlockableEdges(RecordingDevice())
        parts = split_and_locate(edges, [whole], shape[1])
        numbers += 1
        edges.refresh()
        assert row_bytes(parts, shape[1]) == row_bytes([whole], shape[1])


@given(shape=shapes())
def test_every_located_row_is_in_locked_memory(shape):
    device = RecordingDevice()
    with random_memory() as (_, base):
        whole = extent(base, shape)
        start, stop = locked_span(whole, shape[1])
        edges = UnlockableEdges(device)
        parts = split_and_locate(edges, [whole], shape[1])
    spans = [(start, stop), *((address, address + nbytes) for address, nbytes in device.locked.items())]
    rows = [(address, address + shape[1]) for address in row_addresses(parts)]
    assert all(any(low <= begin and end <= high for low, high in spans) for begin, end in rows)


@given(shape=shapes())
def test_extents_with_own_pages_are_not_split(shape):
    device = RecordingDevice()
    with random_memory() as (_, base):
        whole, edges = extent(base, shape, own_pages=True), UnlockableEdges(device)
        start, stop = locked_span(whole, shape[1])
        assert split_and_locate(edges, [whole], shape[1]) == [whole]
    assert start <= whole.address
    assert whole.address + (whole.rows - 1) * whole.stride + shape[1] <= stop
    assert stop - start < (whole.rows - 1) * whole.stride + shape[1] + 2 * PAGE
    assert device.locked == {}


def test_an_array_smaller_than_a_page_is_copied_as_a_whole():
    device = RecordingDevice()
    with random_memory() as (_, base):
        edges = UnlockableEdges(device)
        parts = split_and_locate(edges, [extent(base, (100, 8, 8, 20))], 8)
    assert not any(base <= address < base + ROOM for address in row_addresses(parts))
    assert list(device.locked.values()) == [PAGE]


def test_garbage_collected_edges_are_unlocked():
    device = RecordingDevice()
    with random_memory() as (_, base):
        edges = UnlockableEdges(device)
        split_and_locate(edges, [extent(base, (100, 8, 8, 20))], 8)
        assert len(device.locked) == 1
        del edges
    assert device.locked == {}


def test_a_page_aligned_array_is_not_split():
    device = RecordingDevice()
    with random_memory() as (_, base):
        whole, edges = extent(base, (PAGE, 64, 64, 2 * PAGE // 64)), UnlockableEdges(device)
        assert split_and_locate(edges, [whole], 64) == [whole]
        edges.refresh()
        edges.close()
    assert device.locked == {}


def test_only_rows_at_the_edges_are_copied():
    with random_memory() as (_, base):
        parts = UnlockableEdges(RecordingDevice()).split(extent(base, (PAGE - 32, 64, 64, 2 * PAGE // 64 + 1)), 64)
    assert [part.extent.rows for part in parts] == [1, 2 * PAGE // 64 - 1, 1]


@pytest.mark.parametrize("own_pages", [False, True])
def test_a_single_row_is_located(own_pages):
    with random_memory() as (_, base):
        whole, edges = extent(base, (5, 3, 1, 1), own_pages=own_pages), UnlockableEdges(RecordingDevice())
        assert row_bytes(split_and_locate(edges, [whole], 3), 3) == row_bytes([whole], 3)
