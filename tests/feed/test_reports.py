"""`stats()` counts received batches and rows, and `on_stats()` reports the counts regularly."""

import itertools
import json
import logging
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.device_like import DeviceLikeEngine, FakeDeviceHandOff
from tests.support.received import batches_of

import forebay as fb
from forebay.core.recorder import describe_received
from forebay.errors import PipelineError
from forebay.feed import reports
from forebay.testing import SimulatedEngine

PERCENTILES = ("wait_p50_seconds", "wait_p95_seconds", "wait_p99_seconds", "wait_max_seconds")


def feed_of(rows=40, batch_rows=4, device="cpu", **options):
    return fb.from_arrays(np.arange(rows)).batch(batch_rows, **options).feed("numpy", device=device)


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves."""

    class Clock:
        now = 100.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(reports, "time", clock)
    return clock


@pytest.mark.parametrize("device", ["cpu", SimulatedEngine()], ids=["host", "device"])
def test_stats_count_rows_bytes_and_batches(device):
    with feed_of(rows=42, device=device) as feed:
        assert feed.stats()["rows"] == 0
        batches_of(feed)
        stats = feed.stats()
    assert (stats["batches"], stats["rows"], stats["nbytes"], stats["errors"]) == (11, 42, 42 * 8, 0)
    assert (stats["rank"], stats["shards"]) == (0, 1)
    assert json.dumps(stats)


@pytest.mark.parametrize("device", ["cpu", SimulatedEngine()], ids=["host", "device"])
@given(rows=st.integers(1, 60), epochs=st.lists(st.integers(1, 9), max_size=4))
def test_stats_count_only_the_batches_that_the_loop_took(device, rows, epochs):
    with feed_of(rows=rows, device=device) as feed:
        taken = [batch for count in epochs for batch in batches_of(itertools.islice(feed, count))]
        for stats in (feed.stats(), describe_received(feed.received)):
            assert stats["batches"] == len(taken)
            assert stats["rows"] == sum(map(len, taken))
            assert stats["nbytes"] == 8 * stats["rows"]


def test_a_report_counts_only_the_batches_that_the_loop_took():
    found, taken = [], 0
    with feed_of(rows=40_000) as feed:
        feed.on_stats(lambda stats: found.append((stats["batches"], taken)), every=10)
        for _ in feed:
            taken += 1
    assert found
    assert all(reported == count for reported, count in found)


def test_stats_count_the_rows_of_streams():
    with fb.from_generator(lambda: iter(np.arange(10))).batch(4).feed("numpy") as feed:
        batches_of(feed)
        assert feed.stats()["rows"] == 10


def test_stats_name_the_shard():
    with fb.from_arrays(np.arange(40)).shard(2, 4).batch(5).feed("numpy") as feed:
        assert (feed.stats()["rank"], feed.stats()["shards"]) == (2, 4)


def test_stats_name_the_rank_of_a_launcher(monkeypatch):
    monkeypatch.setattr(reports, "detect_process_rank", lambda: 3)
    with feed_of() as feed:
        assert feed.stats()["rank"] == 3


def test_the_percentiles_show_a_slow_map():
    def slow(batch):
        threading.Event().wait(0.02)
        return batch

    with fb.from_arrays(np.arange(8)).batch(1).map(slow).feed("numpy") as feed:
        batches_of(feed)
        stats, text = feed.stats(), feed.explain()
    values = [stats[name] for name in PERCENTILES]
    assert values == sorted(values)
    assert 0 < values[2] <= stats["wait_max_seconds"]
    assert "for 99 % of the batches at most" in text


def test_errors_are_counted():
    def fail(batch):
        raise KeyError("no such row")

    pipeline = fb.from_generator(lambda: iter(np.arange(4)), spec=fb.ArraySpec((), "int64")).batch(2)
    with pipeline.map(lambda rows: fail(rows) if rows[0] else rows).feed("numpy") as feed:
        with pytest.raises(KeyError):
            batches_of(feed)
        assert feed.stats()["errors"] == 1


def test_an_error_on_the_device_is_counted():
    def fail(batch):
        raise KeyError("no such row")

    rows = np.asfortranarray(np.zeros((4, 2)))  # not contiguous, so that they are staged
    pipeline = fb.from_arrays(rows).batch(2).map(fail, where="device")
    with pipeline.feed("numpy", device=DeviceLikeEngine(FakeDeviceHandOff())) as feed:
        with pytest.raises(KeyError):
            batches_of(feed)
        assert feed.stats()["errors"] == 1


def test_a_report_comes_after_a_number_of_batches():
    found = []
    with fb.from_batches([np.arange(2)] * 10).feed("numpy") as feed:
        feed.on_stats(found.append, every=4)
        batches_of(feed)
        assert [stats["batches"] for stats in found] == [4, 8]
        assert [stats["interval"]["rows"] for stats in found] == [8, 8]
    assert [stats["batches"] for stats in found] == [4, 8, 10]
    assert found[-1]["interval"]["batches"] == 2


def test_a_report_comes_after_a_time(clock):
    found = []
    with fb.from_batches([np.arange(2)] * 6).feed("numpy") as feed:
        feed.on_stats(found.append, every="10s")
        for _ in feed:
            clock.now += 4
    assert [stats["batches"] for stats in found] == [3, 6]
    assert [stats["interval"]["seconds"] for stats in found] == [12, 12]
    assert found[0]["interval"]["rows_per_second"] == 6 / 12


def test_without_a_batch_since_the_last_report_close_makes_no_report():
    found = []
    feed = feed_of()
    feed.on_stats(found.append, every=1)
    batches_of(feed)
    count = len(found)
    feed.close()
    feed.close()
    assert len(found) == count > 0


def test_reports_end_when_the_user_ends_them():
    found = []
    with feed_of() as feed:
        stop = feed.on_stats(found.append, every=1)
        stop()
        stop()
        batches_of(feed)
    assert found == []


def test_a_failing_callback_does_not_end_the_feed(caplog):
    def fail(stats):
        raise OSError("the disk is full")

    with caplog.at_level(logging.WARNING), feed_of() as feed:
        feed.on_stats(fail, every=1)
        assert len(batches_of(feed)) == 10
    assert "The feed continues" in caplog.text
    assert "the disk is full" in caplog.text


def test_a_callback_may_use_the_feed():
    found = []
    with feed_of() as feed:
        feed.on_stats(lambda stats: found.append((feed.state_dict(), feed.explain())), every=1)
        batches_of(feed)
    assert found


def test_a_callback_may_take_a_batch():
    found = []
    with fb.from_batches([np.arange(2)] * 10).feed("numpy") as feed:
        iterator = iter(feed)
        feed.on_stats(lambda stats: found.append(next(iterator)), every=3)
        received = list(iterator)
        assert len(received) + len(found) == 10
        assert len(found) == 3


@pytest.mark.parametrize("every", [0, -1, True, 1.5, "", "10", "s", "0s", "-1s", "1 day", None])
def test_invalid_intervals_are_refused(every):
    with feed_of() as feed, pytest.raises(PipelineError, match="neither a number of batches nor a time"):
        feed.on_stats(print, every=every)


@given(number=st.integers(1, 999), unit=st.sampled_from(["ms", "s", "min", "h"]))
def test_times_have_units(number, unit):
    batches, seconds = reports._parse_interval(f"{number}{unit}")
    assert batches is None
    assert seconds == number * {"ms": 1e-3, "s": 1, "min": 60, "h": 3600}[unit]


def test_a_callback_that_cannot_be_called_is_refused():
    with feed_of() as feed, pytest.raises(PipelineError, match="pass a function"):
        feed.on_stats("log")


def test_a_batch_without_rows_counts_as_a_batch():
    batches = [np.zeros((rows, 2)) for rows in (3, 0, 2)]
    with fb.from_batches(lambda: iter(batches)).feed("numpy") as feed:
        end = feed.on_stats(lambda stats: None, every="1ms")
        assert sum(len(batch) for batch in feed) == 5
        end()
        assert (feed.stats()["batches"], feed.stats()["rows"]) == (3, 5)
