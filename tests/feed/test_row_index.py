"""Row numbers are computed in chunks: each chunk once, and before it is needed."""

import threading

import numpy as np
import pytest

import forebay as fb
from forebay.feed.row_index import RowIndex
from forebay.order.permutation import Permutation
from forebay.order.schedule import Cursor
from forebay.testing import SimulatedEngine

ROWS, BATCH_ROWS, TIMEOUT_SECONDS = Permutation.TABLE_LENGTH + 1000, 100, 60.0


class RecordingIndex(RowIndex):
    """Records which chunks were computed, and which of them while a caller waited."""

    def __init__(self, pipeline, chunk_rows=2048):
        super().__init__(pipeline, group_rows=300, chunk_rows=chunk_rows)
        self.computed_chunks, self.waited, self._caller_waits = {}, [], False

    def rows_of(self, group):
        self._caller_waits = True
        try:
            return super().rows_of(group)
        finally:
            self._caller_waits = False

    def _compute_chunk(self, *key):
        found = super()._compute_chunk(*key)
        self.computed_chunks.setdefault(key, []).append(len(found))
        if self._caller_waits:
            self.waited.append(key)
        return found


def make_shuffled(rows=ROWS):
    return fb.from_arrays({"x": np.zeros((rows, 1), np.uint8)}).shuffle(seed=3)


def groups_of(pipeline, *cursors):
    return [group for cursor in cursors for group in pipeline.schedule.groups(cursor, 3)]


def walk_groups(index, groups, *, prepare=True):
    found = []
    for group in groups:
        found.append(np.arange(ROWS)[index.rows_of(group)])
        if prepare:
            index.prepare_after(group)
    return np.concatenate(found)


@pytest.mark.parametrize(
    "pipeline",
    [
        make_shuffled().batch(BATCH_ROWS),
        make_shuffled().batch(BATCH_ROWS).repeat(2),
        make_shuffled().batch(BATCH_ROWS).repeat().take(2 * ROWS // BATCH_ROWS),
        make_shuffled().batch(BATCH_ROWS).take(50),
        make_shuffled().shard(1, 3).batch(BATCH_ROWS),
    ],
    ids=["once", "twice", "endless, limited", "limited within a pass", "a shard"],
)
@pytest.mark.parametrize("chunk_rows", [300, 2048, 1 << 18])
def test_only_the_first_chunk_is_waited_for_and_each_is_computed_once(pipeline, chunk_rows):
    index, groups = RecordingIndex(pipeline, chunk_rows), groups_of(pipeline, *map(Cursor, range(3)))
    found = walk_groups(index, groups)
    assert index.waited == [(0, 0, 0)]
    assert all(len(lengths) == 1 and lengths[0] > 0 for lengths in index.computed_chunks.values())
    assert np.array_equal(found, walk_groups(RecordingIndex(pipeline), groups, prepare=False))


def test_a_resumed_epoch_continues_at_its_position():
    pipeline = make_shuffled().batch(BATCH_ROWS)
    index, groups = (
        RecordingIndex(pipeline),
        groups_of(pipeline, Cursor(epoch=1, position=1000, batches=10), Cursor(epoch=2)),
    )
    found = walk_groups(index, groups)
    assert index.waited == [(1, 1000, 0)]
    assert {base for epoch, base, _ in index.computed_chunks if epoch == 1} == {1000}
    assert np.array_equal(found, walk_groups(RecordingIndex(pipeline), groups, prepare=False))


def test_only_the_next_chunk_is_prepared_once_half_of_the_current_one_is_used():
    pipeline = make_shuffled().batch(BATCH_ROWS)
    index, groups = RecordingIndex(pipeline), groups_of(pipeline, Cursor())
    walk_groups(index, groups[:3])
    assert list(index.computed_chunks) == [(0, 0, 0)]
    walk_groups(index, groups[3:4])
    assert list(index.computed_chunks) == [(0, 0, 0), (0, 0, 1)]


def test_late_groups_do_not_recompute_used_chunks():
    pipeline = make_shuffled(100).batch(BATCH_ROWS).repeat(20)
    index, groups = RecordingIndex(pipeline), groups_of(pipeline, Cursor())
    for start in range(0, len(groups), 5):  # five groups get their row numbers, then each prepares the next chunk
        for group in groups[start : start + 5]:
            index.rows_of(group)
        for group in groups[start : start + 5]:
            index.prepare_after(group)
    assert len(index.computed_chunks) == 21  # one chunk per pass, and the first chunk of the next epoch
    assert all(len(lengths) == 1 for lengths in index.computed_chunks.values())


def test_sequential_rows_need_no_numbers():
    pipeline = fb.from_arrays({"x": np.zeros((ROWS, 1), np.uint8)}).batch(BATCH_ROWS)
    index = RecordingIndex(pipeline)
    assert np.array_equal(
        walk_groups(index, groups_of(pipeline, Cursor(), Cursor(epoch=1))), np.tile(np.arange(ROWS), 2)
    )
    assert not index.computed_chunks


# Row numbers in a feed


@pytest.fixture
def prepare_calls(monkeypatch):
    """Record the thread and the group of each `prepare_after` call."""
    calls, prepare = [], RowIndex.prepare_after

    def recorded(self, group):
        calls.append((threading.current_thread().name, group))
        prepare(self, group)

    monkeypatch.setattr(RowIndex, "prepare_after", recorded)
    return calls


def test_worker_threads_prepare_chunks_and_the_consumer_never_does(prepare_calls):
    with make_shuffled().batch(10).feed("numpy", device="cpu") as feed:
        for _ in range(3):
            sum(1 for _ in feed)
    assert prepare_calls
    assert all(name.startswith("forebay-") for name, _ in prepare_calls)


def test_no_batch_waits_for_the_chunk_of_the_next_epoch(monkeypatch):
    go_on = threading.Event()
    monkeypatch.setattr(RowIndex, "prepare_after", lambda self, group: group.ends_epoch and go_on.wait(TIMEOUT_SECONDS))
    with make_shuffled().batch(10).feed("numpy", device=SimulatedEngine()) as feed:
        try:
            assert sum(1 for _ in feed) == -(-ROWS // 10)
            assert not go_on.is_set()
        finally:
            go_on.set()


def test_an_error_while_preparing_does_not_end_the_feed(monkeypatch):
    def refuse(self, group):
        raise MemoryError

    monkeypatch.setattr(RowIndex, "prepare_after", refuse)
    with make_shuffled().batch(10).feed("numpy", device="cpu") as feed:
        assert [sum(1 for _ in feed) for _ in range(3)] == [-(-ROWS // 10)] * 3
