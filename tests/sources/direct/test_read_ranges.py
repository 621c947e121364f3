"""Address ranges are merged, split into reads, and located in the buffer."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from forebay.sources.direct import read_ranges
from forebay.sources.direct.read_ranges import ReadRanges, merge_ranges

RANGES = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 5000)), min_size=1, max_size=60)
ALIGNMENTS = st.sampled_from([1, 512, 4096])


def merge(ranges, alignment, gap=0):
    """Merge (start, nbytes) pairs. Return the merged ranges, and the starts and sizes of the pairs."""
    starts, nbytes = (np.array(column, np.int64) for column in zip(*ranges, strict=True))
    return merge_ranges(starts, nbytes, alignment=alignment, gap=gap), starts, nbytes


@given(RANGES, ALIGNMENTS, st.integers(0, 10_000))
def test_every_range_is_inside_the_merged_range_that_locate_uses(ranges, alignment, gap):
    merged_ranges, starts, nbytes = merge(ranges, alignment, gap)
    range_numbers = np.searchsorted(merged_ranges.starts, starts, side="right") - 1
    assert (merged_ranges.starts[range_numbers] + merged_ranges.nbytes[range_numbers] >= starts + nbytes).all()
    assert (
        merged_ranges.locate(starts) - merged_ranges.buffer_offsets[range_numbers]
        == starts - merged_ranges.starts[range_numbers]
    ).all()


@given(RANGES, ALIGNMENTS, st.integers(0, 10_000))
def test_merged_ranges_are_aligned_and_further_apart_than_the_gap(ranges, alignment, gap):
    merged_ranges, _, _ = merge(ranges, alignment, gap)
    assert not (merged_ranges.starts % alignment).any()
    assert not (merged_ranges.nbytes % alignment).any()
    assert (merged_ranges.starts[1:] > (merged_ranges.starts + merged_ranges.nbytes)[:-1] + gap).all()


@given(RANGES, ALIGNMENTS)
def test_merged_ranges_follow_each_other_in_the_buffer(ranges, alignment):
    merged_ranges, _, _ = merge(ranges, alignment)
    assert merged_ranges.buffer_offsets.tolist() == [0, *np.cumsum(merged_ranges.nbytes)[:-1].tolist()]


@given(RANGES, ALIGNMENTS)
def test_without_a_gap_only_alignment_adds_bytes(ranges, alignment):
    merged_ranges, _, nbytes = merge(ranges, alignment)
    assert merged_ranges.total_nbytes <= (nbytes + 2 * alignment).sum()


@given(RANGES, st.sampled_from([512, 4096]))
def test_split_reads_cover_exactly_the_merged_ranges(ranges, alignment):
    merged_ranges, _, _ = merge(ranges, alignment, gap=1 << 20)
    reads = merged_ranges.split()
    assert reads.nbytes.max() <= read_ranges.READ_NBYTES + read_ranges.SMALL_REST_NBYTES
    assert outer_edges(reads) == outer_edges(merged_ranges)
    assert np.array_equal(merged_ranges.locate(reads.starts), reads.buffer_offsets)


def outer_edges(ranges):
    """Return the starts and ends of ranges, without edges that two adjacent ranges share."""
    ends = (ranges.starts + ranges.nbytes).tolist()
    starts = ranges.starts.tolist()
    return sorted(set(starts) - set(ends)), sorted(set(ends) - set(starts))


def test_bytes_that_several_ranges_share_are_read_once():
    merged_ranges, _, _ = merge([(100, 50), (100, 50), (120, 10)], 512)
    assert (merged_ranges.starts.tolist(), merged_ranges.nbytes.tolist()) == ([0], [512])


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 12)), min_size=1, max_size=12))
def test_combined_ranges_locate_each_address_where_it_was_read(ranges):
    """Ranges of different blocks are aligned separately: they overlap, and some are inside others."""
    offsets = np.cumsum([0, *(nbytes for _, nbytes in ranges)])
    # Each value of the buffer is the address from which it was read.
    buffer = np.concatenate([np.arange(start, start + nbytes) for start, nbytes in ranges])
    parts = [
        ReadRanges(np.array([start]), np.array([nbytes]), np.array([offset]))
        for (start, nbytes), offset in zip(ranges, offsets, strict=False)
    ]
    combined = ReadRanges.combine(parts)
    for start, nbytes in ranges:
        position = int(combined.locate(np.array([start]))[0])
        assert buffer[position : position + nbytes].tolist() == list(range(start, start + nbytes))


def test_empty_ranges_locate_nothing():
    nothing = np.empty(0, np.int64)
    combined = ReadRanges.combine([ReadRanges(nothing, nothing, nothing)])
    assert combined.total_nbytes == len(combined.locate(nothing)) == 0
