"""Whole objects in the cache are current, verified and counted once."""

import os
import threading

import numpy as np
import pytest
from tests.sources.objects.scripted_server import ScriptedServer

from forebay.errors import BudgetError, SourceChangedError, StoreError
from forebay.sources.open_paths import open_paths

TEXT = "".join(f"{row},{row}\n" for row in range(1000)).encode()


@pytest.fixture
def server():
    with ScriptedServer({"/a.csv": TEXT}, {"ETag": '"v1"'}) as server:
        yield server


def rows_of(server, cache, path="/a.csv", **options):
    source = open_paths(server.url + path, cache=cache, **options)
    out = [np.empty((len(source), 2))]
    source.gather(slice(0, len(source)), out)
    source.close()
    return out[0]


def reads(server):
    return sum(request.is_range for request in server.requests)


def copy_in(cache):
    (path,) = cache.glob("*.whole.*")
    return path


def test_a_copy_is_used_again(server, tmp_path):
    assert (rows_of(server, tmp_path) == rows_of(server, tmp_path)).all()
    assert reads(server) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda copy: copy.write_bytes(TEXT[: TEXT.index(b"500,500")]),
        lambda copy: copy.write_bytes(TEXT.replace(b"7,7\n", b"7,9\n", 1)),
        lambda copy: copy.write_bytes(b""),
        lambda copy: next(copy.parent.glob("*.crc32")).unlink(),
        lambda copy: next(copy.parent.glob("*.crc32")).write_bytes(b"1 00000000"),
        lambda copy: next(copy.parent.glob("*.crc32")).write_bytes(bytes(100_000)),
    ],
    ids=["cut", "changed", "empty", "no checksum", "wrong checksum", "long checksum"],
)
def test_a_damaged_copy_is_downloaded_again(server, tmp_path, caplog, damage):
    expected = rows_of(server, tmp_path)
    damage(copy_in(tmp_path))
    assert (rows_of(server, tmp_path) == expected).all()
    assert "the cached copy of http://127.0.0.1" in caplog.text
    assert reads(server) == 2
    assert copy_in(tmp_path).read_bytes() == TEXT


def test_a_copy_that_is_a_symbolic_link_is_replaced(server, tmp_path):
    expected = rows_of(server, tmp_path / "cache")
    copy = copy_in(tmp_path / "cache")
    copy.rename(tmp_path / "outside")
    copy.symlink_to(tmp_path / "outside")
    (tmp_path / "outside").write_bytes(TEXT.replace(b"7,7\n", b"7,9\n", 1))
    assert (rows_of(server, tmp_path / "cache") == expected).all()
    assert not copy_in(tmp_path / "cache").is_symlink()


def test_a_new_version_is_downloaded(server, tmp_path):
    rows_of(server, tmp_path)
    server.objects["/a.csv"], server.headers = TEXT.replace(b",9", b",8"), {"ETag": '"v2"'}
    assert rows_of(server, tmp_path)[9, 1] == 8


def test_an_object_without_a_version_is_downloaded_each_time(server, tmp_path):
    server.headers = {}
    rows_of(server, tmp_path)
    server.objects["/a.csv"] = TEXT.replace(b",9", b",8")
    assert rows_of(server, tmp_path)[9, 1] == 8
    assert copy_in(tmp_path).read_bytes() == server.objects["/a.csv"]


def test_an_equal_copy_of_an_object_without_a_version_is_not_replaced(server, tmp_path):
    """Another process may be reading the copy."""
    server.headers = {}
    rows_of(server, tmp_path)
    before = copy_in(tmp_path).stat()
    rows_of(server, tmp_path)
    assert copy_in(tmp_path).stat().st_ino == before.st_ino


def test_threads_share_one_download(server, tmp_path):
    results = []
    threads = [threading.Thread(target=lambda: results.append(rows_of(server, tmp_path))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 6
    assert all((rows == results[0]).all() for rows in results)
    assert reads(server) == 1


def test_a_budget_of_exactly_the_size_of_the_object_is_enough(server, tmp_path):
    rows_of(server, tmp_path, cache_bytes=len(TEXT))
    rows_of(server, tmp_path, cache_bytes=len(TEXT))
    assert reads(server) == 1


def test_an_equal_copy_without_a_version_stays_if_the_budget_has_no_room_for_a_second_copy(server, tmp_path):
    server.headers = {}
    rows_of(server, tmp_path, cache_bytes=len(TEXT) + 1)
    before = copy_in(tmp_path).stat()
    rows_of(server, tmp_path, cache_bytes=len(TEXT) + 1)
    assert copy_in(tmp_path).stat().st_ino == before.st_ino


def test_an_outdated_copy_without_a_version_makes_room_for_the_new_one(server, tmp_path):
    server.headers = {}
    rows_of(server, tmp_path, cache_bytes=len(TEXT))
    server.objects["/a.csv"] = TEXT.replace(b",9", b",8")
    assert rows_of(server, tmp_path, cache_bytes=len(TEXT))[9, 1] == 8
    assert copy_in(tmp_path).read_bytes() == server.objects["/a.csv"]


def test_objects_larger_than_the_budget_are_refused_and_nothing_is_left(server, tmp_path):
    with pytest.raises(BudgetError, match=r"1 objects .* must be downloaded, and .* already holds 0 B"):
        rows_of(server, tmp_path, cache_bytes=len(TEXT) - 1)
    assert not list(tmp_path.glob("*.part"))


def test_an_object_that_changes_during_its_download_leaves_nothing(server, tmp_path):
    def change(request, reply):
        return reply if not request.is_range else type(reply)(206, reply.headers | {"ETag": '"v2"'}, reply.body)

    server.change = change
    with pytest.raises(SourceChangedError):
        rows_of(server, tmp_path)
    assert not list(tmp_path.glob("*.part"))
    assert not list(tmp_path.glob("*.whole.*"))


def test_the_error_names_a_folder_that_cannot_be_written(server, tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "lock").symlink_to("/dev/null")
    with pytest.raises(StoreError, match=r"the cache folder cannot be written: .* is a symbolic link"):
        rows_of(server, tmp_path / "cache")


@pytest.mark.parametrize("name", ["x" * 300 + ".csv", "ü" * 200 + ".csv", "lock.csv", "..csv"])
def test_an_object_with_any_name_is_stored(server, tmp_path, name):
    server.change = lambda request, reply: type(reply)(
        206 if request.is_range else 200,
        {"Content-Length": str(len(TEXT)), "Content-Range": f"bytes 0-{len(TEXT) - 1}/{len(TEXT)}", "ETag": '"v1"'},
        TEXT,
    )
    assert len(rows_of(server, tmp_path, f"/{name}")) == 1000


def test_the_cache_folder_has_no_credentials(server, tmp_path):
    server.url = server.url.replace("://", "://me:pass-word@")
    rows_of(server, tmp_path, "/a.csv?X-Amz-Signature=sig-nature&token=to-ken")
    content = b"\n".join([os.fsencode(path.name) + path.read_bytes() for path in tmp_path.iterdir()])
    assert not [secret for secret in (b"pass-word", b"sig-nature", b"to-ken") if secret in content]
