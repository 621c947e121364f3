"""A consumer that is interrupted while it fills: by itself, by errors, by another thread."""

import itertools
import threading
import time
from itertools import islice

import pytest
from tests.engines.cuda.pull.queueing import (
    HERE,
    PATIENCE,
    Failing,
    Held,
    Taker,
    asleep,
    begun_to_close,
    received_until,
    shuffled,
    warm,
)
from tests.engines.cuda.pull.test_fetcher import assert_same, feed_of, host_epoch, random_rows, read_all
from tests.support.plain_cuda import forget_orders, own_threads, plain_cuda, prepared

import forebay as fb
from forebay.engines.cuda.engine import CudaEngine
from forebay.engines.cuda.pull.fetcher import Fetcher
from forebay.engines.cuda.pull.resident import Kept
from forebay.errors import DeviceError, FeedClosedError, FeedError
from forebay.feed import throttle as consumers
from forebay.feed.throttle import Consumer

pytestmark = pytest.mark.timeout(300)  # a wake-up that is lost hangs


@pytest.fixture(autouse=True)
def orders_of_the_other_driver():
    """Are forgotten, also where a test ends amid it."""
    yield
    forget_orders()


# By itself


@pytest.mark.parametrize("taken", [1, 6, 20])
def test_a_second_iteration_in_mid_epoch_ends_the_first(side, fillers, taken):
    pipeline = shuffled()
    with feed_of(pipeline, side, resident="always") as feed:
        warm(side, feed)
        fillers.clear()
        first = iter(feed)
        assert_same(read_all(side, islice(first, taken)), host_epoch(pipeline, 2)[:taken])
        second = iter(feed)
        with pytest.raises(FeedError, match="use the newer iterator"):
            next(first)
        assert_same(read_all(side, second), host_epoch(pipeline, 3))
        assert set(fillers) == {HERE}


@pytest.mark.parametrize("taken", [1, 6, 20])
def test_closing_in_mid_epoch_ends_the_iteration(side, taken):
    pipeline = shuffled()
    with feed_of(pipeline, side, resident="always") as feed:
        warm(side, feed)
        epoch = iter(feed)
        assert_same(read_all(side, islice(epoch, taken)), host_epoch(pipeline, 2)[:taken])
    with pytest.raises(FeedError, match="the feed was closed"):
        next(epoch)
    with pytest.raises(FeedClosedError):
        iter(feed)
    assert own_threads() == []


def test_ctrl_c_while_the_consumer_fills_comes_out_at_once_and_the_feed_goes_on(side, monkeypatch):
    pipeline = shuffled()
    with feed_of(pipeline, side, resident="always") as feed:
        warm(side, feed)
        for number in range(2, 7):
            with monkeypatch.context() as patch:
                Failing(patch, KeyboardInterrupt(), first=4)
                found, _ = received_until(side, feed, KeyboardInterrupt)
            assert 0 < len(found) < 4 * feed.plan.group_batches  # the fourth fill is the one that fails
            assert_same(found, host_epoch(pipeline, number)[: len(found)])
        assert_same(read_all(side, feed), host_epoch(pipeline, 7))


def test_ctrl_c_while_a_group_is_asked_for_loses_no_slot(monkeypatch):
    pipeline, begin_pass, turns = shuffled(), Fetcher.begin_pass, itertools.count()

    def interrupted(fetcher):
        if next(turns) < 3:
            raise KeyboardInterrupt
        begin_pass(fetcher)

    with plain_cuda() as side, feed_of(pipeline, side, resident="always") as feed:
        warm(side, feed)
        monkeypatch.setattr(Fetcher, "begin_pass", interrupted)
        for _ in range(3):
            received_until(side, feed, KeyboardInterrupt)
        taker = Taker(side, iter(feed))
        in_time = taker.joined()
        feed.close()
        assert taker.joined()
        assert in_time
        assert_same(taker.found, host_epoch(pipeline, 5))


# By errors


@pytest.mark.parametrize("group", [0, 1, 3, 4])
def test_an_error_comes_where_its_group_is_reached_after_all_batches_before_it(side, monkeypatch, fillers, group):
    pipeline = shuffled()
    with feed_of(pipeline, side, resident="always") as feed:
        warm(side, feed)
        fillers.clear()
        Failing(monkeypatch, ZeroDivisionError("divided"), first=group)
        found, error = received_until(side, feed, ZeroDivisionError)
        expected = host_epoch(pipeline, 2)[: group * feed.plan.group_batches]
        assert [batch["x"].tolist() for batch in found] == [batch["x"].tolist() for batch in expected]
        assert any("while filling" in note and "epoch 2" in note for note in error.__notes__)
        assert feed.state_dict()["position"] == len(expected) * 8
        assert_same(read_all(side, feed), host_epoch(pipeline, 3))
        assert set(fillers) == {HERE}


