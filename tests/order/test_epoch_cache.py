"""Epoch tables: computed once, within `epoch_nbytes`, and not sent to other processes."""

import pickle
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from forebay.order.combined import Concatenated, OrderPart
from forebay.order.epoch_cache import EpochCache
from forebay.order.length_buckets import BucketedBatches, LengthBuckets
from forebay.order.orders import BlockShuffled, Repeated, Sequential, Shuffled
from forebay.order.sampling import Sampled

ROWS = 1_000_000
OVERHEAD_NBYTES = 4 << 20  # for arrays with the rows of one step, and for Python objects


def make_sampled(count, replacement=False):
    weights = np.random.default_rng(0).random(ROWS)
    return Sampled.of(Sequential(ROWS), weights, seed=0, count=count, replacement=replacement)


def make_bucketed(order):
    lengths = np.random.default_rng(0).integers(1, 60, ROWS)
    return BucketedBatches.of(order, LengthBuckets.of(lengths, 500, drop_remainder=False))


ORDERS = {
    "sample all rows": lambda: make_sampled(ROWS),
    "sample some rows": lambda: make_sampled(ROWS * 2 // 3),
    "sample few rows": lambda: make_sampled(1000),
    "token batches": lambda: make_bucketed(Sequential(ROWS)),
    "token batches of a shuffle": lambda: make_bucketed(Shuffled(Sequential(ROWS), 0)),
    "token batches of a block shuffle": lambda: make_bucketed(BlockShuffled(Sequential(ROWS), 0, 1000, 8)),
}


@pytest.mark.parametrize("make", ORDERS.values(), ids=ORDERS)
def test_the_tables_of_three_epochs_need_no_more_memory_than_epoch_nbytes(make):
    order = make()
    tracemalloc.start()
    try:
        for epoch in range(3):
            order.rows(epoch, np.array([0]))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert order.epoch_nbytes * 0.5 < peak < order.epoch_nbytes + OVERHEAD_NBYTES


def test_an_order_counts_the_tables_inside_of_it():
    one = make_sampled(10)
    both = Concatenated.of([OrderPart(one, 0), OrderPart(Repeated(one, 2), ROWS)])
    assert both.epoch_nbytes == 2 * one.epoch_nbytes > 0
    assert make_sampled(10, replacement=True).epoch_nbytes == 0


def test_several_threads_compute_the_table_of_an_epoch_once():
    cache, computed = EpochCache(), []

    def compute():
        computed.append(1)
        return len(computed)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: cache.find(5, compute), range(100))) == {1}


def test_a_table_that_cannot_be_computed_does_not_block_the_next_attempt():
    cache = EpochCache()
    with pytest.raises(MemoryError):
        cache.find(0, lambda: np.empty(1 << 60, np.uint8))
    assert cache.find(0, lambda: "table") == "table"


def test_an_order_with_computed_tables_can_be_sent_to_another_process():
    order = make_sampled(100)
    expected = order.rows(1, np.arange(100)).tolist()
    message = pickle.dumps(order)
    assert pickle.loads(message).rows(1, np.arange(100)).tolist() == expected
    assert len(message) == len(pickle.dumps(make_sampled(100)))
