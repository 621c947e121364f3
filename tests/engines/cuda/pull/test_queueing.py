"""Fills that only enqueue work run on the consumer's thread, other fills on worker threads."""

import itertools
import random
import threading

import numpy as np
import pytest
from tests.engines.cuda.pull.host_comparison import assert_same, feed_of, host_epoch, random_rows, read_all
from tests.engines.cuda.pull.queueing import (
    CONSUMER_THREAD,
    TIMEOUT_SECONDS,
    WORKERS,
    RandomConsumer,
    limit_enqueuing,
    locate_rows,
    make_shuffled,
    record_threads,
    unaligned_rows,
    warm,
)
from tests.support.fake_cuda import PACES, MarkerFramework, StreamFramework, fake_cuda

import forebay as fb
from forebay.engines.cuda.engine import CudaEngine
from forebay.engines.cuda.pull.page_edges import UnlockableEdges
from forebay.engines.cuda.pull.row_puller import RowPuller
from forebay.feed.row_index import RowIndex
from forebay.feed.slot_exchange import SlotExchange
from forebay.order import permutation

pytestmark = pytest.mark.timeout(300)  # after a lost wake-up, a test would wait forever


@pytest.fixture
def refreshes(monkeypatch):
    return record_threads(monkeypatch, UnlockableEdges, "refresh")


# Which thread fills


