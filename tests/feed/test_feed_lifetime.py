"""Iterators, threads and the lifetime of feeds."""

import copy
import gc
import itertools
import pickle
import threading
import weakref
from dataclasses import replace

import numpy as np
import pytest
from tests.support.received import batches_of

import forebay as fb
from forebay.errors import FeedClosedError, FeedError
from forebay.sources.arrays import ArraySource
from forebay.sources.decoder_threads import decode_rows


def test_a_second_iterator_ends_the_first():
    feed = fb.from_arrays(np.arange(1000)).batch(10).feed("numpy")
    first, second = iter(feed), iter(feed)
    next(second)
    with pytest.raises(FeedError, match="newer iterator"):
        next(first)
    assert sum(1 for _ in second) == 99


def test_a_group_is_not_reused_between_taking_and_handing_it_off():
    feed = fb.from_arrays(np.arange(200_000)).batch(1000).feed("numpy", host_bytes="4MiB")
    hand_off, slow, found = feed._parts.hand_off.hand_off, [], []

    class Slow:
        def hand_off(self, roots):
            if threading.current_thread() in slow:
                threading.Event().wait(0.2)
            return hand_off(roots)

    feed._parts = replace(feed._parts, hand_off=Slow())
    iterator = iter(feed)

    def consume():
        try:
            found.append(int(next(iterator)[0]))
        except FeedError:
            found.append(0)

    slow.append(threading.Thread(target=consume))
    slow[0].start()
    threading.Event().wait(0.05)
    assert sum(len(batch) for batch in feed) == 200_000
    slow[0].join()
    assert found == [0]


def test_feeds_of_one_pipeline_do_not_disturb_each_other(tmp_path):
    np.save(tmp_path / "data.npy", np.zeros((20_000, 100), np.float32))
    pipeline = fb.from_files(tmp_path / "data.npy").batch(100)
    first, second = pipeline.feed("numpy"), pipeline.feed("numpy")
    iterator = iter(second)
    next(iterator), next(first)
    first.close()
    assert sum(1 for _ in iterator) == 199
    assert len(list(pipeline.feed("numpy"))) == 200


def test_next_begins_another_epoch_after_a_loop_was_left():
    feed = fb.from_arrays(np.arange(1000)).batch(10).feed("numpy")
    next(feed)
    for _ in feed:
        break
    assert next(feed).tolist() == list(range(10))
    assert feed.state_dict()["epoch"] == 2


def test_two_threads_share_an_epoch_without_losing_or_repeating_a_batch():
    feed = fb.from_arrays(np.arange(20_000)).shuffle(seed=0).batch(10).feed("numpy")
    iterator, found = iter(feed), [[], []]

    def consume(mine):
        for batch in iterator:
            mine.extend(batch.tolist())

    threads = [threading.Thread(target=consume, args=(mine,)) for mine in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found[0] + found[1]) == list(range(20_000))


def test_a_feed_without_a_variable_lives_until_its_loop_ends():
    assert len(batches_of(fb.from_arrays(np.arange(1000)).batch(10).feed("numpy"))) == 100


def forebay_threads():
    return {thread for thread in threading.enumerate() if thread.name.startswith("forebay")}


def test_an_abandoned_feed_ends_its_threads():
    before = forebay_threads()
    feed = fb.from_arrays(np.arange(1000)).batch(10).feed("numpy")
    next(iter(feed))
    assert forebay_threads() - before
    gone = weakref.ref(feed)
    del feed
    gc.collect()
    assert gone() is None
    assert not forebay_threads() - before


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_feed_cannot_be_pickled_or_copied_and_the_error_names_an_alternative(duplicate):
    with (
        fb.from_arrays(np.arange(10)).batch(2).feed("numpy") as feed,
        pytest.raises(TypeError, match=r"Send the pipeline .* state_dict\(\)"),
    ):
        duplicate(feed)


def test_a_decoder_thread_that_closes_a_feed_causes_no_deadlock(caplog):
    closing, feeds, calls = threading.Event(), [], itertools.count()

    def close(position, number):
        if next(calls) == 0:
            feeds[0].close()
            closing.set()

    class ClosingSource(ArraySource):
        def gather(self, rows, out):
            super().gather(rows, out)
            if feeds:
                decode_rows(close, [0, 1, 2])

    feeds.append(fb.from_source(ClosingSource(np.arange(1000))).batch(1).feed("numpy"))
    with pytest.raises(FeedClosedError):
        list(feeds[0])
    assert closing.wait(60)
    assert caplog.messages == []


def test_a_closed_feed_and_its_iterators_raise_errors():
    feed = fb.from_arrays(np.arange(1000)).batch(10).feed("numpy")
    iterator = iter(feed)
    next(iterator)
    feed.close()
    with pytest.raises(FeedClosedError):
        iter(feed)
    with pytest.raises(FeedError):
        list(iterator)
