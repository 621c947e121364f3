"""Row orders: exact permutations, computed at any position, stable between versions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.errors import PipelineError
from forebay.order.choices import Selected, Span, SplitPart
from forebay.order.orders import BlockShuffled, Repeated, Sequential, Shuffled, Take
from forebay.order.permutation import Permutation, derive_key, stable_argsort
from forebay.order.sampling import Sampled
from forebay.testing.strategies import seeds


def rows(order, epoch=0, start=0, stop=None):
    return order.rows(epoch, np.arange(start, order.length if stop is None else stop)).tolist()


@given(length=st.integers(1, 300_000), seed=seeds, epoch=st.integers(0, 1000))
def test_a_shuffle_is_a_permutation_for_any_seed_epoch_and_length(length, seed, epoch):
    found = Shuffled(Sequential(length), seed).rows(epoch, np.arange(length))
    assert np.array_equal(np.sort(found), np.arange(length))


@given(length=st.integers(1, 100_000), seed=seeds, data=st.data())
def test_the_row_of_any_single_position_can_be_computed(length, seed, data):
    order = Shuffled(Sequential(length), seed)
    positions = np.array(data.draw(st.lists(st.integers(0, length - 1), min_size=1, max_size=20)))
    assert np.array_equal(order.rows(3, positions), order.rows(3, np.arange(length))[positions])


blocked = st.builds(
    lambda length, seed, block, mix: BlockShuffled(Sequential(length), seed, block, mix),
    st.integers(1, 20_000),
    seeds,
    st.integers(1, 700) | st.sampled_from([1, 2, 64, 128, 256]),
    st.integers(1, 40),
)


@given(order=blocked, epoch=st.integers(0, 50))
def test_a_block_shuffle_is_a_permutation_and_keeps_blocks_together(order, epoch):
    found = order.rows(epoch, np.arange(order.length))
    assert np.array_equal(np.sort(found), np.arange(order.length))
    positions = np.empty(order.length, np.int64)
    positions[found] = np.arange(order.length)
    spans = [np.ptp(positions[start : start + order.block_rows]) for start in range(0, order.length, order.block_rows)]
    assert max(spans) < order.max_row_distance


@given(order=blocked, data=st.data())
def test_the_row_of_any_single_position_of_a_block_shuffle_can_be_computed(order, data):
    positions = np.array(data.draw(st.lists(st.integers(0, order.length - 1), min_size=1, max_size=20)))
    assert np.array_equal(order.rows(3, positions), order.rows(3, np.arange(order.length))[positions])


@given(order=blocked, epoch=st.integers(0, 50), rows=st.integers(1, 3000))
def test_consecutive_positions_need_at_most_as_many_blocks_as_blocks_within_returns(order, epoch, rows):
    blocks = order.rows(epoch, np.arange(order.length)) // order.block_rows
    needed = [len(np.unique(blocks[start : start + rows])) for start in range(0, order.length, max(1, rows // 3))]
    assert max(needed) <= order.blocks_within(rows)


@given(order=blocked, epoch=st.integers(0, 50), rows=st.integers(1, 3000))
def test_positions_across_two_passes_need_at_most_as_many_blocks_as_blocks_within_returns(order, epoch, rows):
    passes = np.concatenate([order.rows(epoch + number, np.arange(order.length)) for number in (0, 1)])
    rows = min(rows, order.length)
    blocks = passes[order.length - rows : order.length + rows] // order.block_rows
    needed = [len(np.unique(blocks[start : start + rows])) for start in range(0, len(blocks), max(1, rows // 5))]
    assert max(needed) <= order.blocks_within(rows, passes=2)


def test_a_block_shuffle_reads_from_few_blocks_at_a_time():
    order = BlockShuffled(Sequential(80 * 1024), 0, 1024, 8)
    blocks = order.rows(0, np.arange(80 * 1024)) // 1024
    held = [len(np.unique(blocks[start : start + 100])) for start in range(0, 80 * 1024, 100)]
    assert max(held) <= 9  # the eight mixed blocks and the next block
    assert sorted(held)[len(held) // 10] == 8


def test_a_block_shuffle_opens_blocks_at_an_even_pace():
    order = BlockShuffled(Sequential(160 * 1024), 0, 1024, 8)
    blocks = order.rows(0, np.arange(160 * 1024)) // 1024
    opened = np.sort(np.unique(blocks, return_index=True)[1])
    assert np.diff(opened[8:]).min() > 900
    assert np.diff(opened[8:]).max() < 1100


def test_a_block_shuffle_mixes_the_rows_of_its_blocks_evenly():
    order = BlockShuffled(Sequential(1 << 18), 0, 1024, 32)
    blocks = order.rows(0, np.arange(1 << 18)) // 1024
    assert np.mean(blocks[1:] == blocks[:-1]) < 1.2 / 32


def test_a_block_can_start_anywhere_in_the_epoch():
    order = BlockShuffled(Sequential(100_000), 0, 100, 4)
    firsts = [int(np.flatnonzero(order.rows(epoch, np.arange(100_000)) == 0)[0]) for epoch in range(30)]
    assert min(firsts) < 20_000
    assert max(firsts) > 80_000


def test_epochs_and_seeds_give_different_orders():
    orders = {tuple(rows(Shuffled(Sequential(50), seed), epoch)) for seed in range(5) for epoch in range(5)}
    assert len(orders) == 25


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (1000, [483, 997, 25]),
        (1 << 13, [6976, 2145, 483]),
        ((1 << 13) + 1, [4689, 6904, 4158]),
        ((1 << 16) + 1, [57267, 22732, 4550]),
        (100_000, [57267, 88256, 4550]),
    ],
)
def test_orders_never_change_between_versions(length, expected):
    found = Permutation(length, derive_key(7, 3))(np.arange(3)).tolist()
    assert found == expected


@pytest.mark.parametrize("length", [(1 << 17) + 1, 200_000, 1 << 18, (1 << 32) + 5])
def test_many_positions_give_the_same_rows_as_few(length):
    permutation, positions = Permutation(length, derive_key(7)), np.arange(131_073)
    few = [permutation(part) for part in np.array_split(positions, 1000)]
    assert permutation(positions).tolist() == np.concatenate(few).tolist()


def chi_square(permutation):
    length = len(permutation)
    counts = np.histogram2d(permutation[:-1], permutation[1:], bins=32)[0]
    expected = (length - 1) / 1024
    return ((counts - expected) ** 2 / expected).sum()


def test_computed_permutations_mix_neighbours_as_well_as_numpy_permutations():
    ours = np.mean([chi_square(Permutation(200_000, derive_key(seed))(np.arange(200_000))) for seed in range(10)])
    reference = np.mean([chi_square(np.random.default_rng(seed).permutation(200_000)) for seed in range(10)])
    assert abs(ours - reference) < 60  # the standard deviation of such a mean of ten is about 14


def test_a_billion_rows_need_no_table():
    order = Shuffled(Sequential(10**9), 0)
    found = order.rows(0, np.arange(10**9 - 1000, 10**9))
    assert len(np.unique(found)) == 1000


def test_take_before_shuffle_keeps_the_first_rows():
    assert sorted(rows(Shuffled(Take(Sequential(100), 10), 0))) == list(range(10))


def test_take_after_shuffle_keeps_the_first_shuffled_rows():
    whole = rows(Shuffled(Sequential(100), 0))
    assert rows(Take(Shuffled(Sequential(100), 0), 10)) == whole[:10]


def test_each_pass_of_repeat_has_its_own_shuffle():
    order = Repeated(Shuffled(Sequential(20), 0), 3)
    passes = [rows(order, 1, start, start + 20) for start in (0, 20, 40)]
    assert [sorted(one) for one in passes] == [list(range(20))] * 3
    assert passes == [rows(Shuffled(Sequential(20), 0), epoch) for epoch in (3, 4, 5)]


@pytest.mark.parametrize("inner", [Sequential(7), Take(Sequential(9), 7), Shuffled(Sequential(7), 0)])
def test_positions_of_many_passes_in_any_order_have_the_rows_of_their_passes(inner):
    order, positions = Repeated(inner, None), np.random.default_rng(0).integers(0, 700, 100)
    expected = [int(order.rows(2, np.array([position]))[0]) for position in positions]
    assert order.rows(2, positions).tolist() == expected


def select_positions(inner, numbers):
    return Selected.of_positions(inner, np.array(numbers) % inner.length)


def sample_all(inner, replacement):
    return Sampled.of(inner, np.ones(inner.length), seed=1, count=inner.length, replacement=replacement)


ORDERS = st.recursive(
    st.builds(Sequential, st.integers(1, 9)),
    lambda inner: st.one_of(
        st.builds(Shuffled, inner, seeds),
        st.builds(BlockShuffled, inner, seeds, st.integers(1, 4), st.integers(1, 3)),
        st.builds(Take, inner, st.integers(1, 12)),
        st.builds(Repeated, inner, st.integers(1, 3)),
        st.builds(lambda inner, start: Span(inner, start % inner.length), inner, st.integers(0, 9)),
        st.builds(lambda inner, seed: SplitPart(inner, seed, 0, inner.length), inner, seeds),
        st.builds(select_positions, inner, st.lists(st.integers(0, 9), min_size=1, max_size=9)),
        st.builds(sample_all, inner, st.booleans()),
    ),
    max_leaves=4,
)


@given(order=ORDERS, epoch=st.integers(0, 3))
def test_an_order_that_repeats_no_row_gives_each_row_once(order, epoch):
    found = rows(order, epoch)
    assert order.repeats_rows or len(set(found)) == len(found)


def test_an_order_repeats_rows_if_it_wraps_a_repeat_of_several_passes():
    assert Shuffled(Repeated(Sequential(4), 2), 0).repeats_rows
    assert Take(Repeated(Sequential(4), None), 3).repeats_rows
    assert not BlockShuffled(Repeated(Sequential(4), 1), 0, 2, 2).repeats_rows


def test_an_endless_repeat_cannot_be_shuffled_as_a_whole():
    with pytest.raises(PipelineError, match="never ends"):
        _ = Shuffled(Repeated(Sequential(20), None), 0).length


def in_plain_python(params, position):
    """Map a position with the rounds documented in `PermutationParams`."""
    number = position
    while True:
        number += params.term
        for factor in params.factors:
            number = number * factor & params.mask
            number ^= number >> params.shift
        if number < params.length:
            return number


computed_lengths = st.one_of(
    st.integers(Permutation.TABLE_LENGTH + 1, 1 << 20),
    st.integers(Permutation.TABLE_LENGTH + 1, 1 << 48),
    st.sampled_from([(1 << bits) + more for bits in (17, 31, 32, 33) for more in (-1, 0, 1)]),
)


@given(length=computed_lengths, key=st.integers(0, 2**128 - 1), data=st.data())
def test_the_params_are_enough_to_compute_a_permutation(length, key, data):
    permutation = Permutation(length, key)
    positions = np.array(data.draw(st.lists(st.integers(0, length - 1), min_size=1, max_size=20)))
    expected = [in_plain_python(permutation.permutation_params, position) for position in positions.tolist()]
    assert permutation(positions).tolist() == expected


@given(length=computed_lengths, key=st.integers(0, 2**128 - 1))
def test_the_params_fit_into_64_bit_words_of_a_device(length, key):
    permutation_params = Permutation(length, key).permutation_params
    assert permutation_params.length == length <= permutation_params.mask + 1 < 2 * length
    assert len(permutation_params.factors) == 5
    assert all(factor % 2 == 1 and factor < 2**64 for factor in permutation_params.factors)
    assert 0 <= permutation_params.term < 2**64
    assert 0 < permutation_params.shift < 64


@given(length=st.integers(1, Permutation.TABLE_LENGTH), key=st.integers(0, 2**128 - 1))
def test_permutations_stored_as_tables_have_no_params(length, key):
    assert Permutation(length, key).permutation_params is None


@given(numbers=st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 3), max_size=300))
def test_argsort_is_stable(numbers):
    drawn = np.array(numbers, np.uint64)
    assert stable_argsort(drawn).tolist() == sorted(range(len(numbers)), key=numbers.__getitem__)
    assert stable_argsort(drawn).dtype == np.int64


@pytest.mark.parametrize("spread", [1e-9, 1e-5, 1e300])
@pytest.mark.parametrize("equal_numbers", [0, 20, 20_000])
def test_floats_with_equal_upper_bits_are_sorted_by_all_bits(spread, equal_numbers):
    numbers = 1 + spread * np.random.default_rng(0).random(50_000)
    numbers[:equal_numbers] = np.inf
    numbers[equal_numbers : equal_numbers + 3] = 0.0, 5e-324, 0.0
    shuffled = np.random.default_rng(1).permutation(numbers)
    assert np.array_equal(stable_argsort(shuffled), np.argsort(shuffled, kind="stable"))


def test_two_equal_numbers_among_many_keep_their_order():
    drawn = np.random.Philox(key=1).random_raw(20_000)
    drawn[[15_000, 3, 9000]] = drawn[7]
    assert np.array_equal(stable_argsort(drawn), np.argsort(drawn, kind="stable"))
