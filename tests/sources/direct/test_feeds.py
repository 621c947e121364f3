"""Feeds of files outside the page cache: the same rows in the same order, also after faults."""

import errno
import os
import threading
import time
import weakref
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.sources.direct.readers import (
    block_reader,
    epoch_of,
    epoch_rows,
    files_pipeline,
    numbers_of,
    pretend_uncached,
    write_numbered,
)
from tests.support.profiles import FEW_EXAMPLES

import forebay as fb
from forebay.errors import FeedError, SourceChangedError, SourceError
from forebay.sources.direct import block_reader as blocks
from forebay.sources.direct import io_uring, page_cache
from forebay.sources.direct import read_threads as reading_threads
from forebay.sources.direct.open_files import aligned_memory
from forebay.sources.direct.page_cache import PageCacheWarmer
from forebay.sources.direct.page_cache_reader import PageCacheReader
from forebay.sources.formats.npy import open_npy

STRATEGIES = [
    pytest.param({}, {}, "rows, direct", id="natural"),
    pytest.param({"seed": 1}, {}, "rows, direct", id="shuffled"),
    pytest.param({"seed": 1, "block": 100}, {}, "blocks, direct", id="blocks"),
    pytest.param({"seed": 1}, {"no_io_uring": "forbidden"}, "rows, direct", id="shuffled by threads"),
    pytest.param({"seed": 1, "block": 100}, {"no_io_uring": "forbidden"}, "blocks, direct", id="blocks by threads"),
    pytest.param({"seed": 1}, {"direct": False}, "rows", id="shuffled through the page cache"),
    pytest.param({"seed": 1}, {"available_nbytes": 1 << 40}, "page cache", id="warming"),
]


@pytest.mark.parametrize(("shuffle", "kernel", "strategy"), STRATEGIES)
def test_every_epoch_has_the_rows_of_its_order(tmp_path, monkeypatch, shuffle, kernel, strategy):
    path, array = write_numbered(tmp_path)
    pretend_uncached(monkeypatch, **kernel)
    pipeline = files_pipeline(path, **shuffle)
    with pipeline.batch(64).feed("numpy") as feed:
        assert [reason.choice for reason in feed.plan.decisions if reason.name == "reading"] == [strategy]
        for epoch in range(3):
            assert np.array_equal(epoch_of(feed), array[epoch_rows(pipeline, epoch)])


CHOICES = [
    pytest.param(lambda rows: rows.skip(1234), "rows, direct", id="skipped"),
    pytest.param(lambda rows: rows.select(np.arange(0, 5000, 3)).shuffle(seed=1), "rows, direct", id="selected"),
    pytest.param(lambda rows: rows.split(0.9, 0.1)[0].shuffle(seed=1), "rows, direct", id="split"),
    pytest.param(lambda rows: rows.sample(weights=np.arange(5000) < 40), "rows, direct", id="sampled"),
    pytest.param(lambda rows: rows.shuffle(seed=1, block=100).skip(777), "blocks, direct", id="skipped blocks"),
    pytest.param(lambda rows: rows.skip(777).shuffle(seed=1, block=100), "rows, direct", id="blocks from row 777"),
]


@pytest.mark.parametrize(("choose", "strategy"), CHOICES)
def test_chosen_rows_are_read_from_the_disk(tmp_path, monkeypatch, choose, strategy):
    path, array = write_numbered(tmp_path)
    pretend_uncached(monkeypatch)
    pipeline = choose(files_pipeline(path))
    with pipeline.batch(64).feed("numpy") as feed:
        assert [reason.choice for reason in feed.plan.decisions if reason.name == "reading"] == [strategy]
        for epoch in range(3):
            assert np.array_equal(epoch_of(feed), array[epoch_rows(pipeline, epoch)])


