"""Cached rows follow the rules of every source, in RAM and on disk, complete or not."""

import itertools
import tracemalloc
from contextlib import suppress

import numpy as np
import pytest

from forebay.core.rows import row_array
from forebay.core.skipped_rows import SOURCE, ErrorLimit, SkippedRow, UnreadableRowsError, raise_unreadable
from forebay.core.spec import ArraySpec
from forebay.sources.arrays import ArraySource
from forebay.sources.row_cache import key_checks
from forebay.sources.row_cache.cached_source import CachedSource, RowTransform
from forebay.sources.row_cache.disk_rows import DiskRows, DiskRowsLayout
from forebay.sources.row_cache.stored_rows import RamRows
from forebay.testing import SourceTests

TREE = {"x": np.arange(120.0).reshape(40, 3), "label": np.arange(40) % 7}


def cached(store, inner=None):
    inner = inner or ArraySource(TREE)
    return CachedSource(inner, store, RowTransform(tuple(inner.specs), inner.structure), used_rows=len(inner))


class TestRowsInRam(SourceTests):
    def make_source(self, tmp_path):
        return cached(RamRows(ArraySource(TREE).specs, 40, None, 40)), TREE


class TestSomeRowsInRam(SourceTests):
    def make_source(self, tmp_path):
        return cached(RamRows(ArraySource(TREE).specs, 40, None, 13)), TREE


class TestRowsOnDisk(SourceTests):
    def make_source(self, tmp_path):
        inner = ArraySource(TREE)
        layout = DiskRowsLayout(tmp_path, "00", inner.specs, inner.structure.paths, 40)
        return cached(DiskRows(layout, 40, 40)), TREE


class TestCompleteRowsInRam(SourceTests):
    def make_source(self, tmp_path):
        source = cached(RamRows(ArraySource(TREE).specs, 40, None, 40))
        source.gather(slice(0, 40), [spec.empty(40) for spec in source.specs])
        assert source.plan_version == 1
        assert len(source.memory_extents()) == 2
        return source, TREE


class CountingKey:
    def __init__(self):
        self.checks = 0

    def check_data(self):
        pass

    def check_functions(self):
        self.checks += 1


def test_a_full_cache_does_not_check_functions():
    inner, key = ArraySource(TREE), CountingKey()
    transform = RowTransform(tuple(inner.specs), inner.structure)
    source = CachedSource(inner, RamRows(inner.specs, 40, None, 13), transform, used_rows=40, key=key)
    out = [spec.empty(13) for spec in source.specs]
    source.gather(slice(0, 13), out)
    checks_before = key.checks
    source.gather(slice(20, 33), out)
    assert (checks_before, key.checks) == (1, 1)


class WithUnreadableRow(ArraySource):
    """Cannot read row 3."""

    error_limit = ErrorLimit("from_images", 1)

    def gather(self, rows, out):
        super().gather(rows, out)
        failed = np.flatnonzero(row_array(rows) == 3)
        raise_unreadable([SkippedRow(int(position), SOURCE, "SourceError", "damaged") for position in failed])


def test_an_unreadable_row_does_not_cause_a_check_at_every_later_piece(monkeypatch):
    monkeypatch.setattr(key_checks, "CHEAP_CHECK_SECONDS", -1)
    monkeypatch.setattr(key_checks, "MAX_CHECK_SHARE", 1e-12)  # the next check is due after days
    inner, key = WithUnreadableRow(TREE), CountingKey()
    transform = RowTransform(tuple(inner.specs), inner.structure)
    source = CachedSource(inner, RamRows(inner.specs, 40, None, 13), transform, used_rows=40, key=key)
    out = [spec.empty(10) for spec in source.specs]
    checks = []
    for first in (0, 10, 20, 30, 0, 10, 20):
        with suppress(UnreadableRowsError):
            source.gather(slice(first, first + 10), out)
        checks.append(key.checks)
    assert source.counters()["cached_rows"] == 12
    assert checks == [1, 2, 2, 2, 2, 2, 2]


