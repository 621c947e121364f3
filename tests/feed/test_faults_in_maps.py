"""Maps that fail, kill their worker process or take long.

After a failure, the state of the feed is just after the last batch that arrived.
"""

import os
import re
import signal
import time

import numpy as np
import pytest
from tests.support.received import collect_rows, rows_of

import forebay as fb
from forebay.errors import WorkerError


def kill_on_fifty(batch):
    if 50 in batch:
        os.kill(os.getpid(), signal.SIGKILL)
    return batch


def fail_on_fifty(batch):
    if 50 in batch:
        raise ZeroDivisionError("fifty")
    return batch


@pytest.mark.parametrize("where", ["thread", "process"])
def test_all_batches_before_a_failing_batch_arrive_and_the_state_is_before_it(where):
    pipeline = fb.from_arrays(np.arange(100)).batch(10).map(fail_on_fifty, where=where)
    got = []
    with pipeline.feed("numpy") as feed:
        with pytest.raises(ZeroDivisionError, match="fifty") as caught:
            collect_rows(feed, got)
        assert got == list(range(50))
        assert feed.state_dict()["position"] == 50
    assert any("rows 50 to 59" in note for note in caught.value.__notes__)


def test_batches_before_a_failing_batch_arrive_when_a_worker_process_maps_several_at_a_time():
    pipeline = fb.from_arrays(np.arange(2000)).batch(1).map(fail_on_fifty, where="process")
    got = []
    with pipeline.feed("numpy") as feed:
        assert feed.plan.group_batches > 1
        with pytest.raises(ZeroDivisionError, match="fifty") as caught:
            collect_rows(feed, got)
        assert got == list(range(50))
        assert feed.state_dict()["position"] == 50
    assert any("rows 50 to 50 at position 50" in note for note in caught.value.__notes__)


@pytest.mark.parametrize(("rows", "ending"), [(4, r"\d\) at"), (8, r"\d\) at"), (9, r"\d, \.\.\.\) at")])
def test_the_note_on_an_error_lists_up_to_eight_shuffled_rows(rows, ending):
    pipeline = fb.from_arrays(np.arange(90)).shuffle(seed=0).batch(rows).map(fail_on_fifty)
    with pipeline.feed("numpy") as feed, pytest.raises(ZeroDivisionError) as caught:
        rows_of(feed)
    assert re.search(rf"{rows} rows \(\d+.*{ending} position", caught.value.__notes__[-1])


def test_a_failed_feed_can_continue_after_the_bad_batch():
    pipeline = fb.from_arrays(np.arange(100)).batch(10).map(fail_on_fifty)
    with pipeline.feed("numpy") as feed:
        with pytest.raises(ZeroDivisionError):
            rows_of(feed)
        feed.load_state_dict(feed.state_dict() | {"position": 60})
        assert rows_of(feed) == list(range(60, 100))


def test_a_map_that_raises_stop_iteration_does_not_end_the_epoch():
    def stop(batch):
        if batch[0] >= 50:
            raise StopIteration
        return batch

    with pytest.raises(RuntimeError, match="StopIteration"):
        rows_of(fb.from_arrays(np.arange(100)).batch(10).map(stop).feed("numpy"))


def test_the_error_after_the_kill_of_a_worker_process_names_the_signal():
    pipeline = fb.from_arrays(np.arange(100)).batch(10).map(kill_on_fifty, where="process")
    with pipeline.feed("numpy") as feed, pytest.raises(WorkerError, match="SIGKILL"):
        rows_of(feed)


def test_after_the_kill_of_a_worker_the_state_is_just_after_the_last_batch_that_arrived():
    pipeline = fb.from_arrays(np.arange(2000)).batch(1).map(kill_on_fifty, where="process")
    got = []
    with pipeline.feed("numpy") as feed:
        assert feed.plan.group_batches > 1
        with pytest.raises(WorkerError, match="SIGKILL"):
            collect_rows(feed, got)
        position = feed.state_dict()["position"]
        assert 50 - feed.plan.group_batches < position <= 50
        assert got == list(range(position))


def test_a_feed_continues_after_a_worker_died():
    pipeline = fb.from_arrays(np.arange(100)).batch(10).map(kill_on_fifty, where="process")
    with pipeline.feed("numpy") as feed:
        for _ in range(2):
            with pytest.raises(WorkerError, match="SIGKILL"):
                rows_of(feed)
            feed.load_state_dict(feed.state_dict() | {"position": 60})
            assert rows_of(feed) == list(range(60, 100))


def test_close_waits_only_for_the_batches_that_a_slow_map_has_begun():
    begun = []

    def slow(batch):
        begun.append(len(batch))
        time.sleep(0.02)
        return batch

    feed = fb.from_arrays(np.arange(100_000)).batch(10).map(slow).feed("numpy")
    next(iter(feed))
    feed.close()
    assert len(begun) < 5000  # not all 10,000, which would take minutes


@pytest.mark.parametrize("shuffle", [False, True])
def test_an_error_in_the_first_batch_has_its_row_numbers(shuffle):
    def fail(row):
        raise FileNotFoundError(str(row))

    rows = fb.from_arrays(np.arange(100))
    pipeline = rows.shuffle(seed=1) if shuffle else rows
    first = next(pipeline.batch(16).feed("numpy"))[:8].tolist()
    with pytest.raises(FileNotFoundError) as caught:
        pipeline.map(fail).batch(16).feed("numpy")
    numbers = ", ".join(map(str, first))
    assert caught.value.__notes__[-1] == f"while the feed started, for the first batch (rows {numbers}, ...)"


def test_an_error_in_the_first_rows_of_a_stream_names_the_first_batch():
    rows = fb.from_generator(lambda: iter(range(5)))
    with pytest.raises(ZeroDivisionError) as caught:
        rows.map(lambda row: 1 // int(row)).batch(2).feed("numpy")
    assert caught.value.__notes__[-1] == "while the feed started, for the first batch"
