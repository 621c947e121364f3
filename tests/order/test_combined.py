"""Combined orders: each part keeps its own order, and any position is computed directly."""

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.order.combined import Concatenated, Interleaved, OrderPart
from forebay.order.orders import BlockShuffled, Repeated, Sequential, Shuffled, Take
from forebay.testing.strategies import seeds


@st.composite
def inner_orders(draw):
    """Draw a source length, and an order over its rows."""
    length, seed = draw(st.integers(1, 60)), draw(seeds)
    source = Sequential(length)
    kinds = (
        source,
        Shuffled(source, seed),
        BlockShuffled(source, seed, draw(st.integers(1, 9)), draw(st.integers(1, 4))),
        Take(Shuffled(source, seed), draw(st.integers(1, length))),
        Repeated(Shuffled(source, seed), draw(st.integers(1, 3))),
    )
    return length, draw(st.sampled_from(kinds))


def place(made):
    """Give each order its place in the combined source."""
    firsts = accumulate((length for length, _ in made), initial=0)
    return [OrderPart(order, first) for (_, order), first in zip(made, firsts, strict=False)]


placed_parts = st.lists(inner_orders(), min_size=1, max_size=4).map(place)
stops = st.sampled_from(["first", "all"]) | st.integers(1, 300)


@st.composite
def interleaved_orders(draw):
    parts = draw(placed_parts)
    weights = tuple(draw(st.lists(st.integers(1, 9), min_size=len(parts), max_size=len(parts))))
    return parts, Interleaved.of(parts, weights, draw(stops), draw(st.none() | seeds))


def all_rows(order, epoch=0):
    return order.rows(epoch, np.arange(order.length))


def part_numbers(parts, rows):
    return np.searchsorted([part.first_row for part in parts], rows, side="right") - 1


@given(parts=placed_parts, epoch=st.integers(0, 9))
def test_concatenated_orders_follow_each_other(parts, epoch):
    expected = np.concatenate([all_rows(part.order, epoch) + part.first_row for part in parts])
    assert all_rows(Concatenated.of(parts), epoch).tolist() == expected.tolist()


@given(parts=placed_parts, seed=seeds, data=st.data())
def test_the_row_of_any_position_of_combined_orders_can_be_computed(parts, seed, data):
    for order in (
        Concatenated.of(parts),
        Shuffled(Concatenated.of(parts), seed),
        Interleaved.of(parts, (3, 1, 2, 5)[: len(parts)], "all", seed),
        Take(Repeated(Interleaved.of(parts, (3, 1, 2, 5)[: len(parts)], "first", None), 3), 50),
    ):
        positions = np.array(data.draw(st.lists(st.integers(0, order.length - 1), min_size=1, max_size=20)))
        assert np.array_equal(order.rows(2, positions), all_rows(order, 2)[positions])


@given(lengths=st.lists(st.integers(1, 50), min_size=1, max_size=5), taken=st.integers(1, 50))
def test_a_concatenation_is_sequential_only_if_every_position_is_its_row(lengths, taken):
    parts = place([(length, Sequential(length)) for length in lengths])
    assert Concatenated.of(parts).is_sequential
    cut = [*parts[:-1], OrderPart(Take(parts[-1].order, taken), parts[-1].first_row)]
    assert Concatenated.of(cut).is_sequential
    gap = [OrderPart(Take(Sequential(51), taken), 0), OrderPart(Sequential(3), 51)]
    assert not Concatenated.of(gap).is_sequential
    assert all_rows(Concatenated.of(gap)).tolist() == [*range(taken), 51, 52, 53]


def test_a_shuffle_of_concatenated_sources_can_be_computed_on_a_device():
    parts = place([(9000, Sequential(9000)), (2000, Sequential(2000))])
    order, whole = Shuffled(Concatenated.of(parts), 3), Shuffled(Sequential(11_000), 3)
    assert order.device_steps(5) == whole.device_steps(5) is not None
    assert all_rows(order, 5).tolist() == all_rows(whole, 5).tolist()