def test_two_threads_that_store_the_last_rows_at_once_check_functions_first(monkeypatch):
    """A call stores rows 20 to 39 while another call stores rows 0 to 19."""
    monkeypatch.setattr(key_checks, "CHEAP_CHECK_SECONDS", -1)
    monkeypatch.setattr(key_checks, "MAX_CHECK_SHARE", 1e-12)
    inner, key, store = ArraySource(TREE), CountingKey(), RamRows(ArraySource(TREE).specs, 40, None, 40)
    source = CachedSource(inner, store, RowTransform(tuple(inner.specs), inner.structure), used_rows=40, key=key)
    gather(source, slice(0, 2), 2)
    put, checks = store.put, []

    def put_during_another_put(numbers, leaves):
        monkeypatch.setattr(store, "put", put)
        checks.append(key.checks)
        gather(source, slice(20, 40), 20)
        checks.append(key.checks)
        put(numbers, leaves)

    monkeypatch.setattr(store, "put", put_during_another_put)
    gather(source, slice(0, 20), 20)
    assert source.is_complete
    assert checks == [1, 2]


def test_a_row_that_became_readable_does_not_count_as_unreadable():
    inner = WithUnreadableRow(TREE)
    source = cached(RamRows(inner.specs, 40, None, 40), inner)
    with suppress(UnreadableRowsError):
        source.gather(slice(0, 5), [spec.empty(5) for spec in source.specs])
    inner.gather = ArraySource(TREE).gather
    assert "1 rows could not be read" in source.decisions()[-1].why
    gather(source, slice(0, 5), 5)
    assert "each row is computed once" in source.decisions()[-1].why


def test_rows_whose_storing_was_interrupted_are_stored_later():
    store = RamRows((ArraySpec((), "int64"), ArraySpec((), "int64")), 4, None, 4)

    class Interrupted:
        def __array__(self, *args, **kwargs):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.put(np.arange(4), [np.zeros(4, np.int64), Interrupted()])
    assert (store.count, store.find(np.arange(4)).any()) == (0, False)
    store.put(np.arange(4), [np.arange(4), np.arange(4)])
    out = [np.zeros(4, np.int64), np.zeros(4, np.int64)]
    store.gather(slice(0, 4), out)
    assert (store.count, out[0].tolist(), out[1].tolist()) == (4, [0, 1, 2, 3], [0, 1, 2, 3])


def test_a_row_that_two_threads_store_at_once_is_written_once():
    store = RamRows((ArraySpec((), "int64"),), 4, None, 4)
    counts = []

    class SlowLeaf:
        """While the store copies its values, another thread stores the same rows."""

        def __array__(self, *args, **kwargs):
            store.put(np.arange(4), [np.ones(4, np.int64)])
            counts.append(store.count)
            return np.zeros(4, np.int64)

    store.put(np.arange(4), [SlowLeaf()])
    assert (counts, store.count) == ([0], 4)


def test_the_memory_of_chosen_rows_does_not_grow_with_the_source():
    chosen = np.array([5, 7, 10**12])
    store = RamRows((ArraySpec((), "int64"),), 10**13, chosen, 2)
    store.put(chosen, [np.arange(3)])
    assert store.find(np.array([10**12, 7, 6, 5, 10**13 - 1])).tolist() == [False, True, False, True, False]
    out = np.zeros(3, np.int64)
    store.gather(np.array([7, 5, 7]), [out])
    assert (out.tolist(), store.count) == ([1, 0, 1], 2)


def test_a_cache_without_all_rows_has_no_memory_extents():
    source = cached(RamRows(ArraySource(TREE).specs, 40, None, 40))
    source.gather(slice(0, 39), [spec.empty(39) for spec in source.specs])
    assert list(source.memory()) == list(source.memory_extents()) == []
    assert source.plan_version == 0


