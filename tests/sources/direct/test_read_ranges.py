"""Which bytes are read for which rows: laws of merging, cutting and finding again."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from forebay.sources.direct import read_ranges
from forebay.sources.direct.read_ranges import Runs, merge

RANGES = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 5000)), min_size=1, max_size=60)
ALIGNMENTS = st.sampled_from([1, 512, 4096])


def merged(ranges, alignment, gap=0):
    starts, nbytes = (np.array(column, np.int64) for column in zip(*ranges, strict=True))
    return merge(starts, nbytes, alignment=alignment, gap=gap), starts, nbytes


@given(RANGES, ALIGNMENTS, st.integers(0, 10_000))
def test_every_range_lies_whole_in_the_run_that_it_is_found_in(ranges, alignment, gap):
    found, starts, nbytes = merged(ranges, alignment, gap)
    which = np.searchsorted(found.starts, starts, side="right") - 1
    assert (found.starts[which] + found.nbytes[which] >= starts + nbytes).all()
    assert (found.locate(starts) - found.places[which] == starts - found.starts[which]).all()


@given(RANGES, ALIGNMENTS, st.integers(0, 10_000))
def test_runs_are_aligned_and_further_apart_than_the_gap(ranges, alignment, gap):
    found, _, _ = merged(ranges, alignment, gap)
    assert not (found.starts % alignment).any()
    assert not (found.nbytes % alignment).any()
    assert (found.starts[1:] > (found.starts + found.nbytes)[:-1] + gap).all()


@given(RANGES, ALIGNMENTS)
def test_runs_lie_in_memory_one_after_the_other(ranges, alignment):
    found, _, _ = merged(ranges, alignment)
    assert found.places.tolist() == [0, *np.cumsum(found.nbytes)[:-1].tolist()]


@given(RANGES, ALIGNMENTS)
def test_without_a_gap_no_more_is_read_than_alignment_asks_for(ranges, alignment):
    found, _, nbytes = merged(ranges, alignment)
    assert found.total_nbytes <= (nbytes + 2 * alignment).sum()


@given(RANGES, st.sampled_from([512, 4096]))
def test_requests_are_the_runs_in_pieces(ranges, alignment):
    found, _, _ = merged(ranges, alignment, gap=1 << 20)
    cut = found.requests()
    assert cut.nbytes.max() <= read_ranges.REQUEST_NBYTES + read_ranges.LITTLE_NBYTES
    assert covered(cut) == covered(found)
    assert np.array_equal(found.locate(cut.starts), cut.places)


def covered(ranges):
    """The bytes of ranges that do not overlap, as one list of stretches."""
    ends = (ranges.starts + ranges.nbytes).tolist()
    starts = ranges.starts.tolist()
    return sorted(set(starts) - set(ends)), sorted(set(ends) - set(starts))


def test_a_row_in_two_leaves_is_read_once():
    found, _, _ = merged([(100, 50), (100, 50), (120, 10)], 512)
    assert (found.starts.tolist(), found.nbytes.tolist()) == ([0], [512])


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 12)), min_size=1, max_size=12))
def test_every_address_of_several_runs_is_found_where_it_was_read(ranges):
    """Runs of blocks are widened and merged each by itself: they overlap, and some lie inside others."""
    places = np.cumsum([0, *(nbytes for _, nbytes in ranges)])
    memory = np.concatenate([np.arange(start, start + nbytes) for start, nbytes in ranges])
    parts = [
        Runs(np.array([start]), np.array([nbytes]), np.array([place]))
        for (start, nbytes), place in zip(ranges, places, strict=False)
    ]
    together = Runs.all_of(parts)
    for start, nbytes in ranges:
        found = int(together.locate(np.array([start]))[0])
        assert memory[found : found + nbytes].tolist() == list(range(start, start + nbytes))


def test_of_nothing_nothing_is_found():
    nothing = np.empty(0, np.int64)
    together = Runs.all_of([Runs(nothing, nothing, nothing)])
    assert together.total_nbytes == len(together.locate(nothing)) == 0
