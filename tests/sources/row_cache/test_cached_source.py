"""Cached rows follow the rules of every source, in RAM and on disk, complete or not."""

import numpy as np

from forebay.sources.arrays import ArraySource
from forebay.sources.row_cache.cached_source import CachedSource
from forebay.sources.row_cache.disk_rows import DiskRows, DiskRowsLayout
from forebay.sources.row_cache.stored_rows import RamRows
from forebay.testing import SourceTests

TREE = {"x": np.arange(120.0).reshape(40, 3), "label": np.arange(40) % 7}


def cached(store, inner=None):
    inner = inner or ArraySource(TREE)
    return CachedSource(
        inner,
        store,
        inner.specs,
        inner.structure,
        transform=None,
        calls_user_code=False,
        used_rows=len(inner),
    )


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


def test_a_cache_without_all_rows_has_no_memory_extents():
    source = cached(RamRows(ArraySource(TREE).specs, 40, None, 40))
    source.gather(slice(0, 39), [spec.empty(39) for spec in source.specs])
    assert list(source.memory()) == list(source.memory_extents()) == []
    assert source.plan_version == 0


def test_the_inner_source_prefetches_only_rows_that_gather_will_read():
    announced = []

    class Prefetching(ArraySource):
        def prefetch(self, upcoming):
            announced.extend(rows if isinstance(rows, slice) else rows.tolist() for rows in upcoming)

    source = cached(RamRows(ArraySource(TREE).specs, 40, None, 10), Prefetching(TREE))
    source.prefetch(iter([slice(0, 20)]))
    assert announced.pop() == slice(0, 20)
    source.gather(slice(0, 5), [spec.empty(5) for spec in source.specs])
    source.prefetch(iter([slice(0, 20)]))
    assert announced == []
    source.gather(slice(0, 10), [spec.empty(10) for spec in source.specs])
    source.prefetch(iter([slice(0, 10), slice(8, 12), slice(20, 30)]))
    assert announced == [[10, 11], slice(20, 30)]
