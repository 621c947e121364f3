"""Planned ranges contain all rows. A block is read whole only if that costs less than its rows alone."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from forebay.sources.objects.range_planner import BLOCK_NBYTES, RangePlanner, RecordColumn
from forebay.sources.objects.stored_object import StoredObject

ROW_NBYTES = 4096
BLOCK_ROWS = BLOCK_NBYTES // ROW_NBYTES
NO_BLOCKS = np.empty(0, np.intp)


def planner_of(rows, row_nbytes=ROW_NBYTES):
    column = RecordColumn((0,), np.dtype((np.uint8, (row_nbytes,))), (128,) * len(rows))
    objects = [StoredObject(f"s3://b/{n}", f"b/{n}", 128 + count * row_nbytes, "1") for n, count in enumerate(rows)]
    return RangePlanner(column, objects, rows)


@given(
    rows=st.lists(st.integers(0, 5 * BLOCK_ROWS), min_size=1, max_size=5).filter(any),
    seed=st.integers(0, 2**32),
    count=st.integers(1, 200),
    limit=st.sampled_from([0, BLOCK_NBYTES, 1 << 40]),
)
def test_every_row_is_inside_a_range_of_its_object(rows, seed, count, limit):
    planner = planner_of(rows)
    rows_needed = np.unique(np.random.default_rng(seed).integers(0, sum(rows), count))
    planned = planner.ranges_for_rows(
        rows_needed, planner.blocks_to_read_whole(rows_needed, limit_nbytes=limit), limit_nbytes=limit
    )
    assert planned.covers(rows_needed)
    starts = np.cumsum([0, *rows])
    owners = np.searchsorted(planned.first_rows, rows_needed, side="right") - 1
    for row, which in zip(rows_needed, owners, strict=True):
        byte_range, number = planned.ranges[which], int(np.searchsorted(starts, row, side="right")) - 1
        at = byte_range.start + planned.offsets[which] + (row - planned.first_rows[which]) * ROW_NBYTES
        assert (byte_range.object_index, at) == (number, 128 + (row - starts[number]) * ROW_NBYTES)
        assert at + ROW_NBYTES <= byte_range.stop


@given(
    rows=st.lists(st.integers(0, 3 * BLOCK_ROWS), min_size=1, max_size=4).filter(any),
    ends=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_consecutive_rows_are_read_in_consecutive_blocks(rows, ends):
    first, last = sorted(int(end * (sum(rows) - 1)) for end in ends)
    planned = planner_of(rows).ranges_for_slice(first, last + 1)
    assert planned.first_rows[0] <= first
    assert planned.stop_rows[-1] > last
    assert (planned.first_rows[1:] == planned.stop_rows[:-1]).all()


def test_ranges_do_not_cover_rows_before_after_or_between_the_ranges():
    planner = planner_of([10 * BLOCK_ROWS])
    planned = planner.ranges_for_rows(np.asarray([5, 6, 9 * BLOCK_ROWS]), NO_BLOCKS, limit_nbytes=1 << 40)
    assert planned.covers(np.asarray([6, 5]))
    assert not any(planned.covers(np.asarray([row, 5])) for row in (4, 5 * BLOCK_ROWS, 9 * BLOCK_ROWS + 1))


def test_a_few_rows_of_a_large_block_are_read_alone():
    planner = planner_of([10 * BLOCK_ROWS])
    rows_needed = np.asarray([5, 5 * BLOCK_ROWS, 9 * BLOCK_ROWS])
    assert planner.blocks_to_read_whole(rows_needed, limit_nbytes=1 << 40).size == 0
    assert [
        byte_range.nbytes for byte_range in planner.ranges_for_rows(rows_needed, NO_BLOCKS, limit_nbytes=1 << 40).ranges
    ] == [ROW_NBYTES] * 3


def test_rows_close_to_each_other_are_read_in_one_run():
    planned = planner_of([10 * BLOCK_ROWS]).ranges_for_rows(np.asarray([5, 105, 205]), NO_BLOCKS, limit_nbytes=1 << 40)
    assert [byte_range.nbytes for byte_range in planned.ranges] == [201 * ROW_NBYTES]


def test_partly_used_blocks_are_read_whole_up_to_twice_the_limit():
    planner, order = planner_of([10 * BLOCK_ROWS]), np.random.default_rng(0).permutation(BLOCK_ROWS)
    # A shuffle window needs only a part of the blocks at its edges.
    halves = [block * BLOCK_ROWS + order[: BLOCK_ROWS // 2] for block in (0, 1, 8, 9)]
    window = np.sort(np.concatenate([*halves, np.arange(2 * BLOCK_ROWS, 8 * BLOCK_ROWS)]))
    assert planner.blocks_to_read_whole(window, limit_nbytes=8 * BLOCK_NBYTES).tolist() == list(range(10))


def test_above_the_limit_only_blocks_with_mostly_needed_rows_are_read_whole():
    planner = planner_of([10 * BLOCK_ROWS])
    window = np.concatenate([np.arange(BLOCK_ROWS), np.arange(BLOCK_ROWS, 10 * BLOCK_ROWS, 100)])
    assert planner.blocks_to_read_whole(window, limit_nbytes=BLOCK_NBYTES).tolist() == [0]


def test_gaps_between_rows_are_read_only_within_the_limit():
    scattered = np.arange(0, 10 * BLOCK_ROWS, 100)
    planned = planner_of([10 * BLOCK_ROWS]).ranges_for_rows(scattered, NO_BLOCKS, limit_nbytes=1 << 20)
    assert sum(byte_range.nbytes for byte_range in planned.ranges) <= len(scattered) * ROW_NBYTES + (1 << 20)


def test_a_block_is_read_whole_if_that_costs_less():
    planner = planner_of([10 * BLOCK_ROWS])
    assert planner.blocks_to_read_whole(np.arange(0, BLOCK_ROWS, 50), limit_nbytes=1 << 40).tolist() == [0]


def test_a_block_with_scattered_rows_is_read_whole_only_if_it_fits():
    planner = planner_of([10 * BLOCK_ROWS])
    scattered = np.arange(0, BLOCK_ROWS, 300)
    assert planner.blocks_to_read_whole(scattered, limit_nbytes=BLOCK_NBYTES).tolist() == [0]
    assert planner.blocks_to_read_whole(scattered, limit_nbytes=0).size == 0


def test_small_objects_are_read_whole_for_their_checksum():
    (byte_range,) = planner_of([20]).ranges_for_slice(3, 4).ranges
    assert (byte_range.start, byte_range.nbytes) == (0, 128 + 20 * ROW_NBYTES)


def test_blocks_divide_objects_of_equal_length_evenly():
    rows = 3 * BLOCK_ROWS + 1000
    assert rows % planner_of([rows] * 3).block_rows == 0
