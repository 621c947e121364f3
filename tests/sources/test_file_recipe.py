"""The recipe of `from_files` identifies objects of a store by their versions."""

import numpy as np
import pytest
from tests.sources.objects.scripted_server import ScriptedServer

import forebay as fb
from forebay.errors import PipelineError


def raw_bytes(row):
    return np.full(4, row, "f4").tobytes()


def doubled(row):
    return row * 2


def cached_rows(files, folder, **options):
    with fb.from_files(files, **options).map(doubled).cache(folder).batch(2).feed("numpy") as feed:
        return np.concatenate([*feed]).tolist()


def test_cache_on_disk_refuses_objects_without_a_version(tmp_path):
    with (
        ScriptedServer({"/a.bin": raw_bytes(1)}) as server,
        pytest.raises(PipelineError, match="the version of these objects is not known"),
    ):
        cached_rows(server.url + "/a.bin", tmp_path, spec=fb.ArraySpec((), "f4"))


def test_cache_on_disk_has_no_old_rows_of_an_object_with_a_new_version(tmp_path):
    with ScriptedServer({"/a.bin": raw_bytes(1)}, {"ETag": '"v1"'}) as server:
        assert cached_rows(server.url + "/a.bin", tmp_path, spec=fb.ArraySpec((), "f4")) == [2] * 4
        server.objects["/a.bin"], server.headers = raw_bytes(3), {"ETag": '"v2"'}
        assert cached_rows(server.url + "/a.bin", tmp_path, spec=fb.ArraySpec((), "f4")) == [6] * 4
