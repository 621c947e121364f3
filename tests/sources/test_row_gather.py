"""The C gather equals NumPy, and refuses to read or write other memory."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import forebay as fb
from forebay.core.source import MemoryExtent
from forebay.core.spec import ArraySpec
from forebay.errors import SourceError
from forebay.sources import arrays, combined
from forebay.sources.arrays import make_gather, memory_extent, window_view
from forebay.sources.files import segmented
from forebay.sources.files.segmented import SegmentedColumn
from forebay.sources.row_gather import RowGather, load_library

ROW_SHAPES = st.sampled_from([(1,), (2,), (4,), (8,), (7,), (64,), (65,), (400,), (3000,), (9000,)])


@pytest.fixture(params=["compiled", "NumPy"])
def library(request, monkeypatch):
    """Gather rows with the C function, or with NumPy, as an installation without a compiler does."""
    if request.param == "NumPy":
        for module in (arrays, combined, segmented):
            monkeypatch.setattr(module, "load_library", lambda: None)
    return request.param


def gather_of(parts):
    firsts = np.cumsum([0, *map(len, parts)])[:-1].tolist()
    extents = [memory_extent(part, first=first) for part, first in zip(parts, firsts, strict=True)]
    return RowGather(extents, parts[0][:1].nbytes, parts)


def test_the_library_is_compiled():
    assert load_library() is not None


@given(st.data(), ROW_SHAPES, st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_rows_of_several_arrays_equal_those_of_numpy(data, shape, lengths):
    random = np.random.default_rng(0)
    parts = [random.integers(0, 256, (length, *shape), dtype=np.uint8) for length in lengths]
    rows = np.array(data.draw(st.lists(st.integers(0, sum(lengths) - 1), max_size=200)), np.intp)
    out = np.empty((len(rows), *shape), np.uint8)
    gather_of(parts)(rows, out)
    assert np.array_equal(out, np.concatenate(parts)[rows])


@given(st.integers(1, 50), st.integers(1, 7), st.integers(1, 9))
def test_overlapping_windows_equal_those_of_numpy(length, stride, width):
    series = np.random.default_rng(1).random((200, width), dtype=np.float32)
    windows = window_view(series, length, stride)
    rows = np.random.default_rng(2).integers(0, len(windows), 70)
    out = np.empty((70, length, width), np.float32)
    make_gather(windows)(rows, out)
    assert np.array_equal(out, windows[rows])


def test_rows_are_read_backwards_and_from_one_broadcast_row():
    array = np.arange(600, dtype=np.int64).reshape(50, 12)
    for view in (array[::-1], array[::3], np.broadcast_to(array[7], (50, 12))):
        rows, out = np.array([0, 16, 3, 3]), np.empty((4, 12), np.int64)
        gather_of([view])(rows, out)
        assert np.array_equal(out, view[rows])


@pytest.mark.parametrize("row", [-1, 50, 2**62])
def test_a_row_that_no_part_has_raises_an_error(row):
    with pytest.raises(IndexError, match=f"no row {row}"):
        gather_of([np.zeros((50, 100), np.uint8)])(np.array([3, row]), np.zeros((2, 100), np.uint8))


@pytest.mark.parametrize("out", [np.zeros((1, 100), np.uint8), np.zeros((2, 200), np.uint8)[:, ::2]])
def test_a_target_of_another_size_or_layout_raises_an_error(out):
    with pytest.raises(ValueError, match="do not fit"):
        gather_of([np.zeros((50, 100), np.uint8)])(np.array([3, 4]), out)


def test_a_gather_without_parts_has_no_rows():
    gather = RowGather([MemoryExtent(0, 0, 0, 8, writable=False, own_pages=False)], 8, [])
    gather(np.array([], np.intp), np.empty((0, 8), np.uint8))
    with pytest.raises(IndexError, match="no row 0"):
        gather(np.array([0]), np.empty((1, 8), np.uint8))


def test_a_gather_cannot_be_pickled_because_it_has_addresses():
    with pytest.raises(TypeError, match="Pickle the arrays"):
        pickle.dumps(gather_of([np.zeros((5, 100), np.uint8)]))


@pytest.mark.parametrize("rows", [5, 2**61, 2**62])
@pytest.mark.parametrize("offset", [0, 1, 39, 2**62, 2**63 - 8])
def test_a_segment_beyond_the_end_of_the_file_raises_an_error(rows, offset):
    with pytest.raises(SourceError, match="beyond its end"):
        SegmentedColumn(ArraySpec((8,), np.uint8), np.array([0, rows]), np.zeros(39, np.uint8), np.array([offset]))


def test_decreasing_boundaries_of_segments_raise_an_error():
    with pytest.raises(SourceError, match="beyond its end"):
        SegmentedColumn(ArraySpec((8,), np.uint8), np.array([0, 4, 2]), np.zeros(64, np.uint8), np.array([0, 32]))


@pytest.mark.parametrize("row", [2, 100, 784, 5000])
@pytest.mark.parametrize("view", ["plain", "strided", "windows"])
def test_pipelines_with_rows_of_any_length_can_be_pickled_and_copied(row, view):
    array = np.random.default_rng(6).integers(0, 256, (300, row), dtype=np.uint8)
    array = {"plain": array, "strided": array[::2], "windows": window_view(array, 3, 1)}[view]
    pipeline = fb.from_arrays(array).shuffle(seed=1).batch(260)
    for copied in (pickle.loads(pickle.dumps(pipeline)), copy.deepcopy(pipeline)):
        with pipeline.feed("numpy") as feed, copied.feed("numpy") as copied_feed:
            assert np.array_equal(next(iter(feed)), next(iter(copied_feed)))


def test_a_read_only_target_raises_an_error():
    out = np.zeros((2, 100), np.uint8)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="do not fit"):
        gather_of([np.zeros((50, 100), np.uint8)])(np.array([3, 4]), out)


def test_joined_slices_of_one_array_have_the_rows_of_the_array():
    array = np.random.default_rng(7).integers(0, 256, (90, 4), dtype=np.uint8)
    with fb.concat(*map(fb.from_arrays, np.array_split(array, 3))).shuffle(seed=2).batch(90).feed("numpy") as feed:
        (found,) = [batch.copy() for batch in feed]
    with fb.from_arrays(array).shuffle(seed=2).batch(90).feed("numpy") as feed:
        assert np.array_equal(found, next(iter(feed)))


@pytest.mark.parametrize("width", [2, 100, 5000])
@pytest.mark.parametrize("combine", ["concat", "interleave"])
def test_feeds_of_three_arrays_have_the_same_rows_with_and_without_the_library(library, combine, width):
    random = np.random.default_rng(3)
    parts = [random.integers(0, 256, (length, width), dtype=np.uint8) for length in (40, 25, 60)]
    pipelines = [fb.from_arrays(part) for part in parts]
    if combine == "concat":
        pipeline = fb.concat(*pipelines).shuffle(seed=5)
    else:
        pipeline = fb.interleave(*(part.shuffle(seed=5) for part in pipelines), weights=(2, 1, 3), stop="all", seed=5)
    with pipeline.batch(16).feed("numpy") as feed:
        found = np.concatenate([batch.copy() for batch in feed])
    rows = np.concatenate(parts)
    assert sorted(map(bytes, np.unique(found, axis=0))) == sorted(map(bytes, np.unique(rows, axis=0)))


def test_segments_have_the_same_rows_with_and_without_the_library(library):
    rows = np.random.default_rng(4).integers(0, 256, (30, 12), dtype=np.uint8)
    memory = np.concatenate(
        [np.zeros(5, np.uint8), rows[:11].reshape(-1), np.zeros(3, np.uint8), rows[11:].reshape(-1)]
    )
    column = SegmentedColumn(ArraySpec((12,), np.uint8), np.array([0, 11, 30]), memory, np.array([5, 5 + 132 + 3]))
    for wanted in (np.random.default_rng(5).integers(0, 30, 50), slice(4, 26)):
        out = np.empty((len(np.arange(30)[wanted]), 12), np.uint8)
        column.gather(wanted, out)
        assert np.array_equal(out, rows[wanted])