def test_little_is_tried_behind_a_group_that_failed(monkeypatch):
    with plain_cuda() as side, feed_of(shuffled(), side, resident="always") as feed:
        warm(side, feed)
        failing = Failing(monkeypatch, DeviceError("lost"), count=100)
        received_until(side, feed, DeviceError)
        assert failing.tried <= 3


def test_a_device_that_fails_for_good_is_told_of_in_an_epoch_without_end(monkeypatch):
    with plain_cuda() as side, feed_of(shuffled().repeat(), side, resident="always") as feed:
        read_all(side, islice(feed, 1))
        prepared()
        read_all(side, islice(feed, 100))
        asleep(feed)
        Failing(monkeypatch, DeviceError("lost"), count=10_000)
        found, _ = received_until(side, feed, DeviceError)
        assert found == []


# By another thread


@pytest.mark.parametrize("number", [0, 1, 4])
def test_an_iteration_that_begins_while_the_consumer_fills_gets_all_of_its_rows(monkeypatch, number):
    pipeline = shuffled()
    with plain_cuda() as side, feed_of(pipeline, side, resident="always") as feed:
        warm(side, feed)
        held = Held(monkeypatch, Fetcher, "fill", number)
        taker = Taker(side, iter(feed))
        assert held.reached()
        second = iter(feed)
        held.go_on()
        assert taker.joined()
        assert isinstance(taker.ended_by, FeedError)
        assert_same(read_all(side, second), host_epoch(pipeline, 3))


@pytest.mark.parametrize("number", [0, 1, 4])
def test_closing_while_the_consumer_fills_waits_for_it_and_tells_it(monkeypatch, number):
    with plain_cuda() as side, feed_of(shuffled(), side, resident="always") as feed:
        warm(side, feed)
        held = Held(monkeypatch, Fetcher, "fill", number)
        taker = Taker(side, iter(feed))
        assert held.reached()
        closing = begun_to_close(feed)
        held.go_on()
        closing.join(PATIENCE)
        assert taker.joined()
        assert isinstance(taker.ended_by, FeedClosedError)
        assert side.machine.faults == []


def test_closing_while_the_consumer_is_about_to_wait_wakes_it(monkeypatch):
    held, begin = Held(monkeypatch, Consumer, "come"), threading.Event()
    monkeypatch.setattr(CudaEngine, "attend", lambda engine: begin.wait(PATIENCE))  # no worker fills anything before
    with plain_cuda() as side, feed_of(shuffled(), side, resident="always") as feed:
        taker = Taker(side, iter(feed))
        assert held.reached()
        closing = begun_to_close(feed)
        begin.set()
        closing.join(PATIENCE)
        held.go_on()
        in_time = taker.joined()
        with feed._runner._lock:
            feed._runner._may_take.notify_all()  # so that it ends, whatever comes of this
        assert taker.joined()
        assert in_time
        assert isinstance(taker.ended_by, FeedClosedError)


def test_a_batch_that_is_taken_while_the_feed_is_closed_is_whole_or_refused(monkeypatch):
    pipeline = shuffled()
    with plain_cuda() as side, feed_of(pipeline, side, resident="always") as feed:
        warm(side, feed)
        held = Held(monkeypatch, CudaEngine, "lend", feed.plan.group_batches)
        taker = Taker(side, iter(feed))
        assert held.reached()
        feed.close()
        held.go_on()
        assert taker.joined()
        assert isinstance(taker.ended_by, FeedError)
        assert_same(taker.found, host_epoch(pipeline, 2)[: len(taker.found)])


def test_a_feed_that_begins_anew_while_another_thread_comes_for_a_group_confuses_nobody(monkeypatch):
    consumer, clock = Consumer(), time.perf_counter

    def begin_anew():
        consumer.release()
        return clock()

    consumer.leave(1)
    monkeypatch.setattr(consumers.time, "perf_counter", begin_anew)
    consumer.come()


def test_ends_that_were_changed_while_another_leaf_was_uploaded_are_kept_as_they_are_now(monkeypatch):
    data = {"x": random_rows(400, 100, "u1"), "y": random_rows(400, 100, "u1")}
    pipeline, go_on, upload = fb.from_arrays(data).shuffle(seed=1).batch(8), threading.Event(), Kept.upload

    def uploading(kept, *arguments, **options):
        go_on.wait(PATIENCE)
        upload(kept, *arguments, **options)

    monkeypatch.setattr(Kept, "upload", uploading)
    with plain_cuda() as side, feed_of(pipeline, side, resident="always") as feed:
        read_all(side, feed)
        data["y"][...] += 100  # between two epochs: x is on its way, y has not begun
        go_on.set()
        prepared()
        assert_same(read_all(side, feed), host_epoch(pipeline, 1))
