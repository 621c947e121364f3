"""The new plan of a feed whose cache is complete: same order, same state."""

import pickle

import numpy as np
import pytest
from tests.pipeline.cached_rows import square
from tests.pipeline.row_pipelines import TEN
from tests.support.received import batches_of, rows_of

import forebay as fb
from forebay.errors import BudgetError


def test_a_feed_keeps_its_plan_if_a_new_plan_does_not_fit(monkeypatch):
    with TEN.map(square).cache("1MB").batch(5).feed("numpy") as feed:
        first = rows_of(feed)

        def fail(*arguments):
            raise BudgetError("too small. Pass more.")

        monkeypatch.setattr("forebay.feed.build.build_feed", fail)
        assert [rows_of(feed), rows_of(feed)] == [first, first]
        assert "the old plan stays: too small" in feed.explain()


def test_after_an_error_the_feed_tries_again_to_make_a_new_plan(monkeypatch):
    with TEN.map(square).cache("1MB").batch(2).feed("numpy") as feed:
        first = rows_of(feed)

        def fail(*arguments):
            raise OSError("too many open files")

        with monkeypatch.context() as patched:
            patched.setattr("forebay.feed.build.build_feed", fail)
            with pytest.raises(OSError, match="too many open files"):
                iter(feed)
        assert rows_of(feed) == first
        assert feed.plan.group_batches == 5


def test_a_complete_cache_is_planned_like_arrays_in_the_next_epoch():
    cached = TEN.map(square).cache("1MB").batch(2)
    arrays = fb.from_arrays(np.arange(10) ** 2).batch(2)
    with cached.feed("numpy") as feed, arrays.feed("numpy") as expected:
        assert feed.plan.group_batches == 1
        rows_of(feed)
        assert rows_of(feed) == rows_of(expected)
        assert feed.plan.group_batches == expected.plan.group_batches == 5
        assert feed.stats()["batches"] == 10
        assert "complete: new epochs and feeds read the rows like arrays" in feed.explain()


def test_a_batch_of_the_old_plan_stays_valid():
    with TEN.map(square).cache("1MB").batch(5).feed("numpy") as feed:
        kept = list(feed)
        rows_of(feed)
        assert [batch.tolist() for batch in kept] == [[0, 1, 4, 9, 16], [25, 36, 49, 64, 81]]


def test_a_state_is_loaded_after_the_plan_has_changed():
    with TEN.map(square).cache("1MB").shuffle(seed=1).batch(5).feed("numpy") as feed:
        epochs = [batches_of(feed) for _ in range(3)]
        feed.set_epoch(1)
        assert next(feed).tolist() == epochs[1][0]
        state = feed.state_dict()
        feed.load_state_dict(state)
        assert next(feed).tolist() == epochs[1][1]


def test_temporary_rows_count_against_the_host_budget():
    rows = fb.from_arrays(np.zeros((64, 4096), np.uint8)).batch(64)
    cached = fb.from_arrays(np.zeros((64, 4096), np.uint8)).cache("1GB").batch(64)
    with rows.feed("numpy") as plain, cached.feed("numpy") as feed:
        assert feed.plan.nbytes >= plain.plan.nbytes + 2 * 64 * 4096


def test_a_cache_does_not_change_the_fingerprint():
    assert TEN.map(square).cache("1MB").fingerprint == TEN.map(square).fingerprint
    assert TEN.cache("1MB").shuffle(seed=1).fingerprint != TEN.cache("1MB").fingerprint


def test_a_complete_cache_does_not_change_the_order_of_a_later_shuffle(tmp_path):
    np.save(tmp_path / "rows.npy", np.arange(4000 * 64).reshape(4000, 64))
    stored = fb.from_files(tmp_path / "rows.npy", ram_bytes="100KB", ahead_bytes="200KB")
    assert stored.source.shuffle_blocks is not None
    cached = stored.cache("1GB")
    with cached.batch(1000).feed("numpy") as feed:
        assert len(list(feed)) == 4
        assert feed.stats()["source"]["cached_rows"] == 4000
    assert cached.shuffle(seed=1).fingerprint == stored.shuffle(seed=1).fingerprint


def test_a_cache_does_not_change_the_open_blocks_of_a_block_shuffle():
    mapped = TEN.map(lambda row: np.zeros(100_000))
    assert mapped.cache("10MB").shuffle(seed=1, block=1).fingerprint == mapped.shuffle(seed=1, block=1).fingerprint


def test_a_pickled_pipeline_delivers_the_same_rows(place):
    pipeline = TEN.map(square).cache(*place).batch(10)
    with pipeline.feed("numpy") as feed:
        rows = rows_of(feed)
    with pickle.loads(pickle.dumps(pipeline)).feed("numpy") as feed:
        assert rows_of(feed) == rows


def test_two_feeds_of_one_cache_deliver_the_same_batches(place):
    pipeline = TEN.map(square).cache(*place).repeat(20).shuffle(seed=1).batch(3)
    with pipeline.feed("numpy") as one, pipeline.feed("numpy") as other:
        pairs = zip(one, other, strict=True)
        assert all(first.tolist() == second.tolist() for first, second in pairs)
