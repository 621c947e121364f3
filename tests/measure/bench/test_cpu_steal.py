"""Whether others want the cores that the bench measures on."""

from itertools import accumulate, chain, repeat

import pytest

from forebay.measure.bench.others import taken_share

LOOK, GAP = 1e-6, 5e-3  # seconds


def clock_of(*lengths):
    """A clock that is this much later at every look."""
    return accumulate(chain(lengths, repeat(LOOK)), initial=1.0).__next__


def test_nothing_is_taken_where_every_look_is_short():
    assert taken_share(0.02, clock_of()) == 0.0


def test_what_is_taken_is_the_share_of_the_gaps():
    assert taken_share(0.02, clock_of(LOOK, GAP, LOOK, GAP)) == pytest.approx(0.5, abs=1e-3)


def test_a_gap_at_the_end_counts_whole():
    assert taken_share(0.02, clock_of(1.0)) == 1.0