@pytest.mark.parametrize("shuffle", [{"seed": 1}, {"seed": 1, "block": 100}])
def test_a_whole_epoch_follows_epochs_that_were_left_early(tmp_path, monkeypatch, shuffle):
    path, array = write_numbered(tmp_path)
    pretend_uncached(monkeypatch)
    pipeline = files_pipeline(path, **shuffle)
    with pipeline.batch(16).feed("numpy", host_bytes="8MiB") as feed:
        for epoch, batches in enumerate([0, 1, 7, 100, 2]):
            part = [batch.copy() for batch, _ in zip(feed, range(batches), strict=False)]
            expected_rows = array[epoch_rows(pipeline, epoch)][: batches * 16]
            assert np.array_equal(np.concatenate(part) if part else expected_rows, expected_rows)
        assert np.array_equal(epoch_of(feed), array[epoch_rows(pipeline, 5)])


def test_leaves_of_one_file_that_share_sectors_are_not_confused(tmp_path, monkeypatch):
    labels, rows = np.arange(640, dtype="i8"), np.arange(640 * 600, dtype="i4").reshape(640, 600)
    np.savez(tmp_path / "rows.npz", label=labels, row=rows)
    pretend_uncached(monkeypatch)
    pipeline = fb.from_files(str(tmp_path / "rows.npz")).shuffle(seed=1, block=4)
    with pipeline.batch(64).feed("numpy") as feed:
        batches = [{name: leaf.copy() for name, leaf in batch.items()} for batch in feed]
    order = np.concatenate([batch["label"] for batch in batches])
    assert np.array_equal(np.sort(order), labels)
    assert np.array_equal(np.concatenate([batch["row"] for batch in batches]), rows[order])


@given(st.integers(1, 300), st.integers(1, 20), st.integers(1, 3), st.integers(1, 3), st.integers(1, 600))
@example(block=3, mix=1, shards=1, repeats=1, batch_rows=1)  # many blocks begin in one disk sector
@FEW_EXAMPLES
def test_blocks_of_any_size_do_not_deadlock(block, mix, shards, repeats, batch_rows):
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as monkeypatch:
        path, array = write_numbered(Path(folder), rows=700, row_nbytes=64)
        pretend_uncached(monkeypatch)
        pipeline = files_pipeline(path, seed=1, block=block, mix=mix).repeat(repeats).shard(0, shards)
        with pipeline.batch(batch_rows).feed("numpy", host_bytes="16MiB") as feed:
            assert np.array_equal(epoch_of(feed), array[epoch_rows(pipeline)[::shards]])


@pytest.mark.parametrize("shard", [0, 2])
def test_shards_of_block_shuffles_are_read(tmp_path, monkeypatch, shard):
    path, array = write_numbered(tmp_path)
    pretend_uncached(monkeypatch)
    pipeline = files_pipeline(path, seed=1, block=100).shard(shard, 3)
    with pipeline.batch(64).feed("numpy") as feed:
        assert np.array_equal(epoch_of(feed), array[epoch_rows(pipeline)[shard::3]])


def test_a_resumed_feed_continues_at_its_saved_position(tmp_path, monkeypatch):
    path, array = write_numbered(tmp_path)
    pretend_uncached(monkeypatch)
    pipeline = files_pipeline(path, seed=1, block=100)
    with pipeline.batch(64).feed("numpy") as feed:
        for _ in range(20):
            next(feed)
        state = feed.state_dict()
    with pipeline.batch(64).feed("numpy") as feed:
        feed.load_state_dict(state)
        assert np.array_equal(epoch_of(feed), array[epoch_rows(pipeline)][20 * 64 :])


def test_maps_get_the_rows_that_were_read(tmp_path, monkeypatch):
    path, array = write_numbered(tmp_path)
    pretend_uncached(monkeypatch)
    pipeline = files_pipeline(path, seed=1)
    with pipeline.batch(64).map(lambda batch: batch + np.uint8(1)).feed("numpy") as feed:
        assert np.array_equal(epoch_of(feed), array[epoch_rows(pipeline)] + np.uint8(1))


