"""Helpers of the reader tests: readers as sources, and files that seem not to be cached."""

import threading

import numpy as np

import forebay as fb
from forebay.core.rows import row_count
from forebay.core.source import AbstractSource
from forebay.sources.direct import open_reader
from forebay.sources.direct.address_space import AddressSpace
from forebay.sources.direct.block_reader import BlockReader
from forebay.sources.direct.open_files import OpenFiles, direct_alignment
from forebay.sources.direct.row_reader import DirectRowReader

__all__ = [
    "ReadSource",
    "block_reader",
    "pretend_uncached",
    "epoch_of",
    "epoch_rows",
    "files_pipeline",
    "write_numbered",
    "numbers_of",
    "row_reader",
    "space_of",
]


class ReadSource(AbstractSource):
    """Presents a reader as a source, so that the tests of sources can test it."""

    immutable = True

    def __init__(self, source, reader):
        self._source, self._reader = source, reader
        self._one_session = threading.Lock()  # a new session would end the previous one
        self.specs, self.structure = source.specs, source.structure

    def __len__(self):
        return len(self._source)

    def gather(self, rows, out):
        if not row_count(rows):
            return
        with self._one_session:
            self._reader.begin(iter([("all", rows)])).gather("all", rows, out)

    def close(self):
        self._reader.close()
        self._source.close()


def space_of(source):
    return AddressSpace(source.file_extents(), [spec.nbytes for spec in source.specs])


def row_reader(source, *, direct=True, io_uring=True, buffer_nbytes=1 << 20, buffers=2):
    """Make a reader of single rows; without `direct`, it reads through the page cache."""
    space, sizes = space_of(source), {"buffer_nbytes": buffer_nbytes, "buffers": buffers}
    return DirectRowReader(space, _open(space, direct), **sizes, use_io_uring=io_uring)


def block_reader(source, *, block_rows, buffers=None, direct=True, io_uring=True):
    """Make a reader of blocks, by default with a buffer for every block."""
    space, rows = space_of(source), len(source)
    sizes = {"block_rows": block_rows, "buffers": -(-rows // block_rows) if buffers is None else buffers}
    return BlockReader(space, _open(space, direct), rows=rows, **sizes, use_io_uring=io_uring)


def pretend_uncached(monkeypatch, *, direct=True, no_io_uring="", available_nbytes=0):
    """Make every file seem to be only on disk. Optionally make the kernel refuse direct I/O or io_uring.

    `no_io_uring` is the reason why the kernel refuses io_uring.
    """
    monkeypatch.setattr(open_reader, "uncached_nbytes", lambda path: path.stat().st_size)
    monkeypatch.setattr(open_reader, "available_nbytes", lambda: available_nbytes)
    monkeypatch.setattr(open_reader, "direct_alignment", direct_alignment if direct else lambda paths: None)
    if no_io_uring:
        monkeypatch.setattr(open_reader, "_why_no_io_uring", lambda: no_io_uring)


def write_numbered(tmp_path, rows=5000, row_nbytes=400, name="rows.npy"):
    """Write a file whose rows begin with their own row numbers."""
    array = np.random.default_rng(0).integers(0, 256, (rows, row_nbytes), np.uint8)
    array[:, :8] = np.arange(rows, dtype=np.int64).view(np.uint8).reshape(rows, 8)
    path = tmp_path / name
    np.save(path, array)
    return path, array


def epoch_of(feed):
    """Copy the next epoch of a feed with a single leaf."""
    return np.concatenate([batch.copy() for batch in feed])


def numbers_of(rows):
    """Return the row numbers at the beginning of rows that `write_numbered` wrote."""
    return rows[:, :8].copy().view(np.int64).ravel()


def epoch_rows(pipeline, epoch=0):
    """Return the row numbers of an epoch in their order."""
    return pipeline.order.rows(epoch, np.arange(pipeline.order.length))


def files_pipeline(path, **shuffled):
    pipeline = fb.from_files(path)
    return pipeline.shuffle(**shuffled) if shuffled else pipeline


def _open(space, direct):
    alignment = direct_alignment(space.paths) if direct else None
    return OpenFiles(space, alignment=alignment or 1)
