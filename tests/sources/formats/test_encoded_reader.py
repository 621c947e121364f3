"""Reads of encoded images: in one thread, or in all decoder threads after slow reads."""

import os
import stat
import threading
import time
from types import SimpleNamespace

import pytest

from forebay.sources.formats import encoded_reader
from forebay.sources.formats.encoded_reader import EncodedReader, read_small_file


def test_a_regular_file_is_read(tmp_path):
    path = tmp_path / "a.jpg"
    path.write_bytes(b"content")
    assert read_small_file(path) == b"content"


def test_an_empty_file_is_empty(tmp_path):
    path = tmp_path / "a.jpg"
    path.touch()
    assert read_small_file(path) == b""


def test_a_file_that_the_system_returns_in_parts_is_read_completely(tmp_path, monkeypatch):
    path = tmp_path / "a.jpg"
    path.write_bytes(b"content")
    monkeypatch.setattr(encoded_reader.os, "read", lambda file, nbytes, read=os.read: read(file, min(nbytes, 3)))
    assert read_small_file(path) == b"content"


def test_a_file_that_became_shorter_is_left_to_the_host(tmp_path, monkeypatch):
    path = tmp_path / "a.jpg"
    path.write_bytes(b"content")
    monkeypatch.setattr(encoded_reader.os, "fstat", lambda _: SimpleNamespace(st_mode=stat.S_IFREG, st_size=100))
    assert read_small_file(path) is None


def test_missing_special_and_huge_files_are_left_to_the_host(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "huge").write_bytes(b"12345678901")
    monkeypatch.setattr(encoded_reader, "MAX_CONTENT_NBYTES", 10)
    names = ["fifo", "folder", "huge", "missing"]
    assert [read_small_file(tmp_path / name) for name in names] == [None] * 4


@pytest.mark.parametrize("seconds", [0.0, 1e9], ids=["slow", "fast"])
def test_slow_and_fast_reads_return_the_contents_in_order(monkeypatch, seconds):
    monkeypatch.setattr(encoded_reader, "SLOW_READ_SECONDS", seconds)
    reader = EncodedReader(lambda number: None if number == 3 else bytes([number]))
    for _ in range(4):
        assert reader.read([5, 3, 1, 4]) == [b"\5", None, b"\1", b"\4"]


def test_slow_reads_use_all_decoder_threads_for_the_next_groups(monkeypatch):
    monkeypatch.setattr(encoded_reader, "PARALLEL_GROUPS", 3)
    threads, names = [], set()

    def read(number):
        names.add(threading.current_thread().name)
        time.sleep(0.002)
        return b""

    reader = EncodedReader(read)
    for _ in range(6):
        names.clear()
        reader.read(range(4))
        threads.append("caller" if names == {threading.current_thread().name} else "decoder threads")
    assert threads == ["caller", *["decoder threads"] * 3, "caller", "decoder threads"]


def test_a_group_without_rows_does_not_count_as_slow():
    threads = set()

    def read(number):
        threads.add(threading.current_thread())
        return b""

    reader = EncodedReader(read)
    reader.read([])
    reader.read(range(4))
    assert threads == {threading.current_thread()}


def test_an_error_in_a_decoder_thread_is_raised(monkeypatch):
    monkeypatch.setattr(encoded_reader, "SLOW_READ_SECONDS", 0.0)

    def read(number):
        if number == 2:
            raise OSError("cannot read")
        return b""

    reader = EncodedReader(read)
    reader.read([0, 1])
    with pytest.raises(OSError, match="cannot read"):
        reader.read([0, 1, 2, 3])
