"""Groups that the consumer's own thread fills, where filling only queues work on a device: by whom, and which rows."""

import itertools
import random
import threading

import numpy as np
import pytest
from tests.engines.cuda.pull.queueing import (
    HERE,
    PATIENCE,
    WORKERS,
    Whim,
    answering,
    askew,
    get_ready,
    recorded,
    shuffled,
    warm,
)
from tests.engines.cuda.pull.test_fetcher import assert_same, feed_of, host_epoch, random_rows, read_all
from tests.support.plain_cuda import PACES, Marking, Telling, plain_cuda

import forebay as fb
from forebay.engines.cuda.engine import CudaEngine
from forebay.engines.cuda.pull.fetcher import Fetcher
from forebay.engines.cuda.pull.page_edges import Edges
from forebay.feed.row_numbers import RowNumbers
from forebay.feed.runner import Runner
from forebay.order import orders

pytestmark = pytest.mark.timeout(300)  # a wake-up that is lost hangs


@pytest.fixture
def refreshed(monkeypatch):
    return recorded(monkeypatch, Edges, "refresh")


# Who fills


@pytest.mark.parametrize("resident", ["always", "never"])
def test_the_consumer_fills_its_groups_itself_once_a_feed_is_warm(side, fillers, resident):
    pipeline = shuffled()
    with feed_of(pipeline, side, resident=resident) as feed:
        warm(side, feed)
        fillers.clear()
        found = [read_all(side, feed) for _ in range(3)]
        assert len(fillers) >= 3 * (50 // feed.plan.group_batches)
        assert set(fillers) == {HERE}
    for number, batches in enumerate(found, 2):
        assert_same(batches, host_epoch(pipeline, number))


def test_even_the_first_group_is_a_whole_one_once_every_row_is_on_the_device(side, fillers):
    with feed_of(shuffled(), side, resident="always") as feed:
        warm(side, feed)
        fillers.clear()
        read_all(side, feed)
        assert len(fillers) == -(-50 // feed.plan.group_batches)


def test_the_consumer_fills_as_far_ahead_as_workers_would(side, fillers):
    with feed_of(shuffled(), side, resident="always") as feed:
        warm(side, feed)
        fillers.clear()
        next(iter(feed))
        assert fillers == [HERE] * feed.plan.slots


def test_the_device_is_entered_once_for_all_that_a_group_asks_of_it_and_left_again(side, monkeypatch):
    depths, reclaim, fill = [], CudaEngine.reclaim, Fetcher.fill

    def looked(method):
        return lambda *arguments: (depths.append(side.machine.inside.depth), method(*arguments))[1]

    with feed_of(shuffled(), side, resident="always") as feed:
        warm(side, feed)
        monkeypatch.setattr(CudaEngine, "reclaim", looked(reclaim))
        monkeypatch.setattr(Fetcher, "fill", looked(fill))
        read_all(side, feed)
        assert set(depths) == {1}
        assert side.machine.inside.depth == 0


def test_no_worker_is_woken_where_the_consumer_fills(side, monkeypatch):
    with feed_of(shuffled(), side, resident="always") as feed:
        warm(side, feed)
        claims = recorded(monkeypatch, Runner, "_claim")
        for _ in range(3):
            read_all(side, feed)
        assert set(claims) == {HERE}


def test_passes_that_follow_in_the_same_epoch_are_filled_by_the_consumer_too(side, fillers):
    pipeline = shuffled().repeat(3)
    with feed_of(pipeline, side, resident="always") as feed:
        warm(side, feed)
        fillers.clear()
        assert_same(read_all(side, feed), host_epoch(pipeline, 2))
        assert set(fillers) == {HERE}


def test_files_which_go_on_into_the_next_epoch_are_filled_by_the_consumer_too(side, fillers, tmp_path):
    np.save(tmp_path / "x.npy", random_rows(400, 100, "u1"))
    pipeline = fb.from_files(tmp_path / "x.npy").shuffle(seed=1).batch(8)
    with feed_of(pipeline, side, resident="always") as feed:
        warm(side, feed)
        fillers.clear()
        for number in (2, 3, 4):
            assert_same(read_all(side, feed), host_epoch(pipeline, number))
        assert set(fillers) == {HERE}


def test_slots_and_what_belongs_to_them_are_opened_by_threads_of_our_own_only(side, monkeypatch):
    pipeline = shuffled()
    opened = [recorded(monkeypatch, CudaEngine, name) for name in ("open_slot", "allocate")]
    with feed_of(pipeline, side, resident="always") as feed:
        warm(side, feed)
        kept = [list(feed), list(feed)]
        assert len(opened[0]) >= 10
        assert set(opened[0]) <= WORKERS
        assert set(opened[1]) <= {*WORKERS, "forebay-lock"}
    assert_same(read_all(side, kept[0]), host_epoch(pipeline, 2))
    assert_same(read_all(side, kept[1]), host_epoch(pipeline, 3))
    del kept


def test_a_consumer_that_lets_go_of_what_it_kept_fills_by_itself_again(side, fillers):
    pipeline = shuffled()
    with feed_of(pipeline, side, resident="always") as feed:
        warm(side, feed)
        kept = list(feed)
        del kept
        warm(side, feed)
        fillers.clear()
        assert_same(read_all(side, feed), host_epoch(pipeline, 2))
        assert set(fillers) == {HERE}


# Which rows


ORDERS = {
    "a table": (100, lambda rows: rows.shuffle(seed=5), {HERE}),
    "just beyond a table": (101, lambda rows: rows.shuffle(seed=5), {HERE}),
    "natural": (400, lambda rows: rows, {HERE}),
    "a few natural": (60, lambda rows: rows, {HERE}),
    "blocks": (400, lambda rows: rows.shuffle(seed=5, block=16), WORKERS),
    "a few blocks": (100, lambda rows: rows.shuffle(seed=5, block=16), {HERE}),
    "a shard": (400, lambda rows: rows.shard(1, 3), WORKERS),
    "a shard of few": (100, lambda rows: rows.shard(1, 3), {HERE}),
    "a shuffled shard": (400, lambda rows: rows.shuffle(seed=2).shard(1, 3), {HERE}),
    "the first of many": (400, lambda rows: rows.shuffle(seed=2).take(301), {HERE}),
    "repeated": (150, lambda rows: rows.shuffle(seed=2).repeat(2), WORKERS),
}


@pytest.mark.parametrize("name", ORDERS)
def test_every_order_gives_the_hosts_rows_whoever_fills(side, fillers, name):
    rows, ordered, expected = ORDERS[name]
    pipeline = ordered(fb.from_arrays({"x": random_rows(rows, 100, "u1")})).batch(4)
    with feed_of(pipeline, side, resident="always") as feed:
        warm(side, feed)
        fillers.clear()
        assert_same(read_all(side, feed), host_epoch(pipeline, 2))
        assert set(fillers) <= expected


@pytest.mark.parametrize("rows", [8192, 8193])
def test_row_numbers_of_a_table_are_sent_and_those_beyond_are_computed_there(fillers, rows):
    with plain_cuda() as side, pytest.MonkeyPatch.context() as patch:
        patch.setattr(orders.Permutation, "TABLE_LENGTH", 8192)  # as it is without this driver
        pipeline = fb.from_arrays({"x": random_rows(rows, 4, "u1")}).shuffle(seed=1).batch(256)
        with feed_of(pipeline, side, resident="always") as feed:
            warm(side, feed)
            fillers.clear()
            side.machine.launched.clear()
            assert_same(read_all(side, feed), host_epoch(pipeline, 2))
            assert set(fillers) == {HERE}
            assert ("draw_rows" in side.machine.launched) == (rows > 8192)


NUMBERS = {
    "natural": (lambda rows: rows, True),
    "shuffled": (lambda rows: rows.shuffle(seed=1), True),
    "a shuffled shard": (lambda rows: rows.shuffle(seed=1).shard(0, 2), True),
    "a shard": (lambda rows: rows.shard(0, 2), False),
    "blocks": (lambda rows: rows.shuffle(seed=1, block=64), False),
    "few blocks": (lambda rows: rows.take(8192).shuffle(seed=1, block=64), True),
    "repeated": (lambda rows: rows.repeat(2), False),
    "twice shuffled": (lambda rows: rows.shuffle(seed=1).shuffle(seed=2), False),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_row_numbers_keep_nobody_waiting_where_a_device_computes_them_or_there_are_few(name):
    ordered, expected = NUMBERS[name]
    pipeline = ordered(fb.from_arrays(np.zeros(20_000, np.uint8))).batch(8)
    assert RowNumbers(pipeline, group_rows=80, chunk_rows=800).instant is expected


# What changes under way


@pytest.mark.parametrize(("row_nbytes", "expected"), [(100, {HERE}), (2000, WORKERS)])
def test_an_array_that_was_changed_between_epochs_crosses_again_whoever_fills(side, fillers, row_nbytes, expected):
    data = {"x": random_rows(400, row_nbytes, "u1")}
    pipeline = fb.from_arrays(data).shuffle(seed=1).batch(8)
    with feed_of(pipeline, side, resident="always") as feed:
        warm(side, feed)
        for number in (2, 3):
            data["x"][...] += 60
            fillers.clear()
            assert_same(read_all(side, feed), host_epoch(pipeline, number))
        assert "was changed since it was uploaded" in feed.explain()
        assert set(fillers) <= expected


def test_workers_are_woken_in_the_very_epoch_that_turns_out_to_cross_by_dma(side, fillers):
    data = {"x": random_rows(400, 2000, "u1")}
    with feed_of(fb.from_arrays(data).shuffle(seed=1).batch(8), side, resident="always") as feed:
        warm(side, feed)
        data["x"][...] += 60
        fillers.clear()
        read_all(side, feed)
        assert fillers[0] == HERE  # who found out
        assert set(fillers[1:]) <= WORKERS


@pytest.mark.parametrize("before", [0, 1, 2, 3, 5, 9])
def test_workers_are_woken_once_filling_takes_more_than_queueing(side, fillers, monkeypatch, before):
    pipeline = shuffled()
    with feed_of(pipeline, side, resident="always") as feed:
        warm(side, feed)
        fillers.clear()
        answering(monkeypatch, itertools.chain(itertools.repeat(True, before), itertools.repeat(False)))
        assert_same(read_all(side, feed), host_epoch(pipeline, 2))
        assert_same(read_all(side, feed), host_epoch(pipeline, 3))
        assert set(fillers) & WORKERS


@pytest.mark.parametrize("seed", range(3))
def test_every_row_arrives_however_often_that_changes(side, monkeypatch, seed):
    pipeline, dice = shuffled(), random.Random(seed)
    with feed_of(pipeline, side, resident="always") as feed:
        warm(side, feed)
        answering(monkeypatch, iter(lambda: dice.random() < 0.5, None))
        for number in (2, 3, 4):
            assert_same(read_all(side, feed), host_epoch(pipeline, number))


def test_an_iteration_that_begins_while_a_worker_fills_gets_all_of_its_rows(side, monkeypatch):
    pipeline, inside, go_on, fill = shuffled(), threading.Event(), threading.Event(), Fetcher.fill

    def slow(fetcher, *arguments):
        inside.set()
        go_on.wait(PATIENCE)
        fill(fetcher, *arguments)

    with feed_of(pipeline, side, resident="always") as feed:
        warm(side, feed)
        answering(monkeypatch, itertools.chain(itertools.repeat(False, 4), itertools.repeat(True)))
        monkeypatch.setattr(Fetcher, "fill", slow)
        first = iter(feed)  # of which the workers begin
        assert inside.wait(PATIENCE)
        second = iter(feed)
        threading.Timer(0.02, go_on.set).start()
        assert_same(read_all(side, second), host_epoch(pipeline, 3))
        del first


@pytest.mark.parametrize("seed", range(12))
def test_a_consumer_may_do_as_it_likes(monkeypatch, seed):
    dice = random.Random(seed)
    answering(monkeypatch, iter(lambda: dice.random() < 0.7, None))
    with plain_cuda(kind=dice.choice([Telling, Marking]), pace=dice.choice(PACES), seed=seed) as side:
        Whim(side, seed).take_epochs(5)


# The ends of arrays


LARGE = 48 << 10


@pytest.mark.parametrize("ordered", [lambda rows: rows, lambda rows: rows.shuffle(seed=1)], ids=["natural", "shuffled"])
def test_rows_at_both_ends_that_cross_by_dma_are_as_the_user_left_them(side, ordered):
    data = {"x": askew(40, LARGE)}
    pipeline = ordered(fb.from_arrays(data)).batch(2)
    with feed_of(pipeline, side, resident="never") as feed:
        get_ready(side, feed)
        for number in (2, 3, 4):
            data["x"][[0, 1, -2, -1]] += 1
            assert_same(read_all(side, feed), host_epoch(pipeline, number))


def test_copies_of_the_ends_are_made_anew_for_the_groups_that_hold_them_only(side, fillers, refreshed):
    with feed_of(fb.from_arrays({"x": askew(40, LARGE)}).batch(2), side, resident="never") as feed:
        get_ready(side, feed)
        fillers.clear()
        refreshed.clear()
        read_all(side, feed)
        assert len(fillers) > 9
        assert len(refreshed) == 2


@pytest.mark.parametrize("seed", range(3))
def test_in_any_order_the_ends_are_in_two_groups_at_most(side, refreshed, seed):
    pipeline = fb.from_arrays({"x": askew(40, LARGE)}).shuffle(seed=seed).batch(2)
    with feed_of(pipeline, side, resident="never") as feed:
        get_ready(side, feed)
        refreshed.clear()
        read_all(side, feed)
        assert 1 <= len(refreshed) <= 2


def test_where_a_kernel_reads_from_afar_copies_are_made_anew_for_every_group(side, fillers, refreshed):
    with feed_of(shuffled(), side, resident="never") as feed:
        warm(side, feed)
        fillers.clear()
        refreshed.clear()
        read_all(side, feed)
        assert len(refreshed) == len(fillers)


def test_where_all_rows_are_on_the_device_no_copies_are_made_anew(side, refreshed):
    with feed_of(shuffled(), side, resident="always") as feed:
        warm(side, feed)
        refreshed.clear()
        read_all(side, feed)
        assert refreshed == []
