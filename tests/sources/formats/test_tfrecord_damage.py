"""Damaged TFRecord files: wrong lengths and checksums, and truncated files, are refused."""

import struct

import numpy as np
import pytest
from tests.sources.formats.tfrecord_files import example, ints, with_crc, write

from forebay.errors import ForebayError, SourceChangedError, SourceError
from forebay.sources.formats.tfrecord import open_tfrecord
from forebay.testing.sources import assert_rows


@pytest.fixture
def path(tmp_path):
    """A file of two records."""
    return write(tmp_path / "x.tfrecord", example(x=ints(3)), example(x=ints(4)))


def flip_bit(path, index):
    """Flip a bit of the byte at this index."""
    data = bytearray(path.read_bytes())
    data[index] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 2**40])
def test_a_length_beyond_the_file_with_a_valid_checksum_is_refused(tmp_path, length):
    path = write(tmp_path / "x.tfrecord", example(x=ints(3)))
    path.write_bytes(path.read_bytes() + with_crc(struct.pack("<Q", length)) + bytes(20))
    with pytest.raises(SourceError, match="truncated in record 1"):
        open_tfrecord(path)


def test_lengths_are_verified_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr("forebay.sources.formats.tfrecord._VERIFIED_RECORDS", 3)
    path = write(tmp_path / "x.tfrecord", *(example(x=ints(row)) for row in range(10)))
    assert_rows(open_tfrecord(path), slice(0, 10), [np.arange(10)])
    flip_bit(path, path.stat().st_size // 10 * 7)
    with pytest.raises(SourceError, match="the length of record 7 is wrong"):
        open_tfrecord(path)


def test_a_wrong_checksum_of_a_record_raises_an_error(path):
    flip_bit(path, -5)
    source = open_tfrecord(path)
    with pytest.raises(SourceError, match="checksum of record 1 is wrong"):
        source.gather(slice(0, 2), [np.empty(2, "i8")])


def test_a_wrong_length_raises_an_error_on_open(path):
    flip_bit(path, path.stat().st_size // 2)
    with pytest.raises(SourceError, match="the length of record 1 is wrong"):
        open_tfrecord(path)


@pytest.mark.parametrize("kept", [1, 5, 14])
def test_a_truncated_file_is_refused(path, kept):
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2 + kept])
    with pytest.raises(SourceError, match=r"truncated in record 1"):
        open_tfrecord(path)


def test_a_file_that_shrinks_while_open_raises_an_error(path):
    source = open_tfrecord(path)
    path.write_bytes(b"")
    with pytest.raises(SourceChangedError, match="has 0 now"):
        source.gather(slice(0, 1), [np.empty(1, "i8")])


def test_a_file_that_is_not_tfrecord_is_refused(tmp_path):
    (tmp_path / "x.tfrecord").write_bytes(b"not at all, whatever its name says")
    with pytest.raises(SourceError, match="is not a TFRecord file"):
        open_tfrecord(tmp_path / "x.tfrecord")


def test_an_empty_file_is_refused(tmp_path):
    (tmp_path / "x.tfrecord").touch()
    with pytest.raises(ForebayError, match="has no records"):
        open_tfrecord(tmp_path / "x.tfrecord")
