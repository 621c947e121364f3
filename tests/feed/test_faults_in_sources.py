"""Sources that fail, block or vanish: the feed raises an error and never hangs."""

import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from tests.support.received import collect_rows, rows_of

import forebay as fb
from forebay.errors import FeedClosedError, FeedError, SourceChangedError
from forebay.sources.arrays import ArraySource


def test_full_batches_before_the_error_of_a_generator_arrive():
    def broken():
        yield from range(25)
        raise OSError("the sensor is gone")

    got = []
    with fb.from_generator(broken).batch(10).feed("numpy") as feed, pytest.raises(OSError, match="sensor"):
        collect_rows(feed, got)
    assert got == list(range(20))  # rows 20 to 24 do not fill a batch


def test_closing_wakes_a_consumer_that_waits_for_a_blocked_generator():
    release = threading.Event()

    def blocked():
        yield from range(10)
        release.wait()
        yield 10

    feed = fb.from_generator(blocked).batch(10).feed("numpy")
    iterator = iter(feed)
    next(iterator)
    threading.Timer(0.1, feed.close).start()
    with pytest.raises(FeedClosedError):  # otherwise the consumer would wait for ever
        next(iterator)
    release.set()


def test_a_generator_may_wait_until_the_consumer_has_used_a_batch():
    trained = threading.Semaphore(1)

    def in_step():
        for number in range(40):
            if number % 4 == 0:
                assert trained.acquire(timeout=60)
            yield number

    with fb.from_generator(in_step, spec="int64").batch(4).feed("numpy") as feed:
        for step, batch in enumerate(feed):
            assert batch.tolist() == list(range(step * 4, step * 4 + 4))
            trained.release()


def test_a_waiting_iterator_raises_an_error_when_a_newer_one_begins():
    release = threading.Event()

    def blocked():
        yield from range(4)
        release.wait()
        yield from range(4, 8)

    feed = fb.from_generator(blocked).batch(4).feed("numpy")
    first = iter(feed)
    next(first)
    errors = []

    def wait_for_more():
        try:
            next(first)
        except FeedError as error:
            errors.append(error)

    thread = threading.Thread(target=wait_for_more)
    thread.start()
    time.sleep(0.1)
    second = iter(feed)
    thread.join(60)
    release.set()
    assert len(errors) == 1
    assert rows_of(second) == list(range(8))
    feed.close()


def test_a_file_that_shrinks_in_mid_epoch_is_an_error_not_a_crash(tmp_path):
    path = tmp_path / "data.npy"
    np.save(path, np.zeros((20_000, 1000), np.float32))
    with fb.from_files(path).batch(100).feed("numpy", host_bytes="8MB") as feed:
        iterator = iter(feed)
        next(iterator)
        with path.open("r+b") as file:
            file.truncate(4096)
        with pytest.raises(SourceChangedError, match=r"data\.npy"):
            list(iterator)


def test_the_error_names_a_file_that_vanishes_before_it_is_opened(tmp_path):
    for number in range(6):
        np.save(tmp_path / f"{number}.npy", np.full(10, number))
    pipeline = fb.from_files(str(tmp_path / "*.npy"), max_open_files=1).batch(10)
    (tmp_path / "5.npy").unlink()
    with pipeline.feed("numpy") as feed, pytest.raises(SourceChangedError, match=r"5\.npy"):
        rows_of(feed)


class FailingPrefetch(ArraySource):
    """A source whose prefetch raises an error."""

    can_prefetch = True

    def prefetch(self, upcoming):
        raise OSError("the server is gone")


def test_an_error_at_the_start_of_an_epoch_is_raised_in_this_and_every_later_epoch():
    # Without a map, the consumer would start the epoch instead of a worker thread.
    mapped = fb.from_arrays(np.arange(100)).batch(10).map(np.negative)
    pipeline = replace(mapped, source=FailingPrefetch(np.arange(100)))
    with pipeline.feed("numpy", device="cpu") as feed:
        for _ in range(3):
            with pytest.raises(OSError, match="the server is gone"):
                rows_of(feed)


def test_the_first_error_of_computing_row_numbers_is_raised(monkeypatch):
    messages = iter(["no memory", "again no memory"])

    def fail(row_index, group):
        raise MemoryError(next(messages))

    monkeypatch.setattr("forebay.feed.row_index.RowIndex.rows_of", fail)
    pipeline = fb.from_arrays(np.arange(100)).shuffle(seed=0).batch(10)
    with pipeline.feed("numpy") as feed, pytest.raises(MemoryError, match=r"^no memory"):
        rows_of(feed)
