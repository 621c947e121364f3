"""Which ranges are read: all rows lie in them, and no block is read for a row that costs less alone."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from forebay.sources.objects.range_planner import BLOCK_NBYTES, Column, Grid
from forebay.sources.objects.stored_object import StoredObject

ROW_NBYTES = 4096
BLOCK_ROWS = BLOCK_NBYTES // ROW_NBYTES
NONE = np.empty(0, np.intp)


def grid_of(rows, row_nbytes=ROW_NBYTES):
    column = Column((0,), np.dtype((np.uint8, (row_nbytes,))), (128,) * len(rows))
    objects = [StoredObject(f"s3://b/{n}", f"b/{n}", 128 + count * row_nbytes, "1") for n, count in enumerate(rows)]
    return Grid(column, objects, rows)


@given(
    rows=st.lists(st.integers(0, 5 * BLOCK_ROWS), min_size=1, max_size=5).filter(any),
    seed=st.integers(0, 2**32),
    count=st.integers(1, 200),
    limit=st.sampled_from([0, BLOCK_NBYTES, 1 << 40]),
)
def test_every_row_lies_whole_in_a_range_of_its_object(rows, seed, count, limit):
    grid = grid_of(rows)
    asked = np.unique(np.random.default_rng(seed).integers(0, sum(rows), count))
    cut = grid.cut(asked, grid.dense(asked, limit_nbytes=limit), limit_nbytes=limit)
    assert cut.covers(asked)
    starts = np.cumsum([0, *rows])
    places = np.searchsorted(cut.firsts, asked, side="right") - 1
    for row, place in zip(asked, places, strict=True):
        piece, number = cut.pieces[place], int(np.searchsorted(starts, row, side="right")) - 1
        at = piece.start + cut.offsets[place] + (row - cut.firsts[place]) * ROW_NBYTES
        assert (piece.number, at) == (number, 128 + (row - starts[number]) * ROW_NBYTES)
        assert at + ROW_NBYTES <= piece.stop


@given(
    rows=st.lists(st.integers(0, 3 * BLOCK_ROWS), min_size=1, max_size=4).filter(any),
    ends=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_a_run_is_read_in_blocks_that_follow_each_other(rows, ends):
    first, last = sorted(int(end * (sum(rows) - 1)) for end in ends)
    cut = grid_of(rows).cut_run(first, last + 1)
    assert cut.firsts[0] <= first
    assert cut.stops[-1] > last
    assert (cut.firsts[1:] == cut.stops[:-1]).all()


def test_a_few_rows_of_a_large_block_are_read_alone():
    grid = grid_of([10 * BLOCK_ROWS])
    asked = np.asarray([5, 5 * BLOCK_ROWS, 9 * BLOCK_ROWS])
    assert grid.dense(asked, limit_nbytes=1 << 40).size == 0
    assert [piece.nbytes for piece in grid.cut(asked, NONE, limit_nbytes=1 << 40).pieces] == [ROW_NBYTES] * 3


def test_rows_close_to_each_other_are_read_in_one_run():
    cut = grid_of([10 * BLOCK_ROWS]).cut(np.asarray([5, 105, 205]), NONE, limit_nbytes=1 << 40)
    assert [piece.nbytes for piece in cut.pieces] == [201 * ROW_NBYTES]


def test_blocks_that_a_window_uses_in_part_are_read_whole_where_they_can_be_held():
    grid, order = grid_of([10 * BLOCK_ROWS]), np.random.default_rng(0).permutation(BLOCK_ROWS)
    halves = [block * BLOCK_ROWS + order[: BLOCK_ROWS // 2] for block in (0, 1, 8, 9)]  # as at the seams of a shuffle
    window = np.sort(np.concatenate([*halves, np.arange(2 * BLOCK_ROWS, 8 * BLOCK_ROWS)]))
    assert grid.dense(window, limit_nbytes=8 * BLOCK_NBYTES).tolist() == list(range(10))


def test_blocks_that_cannot_be_held_are_read_whole_only_for_most_of_their_rows():
    grid = grid_of([10 * BLOCK_ROWS])
    window = np.concatenate([np.arange(BLOCK_ROWS), np.arange(BLOCK_ROWS, 10 * BLOCK_ROWS, 100)])
    assert grid.dense(window, limit_nbytes=BLOCK_NBYTES).tolist() == [0]


def test_gaps_between_rows_are_read_only_within_the_limit():
    scattered = np.arange(0, 10 * BLOCK_ROWS, 100)
    cut = grid_of([10 * BLOCK_ROWS]).cut(scattered, NONE, limit_nbytes=1 << 20)
    assert sum(piece.nbytes for piece in cut.pieces) <= len(scattered) * ROW_NBYTES + (1 << 20)


def test_a_block_is_read_whole_where_that_costs_less():
    grid = grid_of([10 * BLOCK_ROWS])
    assert grid.dense(np.arange(0, BLOCK_ROWS, 50), limit_nbytes=1 << 40).tolist() == [0]


def test_a_block_that_is_needed_here_and_there_is_read_whole_only_where_it_may_be_held():
    grid = grid_of([10 * BLOCK_ROWS])
    here_and_there = np.arange(0, BLOCK_ROWS, 300)
    assert grid.dense(here_and_there, limit_nbytes=BLOCK_NBYTES).tolist() == [0]
    assert grid.dense(here_and_there, limit_nbytes=0).size == 0


def test_small_objects_are_read_whole_for_their_checksum():
    (piece,) = grid_of([20]).cut_run(3, 4).pieces
    assert (piece.start, piece.nbytes) == (0, 128 + 20 * ROW_NBYTES)


def test_objects_of_equal_length_are_whole_blocks():
    rows = 3 * BLOCK_ROWS + 1000
    assert rows % grid_of([rows] * 3).block_rows == 0
