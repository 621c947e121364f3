"""The ends of arrays: which rows may stay where they are, and where the others are found instead."""

import ctypes
import mmap
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from forebay.core.source import Extent
from forebay.engines.cuda.pull.page_edges import Edges, locked_span

PAGE = mmap.PAGESIZE
ROOM = 6 * PAGE


class PlainDevice:
    """Remembers what is locked, and locks nothing."""

    def __init__(self):
        self.locked = {}

    def lock(self, address, nbytes, *, read_only=False):
        self.locked[address] = nbytes

    def unlock(self, address):
        del self.locked[address]


@contextmanager
def room():
    """Pages full of numbers, none of which is like its neighbours, and where they begin."""
    memory = mmap.mmap(-1, ROOM)
    numbers = np.frombuffer(memory, np.uint8)
    numbers[:] = np.random.default_rng(0).integers(0, 256, ROOM)
    yield numbers, numbers.__array_interface__["data"][0]


@st.composite
def shapes(draw):
    """Offset, bytes of a row, stride and rows of an extent inside the room; rows may be apart or overlap."""
    row_nbytes = draw(st.integers(1, 2 * PAGE) | st.integers(1, 64))
    stride = draw(st.just(row_nbytes) | st.integers(1, 2 * PAGE) | st.integers(1, 64))
    offset = draw(st.integers(0, 2 * PAGE) | st.integers(0, 40) | st.sampled_from([PAGE - 1, PAGE, PAGE + 1]))
    assume(offset + row_nbytes <= ROOM)
    rows = draw(st.integers(1, min(400, (ROOM - offset - row_nbytes) // stride + 1)))
    return offset, row_nbytes, stride, rows


def extent(base, shape, *, first=0, own_pages=False):
    offset, _, stride, rows = shape
    return Extent(first, rows, base + offset, stride, writable=True, own_pages=own_pages)


def row_numbers(parts):
    return [row for part in parts for row in range(part.first, part.first + part.rows)]


def row_addresses(parts):
    return [part.address + number * part.stride for part in parts for number in range(part.rows)]


def row_bytes(parts, row_nbytes):
    return [ctypes.string_at(address, row_nbytes) for address in row_addresses(parts)]


def cut_and_placed(edges, extents, row_nbytes):
    return edges.place([part for whole in extents for part in edges.cut(whole, row_nbytes)])


@given(shape=shapes(), first=st.integers(0, 1000), own_pages=st.booleans())
@settings(max_examples=300, deadline=None)
def test_parts_cover_every_row_once_and_in_order(shape, first, own_pages):
    with room() as (_, base):
        whole = extent(base, shape, first=first, own_pages=own_pages)
        parts = Edges(PlainDevice()).cut(whole, shape[1])
    assert row_numbers(parts) == list(range(first, first + whole.rows))
    assert len(parts) <= 3
    assert {(part.stride, part.writable, part.own_pages) for part in parts} == {(whole.stride, True, own_pages)}


@given(shape=shapes())
@settings(max_examples=300, deadline=None)
def test_rows_stay_in_place_exactly_where_they_lie_on_whole_pages(shape):
    with room() as (_, base):
        whole = extent(base, shape)
        parts = Edges(PlainDevice()).cut(whole, shape[1])
        start, stop = locked_span(whole, shape[1])
    inside = [start <= address and address + shape[1] <= stop for address in row_addresses([whole])]
    assert [part.address >= 0 for part in parts for _ in range(part.rows)] == inside
    assert start % PAGE == stop % PAGE == 0


@given(shape=shapes())
@settings(max_examples=300, deadline=None)
def test_rows_are_found_with_the_same_bytes_and_as_well_aligned_as_before(shape):
    device = PlainDevice()
    with room() as (_, base):
        whole, edges = extent(base, shape), Edges(device)
        parts = cut_and_placed(edges, [whole], shape[1])
        assert row_bytes(parts, shape[1]) == row_bytes([whole], shape[1])
        assert [found % 16 for found in row_addresses(parts)] == [found % 16 for found in row_addresses([whole])]
        edges.close()
    assert device.locked == {}


@given(several=st.lists(shapes(), min_size=2, max_size=4))
@settings(max_examples=100, deadline=None)
def test_ends_of_several_extents_do_not_get_into_each_others_way(several):
    with room() as (_, base):
        edges, extents = Edges(PlainDevice()), [extent(base, shape) for shape in several]
        cut = [edges.cut(whole, shape[1]) for whole, shape in zip(extents, several, strict=True)]
        placed = [edges.place(parts) for parts in cut]
        found = [row_bytes(parts, shape[1]) for parts, shape in zip(placed, several, strict=True)]
        assert found == [row_bytes([whole], shape[1]) for whole, shape in zip(extents, several, strict=True)]


@given(shape=shapes())
@settings(max_examples=100, deadline=None)
def test_what_the_user_changes_is_seen_after_a_refresh(shape):
    with room() as (numbers, base):
        whole, edges = extent(base, shape), Edges(PlainDevice())
        parts = cut_and_placed(edges, [whole], shape[1])
        numbers += 1
        edges.refresh()
        assert row_bytes(parts, shape[1]) == row_bytes([whole], shape[1])


@given(shape=shapes())
@settings(max_examples=200, deadline=None)
def test_every_row_lies_in_locked_memory_in_the_end(shape):
    device = PlainDevice()
    with room() as (_, base):
        whole = extent(base, shape)
        start, stop = locked_span(whole, shape[1])
        edges = Edges(device)
        parts = cut_and_placed(edges, [whole], shape[1])
    spans = [(start, stop), *((address, address + nbytes) for address, nbytes in device.locked.items())]
    rows = [(address, address + shape[1]) for address in row_addresses(parts)]
    assert all(any(low <= begin and end <= high for low, high in spans) for begin, end in rows)


@given(shape=shapes())
@settings(max_examples=100, deadline=None)
def test_extents_with_pages_of_their_own_are_not_cut(shape):
    device = PlainDevice()
    with room() as (_, base):
        whole, edges = extent(base, shape, own_pages=True), Edges(device)
        start, stop = locked_span(whole, shape[1])
        assert cut_and_placed(edges, [whole], shape[1]) == [whole]
    assert start <= whole.address
    assert whole.address + (whole.rows - 1) * whole.stride + shape[1] <= stop
    assert stop - start < (whole.rows - 1) * whole.stride + shape[1] + 2 * PAGE
    assert device.locked == {}


def test_an_array_smaller_than_a_page_is_copied_as_a_whole():
    device = PlainDevice()
    with room() as (_, base):
        edges = Edges(device)
        parts = cut_and_placed(edges, [extent(base, (100, 8, 8, 20))], 8)
    assert not any(base <= address < base + ROOM for address in row_addresses(parts))
    assert list(device.locked.values()) == [PAGE]


def test_copies_that_nobody_closes_are_unlocked_when_they_go():
    device = PlainDevice()
    with room() as (_, base):
        edges = Edges(device)
        cut_and_placed(edges, [extent(base, (100, 8, 8, 20))], 8)
        assert len(device.locked) == 1
        del edges
    assert device.locked == {}


def test_an_array_that_begins_and_ends_with_a_page_stays_as_it_is():
    device = PlainDevice()
    with room() as (_, base):
        whole, edges = extent(base, (PAGE, 64, 64, 2 * PAGE // 64)), Edges(device)
        assert cut_and_placed(edges, [whole], 64) == [whole]
        edges.refresh()
        edges.close()
    assert device.locked == {}


def test_only_the_rows_at_the_ends_are_copied():
    with room() as (_, base):
        parts = Edges(PlainDevice()).cut(extent(base, (PAGE - 32, 64, 64, 2 * PAGE // 64 + 1)), 64)
    assert [part.rows for part in parts] == [1, 2 * PAGE // 64 - 1, 1]


@pytest.mark.parametrize("own_pages", [False, True])
def test_a_lone_row_is_found_too(own_pages):
    with room() as (_, base):
        whole, edges = extent(base, (5, 3, 1, 1), own_pages=own_pages), Edges(PlainDevice())
        assert row_bytes(cut_and_placed(edges, [whole], 3), 3) == row_bytes([whole], 3)
