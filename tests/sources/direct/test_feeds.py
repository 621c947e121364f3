"""Feeds of cold files: the same rows in the same order, whatever happens meanwhile."""

import errno
import os
import threading
import time
import weakref
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.sources.direct.readers import (
    block_reader,
    cold,
    epoch_of,
    expected,
    files_pipeline,
    numbered,
    numbers_of,
)

import forebay as fb
from forebay.errors import FeedError, SourceChangedError, SourceError
from forebay.sources.direct import block_reader as blocks
from forebay.sources.direct import io_uring, page_cache
from forebay.sources.direct import read_threads as reading_threads
from forebay.sources.direct.open_files import aligned_memory
from forebay.sources.direct.page_cache import Warmer
from forebay.sources.direct.page_cache_reader import KeepingReader
from forebay.sources.formats.npy import open_npy

WAYS = [
    pytest.param({}, {}, "rows, direct", id="natural"),
    pytest.param({"seed": 1}, {}, "rows, direct", id="shuffled"),
    pytest.param({"seed": 1, "block": 100}, {}, "blocks, direct", id="blocks"),
    pytest.param({"seed": 1}, {"no_ring": "forbidden"}, "rows, direct", id="shuffled by threads"),
    pytest.param({"seed": 1, "block": 100}, {"no_ring": "forbidden"}, "blocks, direct", id="blocks by threads"),
    pytest.param({"seed": 1}, {"direct": False}, "rows", id="shuffled through the page cache"),
    pytest.param({"seed": 1}, {"available_nbytes": 1 << 40}, "page cache", id="warming"),
]


@pytest.mark.parametrize(("shuffle", "kernel", "way"), WAYS)
def test_every_epoch_has_the_rows_of_its_order(tmp_path, monkeypatch, shuffle, kernel, way):
    path, array = numbered(tmp_path)
    cold(monkeypatch, **kernel)
    pipeline = files_pipeline(path, **shuffle)
    with pipeline.batch(64).feed("numpy") as feed:
        assert [reason.choice for reason in feed.plan.reasons if reason.name == "reading"] == [way]
        for epoch in range(3):
            assert np.array_equal(epoch_of(feed), array[expected(pipeline, epoch)])


@pytest.mark.parametrize("shuffle", [{"seed": 1}, {"seed": 1, "block": 100}])
def test_epochs_left_early_are_followed_by_whole_ones(tmp_path, monkeypatch, shuffle):
    path, array = numbered(tmp_path)
    cold(monkeypatch)
    pipeline = files_pipeline(path, **shuffle)
    with pipeline.batch(16).feed("numpy", host_bytes="8MiB") as feed:
        for epoch, batches in enumerate([0, 1, 7, 100, 2]):
            part = [batch.copy() for batch, _ in zip(feed, range(batches), strict=False)]
            wanted = array[expected(pipeline, epoch)][: batches * 16]
            assert np.array_equal(np.concatenate(part) if part else wanted, wanted)
        assert np.array_equal(epoch_of(feed), array[expected(pipeline, 5)])


def test_leaves_of_one_file_that_share_sectors_are_not_mistaken_for_each_other(tmp_path, monkeypatch):
    labels, rows = np.arange(640, dtype="i8"), np.arange(640 * 600, dtype="i4").reshape(640, 600)
    np.savez(tmp_path / "rows.npz", label=labels, row=rows)
    cold(monkeypatch)
    pipeline = fb.from_files(str(tmp_path / "rows.npz")).shuffle(seed=1, block=4)
    with pipeline.batch(64).feed("numpy") as feed:
        batches = [{name: leaf.copy() for name, leaf in batch.items()} for batch in feed]
    order = np.concatenate([batch["label"] for batch in batches])
    assert np.array_equal(np.sort(order), labels)
    assert np.array_equal(np.concatenate([batch["row"] for batch in batches]), rows[order])


@given(st.integers(1, 300), st.integers(1, 20), st.integers(1, 3), st.integers(1, 3), st.integers(1, 600))
@example(block=3, mix=1, shards=1, repeats=1, batch_rows=1)  # many blocks begin in one sector of the disk
@settings(deadline=None, max_examples=12)
def test_blocks_of_any_size_are_never_waited_for_in_vain(block, mix, shards, repeats, batch_rows):
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as monkeypatch:
        path, array = numbered(Path(folder), rows=700, row_nbytes=64)
        cold(monkeypatch)
        pipeline = files_pipeline(path, seed=1, block=block, mix=mix).repeat(repeats).shard(0, shards)
        with pipeline.batch(batch_rows).feed("numpy", host_bytes="16MiB") as feed:
            assert np.array_equal(epoch_of(feed), array[expected(pipeline)[::shards]])


