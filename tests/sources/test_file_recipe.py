"""The recipe of `from_files` identifies objects of a store by their versions."""

import h5py
import numpy as np
import pytest
from tests.sources.objects.scripted_server import ScriptedServer

import forebay as fb
from forebay.errors import PipelineError

OLD, NEW = b"1,2\n3,4\n", b"1,2\n3,5\n"


def raw_bytes(row):
    return np.full(4, row, "f4").tobytes()


def double(row):
    return row * 2


def cached_rows(files, folder, **options):
    with fb.from_files(files, **options).map(double).cache(folder).batch(2).feed("numpy") as feed:
        return np.concatenate([*feed]).tolist()


def test_a_row_cache_on_disk_refuses_objects_without_a_version(tmp_path):
    with (
        ScriptedServer({"/a.bin": raw_bytes(1)}) as server,
        pytest.raises(PipelineError, match="the version of these objects is not known"),
    ):
        cached_rows(server.url + "/a.bin", tmp_path, spec=fb.ArraySpec((), "f4"))


def test_a_row_cache_on_disk_has_no_old_rows_of_an_object_with_a_new_version(tmp_path):
    with ScriptedServer({"/a.bin": raw_bytes(1)}, {"ETag": '"v1"'}) as server:
        assert cached_rows(server.url + "/a.bin", tmp_path, spec=fb.ArraySpec((), "f4")) == [2] * 4
        server.objects["/a.bin"], server.headers = raw_bytes(3), {"ETag": '"v2"'}
        assert cached_rows(server.url + "/a.bin", tmp_path, spec=fb.ArraySpec((), "f4")) == [6] * 4


def test_a_row_cache_and_an_index_on_disk_follow_the_versions_of_downloaded_objects(tmp_path):
    with ScriptedServer({"/a.csv": OLD}, {"ETag": '"v1"'}) as server:
        files, options = server.url + "/a.csv", {"cache": tmp_path / "copies"}
        assert cached_rows(files, tmp_path / "rows", **options) == [[2, 4], [6, 8]]
        assert len(fb.from_files(files, **options).index(tmp_path / "index").filter(lambda row: row[1] < 5)) == 2
        server.objects["/a.csv"], server.headers = NEW, {"ETag": '"v2"'}
        assert cached_rows(files, tmp_path / "rows", **options) == [[2, 4], [6, 10]]
        assert len(fb.from_files(files, **options).index(tmp_path / "index").filter(lambda row: row[1] < 5)) == 1


def test_a_row_cache_on_disk_refuses_downloaded_objects_without_a_version(tmp_path):
    with ScriptedServer({"/a.csv": OLD}) as server, pytest.raises(PipelineError, match="the version of these objects"):
        cached_rows(server.url + "/a.csv", tmp_path / "rows", cache=tmp_path / "copies")


@pytest.mark.parametrize("options", [{"filters": [32026]}, {"external_files": "read"}], ids=str)
def test_options_that_only_trust_a_file_do_not_change_the_hash_of_its_rows(options, tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = np.arange(4)
    trusting, plain = (fb.from_files(tmp_path / "x.h5", **each).source.identify() for each in (options, {}))
    assert trusting == plain


def test_a_row_cache_on_disk_accepts_local_files_behind_a_download_cache(tmp_path):
    (tmp_path / "a.csv").write_bytes(OLD)
    files, options = str(tmp_path / "*.csv"), {"cache": tmp_path / "copies"}
    assert cached_rows(files, tmp_path / "rows", **options) == [[2, 4], [6, 8]]
