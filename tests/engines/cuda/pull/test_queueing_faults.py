"""Interrupted fills on the consumer's thread: new iterations, errors and other threads."""

import itertools
import threading
import time
from itertools import islice

import pytest
from tests.engines.cuda.pull.host_comparison import assert_same, feed_of, host_epoch, random_rows, read_all
from tests.engines.cuda.pull.queueing import (
    CONSUMER_THREAD,
    TIMEOUT_SECONDS,
    ConsumerThread,
    FailingFills,
    PausedCall,
    collect_until,
    make_shuffled,
    start_closing,
    wait_until_idle,
    warm,
)
from tests.support.fake_cuda import clear_order_caches, fake_cuda, feed_threads, wait_until_located

import forebay as fb
from forebay.engines.cuda.engine import CudaEngine
from forebay.engines.cuda.pull.resident import ResidentRows
from forebay.engines.cuda.pull.row_puller import RowPuller
from forebay.errors import DeviceError, FeedClosedError, FeedError
from forebay.feed import throttle as throttle_module
from forebay.feed.throttle import ConsumerThrottle

pytestmark = pytest.mark.timeout(300)  # after a lost wake-up, a test would wait forever


@pytest.fixture(autouse=True)
def clear_orders_after_test():
    """Clear cached orders, also if a test fails inside the fake driver."""
    yield
    clear_order_caches()


# Fills interrupted by a new iteration, close or Ctrl-C


@pytest.mark.parametrize("taken", [1, 6, 20])
def test_a_second_iteration_inside_an_epoch_ends_the_first(framework, fillers, taken):
    pipeline = make_shuffled()
    with feed_of(pipeline, framework, resident="always") as feed:
        warm(framework, feed)
        fillers.clear()
        first = iter(feed)
        assert_same(read_all(framework, islice(first, taken)), host_epoch(pipeline, 2)[:taken])
        second = iter(feed)
        with pytest.raises(FeedError, match="Use the newer iterator"):
            next(first)
        assert_same(read_all(framework, second), host_epoch(pipeline, 3))
        assert set(fillers) == {CONSUMER_THREAD}


@pytest.mark.parametrize("taken", [1, 6, 20])
def test_closing_inside_an_epoch_ends_the_iteration(framework, taken):
    pipeline = make_shuffled()
    with feed_of(pipeline, framework, resident="always") as feed:
        warm(framework, feed)
        epoch = iter(feed)
        assert_same(read_all(framework, islice(epoch, taken)), host_epoch(pipeline, 2)[:taken])
    with pytest.raises(FeedError, match=r"close\(\)"):
        next(epoch)
    with pytest.raises(FeedClosedError):
        iter(feed)
    assert feed_threads() == []


def test_ctrl_c_during_a_fill_is_raised_at_once_and_the_feed_stays_usable(framework, monkeypatch):
    pipeline = make_shuffled()
    with feed_of(pipeline, framework, resident="always") as feed:
        warm(framework, feed)
        for number in range(2, 7):
            with monkeypatch.context() as patch:
                FailingFills(patch, KeyboardInterrupt(), first=4)
                batches, _ = collect_until(framework, feed, KeyboardInterrupt)
            # Fill 4 fails before the consumer takes all batches of the fills 0 to 3.
            assert 0 < len(batches) < 4 * feed.plan.group_batches
            assert_same(batches, host_epoch(pipeline, number)[: len(batches)])
        assert_same(read_all(framework, feed), host_epoch(pipeline, 7))


def test_ctrl_c_while_a_group_is_claimed_loses_no_slot(monkeypatch):
    pipeline, begin_pass, turns = make_shuffled(), RowPuller.begin_pass, itertools.count()

    def interrupted(puller):
        if next(turns) < 3:
            raise KeyboardInterrupt
        begin_pass(puller)

    with fake_cuda() as framework, feed_of(pipeline, framework, resident="always") as feed:
        warm(framework, feed)
        monkeypatch.setattr(RowPuller, "begin_pass", interrupted)
        for _ in range(3):
            collect_until(framework, feed, KeyboardInterrupt)
        consumer = ConsumerThread(framework, iter(feed))
        in_time = consumer.has_finished()
        feed.close()
        assert consumer.has_finished()
        assert in_time
        assert_same(consumer.found, host_epoch(pipeline, 5))


# Fills interrupted by errors


@pytest.mark.parametrize("group", [0, 1, 3, 4])
def test_an_error_is_raised_after_all_batches_before_its_group(framework, monkeypatch, fillers, group):
    pipeline = make_shuffled()
    with feed_of(pipeline, framework, resident="always") as feed:
        warm(framework, feed)
        fillers.clear()
        FailingFills(monkeypatch, ZeroDivisionError("divided"), first=group)
        batches, error = collect_until(framework, feed, ZeroDivisionError)
        expected = host_epoch(pipeline, 2)[: group * feed.plan.group_batches]
        assert [batch["x"].tolist() for batch in batches] == [batch["x"].tolist() for batch in expected]
        assert any("while filling" in note and "epoch 2" in note for note in error.__notes__)
        assert feed.state_dict()["position"] == len(expected) * 8
        assert_same(read_all(framework, feed), host_epoch(pipeline, 3))
        assert set(fillers) == {CONSUMER_THREAD}


