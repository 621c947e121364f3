"""The share of CPU time that other processes take."""

from itertools import accumulate, chain, repeat

import pytest

from forebay.measure.bench.run import cpu_steal_share

READING, GAP = 1e-6, 5e-3  # seconds between two clock readings, without and with a pause by another process


def clock_of(*lengths):
    """Return a clock that advances by these seconds between its readings."""
    return accumulate(chain(lengths, repeat(READING)), initial=1.0).__next__


def test_short_readings_mean_no_steal():
    assert cpu_steal_share(0.02, clock_of()) == 0.0


def test_the_steal_share_is_the_share_of_the_gaps():
    assert cpu_steal_share(0.02, clock_of(READING, GAP, READING, GAP)) == pytest.approx(0.5, abs=1e-3)


def test_a_gap_at_the_end_counts_completely():
    assert cpu_steal_share(0.02, clock_of(1.0)) == 1.0