class Prefetching(ArraySource):
    """Records the rows that it should prefetch, and the rows that it gathers."""

    can_prefetch = True

    def __init__(self, tree):
        super().__init__(tree)
        self.announced, self.gathered, self.closed = [], [], 0

    def prefetch(self, upcoming):
        self.announced = [rows if isinstance(rows, slice) else rows.tolist() for rows in upcoming]
        return self

    def gather(self, rows, out):
        self.gathered.append(rows if isinstance(rows, slice) else rows.tolist())
        super().gather(rows, out)

    def close(self):
        self.closed += 1


def gather(source, rows, count):
    out = [spec.empty(count) for spec in source.specs]
    source.gather(rows, out)
    np.testing.assert_array_equal(out[0], TREE["x"][rows])


def test_the_inner_source_prefetches_only_rows_that_are_not_stored():
    inner = Prefetching(TREE)
    source = cached(RamRows(ArraySource(TREE).specs, 40, None, 10), inner)
    source.prefetch(iter([slice(0, 20)])).close()
    assert (inner.announced, inner.closed) == ([slice(0, 20)], 1)
    gather(source, slice(0, 5), 5)
    source.prefetch(iter([slice(0, 5), slice(0, 7), np.array([30, 4])]))
    assert inner.announced == [[5, 6], [30]]


def test_rows_that_were_stored_after_the_plan_are_read_as_planned():
    inner = Prefetching(TREE)
    source = cached(RamRows(ArraySource(TREE).specs, 40, None, 40), inner)
    groups = [np.array([1, 2]), np.array([2, 3]), slice(4, 8), np.array([2, 3])]
    reads = source.prefetch(iter(groups))
    for group in groups:
        gather(source, group, len(np.arange(40)[group]))
    assert inner.gathered == inner.announced == [[1, 2], [2, 3], slice(4, 8), [2, 3]]
    reads.close()
    gather(source, np.array([2, 3]), 2)
    assert len(inner.gathered) == 4


def test_slices_are_announced_as_the_row_numbers_that_a_transform_reads():
    inner = Prefetching(TREE)
    store = RamRows(inner.specs, 40, None, 40)

    def copy_rows(leaves, out):
        for target, leaf in zip(out, leaves, strict=True):
            np.copyto(target, leaf)

    transform = RowTransform(tuple(inner.specs), inner.structure, copy_rows, calls_user_code=True)
    source = CachedSource(inner, store, transform, used_rows=40)
    source.prefetch(iter([slice(0, 3)]))
    gather(source, slice(0, 3), 3)
    assert inner.gathered == inner.announced == [[0, 1, 2]]


def test_a_plan_of_endless_groups_of_stored_rows_ends():
    inner = Prefetching(TREE)
    source = cached(RamRows(ArraySource(TREE).specs, 40, None, 10), inner)
    gather(source, slice(0, 10), 10)
    source.prefetch(itertools.repeat(slice(0, 10)))
    assert inner.announced == []


class FirstRowDamaged(ArraySource):
    """Cannot read the first row of each gather."""

    error_limit = ErrorLimit("from_images", 1)

    def gather(self, rows, out):
        super().gather(rows, out)
        raise UnreadableRowsError([SkippedRow(0, SOURCE, "SourceError", "damaged")])


def add_one(leaves, out):
    for target, leaf in zip(out, leaves, strict=True):
        target[...] = leaf + 1


@pytest.mark.parametrize("transform", [None, add_one])
def test_temporary_memory_is_counted_if_a_row_is_unreadable(transform):
    inner = FirstRowDamaged(np.zeros((100, 10_000), np.uint8))
    rows = RowTransform(inner.specs, inner.structure, transform)
    source = CachedSource(inner, RamRows(inner.specs, 100, None, 100), rows, used_rows=100)
    source._store.put(np.array([99]), [np.zeros((1, 10_000), np.uint8)])
    out = [np.zeros((100, 10_000), np.uint8)]
    tracemalloc.start()
    try:
        with pytest.raises(UnreadableRowsError):
            source.gather(slice(0, 100), out)
        assert tracemalloc.get_traced_memory()[1] <= 100 * source.scratch_row_nbytes + 50_000
    finally:
        tracemalloc.stop()
