"""Every reader returns the same rows as the mapped file (`SourceTests`)."""

import numpy as np
import pytest
from tests.sources.direct.readers import ReadSource, block_reader, row_reader

from forebay.core.spec import ArraySpec
from forebay.sources.files.many_files import open_files
from forebay.sources.formats.npy import open_npy
from forebay.sources.formats.npz import open_npz
from forebay.sources.formats.raw import open_binary
from forebay.testing.sources import SourceTests

RECORD = {"label": "uint8", "image": ArraySpec((5, 7), "uint8")}


def npy(tmp_path, shape=(300, 6, 17)):
    array = np.random.default_rng(0).random(shape, np.float32)
    np.save(tmp_path / "rows.npy", array)
    return open_npy(tmp_path / "rows.npy"), array


def npz(tmp_path):
    tree = {"x": np.arange(900, dtype="f8").reshape(300, 3), "y": np.arange(300, dtype="i4")}
    np.savez(tmp_path / "rows.npz", **tree)
    return open_npz(tmp_path / "rows.npz"), tree


def records(tmp_path):
    rows = np.random.default_rng(0).integers(0, 256, (300, 36), np.uint8)
    rows.tofile(tmp_path / "rows.bin")
    return open_binary(tmp_path / "rows.bin", spec=RECORD), {
        "label": rows[:, 0],
        "image": rows[:, 1:].reshape(-1, 5, 7),
    }


def many_files(tmp_path):
    array = np.random.default_rng(0).random((300, 9), np.float32)
    for number, part in enumerate(np.split(array, [7, 8, 120, 290])):
        np.save(tmp_path / f"{number}.npy", part)
    return open_files(str(tmp_path / "*.npy")), array


class ReaderTests(SourceTests):
    """One reader with one kind of file."""

    def make_rows(self, tmp_path):
        return many_files(tmp_path)

    def make_reader(self, source):
        raise NotImplementedError

    def make_source(self, tmp_path):
        source, tree = self.make_rows(tmp_path)
        return ReadSource(source, self.make_reader(source)), tree


class EveryFileKind(ReaderTests):
    """One reader with several kinds of files."""

    @pytest.fixture(params=[npy, npz, records, many_files])
    def made(self, request, tmp_path):
        self.make_rows = request.param
        source, tree = self.make_source(tmp_path)
        yield source, tree
        source.close()


class TestRowsByIoUring(EveryFileKind):
    def make_reader(self, source):
        return row_reader(source)


class TestRowsByThreads(ReaderTests):
    def make_reader(self, source):
        return row_reader(source, io_uring=False)


class TestRowsThroughThePageCache(ReaderTests):
    def make_reader(self, source):
        return row_reader(source, direct=False)


class TestRowsWithOneSmallBuffer(ReaderTests):
    def make_reader(self, source):
        return row_reader(source, buffer_nbytes=16 << 10, buffers=1)


class TestBlocksByIoUring(EveryFileKind):
    def make_reader(self, source):
        return block_reader(source, block_rows=32)


class TestBlocksByThreadsThroughThePageCache(ReaderTests):
    def make_reader(self, source):
        return block_reader(source, block_rows=7, io_uring=False, direct=False)


@pytest.mark.parametrize("row_nbytes", [1, 511, 512, 4096, 20_000, 3 << 20])
def test_rows_of_any_size_are_read_completely(tmp_path, row_nbytes):
    array = np.random.default_rng(0).integers(0, 256, (12, row_nbytes), np.uint8)
    np.save(tmp_path / "rows.npy", array)
    source = open_npy(tmp_path / "rows.npy")
    reader = row_reader(source, buffer_nbytes=max(1 << 20, row_nbytes + 8192))
    rows, out = np.array([11, 0, 3, 3, 7]), np.empty((5, row_nbytes), np.uint8)
    reader.begin(iter([("group", rows)])).gather("group", rows, [out])
    assert np.array_equal(out, array[rows])
    reader.close()
