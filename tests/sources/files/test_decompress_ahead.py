"""Background threads decompress several files at the same time, within the memory budget."""

import threading
import time
from collections import Counter
from contextlib import nullcontext

import numpy as np
import pytest

import forebay as fb
from forebay.errors import SourceError
from forebay.sources.files.decompress_ahead import DecompressAhead
from forebay.sources.files.many_files import open_files
from forebay.sources.formats import inflate
from forebay.sources.formats.inflate import DeflatedData
from forebay.sources.formats.npz import open_npz

FILES, ROWS = 6, 50
FILE_NBYTES = ROWS * 100 + 128
TIMEOUT_SECONDS = 60


@pytest.fixture
def folder(tmp_path):
    for number in range(FILES):
        np.savez_compressed(tmp_path / f"{number}.npz", x=rows_of(number))
    return tmp_path


def rows_of(number):
    return np.random.default_rng(number).integers(0, 9, (ROWS, 100), np.uint8)


def all_rows():
    return np.concatenate([rows_of(number) for number in range(FILES)])


def record_inflated(monkeypatch):
    """Return a list that records the name of every file that is inflated."""
    inflated_names, plain = [], DeflatedData.inflate
    monkeypatch.setattr(DeflatedData, "inflate", lambda self: inflated_names.append(self.file.path.stem) or plain(self))
    return inflated_names


def wait_until_inflated(inflated_names, names):
    """Wait until the background threads have begun to inflate these files."""
    until = time.monotonic() + TIMEOUT_SECONDS
    while not names <= set(inflated_names):
        assert time.monotonic() < until
        time.sleep(0.001)


class Compressed:
    """A `Decompressible` that does not finish before `may_end` is set."""

    def __init__(self):
        self.begun, self.may_end = threading.Event(), threading.Event()

    def decompress(self):
        self.begun.set()
        assert self.may_end.wait(TIMEOUT_SECONDS)


def decompress_ahead(files, groups, budget=100):
    """Decompress files of one byte each. The rows of a group are the numbers of the files that it needs."""
    return DecompressAhead(
        map(np.array, groups),
        lambda rows: dict.fromkeys(rows.tolist(), 1),
        lambda number: nullcontext(files[number]),
        nbytes=[1] * len(files),
        budget_nbytes=budget,
    )


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("held", ["1GiB", 3 * FILE_NBYTES, 1])
def test_every_epoch_has_every_row_with_any_budget(folder, shuffle, held):
    pipeline = fb.from_files(str(folder / "*.npz"), max_held_bytes=held)
    pipeline = pipeline.shuffle(seed=0) if shuffle else pipeline
    with pipeline.batch(8).feed("numpy") as feed:
        for epoch in range(3):
            epoch_rows = np.concatenate([batch["x"].copy() for batch in feed])
            order = pipeline.order.rows(epoch, np.arange(FILES * ROWS))
            assert np.array_equal(epoch_rows, all_rows()[order])


def test_files_that_all_fit_in_memory_are_inflated_once(folder, monkeypatch):
    inflated_names = record_inflated(monkeypatch)
    with fb.from_files(str(folder / "*.npz")).shuffle(seed=0).batch(8).feed("numpy") as feed:
        for _ in range(3):
            assert sum(len(batch["x"]) for batch in feed) == FILES * ROWS
    assert Counter(inflated_names) == dict.fromkeys(map(str, range(FILES)), 1)