def test_few_fills_are_tried_after_a_failed_group(monkeypatch):
    with fake_cuda() as framework, feed_of(make_shuffled(), framework, resident="always") as feed:
        warm(framework, feed)
        failing = FailingFills(monkeypatch, DeviceError("lost"), count=100)
        collect_until(framework, feed, DeviceError)
        assert failing.tried <= 3


def test_a_permanent_device_failure_is_raised_in_an_endless_epoch(monkeypatch):
    with fake_cuda() as framework, feed_of(make_shuffled().repeat(), framework, resident="always") as feed:
        read_all(framework, islice(feed, 1))
        wait_until_located()
        read_all(framework, islice(feed, 100))
        wait_until_idle(feed)
        FailingFills(monkeypatch, DeviceError("lost"), count=10_000)
        batches, _ = collect_until(framework, feed, DeviceError)
        assert batches == []


# Fills interrupted by another thread


@pytest.mark.parametrize("number", [0, 1, 4])
def test_an_iteration_started_while_the_consumer_fills_is_complete(monkeypatch, number):
    pipeline = make_shuffled()
    with fake_cuda() as framework, feed_of(pipeline, framework, resident="always") as feed:
        warm(framework, feed)
        paused = PausedCall(monkeypatch, RowPuller, "fill", number)
        consumer = ConsumerThread(framework, iter(feed))
        assert paused.is_reached()
        second = iter(feed)
        paused.resume()
        assert consumer.has_finished()
        assert isinstance(consumer.ended_by, FeedError)
        assert_same(read_all(framework, second), host_epoch(pipeline, 3))


@pytest.mark.parametrize("number", [0, 1, 4])
def test_closing_waits_for_a_fill_of_the_consumer_and_ends_its_iteration(monkeypatch, number):
    with fake_cuda() as framework, feed_of(make_shuffled(), framework, resident="always") as feed:
        warm(framework, feed)
        paused = PausedCall(monkeypatch, RowPuller, "fill", number)
        consumer = ConsumerThread(framework, iter(feed))
        assert paused.is_reached()
        closing = start_closing(feed)
        paused.resume()
        closing.join(TIMEOUT_SECONDS)
        assert consumer.has_finished()
        assert isinstance(consumer.ended_by, FeedClosedError)
        assert framework.gpu.faults == []


def test_closing_wakes_a_consumer_that_is_about_to_wait(monkeypatch):
    paused, begin = PausedCall(monkeypatch, ConsumerThrottle, "on_request"), threading.Event()
    # No worker fills a slot before `begin` is set.
    monkeypatch.setattr(CudaEngine, "enter_worker_thread", lambda engine: begin.wait(TIMEOUT_SECONDS))
    with fake_cuda() as framework, feed_of(make_shuffled(), framework, resident="always") as feed:
        consumer = ConsumerThread(framework, iter(feed))
        assert paused.is_reached()
        closing = start_closing(feed)
        begin.set()
        closing.join(TIMEOUT_SECONDS)
        paused.resume()
        in_time = consumer.has_finished()
        with feed._runner._lock:
            feed._runner._take_condition.notify_all()  # wakes the thread even if the test fails
        assert consumer.has_finished()
        assert in_time
        assert isinstance(consumer.ended_by, FeedClosedError)


def test_a_batch_taken_during_close_is_complete_or_refused(monkeypatch):
    pipeline = make_shuffled()
    with fake_cuda() as framework, feed_of(pipeline, framework, resident="always") as feed:
        warm(framework, feed)
        paused = PausedCall(monkeypatch, CudaEngine, "hand_out", feed.plan.group_batches)
        consumer = ConsumerThread(framework, iter(feed))
        assert paused.is_reached()
        feed.close()
        paused.resume()
        assert consumer.has_finished()
        assert isinstance(consumer.ended_by, FeedError)
        assert_same(consumer.found, host_epoch(pipeline, 2)[: len(consumer.found)])


def test_a_reset_during_a_request_is_safe(monkeypatch):
    throttle, clock = ConsumerThrottle(), time.perf_counter

    def reset_and_read_clock():
        throttle.reset()
        return clock()

    throttle.on_take(1)
    monkeypatch.setattr(throttle_module.time, "perf_counter", reset_and_read_clock)
    throttle.on_request()


def test_edges_changed_during_the_upload_of_another_leaf_are_current(monkeypatch):
    data = {"x": random_rows(400, 100, "u1"), "y": random_rows(400, 100, "u1")}
    pipeline, resume, upload = fb.from_arrays(data).shuffle(seed=1).batch(8), threading.Event(), ResidentRows.upload

    def uploading(resident, *arguments, **options):
        resume.wait(TIMEOUT_SECONDS)
        upload(resident, *arguments, **options)

    monkeypatch.setattr(ResidentRows, "upload", uploading)
    with fake_cuda() as framework, feed_of(pipeline, framework, resident="always") as feed:
        read_all(framework, feed)
        data["y"][...] += 100  # between two epochs, during the upload of x and before the upload of y
        resume.set()
        wait_until_located()
        assert_same(read_all(framework, feed), host_epoch(pipeline, 1))