def test_with_a_small_budget_rows_are_gathered_from_the_mapped_files(tmp_path, monkeypatch):
    path, _ = write_numbered(tmp_path, rows=64, row_nbytes=1 << 17)
    pretend_uncached(monkeypatch)
    with files_pipeline(path, seed=1).batch(8).feed("numpy", host_bytes="4200KiB") as feed:
        assert "leaves no memory for read buffers" in feed.explain()
        assert feed.plan.nbytes <= 4200 << 10
        assert sorted(numbers_of(epoch_of(feed))) == list(range(64))


@pytest.mark.parametrize("shuffle", [{"seed": 1}, {"seed": 1, "block": 100}])
def test_a_file_that_is_truncated_during_a_read_raises_an_error(tmp_path, monkeypatch, shuffle):
    path, _ = write_numbered(tmp_path)
    pretend_uncached(monkeypatch)
    with files_pipeline(path, **shuffle).batch(8).feed("numpy", host_bytes="4MiB") as feed:
        next(feed)
        os.truncate(path, 1000)
        with pytest.raises(SourceChangedError, match="shrank while it was read"):
            epoch_of(feed)


@pytest.mark.parametrize("shuffle", [{"seed": 1}, {"seed": 1, "block": 100}])
def test_a_file_replaced_by_renaming_keeps_its_old_rows(tmp_path, monkeypatch, shuffle):
    path, array = write_numbered(tmp_path)
    pretend_uncached(monkeypatch)
    pipeline = files_pipeline(path, **shuffle)
    with pipeline.batch(64).feed("numpy") as feed:
        write_numbered(tmp_path, rows=7, name="other.npy")[0].rename(path)
        assert np.array_equal(epoch_of(feed), array[epoch_rows(pipeline)])


@pytest.mark.parametrize("shuffle", [{"seed": 1}, {"seed": 1, "block": 100}])
def test_a_disk_error_names_its_position_and_the_feed_stays_usable(tmp_path, monkeypatch, shuffle):
    path, array = write_numbered(tmp_path)
    pretend_uncached(monkeypatch)
    broken = threading.Event()
    read = io_uring.IoUring.read
    monkeypatch.setattr(
        io_uring.IoUring, "read", lambda *arguments: fail_reads(arguments) if broken.is_set() else read(*arguments)
    )
    pipeline = files_pipeline(path, **shuffle)
    with pipeline.batch(8).feed("numpy", host_bytes="4MiB") as feed:
        broken.set()
        with pytest.raises(SourceError, match=r"rows\.npy: Input/output error"):
            epoch_of(feed)
        broken.clear()
        assert np.array_equal(epoch_of(feed), array[epoch_rows(pipeline, 1)])


def fail_reads(arguments):
    return np.full(len(arguments[2]), -errno.EIO)


@pytest.mark.parametrize("shuffle", [{"seed": 1}, {"seed": 1, "block": 100}])
@pytest.mark.parametrize("no_io_uring", ["", "forbidden"])
def test_close_waits_for_reads_and_ends_every_thread(tmp_path, monkeypatch, shuffle, no_io_uring):
    path, _ = write_numbered(tmp_path)
    pretend_uncached(monkeypatch, no_io_uring=no_io_uring)
    delay_reads(monkeypatch, 0.05)
    before = set(threading.enumerate())
    feed = files_pipeline(path, **shuffle).batch(8).feed("numpy", host_bytes="4MiB")
    next(feed)
    feed.close()
    assert [thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("forebay")] == []


def delay_reads(monkeypatch, seconds):
    """Delay every read, like a busy disk."""
    plain, ring = reading_threads.pread_each, io_uring.IoUring.read
    monkeypatch.setattr(reading_threads, "pread_each", lambda *arguments: time.sleep(seconds) or plain(*arguments))
    monkeypatch.setattr(io_uring.IoUring, "read", lambda *arguments: time.sleep(seconds) or ring(*arguments))