def test_files_that_together_exceed_the_budget_are_inflated_once_for_prefetched_groups(folder, monkeypatch):
    inflated_names, source = (
        record_inflated(monkeypatch),
        open_files(str(folder / "*.npz"), max_held_bytes=3 * FILE_NBYTES),
    )
    groups = [slice(start, start + 30) for start in range(0, FILES * ROWS, 30)]
    prefetch, out = source.prefetch(iter(groups)), np.empty((FILES * ROWS, 100), np.uint8)
    for group in groups:
        wait_until_inflated(inflated_names, {str(row // ROWS) for row in (group.start, group.stop - 1)})
        source.gather(group, [out[group]])
    prefetch.close()
    assert np.array_equal(out, all_rows())
    assert Counter(inflated_names) == dict.fromkeys(map(str, range(FILES)), 1)


def test_files_that_together_exceed_the_budget_are_shuffled_by_file(folder):
    pipeline = fb.from_files(str(folder / "*.npz"), max_held_bytes=4 * FILE_NBYTES).shuffle(seed=0)
    with pipeline.batch(8).feed("numpy") as feed:
        assert f"chunks of {ROWS} rows" in feed.explain()
        assert "members are inflated completely, by isal" in feed.explain()


def test_two_files_are_decompressed_at_the_same_time(monkeypatch):
    monkeypatch.setattr("forebay.core.machine._usable_cores", lambda: 2)
    files = [Compressed() for _ in range(3)]
    running = decompress_ahead(files, [[0, 1, 2]])
    assert files[0].begun.wait(TIMEOUT_SECONDS)
    assert files[1].begun.wait(TIMEOUT_SECONDS)
    assert not files[2].begun.is_set()
    files[0].may_end.set()
    assert files[2].begun.wait(TIMEOUT_SECONDS)
    running.close()
    for file in files:
        file.may_end.set()


def test_a_file_beyond_the_budget_is_decompressed_only_after_rows_of_earlier_files_are_gathered(monkeypatch):
    files = [Compressed() for _ in range(3)]
    for file in files:
        file.may_end.set()
    running = decompress_ahead(files, [[0], [1], [2]], budget=2)
    assert files[1].begun.wait(TIMEOUT_SECONDS)
    assert not files[2].begun.wait(0.05)
    assert not running.release_group(np.array([2]))
    assert not files[2].begun.wait(0.05)
    assert running.release_group(np.array([0]))
    assert files[2].begun.wait(TIMEOUT_SECONDS)
    running.close()


def test_a_group_that_was_gathered_before_its_files_fit_is_not_decompressed():
    files = [Compressed() for _ in range(3)]
    for file in files:
        file.may_end.set()
    running = decompress_ahead(files, [[0], [1], [2]], budget=1)
    assert files[0].begun.wait(TIMEOUT_SECONDS)
    assert not running.release_group(np.array([1]))
    running.skip_group(np.array([1]))
    assert running.release_group(np.array([0]))
    assert files[2].begun.wait(TIMEOUT_SECONDS)
    assert not files[1].begun.is_set()
    running.close()


def test_a_feed_does_not_release_the_files_of_another_feed(folder):
    source = open_files(str(folder / "*.npz"))
    group, other, out = slice(0, ROWS), slice(0, ROWS - 1), np.empty((ROWS, 100), np.uint8)
    prefetch = source.prefetch(iter([group]))
    until = time.monotonic() + TIMEOUT_SECONDS
    while not prefetch._pending_rows:
        assert time.monotonic() < until
        time.sleep(0.001)
    source.gather(other, [out[: ROWS - 1]])
    source.gather(np.arange(0), [out[:0]])
    assert prefetch._pending_rows == {0: ROWS}
    source.gather(group, [out])
    assert prefetch._pending_rows == {}
    prefetch.close()


def test_close_ends_the_threads_that_wait_for_room():
    files = [Compressed(), Compressed()]
    files[0].may_end.set()
    running = decompress_ahead(files, [[0], [1]], budget=1)
    assert files[0].begun.wait(TIMEOUT_SECONDS)
    running.close()
    for thread in threading.enumerate():
        thread.join(TIMEOUT_SECONDS) if thread.name.startswith("forebay-decompress") else None
    assert not files[1].begun.is_set()


class Broken:
    def decompress(self):
        raise SourceError("it broke")


class Finished:
    def decompress(self):
        pass


@pytest.mark.parametrize("file", [Finished(), Broken()])
def test_the_iterator_is_dropped_when_all_threads_have_ended(file):
    """The threads end because every file is decompressed, or after an error."""
    ended = threading.Event()

    def upcoming():
        try:
            while True:
                yield [0]
        finally:
            ended.set()

    running = decompress_ahead([file], upcoming())
    assert ended.wait(TIMEOUT_SECONDS)
    running.close()


def test_members_of_one_file_are_inflated_at_the_same_time(tmp_path, monkeypatch):
    monkeypatch.setattr("forebay.core.machine._usable_cores", lambda: 2)
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros((9, 5)), y=np.ones(9))
    together, plain = threading.Barrier(2), DeflatedData.inflate
    monkeypatch.setattr(DeflatedData, "inflate", lambda self: together.wait(TIMEOUT_SECONDS) * 0 or plain(self))
    with fb.from_files(tmp_path / "x.npz").batch(9).feed("numpy") as feed:
        assert next(feed)["y"].sum() == 9


def test_a_damaged_file_raises_an_error_in_the_feed_that_needs_its_rows(folder, monkeypatch):
    monkeypatch.setattr(DeflatedData, "inflate", fail_for_file_3(DeflatedData.inflate))
    feed = fb.from_files(str(folder / "*.npz")).batch(8).feed("numpy")
    with feed, pytest.raises(SourceError, match=r"3\.npz cannot be inflated: it broke"):
        list(feed)


def fail_for_file_3(plain):
    def inflated(self):
        if self.file.path.stem == "3":
            raise self._damage_error("it broke")
        return plain(self)

    return inflated


@pytest.fixture
def without_isal(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(inflate, "import_module", missing)
    inflate._codec.cache_clear()
    yield
    inflate._codec.cache_clear()


@pytest.mark.usefixtures("without_isal")
def test_zlib_gives_the_same_rows_and_explain_recommends_isal(folder):
    source = open_files(str(folder / "*.npz"))
    out = np.empty((FILES * ROWS, 100), np.uint8)
    source.gather(slice(0, FILES * ROWS), [out])
    assert np.array_equal(out, all_rows())
    assert "pip install 'forebay[npz]'" in open_npz(folder / "0.npz").read_decision.why
