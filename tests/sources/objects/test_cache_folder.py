"""Cache folders trust no foreign files, and count temporary files only while their writers live."""

import multiprocessing
import os
import stat
import threading

import pytest

from forebay.sources.objects import cache_folder
from forebay.sources.objects.cache_folder import CacheFolder
from forebay.sources.objects.disk_cache import DiskTier
from forebay.sources.objects.stored_object import ByteRange, StoredObject

NAME = "0123456789" * 4 + ".block"
OBJECT = StoredObject("s3://bucket/a.npy", "bucket/a.npy", 1000, '"1"')
BLOCK = ByteRange(0, 0, 1000, cacheable=True)


def store(folder, data=b"data", name=NAME):
    unpublished = folder.reserve(len(data))
    unpublished.write(data)
    folder.publish(unpublished, name, replace=True)
    unpublished.file.close()


def test_only_the_owner_can_read_the_stored_files(tmp_path):
    store(CacheFolder(tmp_path / "cache", 100))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "cache").iterdir()}
    assert modes == dict.fromkeys([NAME, "lock", "used"], 0o600)
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700


@pytest.mark.parametrize("link", [os.symlink, os.link])
@pytest.mark.parametrize("name", ["lock", "used", NAME])
def test_a_file_outside_the_folder_is_never_changed(tmp_path, name, link):
    (tmp_path / "cache").mkdir()
    (tmp_path / "precious").write_text("precious")
    link(tmp_path / "precious", tmp_path / "cache" / name)
    tier = DiskTier(tmp_path / "cache", 4096)
    tier.put(OBJECT, BLOCK, bytes(1000))
    CacheFolder(tmp_path / "cache", 4096).delete(name)
    assert (tmp_path / "precious").read_text() == "precious"


@pytest.mark.parametrize("name", ["lock", "used"])
def test_a_symbolic_link_disables_the_cache_and_the_problem_names_it(tmp_path, name, caplog):
    (tmp_path / name).symlink_to("/dev/null")
    folder = CacheFolder(tmp_path, 100)
    assert folder.problem.endswith(f"'{name}' is a symbolic link. Delete it, or pass another cache=")
    assert folder.free_nbytes == 0


def test_a_block_that_is_a_symbolic_link_is_not_read(tmp_path, caplog):
    (tmp_path / "secret").write_bytes(b"secret")
    folder = CacheFolder(tmp_path / "cache", 100)
    (tmp_path / "cache" / NAME).symlink_to(tmp_path / "secret")
    assert folder.open(NAME) is None
    assert "is a symbolic link" in caplog.text


def test_a_named_pipe_in_place_of_a_block_does_not_block_the_reader(tmp_path, caplog):
    folder = CacheFolder(tmp_path, 100)
    os.mkfifo(tmp_path / NAME)
    assert folder.open(NAME) is None
    assert "is not a regular file" in caplog.text


def test_a_file_of_another_user_is_not_read(tmp_path, caplog, monkeypatch):
    folder = CacheFolder(tmp_path, 100)
    store(folder)
    os.chown(tmp_path / NAME, 12345, -1) if os.geteuid() == 0 else monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert folder.open(NAME) is None
    assert "belongs to another user" in caplog.text


@pytest.mark.parametrize("text", ["-5", "nonsense", "9" * 5000, "\0\0", "1e3"])
def test_a_damaged_number_of_used_bytes_is_replaced_by_a_new_count(tmp_path, text):
    folder = CacheFolder(tmp_path, 10)
    store(folder)
    (tmp_path / "used").write_text(text)
    assert folder.reserve(7) is None
    assert folder.used_nbytes == 4


@pytest.mark.slow
def test_the_temporary_file_of_a_killed_process_is_deleted_and_frees_its_bytes(tmp_path):
    process = multiprocessing.get_context("spawn").Process(target=reserve_and_die, args=(tmp_path,))
    process.start()
    process.join()
    assert len(list(tmp_path.glob("*.part"))) == 1
    assert CacheFolder(tmp_path, 1000).free_nbytes == 1000
    assert not list(tmp_path.glob("*.part"))


def reserve_and_die(folder):
    CacheFolder(folder, 1000).reserve(600)
    os._exit(9)


def test_the_temporary_file_of_a_living_writer_stays_and_counts(tmp_path):
    unpublished = CacheFolder(tmp_path, 1000).reserve(600)
    os.utime(unpublished.path, (0, 0))
    assert CacheFolder(tmp_path, 1000).free_nbytes == 400
    assert unpublished.path.exists()
    unpublished.file.close()


def test_files_of_others_are_neither_counted_nor_deleted(tmp_path):
    for name in ("mine.npy", "film.part", "whole/photos/film.1.part", "whole/photos/a.csv"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(100))
        os.utime(path, (0, 0))
    assert CacheFolder(tmp_path, 1000).free_nbytes == 1000
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 6  # with "lock" and "used"


def test_copies_and_temporary_files_of_version_0_1_are_counted_until_they_are_deleted(tmp_path):
    folder = tmp_path / "whole" / ("ab" * 20)
    folder.mkdir(parents=True)
    for name in ("a.csv", "no_suffix", "a.csv.77.part"):
        (folder / name).write_bytes(bytes(100))
    os.utime(folder / "a.csv.77.part", (0, 0))
    cache = CacheFolder(tmp_path, 1000)
    assert cache.free_nbytes == 800
    cache.delete_copy_of_version_0_1("ab" * 20)
    assert cache.free_nbytes == 1000
    assert not folder.exists()


def test_a_link_in_place_of_the_folder_of_version_0_1_is_not_followed(tmp_path):
    outside = tmp_path / "outside" / ("ab" * 20)
    outside.mkdir(parents=True)
    (outside / "a.csv").write_bytes(bytes(100))
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "whole").symlink_to(tmp_path / "outside")
    cache = CacheFolder(tmp_path / "cache", 1000)
    cache.delete_copy_of_version_0_1("ab" * 20)
    assert cache.free_nbytes == 1000
    assert (outside / "a.csv").exists()


def test_a_link_that_replaces_a_folder_of_version_0_1_during_the_deletion_is_not_followed(tmp_path, monkeypatch):
    folder, other = tmp_path / "cache/whole" / ("ab" * 20), tmp_path / "other"
    folder.mkdir(parents=True)
    other.mkdir()
    for path in (folder / "keys", other / "keys"):
        path.touch()
    cache = CacheFolder(tmp_path / "cache", 1000)
    list_files = cache_folder._files

    def replace_by_link(opened):
        files = list_files(opened)
        folder.rename(tmp_path / "moved")
        folder.symlink_to(other)
        return files

    monkeypatch.setattr(cache_folder, "_files", replace_by_link)
    cache.delete_copy_of_version_0_1("ab" * 20)
    assert (other / "keys").exists()


def test_threads_that_download_one_object_wait_for_each_other(tmp_path):
    folder, waits, inside = CacheFolder(tmp_path, 1000), threading.Event(), []

    def enter():
        with folder.hold_object_lock("ab", waits.set):
            inside.append(True)

    thread = threading.Thread(target=enter)
    with folder.hold_object_lock("ab", waits.set):
        thread.start()
        assert waits.wait(60)
        assert not inside
    thread.join(60)
    assert inside


def test_a_cache_on_a_file_system_without_locks_stores_data(tmp_path, monkeypatch):
    def flock(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", flock)
    folder = CacheFolder(tmp_path, 100)
    store(folder)
    living = folder.reserve(10)
    assert CacheFolder(tmp_path, 100).free_nbytes == 86
    assert living.path.exists()
    living.file.close()