@pytest.mark.parametrize("resident", ["always", "never"])
def test_the_consumer_fills_groups_of_a_warm_feed(framework, fillers, resident):
    pipeline = make_shuffled()
    with feed_of(pipeline, framework, resident=resident) as feed:
        warm(framework, feed)
        fillers.clear()
        actual = [read_all(framework, feed) for _ in range(3)]
        assert len(fillers) >= 3 * (50 // feed.plan.group_batches)
        assert set(fillers) == {CONSUMER_THREAD}
    for number, batches in enumerate(actual, 2):
        assert_same(batches, host_epoch(pipeline, number))


def test_the_first_group_is_full_sized_if_all_rows_are_resident(framework, fillers):
    with feed_of(make_shuffled(), framework, resident="always") as feed:
        warm(framework, feed)
        fillers.clear()
        read_all(framework, feed)
        assert len(fillers) == -(-50 // feed.plan.group_batches)


def test_the_consumer_fills_as_many_groups_ahead_as_workers(framework, fillers):
    with feed_of(make_shuffled(), framework, resident="always") as feed:
        warm(framework, feed)
        fillers.clear()
        next(iter(feed))
        assert fillers == [CONSUMER_THREAD] * feed.plan.slots


def test_the_device_context_is_entered_once_for_each_group(framework, monkeypatch):
    depths, reclaim, fill = [], CudaEngine.reclaim, RowPuller.fill

    def recording_depth(method):
        return lambda *arguments: (depths.append(framework.gpu.context_depth), method(*arguments))[1]

    with feed_of(make_shuffled(), framework, resident="always") as feed:
        warm(framework, feed)
        monkeypatch.setattr(CudaEngine, "reclaim", recording_depth(reclaim))
        monkeypatch.setattr(RowPuller, "fill", recording_depth(fill))
        read_all(framework, feed)
        assert set(depths) == {1}
        assert framework.gpu.context_depth == 0


def test_no_worker_wakes_up_while_the_consumer_fills(framework, monkeypatch):
    with feed_of(make_shuffled(), framework, resident="always") as feed:
        warm(framework, feed)
        claims = record_threads(monkeypatch, SlotExchange, "claim")
        for _ in range(3):
            read_all(framework, feed)
        assert set(claims) == {CONSUMER_THREAD}


def test_the_consumer_also_fills_later_passes_of_an_epoch(framework, fillers):
    pipeline = make_shuffled().repeat(3)
    with feed_of(pipeline, framework, resident="always") as feed:
        warm(framework, feed)
        fillers.clear()
        assert_same(read_all(framework, feed), host_epoch(pipeline, 2))
        assert set(fillers) == {CONSUMER_THREAD}


def test_the_consumer_also_fills_the_next_epoch_of_files(framework, fillers, tmp_path):
    np.save(tmp_path / "x.npy", random_rows(400, 100, "u1"))
    pipeline = fb.from_files(tmp_path / "x.npy").shuffle(seed=1).batch(8)
    with feed_of(pipeline, framework, resident="always") as feed:
        warm(framework, feed)
        fillers.clear()
        for number in (2, 3, 4):
            assert_same(read_all(framework, feed), host_epoch(pipeline, number))
        assert set(fillers) == {CONSUMER_THREAD}


def test_only_feed_threads_allocate_slots_and_workspaces(framework, monkeypatch):
    pipeline = make_shuffled()
    opened = [record_threads(monkeypatch, CudaEngine, name) for name in ("open_slot", "allocate")]
    with feed_of(pipeline, framework, resident="always") as feed:
        warm(framework, feed)
        kept = [list(feed), list(feed)]
        assert len(opened[0]) >= 10
        assert set(opened[0]) <= WORKERS
        assert set(opened[1]) <= {*WORKERS, "forebay-lock"}
    assert_same(read_all(framework, kept[0]), host_epoch(pipeline, 2))
    assert_same(read_all(framework, kept[1]), host_epoch(pipeline, 3))
    del kept


def test_a_consumer_that_released_its_batches_fills_again(framework, fillers):
    pipeline = make_shuffled()
    with feed_of(pipeline, framework, resident="always") as feed:
        warm(framework, feed)
        kept = list(feed)
        del kept
        warm(framework, feed)
        fillers.clear()
        assert_same(read_all(framework, feed), host_epoch(pipeline, 2))
        assert set(fillers) == {CONSUMER_THREAD}


# Which rows


# With the fake driver, a permutation of up to 100 rows is a table.
ORDERS = {  # name: (number of rows, order, threads that may fill)
    "a table": (100, lambda rows: rows.shuffle(seed=5), {CONSUMER_THREAD}),
    "just beyond a table": (101, lambda rows: rows.shuffle(seed=5), {CONSUMER_THREAD}),
    "natural": (400, lambda rows: rows, {CONSUMER_THREAD}),
    "a few natural": (60, lambda rows: rows, {CONSUMER_THREAD}),
    "blocks": (400, lambda rows: rows.shuffle(seed=5, block=16), WORKERS),
    "a few blocks": (100, lambda rows: rows.shuffle(seed=5, block=16), {CONSUMER_THREAD}),
    "a shard": (400, lambda rows: rows.shard(1, 3), {CONSUMER_THREAD}),
    "a shard of few": (100, lambda rows: rows.shard(1, 3), {CONSUMER_THREAD}),
    "a shuffled shard": (400, lambda rows: rows.shuffle(seed=2).shard(1, 3), {CONSUMER_THREAD}),
    "the first of many": (400, lambda rows: rows.shuffle(seed=2).take(301), {CONSUMER_THREAD}),
    "repeated": (150, lambda rows: rows.shuffle(seed=2).repeat(2), {CONSUMER_THREAD}),
}


@pytest.mark.parametrize("name", ORDERS)
def test_every_order_returns_the_host_rows_on_every_filling_thread(framework, fillers, name):
    rows, ordered, expected = ORDERS[name]
    pipeline = ordered(fb.from_arrays({"x": random_rows(rows, 100, "u1")})).batch(4)
    with feed_of(pipeline, framework, resident="always") as feed:
        warm(framework, feed)
        fillers.clear()
        assert_same(read_all(framework, feed), host_epoch(pipeline, 2))
        assert set(fillers) <= expected


@pytest.mark.parametrize("rows", [8192, 8193])
def test_the_device_computes_row_numbers_only_of_long_permutations(fillers, rows):
    with fake_cuda() as framework, pytest.MonkeyPatch.context() as patch:
        patch.setattr(permutation.Permutation, "TABLE_LENGTH", 8192)  # rows
        pipeline = fb.from_arrays({"x": random_rows(rows, 4, "u1")}).shuffle(seed=1).batch(256)
        with feed_of(pipeline, framework, resident="always") as feed:
            warm(framework, feed)
            fillers.clear()
            framework.gpu.launched.clear()
            assert_same(read_all(framework, feed), host_epoch(pipeline, 2))
            assert set(fillers) == {CONSUMER_THREAD}
            assert ("compute_rows" in framework.gpu.launched) == (rows > 8192)


NUMBERS = {  # name: (order, whether its row numbers are cheap)
    "natural": (lambda rows: rows, True),
    "shuffled": (lambda rows: rows.shuffle(seed=1), True),
    "a shuffled shard": (lambda rows: rows.shuffle(seed=1).shard(0, 2), True),
    "a shard": (lambda rows: rows.shard(0, 2), True),
    "blocks": (lambda rows: rows.shuffle(seed=1, block=64), False),
    "few blocks": (lambda rows: rows.take(8192).shuffle(seed=1, block=64), True),
    "repeated": (lambda rows: rows.repeat(2), True),
    "twice shuffled": (lambda rows: rows.shuffle(seed=1).shuffle(seed=2), True),
    "sampled": (lambda rows: rows.sample(weights=np.ones(20_000)), True),
    "sampled once": (lambda rows: rows.sample(weights=np.ones(20_000), replacement=False), False),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_row_numbers_are_cheap_if_the_device_computes_them_or_they_are_few(name):
    ordered, expected = NUMBERS[name]
    pipeline = ordered(fb.from_arrays(np.zeros(20_000, np.uint8))).batch(8)
    assert RowIndex(pipeline, group_rows=80, chunk_rows=800).is_cheap is expected


# Changes between fills


@pytest.mark.parametrize(("row_nbytes", "expected"), [(100, {CONSUMER_THREAD}), (2000, WORKERS)])
def test_an_array_changed_between_epochs_is_pulled_again_by_every_filling_thread(
    framework, fillers, row_nbytes, expected
):
    data = {"x": random_rows(400, row_nbytes, "u1")}
    pipeline = fb.from_arrays(data).shuffle(seed=1).batch(8)
    with feed_of(pipeline, framework, resident="always") as feed:
        warm(framework, feed)
        for number in (2, 3):
            data["x"][...] += 60
            fillers.clear()
            assert_same(read_all(framework, feed), host_epoch(pipeline, number))
        assert "was changed since its upload" in feed.explain()
        assert set(fillers) <= expected


def test_workers_wake_up_in_the_epoch_that_falls_back_to_dma(framework, fillers):
    data = {"x": random_rows(400, 2000, "u1")}
    with feed_of(fb.from_arrays(data).shuffle(seed=1).batch(8), framework, resident="always") as feed:
        warm(framework, feed)
        data["x"][...] += 60
        fillers.clear()
        read_all(framework, feed)
        assert fillers[0] == CONSUMER_THREAD  # this fill noticed the change
        assert set(fillers[1:]) <= WORKERS


@pytest.mark.parametrize("before", [0, 1, 2, 3, 5, 9])
def test_workers_wake_up_when_a_fill_no_longer_only_enqueues(framework, fillers, monkeypatch, before):
    pipeline = make_shuffled()
    with feed_of(pipeline, framework, resident="always") as feed:
        warm(framework, feed)
        fillers.clear()
        limit_enqueuing(monkeypatch, itertools.chain(itertools.repeat(True, before), itertools.repeat(False)))
        assert_same(read_all(framework, feed), host_epoch(pipeline, 2))
        assert_same(read_all(framework, feed), host_epoch(pipeline, 3))
        assert set(fillers) & WORKERS


@pytest.mark.parametrize("seed", range(3))
def test_every_row_arrives_if_fills_switch_threads_at_random(framework, monkeypatch, seed):
    pipeline, dice = make_shuffled(), random.Random(seed)
    with feed_of(pipeline, framework, resident="always") as feed:
        warm(framework, feed)
        limit_enqueuing(monkeypatch, iter(lambda: dice.random() < 0.5, None))
        for number in (2, 3, 4):
            assert_same(read_all(framework, feed), host_epoch(pipeline, number))


def test_an_iteration_started_while_a_worker_fills_is_complete(framework, monkeypatch):
    pipeline, inside, resume, fill = make_shuffled(), threading.Event(), threading.Event(), RowPuller.fill

    def slow(puller, *arguments):
        inside.set()
        resume.wait(TIMEOUT_SECONDS)
        fill(puller, *arguments)

    with feed_of(pipeline, framework, resident="always") as feed:
        warm(framework, feed)
        limit_enqueuing(monkeypatch, itertools.chain(itertools.repeat(False, 4), itertools.repeat(True)))
        monkeypatch.setattr(RowPuller, "fill", slow)
        first = iter(feed)  # the workers begin to fill its groups
        assert inside.wait(TIMEOUT_SECONDS)
        second = iter(feed)  # of the same epoch, because the first iteration has returned no batch
        threading.Timer(0.02, resume.set).start()
        assert_same(read_all(framework, second), host_epoch(pipeline, 2))
        del first


@pytest.mark.parametrize("seed", range(12))
def test_a_random_consumer_gets_the_right_batches(monkeypatch, seed):
    dice = random.Random(seed)
    limit_enqueuing(monkeypatch, iter(lambda: dice.random() < 0.7, None))
    with fake_cuda(
        kind=dice.choice([StreamFramework, MarkerFramework]), pace=dice.choice(PACES), seed=seed
    ) as framework:
        RandomConsumer(framework, seed).take_epochs(5)


# Edges of arrays


LARGE = 64 << 10  # bytes of a row; rows of this size are copied by DMA


@pytest.mark.parametrize("ordered", [lambda rows: rows, lambda rows: rows.shuffle(seed=1)], ids=["natural", "shuffled"])
def test_dma_of_edge_rows_includes_changes_of_the_user(framework, ordered):
    data = {"x": unaligned_rows(40, LARGE)}
    pipeline = ordered(fb.from_arrays(data)).batch(2)
    with feed_of(pipeline, framework, resident="never") as feed:
        locate_rows(framework, feed)
        for number in (2, 3, 4):
            data["x"][[0, 1, -2, -1]] += 1
            assert_same(read_all(framework, feed), host_epoch(pipeline, number))


def test_edges_are_refreshed_only_for_groups_that_contain_them(framework, fillers, refreshes):
    with feed_of(fb.from_arrays({"x": unaligned_rows(40, LARGE)}).batch(2), framework, resident="never") as feed:
        locate_rows(framework, feed)
        fillers.clear()
        refreshes.clear()
        read_all(framework, feed)
        assert len(fillers) > 9
        assert len(refreshes) == 2


@pytest.mark.parametrize("seed", range(3))
def test_edges_of_a_shuffle_are_refreshed_for_at_most_two_groups(framework, refreshes, seed):
    pipeline = fb.from_arrays({"x": unaligned_rows(40, LARGE)}).shuffle(seed=seed).batch(2)
    with feed_of(pipeline, framework, resident="never") as feed:
        locate_rows(framework, feed)
        refreshes.clear()
        read_all(framework, feed)
        assert 1 <= len(refreshes) <= 2


def test_edges_are_refreshed_for_every_group_that_a_kernel_reads_from_the_host(framework, fillers, refreshes):
    with feed_of(make_shuffled(), framework, resident="never") as feed:
        warm(framework, feed)
        fillers.clear()
        refreshes.clear()
        read_all(framework, feed)
        assert len(refreshes) == len(fillers)


def test_edges_are_not_refreshed_if_all_rows_are_resident(framework, refreshes):
    with feed_of(make_shuffled(), framework, resident="always") as feed:
        warm(framework, feed)
        refreshes.clear()
        read_all(framework, feed)
        assert refreshes == []
