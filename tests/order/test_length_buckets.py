"""Buckets by length: bounds, sizes and padding."""

import pickle
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from forebay.order.length_buckets import (
    MAX_GROWTH,
    MIN_BUCKET_BATCHES,
    BucketedBatches,
    LengthBuckets,
    choose_bounds,
    count_lengths,
)
from forebay.order.orders import BlockShuffled, Sequential, Shuffled
from forebay.testing.strategies import seeds

LENGTHS = st.lists(st.integers(1, 300), min_size=1, max_size=400).map(np.array)


@given(lengths=LENGTHS, tokens=st.integers(300, 3000))
def test_a_bucket_has_similar_lengths_or_few_batches(lengths, tokens):
    bounds = choose_bounds(*count_lengths(lengths), tokens)
    numbers = np.searchsorted(bounds, lengths)
    for number, bound in enumerate(bounds.tolist()):
        inside = np.sort(lengths[numbers == number])
        assert inside[-1] == bound
        rest = inside[inside > inside[0]]  # without its shortest rows, the bucket would have too few batches
        assert inside[0] * MAX_GROWTH > bound or len(rest) < MIN_BUCKET_BATCHES * (tokens // bound)


@given(lengths=LENGTHS, tokens=st.integers(300, 3000), drop=st.booleans())
def test_batches_divide_the_buckets(lengths, tokens, drop):
    buckets = LengthBuckets.of(lengths, tokens, drop_remainder=drop)
    assert sorted(buckets.table.tolist()) == list(range(len(lengths)))
    assert buckets.numbers()[buckets.table].tolist() == sorted(buckets.numbers().tolist())
    found = [buckets.locate(batch) for batch in range(buckets.batches)]
    for bucket, first, stop in found:
        positions = buckets.table[buckets.starts[bucket] + first : buckets.starts[bucket] + stop]
        assert 0 < len(positions) <= buckets.batch_rows[bucket]
        assert len(positions) * lengths[positions].max() <= tokens
        assert not drop or len(positions) == buckets.batch_rows[bucket]
    if not drop:
        assert sum(stop - first for _, first, stop in found) == len(lengths)
        assert buckets.max_batch_rows == max(stop - first for _, first, stop in found)
    assert sorted(buckets.sequence(buckets.table).tolist()) == list(range(buckets.batches))


def test_many_rows_are_sorted_in_steps_as_all_rows_at_once():
    lengths = np.random.default_rng(0).integers(0, 900, 200_000)  # more rows than one step sorts
    buckets = LengthBuckets.of(lengths, 1000, bounds=[10, 300, 950, 1000], drop_remainder=False)
    expected = np.argsort(np.searchsorted([10, 300, 950], np.maximum(lengths, 1)), kind="stable")
    assert buckets.table.tolist() == expected.tolist()
    assert buckets.batch_rows == (100, 3, 1)


def test_many_rows_have_little_padding():
    lengths = np.random.default_rng(0).integers(8, 2000, 200_000)
    buckets = LengthBuckets.of(lengths, 8192, drop_remainder=False)
    assert buckets.padded_share < 1 - 1 / MAX_GROWTH


def test_very_long_rows_are_sorted_instead_of_counted():
    lengths = np.array([1 << 30, 1, 5])
    assert LengthBuckets.of(lengths, 1 << 31, bounds=None, drop_remainder=False).batches == 2


def test_the_rows_of_several_batches_are_joined():
    order = BucketedBatches.of(Shuffled(Sequential(50), 3), LengthBuckets.of(np.full(50, 10), 30, drop_remainder=False))
    rows = order.rows(2, np.arange(order.length))
    assert sorted(rows.tolist()) == list(range(50))
    assert order.rows(2, np.array([1])).tolist() == order.positions(2, 1).tolist()


@given(lengths=LENGTHS, seed=seeds, epoch=st.integers(0, 3))
def test_batches_computed_without_a_table_are_the_same(lengths, seed, epoch):
    buckets = LengthBuckets.of(lengths, 300, drop_remainder=False)
    order = BucketedBatches.of(Shuffled(Sequential(len(lengths)), seed), buckets)
    computed = replace(order, epochs=None)
    positions = np.arange(order.length)
    assert order.rows(epoch, positions).tolist() == computed.rows(epoch, positions).tolist()
    assert computed.epoch_nbytes == 0 < order.epoch_nbytes


def test_an_order_of_batches_can_be_sent_to_another_process():
    buckets = LengthBuckets.of(np.full(50, 10), 30, drop_remainder=False)
    order = BucketedBatches.of(BlockShuffled(Sequential(50), 3, 5, 2), buckets)
    copy = pickle.loads(pickle.dumps(order))
    assert copy.rows(1, np.arange(17)).tolist() == order.rows(1, np.arange(17)).tolist()
