"""Rows on disk survive crashes, damage and concurrent processes."""

import errno
import multiprocessing
import os
import pickle
import stat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.spec import ArraySpec
from forebay.errors import SourceChangedError, SourceError
from forebay.sources.row_cache.disk_rows import DiskRows, DiskRowsLayout

ROWS = 50
SPECS = (ArraySpec((3,), "float32"), ArraySpec((), "int64"))
VALUES = [np.arange(ROWS * 3, dtype=np.float32).reshape(ROWS, 3), np.arange(ROWS)]


def layout_of(folder, **changes):
    layout = {"folder": folder, "key": "ab12", "specs": SPECS, "names": ("x", "y"), "rows": ROWS}
    return DiskRowsLayout(**layout | changes)


def open_rows(folder, stop=ROWS):
    return DiskRows(layout_of(folder), stop, stop)


def put(store, numbers):
    numbers = np.asarray(numbers)
    store.put(numbers, [values[numbers] for values in VALUES])


def read(store, numbers):
    numbers = np.asarray(numbers)
    out = [spec.empty(len(numbers)) for spec in SPECS]
    store.gather(numbers, out)
    return out


def assert_rows(store, numbers):
    numbers = np.asarray(numbers)
    for found, values in zip(read(store, numbers), VALUES, strict=True):
        np.testing.assert_array_equal(found, values[numbers])


@given(numbers=st.lists(st.integers(0, ROWS - 1), min_size=1), stop=st.integers(1, ROWS))
def test_stored_rows_are_found_again(tmp_path_factory, numbers, stop):
    folder = tmp_path_factory.mktemp("rows")
    put(open_rows(folder, stop), numbers)
    store = open_rows(folder, stop)
    stored = sorted(number for number in set(numbers) if number < stop)
    assert np.flatnonzero(store.find(np.arange(ROWS))).tolist() == stored
    assert store.count == len(stored)
    if stored:
        assert_rows(store, stored)


def test_files_are_private_and_have_no_pickle(tmp_path):
    put(open_rows(tmp_path / "new"), range(ROWS))
    paths = sorted((tmp_path / "new").iterdir())
    assert [path.name for path in paths] == ["ab12.checks", "ab12.json", "ab12.rows", "lock"]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in paths)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


@pytest.mark.parametrize("stops", [[100_000], [10], [10, 100_000]])
def test_the_checksums_of_rows_within_the_budget_have_no_holes(tmp_path, stops):
    for stop in stops:
        DiskRows(layout_of(tmp_path, rows=100_000), stop, stop)
    status = (tmp_path / "ab12.checks").stat()
    assert status.st_size == 400_000
    assert (status.st_blocks * 512 >= status.st_size) == (stops[-1] == 100_000)


@pytest.mark.parametrize("offset", [0, 7, 4096 + 8 * 49])
def test_a_damaged_row_counts_as_missing_and_is_stored_again(tmp_path, offset):
    put(open_rows(tmp_path), range(ROWS))
    with (tmp_path / "ab12.rows").open("r+b") as file:
        file.seek(offset)
        file.write(b"\xff")
    store = open_rows(tmp_path)
    assert store.find(np.arange(ROWS)).sum() == ROWS - 1
    put(store, range(ROWS))
    assert open_rows(tmp_path).find(np.arange(ROWS)).all()


def test_a_checksum_without_its_row_counts_as_missing(tmp_path):
    store = open_rows(tmp_path)
    with (tmp_path / "ab12.checks").open("r+b") as file:
        file.write(b"\x01\x02\x03\x04" * ROWS)
    assert not store.find(np.arange(ROWS)).any()


def test_rows_without_a_checksum_are_missing(tmp_path):
    store = open_rows(tmp_path)
    put(store, range(ROWS))
    (tmp_path / "ab12.checks").write_bytes(bytes(4 * ROWS))
    assert not open_rows(tmp_path).find(np.arange(ROWS)).any()


def test_files_without_a_header_are_created_again(tmp_path):
    (tmp_path / "ab12.rows").write_bytes(b"rest")
    (tmp_path / "ab12.checks").write_bytes(b"\x01" * 4 * ROWS)
    store = open_rows(tmp_path)
    assert not store.find(np.arange(ROWS)).any()


@pytest.mark.parametrize("content", [b"", b"{}", b"[" * 100_000, b"\x80\x04N."])
def test_a_damaged_header_is_refused(tmp_path, content):
    open_rows(tmp_path)
    (tmp_path / "ab12.json").write_bytes(content)
    with pytest.raises(SourceError, match=r"ab12\.json is damaged.*Delete the files ab12"):
        open_rows(tmp_path)


