"""Orders that choose positions: spans, tables of positions and random splits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.order.choices import Selected, Span, SplitPart, consecutive_start, hash_array
from forebay.order.orders import BlockShuffled, Repeated, Sequential, Shuffled, Take
from forebay.order.permutation import Permutation
from forebay.testing.strategies import seeds


def rows(order, epoch=0):
    return order.rows(epoch, np.arange(order.length)).tolist()


def parts_of(length, sizes, seed):
    starts = np.cumsum([0, *sizes[:-1]]).tolist()
    return [SplitPart(Sequential(length), seed, start, size) for start, size in zip(starts, sizes, strict=True)]


@given(length=st.integers(1, 200), start=st.integers(0, 250), count=st.none() | st.integers(1, 250))
def test_a_span_has_consecutive_positions_of_its_inner_order(length, start, count):
    shuffled = Shuffled(Sequential(length), 3)
    stop = None if count is None else start + count
    assert rows(Span(shuffled, start, count)) == rows(shuffled)[start:stop]


def test_a_span_of_an_endless_order_is_endless_unless_it_has_a_count():
    endless = Repeated(Sequential(4), None)
    assert Span(endless, 6).length is None
    assert rows(Span(endless, 6, 4)) == [2, 3, 0, 1]


@given(length=st.integers(1, 20_000), seed=seeds, cut=st.floats(0, 1))
def test_the_parts_of_a_split_are_disjoint_and_have_all_rows(length, seed, cut):
    first = round(cut * length)
    parts = parts_of(length, [first, length - first], seed)
    assert sorted(rows(parts[0]) + rows(parts[1])) == list(range(length))


def test_a_split_is_the_same_in_every_epoch_and_different_for_every_seed():
    splits = [rows(SplitPart(Sequential(50), seed, 0, 25), epoch) for seed in range(5) for epoch in range(3)]
    assert all(splits[number] == splits[number // 3 * 3] for number in range(15))
    assert len(set(map(tuple, splits))) == 5


def test_a_split_does_not_repeat_the_permutation_of_a_shuffle_with_the_same_seed():
    length = Permutation.TABLE_LENGTH * 2
    part = SplitPart(Sequential(length), 0, 0, length)
    assert all(rows(part) != rows(Shuffled(Sequential(length), 0), epoch) for epoch in range(3))


def test_a_split_of_a_billion_rows_needs_no_table():
    part = SplitPart(Sequential(10**9), 0, 9 * 10**8, 10**8)
    assert len(np.unique(part.rows(0, np.arange(10**8 - 1000, 10**8)))) == 1000


def test_splits_never_change_between_versions():
    assert SplitPart(Sequential(1000), 7, 0, 900).rows(0, np.arange(4)).tolist() == [246, 300, 184, 385]
    assert SplitPart(Sequential(10**6), 7, 0, 900).rows(0, np.arange(4)).tolist() == [19102, 897517, 158696, 351062]


@given(mask=st.lists(st.booleans(), min_size=1).filter(any))
def test_a_mask_selects_the_same_rows_as_numpy(mask):
    order = Selected.of_mask(Sequential(len(mask)), np.array(mask))
    assert rows(order) == np.flatnonzero(mask).tolist()
    assert order.is_ascending


@given(numbers=st.lists(st.integers(0, 9), min_size=1))
def test_positions_are_selected_in_their_order_with_repeats(numbers):
    order = Selected.of_positions(Sequential(10), np.array(numbers))
    assert rows(order) == numbers
    assert order.is_ascending == (numbers == sorted(numbers))


def test_a_table_of_more_than_32_bits_keeps_its_positions():
    order = Selected.of_positions(Sequential(1 << 40), np.array([1 << 39, 5]))
    assert rows(order) == [1 << 39, 5]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (Sequential(10), 0),
        (Take(Sequential(10), 4), 0),
        (Span(Take(Span(Sequential(10), 2), 6), 3), 5),
        (Span(Shuffled(Sequential(10), 0), 2), None),
        (Repeated(Sequential(10), 2), None),
        (Selected.of_positions(Sequential(10), np.array([3, 4])), None),
        (SplitPart(Sequential(10), 0, 0, 5), None),
    ],
)
def test_consecutive_rows_are_found(order, expected):
    assert consecutive_start(order) == expected
    assert not order.is_sequential or expected == 0


@pytest.mark.parametrize(
    ("order", "is_fixed", "is_ascending"),
    [
        (Sequential(10), True, True),
        (Take(Sequential(10), 4), True, True),
        (Span(Sequential(10), 4), True, True),
        (Repeated(Sequential(10), 2), True, False),
        (SplitPart(Sequential(10), 0, 0, 5), True, False),
        (Shuffled(Sequential(10), 0), False, False),
        (BlockShuffled(Sequential(10), 0, 2, 2), False, False),
        (Span(Take(Shuffled(Sequential(10), 0), 5), 2), False, False),
        (Repeated(Shuffled(Sequential(10), 0), 2), False, False),
    ],
)
def test_an_order_knows_whether_it_is_fixed_and_ascending(order, is_fixed, is_ascending):
    assert (order.is_fixed, order.is_ascending) == (is_fixed, is_ascending)
    assert not is_ascending or rows(order) == sorted(rows(order))


def test_different_choices_have_different_descriptions():
    ten = Sequential(10)
    orders = [
        Span(ten, 1),
        Span(ten, 2),
        Span(ten, 1, 5),
        SplitPart(ten, 0, 0, 5),
        SplitPart(ten, 1, 0, 5),
        SplitPart(ten, 0, 5, 5),
        Selected.of_positions(ten, np.array([1, 2])),
        Selected.of_positions(ten, np.array([2, 1])),
        Selected.of_positions(ten, np.array([1, 2, 2])),
        Selected.of_mask(ten, np.arange(10) < 3),
        Selected.of_mask(ten, np.arange(10) > 6),
    ]
    assert len({order.describe() for order in orders}) == len(orders)
    assert len(set(orders)) == len(orders)


def test_a_hash_depends_on_values_and_not_on_their_memory():
    numbers = np.arange(20, dtype="<i4")
    same = [numbers.astype(">i4"), np.repeat(numbers, 2)[::2], numbers.copy()]
    assert {hash_array(array) for array in same} == {hash_array(numbers)}
    assert hash_array(numbers[::-1]) != hash_array(numbers)


def test_a_mask_of_many_steps_has_the_positions_of_all_steps():
    mask = np.random.default_rng(0).random(300_000) < 0.3
    order = Selected.of_mask(Sequential(len(mask)), mask)
    assert order.table.dtype == np.uint32
    assert order.table.tolist() == np.flatnonzero(mask).tolist()


def test_a_mask_and_its_row_numbers_are_the_same_choice():
    mask = np.random.default_rng(0).random(3000) < 0.3
    by_mask = Selected.of_mask(Sequential(3000), mask)
    by_number = Selected.of_positions(Sequential(3000), np.flatnonzero(mask))
    assert by_mask.describe() == by_number.describe()
    assert (by_number.ascends, by_number.repeats) == (True, False)
    few = Selected.of_positions(Sequential(1 << 40), np.array([5, 1 << 39]))  # no mask of this length fits into memory
    assert (few.ascends, few.repeats) == (True, False)
