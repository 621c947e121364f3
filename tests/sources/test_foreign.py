"""Sources of other packages that follow the protocol of version 0.1."""

from dataclasses import dataclass

import numpy as np
import pytest

import forebay as fb
from forebay.core import registry
from forebay.core.chunk_policy import ChunkPolicy, ShuffleBlocks
from forebay.core.decision import Decision
from forebay.core.source import AbstractSource, FileExtent, MemoryExtent, MemoryRegion, Source
from forebay.sources.foreign import ForeignSource, adapt_source
from forebay.testing import SourceTests

ROWS = np.arange(60, dtype=np.float64).reshape(20, 3)
REGION = MemoryRegion(ROWS.__array_interface__["data"][0], ROWS.nbytes, writable=False)
EXTENT = MemoryExtent(0, 20, REGION.address, 24, writable=False, own_pages=False)
READS = Decision("reads", "by a plug-in", "it knows best")


class MinimalSource:
    """A source with the required methods only."""

    specs, structure = fb.from_arrays(ROWS).specs, fb.from_arrays(ROWS).structure

    def __init__(self):
        self.closed = False

    def __len__(self):
        return len(ROWS)

    def gather(self, rows, out):
        out[0][...] = ROWS[rows]

    def memory(self):
        return []

    def close(self):
        self.closed = True


@dataclass
class OldBlocks:
    rows: int
    held: int


@dataclass
class OldChunking:
    rows: int
    row_nbytes: int
    notes: tuple[str, ...]


class Prefetch:
    def __init__(self):
        self.closed = False

    def close(self):
        self.closed = True


class OldSource(MinimalSource):
    """A source with every optional name of version 0.1."""

    fixed, needs_cluster, version, reads = True, True, "v7", READS
    blocks, chunking = OldBlocks(10, held=8), OldChunking(10, 24, ("by a plug-in",))
    held_nbytes, unpacked_nbytes = 0, 480

    def __init__(self, path=None):
        super().__init__()
        self.prefetches, self.path = [], path

    def memory(self):
        return [REGION]

    def extents(self):
        return [[EXTENT]]

    def stored(self):
        if self.path is None:
            return []
        status = self.path.stat()
        stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
        return [[FileExtent(0, 20, self.path, stamp, offset=0, stride=24)]]

    def gather_rows(self, rows):
        return [[ROWS[row] + 1000] for row in range(rows.start, rows.stop)]

    def foresee(self, coming):
        self.prefetches.append(Prefetch())
        return self.prefetches[-1]

    def unpack(self):
        self.held_nbytes = self.unpacked_nbytes

    def counts(self):
        return {"requests": 3}

    def reasons(self):
        return [Decision("cache", "given up", "the disk is full")]

    def reopen(self):
        return OldSource()


class TestForeignSource(SourceTests):
    def make_source(self, tmp_path):
        return ForeignSource(MinimalSource()), ROWS


class TestDuckTypedSource(SourceTests):
    def make_source(self, tmp_path):
        return MinimalSource(), ROWS


class TestSourceWithEveryOldName(SourceTests):
    def make_source(self, tmp_path):
        return OldSource(), ROWS


def test_an_abstract_source_needs_no_adapter():
    source = fb.from_arrays(ROWS).source
    assert adapt_source(source) is source


def test_a_minimal_source_gets_the_defaults_of_an_abstract_source():
    source = adapt_source(MinimalSource())
    assert isinstance(source, ForeignSource)
    assert isinstance(source, Source)
    names = ("immutable", "version", "needs_cluster", "read_decision", "shuffle_blocks", "chunk_policy", "held_nbytes")
    expected = (False, "", False, None, None, ChunkPolicy(), 0)
    assert tuple(getattr(source, name) for name in names) == expected
    assert (source.prefetch(iter([])), source.reopener()) == (None, None)
    assert (source.memory_extents(), source.file_extents(), source.counters()) == ([], [], {})
    assert source.decisions() == ()
    source.decompress()
    np.testing.assert_array_equal(source.gather_rows(slice(2, 4)), ROWS[2:4, None])


@pytest.fixture
def rows_path(tmp_path):
    path = tmp_path / "rows.bin"
    path.write_bytes(ROWS.tobytes())
    return path


def test_old_values_are_read_under_their_new_names(rows_path):
    source = adapt_source(OldSource(rows_path))
    assert (source.immutable, source.needs_cluster, source.version) == (True, True, "v7")
    assert (source.read_decision, source.decompressed_nbytes) == (READS, 480)
    assert source.shuffle_blocks == ShuffleBlocks(10, held=8)
    assert source.chunk_policy == ChunkPolicy(10, 24, ("by a plug-in",))
    assert source.memory() == [REGION]
    assert source.memory_extents() == [[EXTENT]]
    assert [extent.path for leaf in source.file_extents() for extent in leaf] == [rows_path]
    assert source.counters() == {"requests": 3}
    assert [decision.choice for decision in source.decisions()] == ["given up"]


def test_old_methods_are_called_under_their_new_names():
    source = adapt_source(OldSource())
    np.testing.assert_array_equal(source.gather_rows(slice(1, 3)), ROWS[1:3, None] + 1000)
    assert isinstance(source.prefetch(iter([])), Prefetch)
    assert source.held_nbytes == 0
    source.decompress()
    assert source.held_nbytes == 480
    source.close()
    assert isinstance(source.reopener()(), ForeignSource)


def test_a_feed_uses_the_old_names(rows_path):
    source = OldSource(rows_path)
    pipeline = fb.from_source(source).shuffle(seed=1).batch(5)
    assert pipeline.order.describe()[0] == "block-shuffled"
    with pipeline.feed("numpy") as feed:
        got = np.concatenate([batch.copy() for batch in feed])
        assert "it knows best" in feed.explain()
        assert "the disk is full" in feed.explain()
        assert feed.stats()["source"] == {"requests": 3}
    np.testing.assert_array_equal(np.sort(got, axis=0), ROWS)
    assert source.prefetches
    assert source.prefetches[-1].closed


@pytest.fixture
def old_opener(monkeypatch):
    """An opener of a plug-in for `.old` files."""

    def open_old(path, *, spec=None):
        return OldSource()

    monkeypatch.setattr(registry, "load_source_opener", lambda suffix: open_old)
    return open_old


def test_files_of_an_old_plug_in_are_opened_one_by_one(old_opener, tmp_path):
    paths = [tmp_path / f"{number}.old" for number in range(3)]
    for path in paths:
        path.touch()
    pipeline = fb.from_files(paths)
    assert isinstance(fb.from_files(paths[:1]).source, AbstractSource)
    with pipeline.batch(60).feed("numpy") as feed:
        np.testing.assert_array_equal(next(iter(feed)), np.tile(ROWS, (3, 1)))
    assert [extent.first for extent in pipeline.source.memory_extents()[0]] == [0, 20, 40]


def test_an_old_opener_may_open_its_files_together(old_opener, tmp_path):
    (tmp_path / "0.old").touch()
    (tmp_path / "1.old").touch()
    old_opener.together = lambda paths, *, spec=None: MinimalSource()
    assert len(fb.from_files(tmp_path / "*.old").source) == 20
