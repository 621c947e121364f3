"""A mapped file that changed in place raises an error. A replaced or deleted file stays readable."""

import os
from contextlib import suppress

import numpy as np
import pytest

from forebay.errors import SourceChangedError
from forebay.sources.direct.address_space import AddressSpace
from forebay.sources.direct.open_files import OpenFiles
from forebay.sources.direct.read_ranges import merge_ranges
from forebay.sources.direct.read_threads import pread_each, read_fully
from forebay.sources.files import mapped
from forebay.sources.formats.npy import open_npy

ROWS, ROW_NBYTES = 1000, 400


@pytest.fixture(autouse=True)
def check_every_read(monkeypatch):
    monkeypatch.setattr(mapped, "CHECK_SECONDS", 0.0)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "rows.npy"
    write_rows(path)
    return path


def write_rows(path):
    np.save(path, np.arange(ROWS * ROW_NBYTES // 4, dtype="float32").reshape(ROWS, -1))


def shrink_and_grow(path):
    """Cut a file and extend it with zeros to its old size, in a later tick of the file system's clock."""
    nbytes, modified_ns = path.stat().st_size, path.stat().st_mtime_ns
    os.truncate(path, 128)
    os.truncate(path, nbytes)
    os.utime(path, ns=(modified_ns, modified_ns + 10_000_000))


def rewrite(path):
    content, modified_ns = path.read_bytes(), path.stat().st_mtime_ns
    with path.open("r+b") as file:
        file.write(content[::-1])
    os.utime(path, ns=(modified_ns, modified_ns + 10_000_000))


def append(path):
    with path.open("ab") as file:
        file.write(b"more")


def first_rows(source, count=3):
    (out,) = (spec.empty(count) for spec in source.specs)
    source.gather(np.arange(count), [out])
    return out


@pytest.mark.parametrize("change", [shrink_and_grow, rewrite, append])
def test_a_mapped_file_that_was_changed_in_place_raises_an_error(path, change):
    source = open_npy(path)
    first_rows(source)
    change(path)
    with pytest.raises(SourceChangedError, match=r"rows\.npy was changed while it was read: it had 400128 bytes"):
        first_rows(source)


@pytest.mark.parametrize("change", [shrink_and_grow, rewrite, append])
def test_a_directly_read_file_that_was_changed_in_place_raises_an_error(path, change):
    space = AddressSpace(open_npy(path).file_extents(), [ROW_NBYTES])
    files = OpenFiles(space, alignment=1)
    ranges = merge_ranges(*space.starts_and_nbytes(np.arange(3)), alignment=1)
    memory = np.empty(ranges.total_nbytes, np.uint8)
    read_fully(pread_each, files, ranges.split(), memory)
    change(path)
    with pytest.raises(SourceChangedError, match=r"rows\.npy was changed while it was read"):
        read_fully(pread_each, files, ranges.split(), memory)
    files.close()


def delete(path):
    path.unlink()


def replace(path):
    other = path.with_name("new.npy")
    np.save(other, np.zeros(3))
    other.replace(path)


def change_permissions(path):
    path.chmod(0o600)


def change_nothing(path):
    path.read_bytes()


@pytest.mark.parametrize("change", [delete, replace, change_permissions, change_nothing])
def test_a_mapped_file_with_unchanged_content_stays_readable(path, change):
    source = open_npy(path)
    expected = first_rows(source)
    with suppress(PermissionError):  # Windows does not delete or replace a mapped file
        change(path)
    np.testing.assert_array_equal(first_rows(source), expected)


@pytest.mark.parametrize("rows", [np.arange(ROWS)[::-1], slice(0, ROWS)])
def test_a_large_gather_stops_when_the_file_shrinks_between_two_pieces(path, rows, monkeypatch):
    monkeypatch.setattr(mapped, "PIECE_NBYTES", 10 * ROW_NBYTES)
    source = open_npy(path)
    gathered = []

    def gather_and_truncate(rows, out):
        gathered.append(len(out))
        os.truncate(path, 128)

    source._gathers = [gather_and_truncate]
    with pytest.raises(SourceChangedError, match=r"shrank while it was read: it had 400128 bytes .* and has 128 now"):
        source.gather(rows, [source.specs[0].empty(ROWS)])
    assert gathered == [10]


@pytest.mark.parametrize("piece_rows", [1, 7, ROWS])
@pytest.mark.parametrize("rows", [np.arange(ROWS)[::-1], slice(5, ROWS), np.arange(0), slice(3, 3)])
def test_a_gather_in_pieces_equals_one_without_pieces(path, rows, piece_rows, monkeypatch):
    monkeypatch.setattr(mapped, "PIECE_NBYTES", piece_rows * ROW_NBYTES)
    source, expected = open_npy(path), np.load(path)[rows]
    out = np.empty_like(expected)
    source.gather(rows, [out])
    np.testing.assert_array_equal(out, expected)
