"""A reader as a source, and feeds of files that are taken to be cold: what tests of reading share."""

import threading

import numpy as np

import forebay as fb
from forebay.core.rows import row_count
from forebay.core.source import AbstractSource
from forebay.sources.direct import open_reader
from forebay.sources.direct.address_space import AddressSpace
from forebay.sources.direct.block_reader import BlockReader
from forebay.sources.direct.open_files import OpenFiles, direct_alignment
from forebay.sources.direct.row_reader import RowReader

__all__ = [
    "ReadSource",
    "block_reader",
    "cold",
    "epoch_of",
    "expected",
    "files_pipeline",
    "numbered",
    "numbers_of",
    "row_reader",
    "space_of",
]


class ReadSource(AbstractSource):
    """A source whose rows are gathered by a reader."""

    immutable = True

    def __init__(self, source, reader):
        self._source, self._reader = source, reader
        self._one_pass = threading.Lock()  # a new one would end the one before
        self.specs, self.structure = source.specs, source.structure

    def __len__(self):
        return len(self._source)

    def gather(self, rows, out):
        if not row_count(rows):
            return
        with self._one_pass:
            self._reader.begin(iter([("all", rows)])).gather("all", rows, out)

    def close(self):
        self._reader.close()
        self._source.close()


def space_of(source):
    return AddressSpace(source.file_extents(), [spec.nbytes for spec in source.specs])


def row_reader(source, *, direct=True, ring=True, tray_nbytes=1 << 20, trays=2):
    """Rows by position; without `direct`, through the page cache."""
    space = space_of(source)
    return RowReader(space, _open(space, direct), tray_nbytes=tray_nbytes, trays=trays, ring=ring)


def block_reader(source, *, block_rows, places=None, direct=True, ring=True):
    """Blocks of rows; with places for all of them, if not said otherwise."""
    space, rows = space_of(source), len(source)
    places = -(-rows // block_rows) if places is None else places
    return BlockReader(space, _open(space, direct), rows=rows, block_rows=block_rows, places=places, ring=ring)


def cold(monkeypatch, *, direct=True, no_ring="", available_nbytes=0):
    """Let every file seem to be on the disk and nowhere else, and the kernel refuse what it is said to."""
    monkeypatch.setattr(open_reader, "uncached_nbytes", lambda path: path.stat().st_size)
    monkeypatch.setattr(open_reader, "available_nbytes", lambda: available_nbytes)
    monkeypatch.setattr(open_reader, "direct_alignment", direct_alignment if direct else lambda paths: None)
    if no_ring:
        monkeypatch.setattr(open_reader, "_why_no_ring", lambda: no_ring)


def numbered(tmp_path, rows=5000, row_nbytes=400, name="rows.npy"):
    """A file whose rows begin with their own numbers."""
    array = np.random.default_rng(0).integers(0, 256, (rows, row_nbytes), np.uint8)
    array[:, :8] = np.arange(rows, dtype=np.int64).view(np.uint8).reshape(rows, 8)
    path = tmp_path / name
    np.save(path, array)
    return path, array


def epoch_of(feed):
    """The next epoch of a lone array, copied out."""
    return np.concatenate([batch.copy() for batch in feed])


def numbers_of(rows):
    """Which rows these are."""
    return rows[:, :8].copy().view(np.int64).ravel()


def expected(pipeline, epoch=0):
    """The rows an epoch should have, in their order."""
    return pipeline.order.rows(epoch, np.arange(pipeline.order.length))


def files_pipeline(path, **shuffled):
    pipeline = fb.from_files(path)
    return pipeline.shuffle(**shuffled) if shuffled else pipeline


def _open(space, direct):
    alignment = direct_alignment(space.paths) if direct else None
    return OpenFiles(space, alignment=alignment or 1)