def test_a_forked_child_is_refused_and_its_parent_continues(tmp_path, monkeypatch):
    path, array = write_numbered(tmp_path)
    pretend_uncached(monkeypatch)
    pipeline = files_pipeline(path, seed=1)
    with pipeline.batch(64).feed("numpy") as feed:
        first = next(feed).copy()
        child = os.fork()
        if child == 0:
            os._exit(exit_code_of_use(feed))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert np.array_equal(
            np.concatenate([first, *(batch.copy() for batch in feed._current_epoch)]), array[epoch_rows(pipeline)]
        )


def exit_code_of_use(feed):
    """Return exit code 7 if the feed refuses its use in the child, and 1 otherwise."""
    try:
        iter(feed)
    except FeedError:
        return 7
    return 1


def test_files_in_the_page_cache_are_not_read_from_disk(tmp_path, monkeypatch):
    path, _ = write_numbered(tmp_path)
    monkeypatch.setattr(io_uring.IoUring, "read", None)
    with files_pipeline(path, seed=1).batch(64).feed("numpy") as feed:
        assert "the files are in memory already" in feed.explain()
        assert len(epoch_of(feed)) == 5000


@pytest.mark.parametrize("shuffle", [{"seed": 1}, {"seed": 1, "block": 100}])
def test_files_that_fit_in_memory_are_in_the_page_cache_after_the_second_epoch(tmp_path, monkeypatch, shuffle):
    path, array = write_numbered(tmp_path, row_nbytes=2400)
    pretend_uncached(monkeypatch, available_nbytes=1 << 40)
    monkeypatch.setattr(page_cache, "cached_share", lambda file: 1.0)  # independent of the real page cache
    pipeline = files_pipeline(path, **shuffle)
    with pipeline.batch(64).feed("numpy") as feed:
        assert "from the page cache after the feed has read as many rows as the files have" in feed.explain()
        read = [epoch_of(feed) for _ in range(2)]
        join_thread("forebay-page-cache")
        read.append(epoch_of(feed))
        reads = record_reads(monkeypatch)
        read.append(epoch_of(feed))
    assert reads == []
    for epoch in range(4):
        assert np.array_equal(read[epoch], array[epoch_rows(pipeline, epoch)])


def record_reads(monkeypatch):
    """Return a list that grows with every io_uring read."""
    reads, read = [], io_uring.IoUring.read
    monkeypatch.setattr(io_uring.IoUring, "read", lambda *arguments: reads.append(1) or read(*arguments))
    return reads


def join_thread(name):
    for thread in threading.enumerate():
        thread.join() if thread.name == name else None


def test_groups_that_wait_for_blocks_continue_once_the_files_are_in_memory(tmp_path):
    path, array = write_numbered(tmp_path)
    source = open_npy(path)
    warmer = PageCacheWarmer([path])
    reader = PageCacheReader(block_reader(source, block_rows=100, buffers=2), source, warmer)
    groups = {name: np.arange(200) + 200 * name for name in range(2)}
    session = reader.begin(iter(groups.items()))
    out = np.empty((2, 200, 400), np.uint8)
    waiting = threading.Thread(target=session.gather, args=(1, groups[1], [out[1]]))
    waiting.start()  # the first group has both buffers
    warmer.is_warm = True
    session.gather(0, groups[0], [out[0]])
    waiting.join()
    reader.close()
    assert np.array_equal(out.reshape(400, 400), array[:400])


def test_a_closed_feed_frees_its_read_buffers(tmp_path, monkeypatch):
    path, _ = write_numbered(tmp_path)
    pretend_uncached(monkeypatch)
    allocated = []
    monkeypatch.setattr(blocks, "aligned_memory", lambda nbytes: record(allocated, aligned_memory(nbytes)))
    with files_pipeline(path, seed=1, block=100).batch(64).feed("numpy") as feed:
        next(feed)
    assert feed.plan.nbytes > 0
    assert [memory() for memory in allocated[:1]] == [None]


def record(allocated, memory):
    allocated.append(weakref.ref(memory))
    return memory