@pytest.mark.parametrize("changes", [{"rows": ROWS + 1}, {"names": ("x", "z")}, {"specs": SPECS[::-1]}])
def test_a_header_of_other_rows_is_refused(tmp_path, changes):
    open_rows(tmp_path)
    with pytest.raises(SourceError, match="is damaged"):
        DiskRows(layout_of(tmp_path, **changes), ROWS, ROWS)


@pytest.mark.parametrize("name", ["ab12.rows", "ab12.checks"])
@pytest.mark.parametrize("nbytes", [0, 10, 1 << 20])
def test_a_file_of_another_length_is_refused(tmp_path, name, nbytes):
    open_rows(tmp_path)
    os.truncate(tmp_path / name, nbytes)
    with pytest.raises(SourceError, match=f"has {nbytes} bytes instead of"):
        open_rows(tmp_path)


@pytest.mark.parametrize("name", ["ab12.rows", "ab12.checks"])
def test_a_file_that_becomes_shorter_raises_an_error_instead_of_a_crash(tmp_path, name):
    store = open_rows(tmp_path)
    put(store, range(ROWS))
    os.truncate(tmp_path / name, 0)
    with pytest.raises(SourceChangedError, match="became shorter"):
        store.find(np.arange(ROWS))
    with pytest.raises(SourceChangedError, match="became shorter"):
        read(store, [1])


@pytest.mark.parametrize("name", ["ab12.rows", "ab12.checks", "ab12.json", "lock"])
def test_links_and_pipes_are_refused(tmp_path, name):
    (tmp_path / "target").write_bytes(b"secret")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / name).symlink_to(tmp_path / "target")
    with pytest.raises(SourceError, match="symbolic link"):
        open_rows(tmp_path / "links")
    (tmp_path / "pipes").mkdir()
    os.mkfifo(tmp_path / "pipes" / name)
    with pytest.raises(SourceError, match="cannot use the folder"):
        open_rows(tmp_path / "pipes")
    assert (tmp_path / "target").read_bytes() == b"secret"


@pytest.mark.parametrize("name", ["ab12.rows", "ab12.checks", "ab12.json.part"])
def test_files_with_several_hard_links_are_refused_and_stay_unchanged(tmp_path, name):
    (tmp_path / "target").write_bytes(b"secret")
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / name).hardlink_to(tmp_path / "target")
    with pytest.raises(SourceError, match="has several hard links"):
        open_rows(tmp_path / "rows")
    assert (tmp_path / "target").read_bytes() == b"secret"


def test_a_header_that_was_not_renamed_is_written_again(tmp_path):
    (tmp_path / "ab12.json.part").write_bytes(b"x" * 5000)
    open_rows(tmp_path)
    assert open_rows(tmp_path).count == 0


def test_a_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SourceError, match="cannot use the folder"):
        open_rows(tmp_path / "file")


def test_on_a_full_disk_a_cache_keeps_its_rows_and_stores_no_more(tmp_path, monkeypatch):
    store = open_rows(tmp_path)
    put(store, range(10))

    def fail(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fail)
        put(store, range(20))
    put(store, range(30))
    assert "No space left" in store.problem
    assert store.count == 10
    assert_rows(store, range(10))


def test_a_closed_cache_raises_an_error(tmp_path):
    store = open_rows(tmp_path)
    store.close()
    store.close()
    with pytest.raises(SourceError, match="is closed"):
        store.find(np.arange(3))


def test_a_pickled_cache_opens_the_files_again(tmp_path):
    store = open_rows(tmp_path)
    put(store, range(5))
    assert pickle.loads(pickle.dumps(store)).find(np.arange(ROWS)).sum() == 5


def test_another_cache_sees_rows_as_soon_as_they_are_stored(tmp_path):
    writer, reader = open_rows(tmp_path), open_rows(tmp_path)
    put(writer, [3, 4])
    assert np.flatnonzero(reader.find(np.arange(ROWS))).tolist() == [3, 4]
    put(reader, [4, 5])
    assert_rows(writer, [3, 4, 5])
    assert writer.find(np.array([5])).all()


def fill(folder, seed, failures):
    order = np.random.default_rng(seed).permutation(ROWS)
    store = open_rows(folder)
    for start in range(0, ROWS, 5):
        numbers = order[start : start + 5]
        put(store, numbers)
        found = np.flatnonzero(store.find(np.arange(ROWS)))
        if any((read(store, found)[leaf] != VALUES[leaf][found]).any() for leaf in range(2)):
            failures.value += 1


def test_several_processes_fill_one_folder_at_the_same_time(tmp_path):
    context = multiprocessing.get_context("fork")
    failures = context.Value("i", 0)
    processes = [context.Process(target=fill, args=(tmp_path, seed, failures)) for seed in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert failures.value == 0
    assert open_rows(tmp_path).find(np.arange(ROWS)).all()
