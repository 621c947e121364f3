"""Patterns of interleaved orders: exact counts, even spread, any position computed directly."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.order.mix_pattern import MAX_PERIOD, even_pattern, integer_weights, shuffled_pattern
from forebay.testing.strategies import seeds

weights = st.lists(st.integers(1, 12), min_size=1, max_size=12).map(tuple)
patterns = st.one_of(st.builds(even_pattern, weights), st.builds(shuffled_pattern, weights, seeds))


def parts_at(pattern, positions):
    """Return the part at each position, and its number among the positions of this part."""
    parts, inner = np.full(len(positions), -1), np.full(len(positions), -1)
    for part, selection, numbers in pattern.split(positions):
        parts[selection], inner[selection] = part, numbers
    return parts, inner


@given(weights=weights, key=st.none() | seeds)
def test_every_period_has_the_weights(weights, key):
    pattern, period = even_pattern(weights) if key is None else shuffled_pattern(weights, key), sum(weights)
    parts, _ = parts_at(pattern, np.arange(50 * period))
    counts = [
        np.bincount(parts[start : start + period], minlength=len(weights)) for start in range(0, len(parts), period)
    ]
    assert all(count.tolist() == list(weights) for count in counts)


@given(pattern=patterns, start=st.integers(0, 10**12))
def test_each_part_counts_its_positions_without_gaps(pattern, start):
    parts, inner = parts_at(pattern, np.arange(start, start + 500))
    for part in np.unique(parts):
        first = pattern.count_before(int(part), start)
        assert inner[parts == part].tolist() == list(range(first, first + int((parts == part).sum())))


@given(
    pattern=patterns,
    positions=st.lists(st.integers(0, 10**6)),
    start=st.integers(0, 10**6),
    skipped=st.integers(0, 10**6),
)
def test_skipped_positions_of_a_pattern_do_not_count(pattern, positions, start, skipped):
    for chosen in (np.array(positions, np.int64), np.arange(start, start + 300)):
        parts, inner = parts_at(pattern, chosen + skipped)
        earlier = np.array([pattern.count_before(part, skipped) for part in parts.tolist()], np.int64)
        found = {
            index: (part, number)
            for part, selection, numbers in pattern.split(chosen, skipped=skipped)
            for index, number in zip(selection.tolist(), numbers.tolist(), strict=True)
        }
        assert found == dict(enumerate(zip(parts.tolist(), (inner - earlier).tolist(), strict=True)))


@given(pattern=patterns, position=st.integers(0, 10**12))
def test_the_position_of_an_occurrence_is_the_inverse_of_the_pattern(pattern, position):
    (part,), (occurrence,) = parts_at(pattern, np.array([position]))
    assert pattern.position_of(int(part), int(occurrence)) == position


@given(weights=weights)
def test_an_even_pattern_keeps_every_prefix_near_its_proportions(weights):
    period = sum(weights)
    parts, _ = parts_at(even_pattern(weights), np.arange(period))
    for part, weight in enumerate(weights):
        deviation = np.cumsum(parts == part) - np.arange(1, period + 1) * weight / period
        assert np.abs(deviation).max() <= (len(weights) + 1) / 2


@given(weights=weights, key=st.none() | seeds)
def test_every_prefix_is_within_one_period_of_its_proportions(weights, key):
    pattern, period = even_pattern(weights) if key is None else shuffled_pattern(weights, key), sum(weights)
    parts, _ = parts_at(pattern, np.arange(30 * period))
    for part, weight in enumerate(weights):
        deviation = np.cumsum(parts == part) - np.arange(1, len(parts) + 1) * weight / period
        assert np.abs(deviation).max() <= weight


@given(weights=st.lists(st.integers(1, 5), min_size=2, max_size=4).map(tuple), shards=st.integers(2, 8))
def test_every_shard_receives_all_parts_in_their_proportions(weights, shards):
    period = sum(weights)
    for shard in range(shards):
        parts, _ = parts_at(even_pattern(weights), np.arange(shard, 40_000, shards))
        shares = np.bincount(parts, minlength=len(weights)) / len(parts)
        assert np.allclose(shares, np.array(weights) / period, atol=0.03)


def test_keys_give_different_patterns():
    starts = {tuple(parts_at(shuffled_pattern((5, 5), key), np.arange(50))[0].tolist()) for key in range(20)}
    assert len(starts) == 20


def test_patterns_never_change_between_versions():
    even, _ = parts_at(even_pattern((3, 2, 1)), np.arange(12))
    shuffled, _ = parts_at(shuffled_pattern((3, 2, 1), 7), np.arange(12))
    assert even.tolist() == [0, 1, 0, 2, 1, 0, 0, 2, 1, 0, 0, 1]
    assert shuffled.tolist() == [1, 1, 2, 0, 0, 0, 0, 0, 0, 1, 2, 1]


@pytest.mark.parametrize(
    ("given_weights", "expected"),
    [
        ([7, 3], (7, 3)),
        ([0.7, 0.3], (7, 3)),
        ([14, 6], (7, 3)),
        ([1 / 3, 2 / 3], (1, 2)),
        ([1e300, 1e300], (1, 1)),
        ([1e-300, 1e-300], (1, 1)),
        ([1, 1e-12], (9999, 1)),
        ([2.5], (1,)),
    ],
)
def test_weights_become_small_whole_numbers(given_weights, expected):
    assert integer_weights(given_weights) == expected


@given(
    given_weights=st.lists(
        st.floats(1e-9, 1e9) | st.integers(1, 10**12) | st.sampled_from([0.1, 0.2, 0.3, 0.7]), min_size=1, max_size=20
    )
)
def test_whole_weights_are_near_the_given_weights(given_weights):
    found, total = integer_weights(given_weights), sum(map(Fraction, given_weights))
    assert min(found) >= 1
    assert sum(found) <= MAX_PERIOD
    for weight, number in zip(given_weights, found, strict=True):
        share = Fraction(weight) / total
        assert abs(Fraction(number, sum(found)) - share) <= Fraction(len(found) + 1, MAX_PERIOD)


@given(weights=weights, first=st.integers(0, 1 << 18), count=st.integers(1, 200_000))
def test_consecutive_positions_are_split_as_any_positions(weights, first, count):
    pattern = even_pattern(weights)
    positions = np.arange(first, first + count)
    consecutive = list(pattern.split(positions))
    backwards = list(pattern.split(positions[::-1]))
    assert [part for part, _, _ in consecutive] == [part for part, _, _ in backwards]
    for (_, selection, inner), (_, other_selection, other_inner) in zip(consecutive, backwards, strict=True):
        assert selection.tolist() == (count - 1 - other_selection)[::-1].tolist()
        assert inner.tolist() == other_inner[::-1].tolist()