@pytest.mark.parametrize("shard", [0, 2])
def test_shards_of_blocks_are_read_too(tmp_path, monkeypatch, shard):
    path, array = numbered(tmp_path)
    cold(monkeypatch)
    pipeline = files_pipeline(path, seed=1, block=100).shard(shard, 3)
    with pipeline.batch(64).feed("numpy") as feed:
        assert np.array_equal(epoch_of(feed), array[expected(pipeline)[shard::3]])


def test_a_resumed_feed_goes_on_where_it_was(tmp_path, monkeypatch):
    path, array = numbered(tmp_path)
    cold(monkeypatch)
    pipeline = files_pipeline(path, seed=1, block=100)
    with pipeline.batch(64).feed("numpy") as feed:
        for _ in range(20):
            next(feed)
        state = feed.state_dict()
    with pipeline.batch(64).feed("numpy") as feed:
        feed.load_state_dict(state)
        assert np.array_equal(epoch_of(feed), array[expected(pipeline)][20 * 64 :])


def test_maps_get_the_rows_that_were_read(tmp_path, monkeypatch):
    path, array = numbered(tmp_path)
    cold(monkeypatch)
    pipeline = files_pipeline(path, seed=1)
    with pipeline.batch(64).map(lambda batch: batch + np.uint8(1)).feed("numpy") as feed:
        assert np.array_equal(epoch_of(feed), array[expected(pipeline)] + np.uint8(1))


def test_a_budget_without_room_to_read_into_is_kept_from_the_mapping(tmp_path, monkeypatch):
    path, _ = numbered(tmp_path, rows=64, row_nbytes=1 << 17)
    cold(monkeypatch)
    with files_pipeline(path, seed=1).batch(8).feed("numpy", host_bytes="4200KiB") as feed:
        assert "leaves no memory to read into" in feed.explain()
        assert feed.plan.nbytes <= 4200 << 10
        assert sorted(numbers_of(epoch_of(feed))) == list(range(64))


@pytest.mark.parametrize("shuffle", [{"seed": 1}, {"seed": 1, "block": 100}])
def test_a_file_cut_short_while_it_is_read_is_an_error_and_not_a_signal(tmp_path, monkeypatch, shuffle):
    path, _ = numbered(tmp_path)
    cold(monkeypatch)
    with files_pipeline(path, **shuffle).batch(8).feed("numpy", host_bytes="4MiB") as feed:
        next(feed)
        os.truncate(path, 1000)
        with pytest.raises(SourceChangedError, match="shrank while it was being read"):
            epoch_of(feed)


@pytest.mark.parametrize("shuffle", [{"seed": 1}, {"seed": 1, "block": 100}])
def test_a_file_replaced_by_renaming_is_read_as_it_was(tmp_path, monkeypatch, shuffle):
    path, array = numbered(tmp_path)
    cold(monkeypatch)
    pipeline = files_pipeline(path, **shuffle)
    with pipeline.batch(64).feed("numpy") as feed:
        numbered(tmp_path, rows=7, name="other.npy")[0].rename(path)
        assert np.array_equal(epoch_of(feed), array[expected(pipeline)])


@pytest.mark.parametrize("shuffle", [{"seed": 1}, {"seed": 1, "block": 100}])
def test_an_error_of_the_disk_comes_out_with_its_place_and_the_feed_can_be_used_again(tmp_path, monkeypatch, shuffle):
    path, array = numbered(tmp_path)
    cold(monkeypatch)
    broken = threading.Event()
    read = io_uring.Ring.read
    monkeypatch.setattr(io_uring.Ring, "read", lambda *asked: failed(asked) if broken.is_set() else read(*asked))
    pipeline = files_pipeline(path, **shuffle)
    with pipeline.batch(8).feed("numpy", host_bytes="4MiB") as feed:
        broken.set()
        with pytest.raises(SourceError, match=r"rows\.npy: Input/output error"):
            epoch_of(feed)
        broken.clear()
        assert np.array_equal(epoch_of(feed), array[expected(pipeline, 1)])


def failed(asked):
    return np.full(len(asked[2]), -errno.EIO)


@pytest.mark.parametrize("shuffle", [{"seed": 1}, {"seed": 1, "block": 100}])
@pytest.mark.parametrize("no_ring", ["", "forbidden"])
def test_closing_waits_for_reads_and_ends_every_thread(tmp_path, monkeypatch, shuffle, no_ring):
    path, _ = numbered(tmp_path)
    cold(monkeypatch, no_ring=no_ring)
    slow(monkeypatch, 0.05)
    before = set(threading.enumerate())
    feed = files_pipeline(path, **shuffle).batch(8).feed("numpy", host_bytes="4MiB")
    next(feed)
    feed.close()
    assert [thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("forebay")] == []


