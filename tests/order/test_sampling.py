"""Weighted sampling: the right distribution, independent positions and epochs, and repeatable draws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.order.orders import Sequential
from forebay.order.sampling import Sampled, _exponentials, _log
from forebay.testing.strategies import seeds

weights = st.lists(st.just(0.0) | st.floats(0, 1e308), min_size=1, max_size=60).filter(any)


def make_sampled(weights, *, seed=0, count=None, replacement=True):
    array = np.asarray(weights, np.float64)
    count = len(array) if count is None else count
    return Sampled.of(Sequential(len(array)), array, seed=seed, count=count, replacement=replacement)


def epoch_of(order, epoch=0):
    return order.rows(epoch, np.arange(order.length))


def excess_chi_square(drawn, weights):
    """Return by how many standard deviations chi-square exceeds its mean for these weights."""
    counts, freedom = np.bincount(drawn, minlength=len(weights)), len(weights) - 1
    expected = counts.sum() * weights / weights.sum()
    return float((((counts - expected) ** 2 / expected).sum() - freedom) / np.sqrt(2 * freedom))


@pytest.mark.parametrize("length", [2, 3, 100, 1000])
def test_draws_with_replacement_follow_the_weights(length):
    weights = np.random.default_rng(1).random(length) + 0.01
    drawn = epoch_of(make_sampled(weights, seed=5, count=400_000))
    assert excess_chi_square(drawn, weights) < 5


def test_the_first_draw_without_replacement_follows_the_weights():
    weights = np.array([1.0, 2.0, 3.0, 4.0])
    order = make_sampled(weights, count=4, replacement=False)
    drawn = np.array([order.rows(epoch, np.arange(4)) for epoch in range(5000)])
    assert excess_chi_square(drawn[:, 0], weights) < 5
    assert excess_chi_square(drawn[drawn[:, 0] == 3, 1], weights[:3]) < 5


def test_neighbouring_positions_and_epochs_are_independent():
    order = make_sampled(np.ones(16), seed=3, count=200_000)
    first, second = epoch_of(order, 0), epoch_of(order, 1)
    pairs = [(first[:-1], first[1:]), (first[:-16], first[16:]), (first, second)]
    assert max(excess_chi_square(one * 16 + other, np.ones(256)) for one, other in pairs) < 5


def test_seeds_and_epochs_give_different_draws():
    draws = {
        tuple(epoch_of(make_sampled(np.ones(30), seed=seed, replacement=replacement), epoch).tolist())
        for seed in range(4)
        for epoch in range(4)
        for replacement in (True, False)
    }
    assert len(draws) == 32


@given(weights=weights, seed=seeds, epoch=st.integers(0, 1000), replacement=st.booleans(), data=st.data())
def test_the_row_at_any_single_position_can_be_computed(weights, seed, epoch, replacement, data):
    order = make_sampled(weights, seed=seed, count=np.count_nonzero(weights), replacement=replacement)
    positions = np.array(data.draw(st.lists(st.integers(0, order.length - 1), min_size=1, max_size=20)))
    assert order.rows(epoch, positions).tolist() == epoch_of(order, epoch)[positions].tolist()
    assert all(weights[row] > 0 for row in epoch_of(order, epoch))


@given(weights=weights, seed=seeds, data=st.data())
def test_no_row_comes_twice_without_replacement(weights, seed, data):
    count = data.draw(st.integers(1, np.count_nonzero(weights)))
    drawn = epoch_of(make_sampled(weights, seed=seed, count=count, replacement=False)).tolist()
    assert len(set(drawn)) == count == len(drawn)


@given(weights=weights, seed=seeds, data=st.data())
def test_fewer_rows_without_replacement_are_the_first_rows_of_a_longer_draw(weights, seed, data):
    available = np.count_nonzero(weights)
    count = data.draw(st.integers(1, available))
    longest = epoch_of(make_sampled(weights, seed=seed, count=available, replacement=False))
    shorter = epoch_of(make_sampled(weights, seed=seed, count=count, replacement=False))
    assert shorter.tolist() == longest[:count].tolist()


@pytest.mark.slow
def test_rows_beyond_2_to_the_24_are_drawn_by_weight():
    weights = np.zeros((1 << 24) + 5)
    weights[[0, -2, -1]] = 1, 1, 2
    drawn = epoch_of(make_sampled(weights, count=40_000))
    assert set(drawn.tolist()) == {0, len(weights) - 2, len(weights) - 1}
    assert abs(np.mean(drawn == len(weights) - 1) - 0.5) < 0.02


@pytest.mark.parametrize(
    ("replacement", "expected"),
    [(True, [365, 879, 584, 369, 728, 671]), (False, [855, 470, 606, 273, 794, 860])],
)
def test_draws_never_change_between_versions(replacement, expected):
    order = make_sampled(np.arange(1000), seed=7, count=900, replacement=replacement)
    assert order.rows(3, np.arange(6)).tolist() == expected


def test_the_draws_of_earlier_epochs_can_be_repeated():
    order = make_sampled(np.arange(1, 50), replacement=False)
    epochs = [epoch_of(order, epoch).tolist() for epoch in range(6)]
    assert [epoch_of(order, epoch).tolist() for epoch in (4, 0, 5, 2)] == [epochs[epoch] for epoch in (4, 0, 5, 2)]


def test_logarithms_are_exact_to_nearly_the_last_bit():
    numbers = np.concatenate([np.random.default_rng(0).random(10_000), [2.0**-53, 0.5, np.sqrt(0.5), 1 - 2.0**-53]])
    assert np.allclose(_log(numbers.copy()), np.log(numbers), rtol=1e-14, atol=0)


def test_exponential_draws_are_positive_and_finite_for_any_random_bits():
    numbers = _exponentials(np.array([0, 1, 2**63, 2**64 - 1], np.uint64))
    assert (numbers > 0).all()
    assert np.isfinite(numbers).all()


def test_different_samples_have_different_descriptions():
    orders = [
        make_sampled([1, 2, 3]),
        make_sampled([1, 2, 4]),
        make_sampled([1, 2, 3], seed=1),
        make_sampled([1, 2, 3], count=2),
        make_sampled([1, 2, 3], replacement=False),
        make_sampled([1, 2, 3, 0]),
    ]
    assert len({order.describe() for order in orders}) == len(orders) == len(set(orders))
    assert make_sampled([1, 2, 3]) == orders[0]
    assert not any(order.is_fixed for order in orders)
