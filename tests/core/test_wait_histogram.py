"""Percentiles of a histogram of fixed size are close to those of all waits."""

import math

from hypothesis import given
from hypothesis import strategies as st

from forebay.core import wait_histogram
from forebay.core.wait_histogram import MIN_EXPONENT, OCTAVES, SUB_BUCKETS, WaitHistogram

SHORTEST, LONGEST = 2.0**MIN_EXPONENT, 2.0 ** (MIN_EXPONENT + OCTAVES)  # seconds
SHARES = (0.0, 0.5, 0.95, 0.99, 1.0)
waits = st.lists(st.floats(SHORTEST, LONGEST, exclude_max=True), min_size=1, max_size=200)


def histogram_of(values):
    histogram = WaitHistogram()
    for seconds in values:
        histogram.add(seconds)
    return histogram


@given(values=waits, ready=st.integers(0, 50))
def test_a_percentile_is_at_most_one_bucket_too_high(values, ready):
    counts = histogram_of(values).counts(len(values) + ready)
    ordered = sorted([0.0] * ready + values)
    for share, found in zip(SHARES, counts.percentiles(SHARES), strict=True):
        exact = ordered[max(1, math.ceil(share * len(ordered))) - 1]
        assert exact <= found <= exact * (1 + 1 / SUB_BUCKETS)
    assert counts.batches == len(ordered)
    assert counts.max_seconds == max(values)
    assert math.isclose(counts.seconds, sum(values))


@given(values=waits)
def test_cumulative_counts_are_those_of_all_waits(values):
    for bound, count in histogram_of(values).counts(len(values)).cumulative():
        assert count == sum(seconds < bound for seconds in values)


@given(before=waits, after=waits, ready=st.integers(0, 9))
def test_the_counts_since_a_moment_are_those_of_the_later_waits(before, after, ready):
    histogram = histogram_of(before)
    earlier = histogram.counts(len(before) + ready)
    for seconds in after:
        histogram.add(seconds)
    since = histogram.counts(len(before) + len(after) + 2 * ready).since(earlier)
    alone = histogram_of(after).counts(len(after) + ready)
    assert (since.buckets, since.ready) == (alone.buckets, alone.ready)
    assert max(after) <= since.max_seconds <= max(after) * (1 + 1 / SUB_BUCKETS)


def test_waits_outside_of_the_range_are_counted_too():
    counts = histogram_of([0.0, 1e-9, 1e9]).counts(3)
    assert counts.batches == 3
    assert counts.ready == 2
    assert counts.percentiles((0.5, 1.0))[0] == 0
    assert counts.max_seconds == 1e9


def test_a_histogram_without_waits_has_percentiles_of_zero():
    empty = WaitHistogram().counts(0)
    assert empty.percentiles() == [0, 0, 0]
    assert empty.since(empty).max_seconds == 0
    assert WaitHistogram().counts(5).percentiles() == [0, 0, 0]


def test_pending_waits_do_not_grow_without_limit(monkeypatch):
    monkeypatch.setattr(wait_histogram, "PENDING_WAITS", 4)
    histogram = histogram_of([1.0] * 10)
    assert len(histogram._pending) < 4
    assert histogram.counts(10).batches == 10