def slow(monkeypatch, seconds):
    """Let every read take some time, as of a disk that is busy."""
    plain, ring = reading_threads.read_one_by_one, io_uring.Ring.read
    monkeypatch.setattr(reading_threads, "read_one_by_one", lambda *asked: time.sleep(seconds) or plain(*asked))
    monkeypatch.setattr(io_uring.Ring, "read", lambda *asked: time.sleep(seconds) or ring(*asked))


def test_a_forked_child_says_so_and_its_parent_goes_on(tmp_path, monkeypatch):
    path, array = numbered(tmp_path)
    cold(monkeypatch)
    pipeline = files_pipeline(path, seed=1)
    with pipeline.batch(64).feed("numpy") as feed:
        first = next(feed).copy()
        child = os.fork()
        if child == 0:
            os._exit(refused(feed))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert np.array_equal(
            np.concatenate([first, *(batch.copy() for batch in feed._current)]), array[expected(pipeline)]
        )


def refused(feed):
    """What a child ends with: 7 where it was told that the feed is its parent's."""
    try:
        iter(feed)
    except FeedError:
        return 7
    return 1


def test_what_is_in_memory_is_not_read_at_all(tmp_path, monkeypatch):
    path, _ = numbered(tmp_path)
    monkeypatch.setattr(io_uring.Ring, "read", None)
    with files_pipeline(path, seed=1).batch(64).feed("numpy") as feed:
        assert "the files are in memory already" in feed.explain()
        assert len(epoch_of(feed)) == 5000


@pytest.mark.parametrize("shuffle", [{"seed": 1}, {"seed": 1, "block": 100}])
def test_files_that_fit_into_memory_are_kept_there_from_the_second_epoch_on(tmp_path, monkeypatch, shuffle):
    path, array = numbered(tmp_path, row_nbytes=2400)
    cold(monkeypatch, available_nbytes=1 << 40)
    monkeypatch.setattr(page_cache, "cached_share", lambda file: 1.0)  # whatever else the machine has in memory
    pipeline = files_pipeline(path, **shuffle)
    with pipeline.batch(64).feed("numpy") as feed:
        assert "kept in the page cache from the second epoch on" in feed.explain()
        read = [epoch_of(feed) for _ in range(2)]
        await_thread("forebay-warming")
        read.append(epoch_of(feed))
        reads = counted_reads(monkeypatch)
        read.append(epoch_of(feed))
    assert reads == []
    for epoch in range(4):
        assert np.array_equal(read[epoch], array[expected(pipeline, epoch)])


def counted_reads(monkeypatch):
    """A list that grows with every read of a ring."""
    reads, read = [], io_uring.Ring.read
    monkeypatch.setattr(io_uring.Ring, "read", lambda *asked: reads.append(1) or read(*asked))
    return reads


def await_thread(name):
    for thread in threading.enumerate():
        thread.join() if thread.name == name else None


def test_groups_that_wait_for_blocks_go_on_when_the_files_are_in_memory(tmp_path):
    path, array = numbered(tmp_path)
    source = open_npy(path)
    warmer = Warmer([path])
    keeping = KeepingReader(block_reader(source, block_rows=100, places=2), source, warmer)
    groups = {name: np.arange(200) + 200 * name for name in range(2)}
    passed = keeping.begin(iter(groups.items()))
    out = np.empty((2, 200, 400), np.uint8)
    waiting = threading.Thread(target=passed.gather, args=(1, groups[1], [out[1]]))
    waiting.start()  # both places are the first group's
    warmer.warm = True
    passed.gather(0, groups[0], [out[0]])
    waiting.join()
    keeping.close()
    assert np.array_equal(out.reshape(400, 400), array[:400])


def test_a_closed_feed_holds_no_memory_that_was_read_into(tmp_path, monkeypatch):
    path, _ = numbered(tmp_path)
    cold(monkeypatch)
    made = []
    monkeypatch.setattr(blocks, "aligned_memory", lambda nbytes: remembered(made, aligned_memory(nbytes)))
    with files_pipeline(path, seed=1, block=100).batch(64).feed("numpy") as feed:
        next(feed)
    assert feed.plan.nbytes > 0
    assert [memory() for memory in made[:1]] == [None]


def remembered(made, memory):
    made.append(weakref.ref(memory))
    return memory