@given(made=interleaved_orders(), epoch=st.integers(0, 9))
def test_each_part_of_an_interleaved_order_comes_in_its_own_order(made, epoch):
    parts, order = made
    rows = all_rows(order, epoch)
    numbers = part_numbers(parts, rows)
    for number, part in enumerate(parts):
        found = rows[numbers == number]
        passes = -(-len(found) // part.order.length)
        epochs = [epoch] if passes == 1 else [epoch * passes + each for each in range(passes)]
        expected = np.concatenate([[], *(all_rows(part.order, each) + part.first_row for each in epochs)])
        assert found.tolist() == expected[: len(found)].tolist()


@given(parts=placed_parts, weights=st.lists(st.integers(1, 9), min_size=4, max_size=4), seed=st.none() | seeds)
def test_stop_first_is_the_longest_prefix_in_which_no_part_runs_out(parts, weights, seed):
    weights = tuple(weights[: len(parts)])
    lengths = [part.order.length for part in parts]
    endless = [OrderPart(Repeated(Sequential(1), None), number) for number in range(len(parts))]
    longer = Interleaved.of(endless, weights, sum(lengths) + sum(weights), None)  # row numbers are part numbers
    numbers = all_rows(longer)
    exceeded = [np.flatnonzero(np.cumsum(numbers == part) > length) for part, length in enumerate(lengths)]
    order = Interleaved.of(parts, weights, "first", seed)
    assert order.length == min(int(found[0]) for found in exceeded if len(found))
    counts = np.bincount(numbers[: order.length], minlength=len(parts))
    for epoch in range(2):
        rows = all_rows(order, epoch)
        assert np.bincount(part_numbers(parts, rows), minlength=len(parts)).tolist() == counts.tolist()


@given(parts=placed_parts, weights=st.lists(st.integers(1, 9), min_size=4, max_size=4), seed=st.none() | seeds)
def test_stop_all_ends_with_the_row_that_completes_the_last_part(parts, weights, seed):
    order = Interleaved.of(parts, tuple(weights[: len(parts)]), "all", seed)
    counts = np.bincount(part_numbers(parts, all_rows(order)), minlength=len(parts))
    lengths = np.array([part.order.length for part in parts])
    assert (counts >= lengths).all()
    even = Interleaved.of(parts, order.weights, "all", None)
    last = part_numbers(parts, all_rows(even)[-1:])[0]
    assert np.bincount(part_numbers(parts, all_rows(even)), minlength=len(parts))[last] == lengths[last]


@given(made=interleaved_orders(), shards=st.integers(1, 5))
def test_the_shards_of_an_interleaved_order_together_have_all_its_rows(made, shards):
    _, order = made
    rows = np.empty(order.length, np.int64)
    for shard in range(shards):
        rows[shard::shards] = order.rows(1, np.arange(shard, order.length, shards))
    assert rows.tolist() == all_rows(order, 1).tolist()


def test_a_short_part_has_a_new_shuffle_each_time_it_starts_again():
    parts = [OrderPart(Shuffled(Sequential(20), 0), 0), OrderPart(Sequential(100), 20)]
    rows = all_rows(Interleaved.of(parts, (1, 1), "all", None))
    short = rows[rows < 20]
    assert sorted(short[:20]) == sorted(short[20:40]) == list(range(20))
    assert short[:20].tolist() != short[20:40].tolist()


def test_a_seed_gives_each_epoch_its_own_pattern():
    parts = [OrderPart(Sequential(50), 0), OrderPart(Sequential(50), 50)]
    order = Interleaved.of(parts, (1, 1), "all", 0)
    assert len({tuple((all_rows(order, epoch) < 50).tolist()) for epoch in range(10)}) == 10


def test_many_positions_that_are_computed_in_steps_have_the_right_rows():
    parts = [OrderPart(Sequential(10**6), 0), OrderPart(Sequential(10**6), 10**6)]
    order = Interleaved.of(parts, (2, 1), "first", None)
    rows = all_rows(order)
    assert rows[rows < 10**6].tolist() == list(range(10**6))
    assert np.diff(rows[rows >= 10**6]).tolist() == [1] * (len(rows) - 10**6 - 1)


def test_endless_parts_need_no_length():
    endless = Repeated(Shuffled(Sequential(5), 0), None)
    assert Interleaved.of([OrderPart(endless, 0), OrderPart(endless, 5)], (1, 1), "first", 1).length is None
    assert Concatenated.of([OrderPart(Sequential(3), 5), OrderPart(endless, 0)]).length is None
    order = Interleaved.of([OrderPart(endless, 0), OrderPart(Sequential(4), 5)], (2, 1), "first", None)
    assert sorted(row for row in all_rows(order).tolist() if row >= 5) == [5, 6, 7, 8]


@pytest.mark.parametrize(
    "other",
    [
        Interleaved.of([OrderPart(Sequential(5), 0), OrderPart(Sequential(6), 5)], (1, 2), "first", None),
        Interleaved.of([OrderPart(Sequential(5), 0), OrderPart(Sequential(6), 5)], (1, 1), "all", None),
        Interleaved.of([OrderPart(Sequential(5), 0), OrderPart(Sequential(6), 5)], (1, 1), 10, None),
        Interleaved.of([OrderPart(Sequential(5), 0), OrderPart(Sequential(6), 5)], (1, 1), "first", 0),
        Interleaved.of([OrderPart(Sequential(5), 6), OrderPart(Sequential(6), 0)], (1, 1), "first", None),
        Interleaved.of([OrderPart(Sequential(5), 0), OrderPart(Shuffled(Sequential(6), 0), 5)], (1, 1), "first", None),
        Concatenated.of([OrderPart(Sequential(5), 0), OrderPart(Sequential(6), 5)]),
    ],
)
def test_other_parts_weights_stops_and_seeds_have_other_descriptions(other):
    order = Interleaved.of([OrderPart(Sequential(5), 0), OrderPart(Sequential(6), 5)], (1, 1), "first", None)
    assert order.describe() != other.describe()
