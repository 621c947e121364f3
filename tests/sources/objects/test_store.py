"""Stores other than S3: an HTTP server, memory of fsspec, and local files behind a cache tier."""

import fsspec
import numpy as np
import pytest
from tests.sources.objects.conftest import npy_bytes
from tests.sources.objects.faulty_proxy import refuse

import forebay as fb
from forebay.errors import FrameworkError, SourceChangedError, SourceError, StoreError
from forebay.sources.open_paths import open_paths
from forebay.testing.sources import SourceTests, assert_rows

ARRAY = np.arange(60.0).reshape(20, 3)


class TestPlainFilesBehindRam(SourceTests):
    def make_source(self, tmp_path):
        for part in range(3):
            np.save(tmp_path / f"{part}.npy", ARRAY + part)
        expected = np.concatenate([ARRAY, ARRAY + 1, ARRAY + 2])
        return open_paths(str(tmp_path / "*.npy"), ram_bytes="1MB"), expected


class TestBigEndianRecordsInMemory(SourceTests):
    def make_source(self, tmp_path):
        records = np.array([(i, (i, i + 1)) for i in range(30)], [("label", "u1"), ("point", ">f4", (2,))])
        fsspec.filesystem("memory").pipe("/records.bin", records.tobytes())
        spec = {"label": "uint8", "point": fb.ArraySpec((2,), "float32")}
        source = open_paths("memory://records.bin", spec=spec, byteorder="big")
        return source, {"label": records["label"], "point": records["point"].astype("f4")}


class TestSingleBigEndianLeafInMemory(SourceTests):
    def make_source(self, tmp_path):
        points = np.arange(60, dtype=">f4").reshape(30, 2)
        fsspec.filesystem("memory").pipe("/points.bin", points.tobytes())
        source = open_paths("memory://points.bin", spec={"point": fb.ArraySpec((2,), "float32")}, byteorder="big")
        return source, {"point": points.astype("f4")}


class TestLongBigEndianRows(SourceTests):
    def make_source(self, tmp_path):
        rows = np.arange(30_000, dtype=">f4").reshape(20, 1500)
        np.save(tmp_path / "rows.npy", rows)
        return open_paths(tmp_path / "rows.npy", ram_bytes="1MB"), rows.astype("f4")


class TestGlobInMemory(SourceTests):
    def make_source(self, tmp_path):
        files = fsspec.filesystem("memory")
        files.pipe({"/parts/1.npy": npy_bytes(ARRAY[:7]), "/parts/2.npy": npy_bytes(ARRAY[7:])})
        return open_paths("memory://parts/*.npy"), ARRAY


class TestUncompressedNpzBehindDiskCache(SourceTests):
    def make_source(self, tmp_path):
        tree = {"x": np.arange(80, dtype="i2").reshape(40, 2), "y": np.arange(40, dtype="u1"), "z": np.zeros((40, 0))}
        np.savez(tmp_path / "1.npz", **{name: leaf[:15] for name, leaf in tree.items()})
        np.savez(tmp_path / "2.npz", **{name: leaf[15:] for name, leaf in tree.items()})
        return open_paths(f"file://{tmp_path}/*.npz", cache=tmp_path / "cache", cache_bytes="1MB"), tree


class TestLargeRowsInSeveralBlocks(SourceTests):
    def make_source(self, tmp_path):
        array = np.random.default_rng(0).integers(0, 255, (100, 100_000), dtype="u1")
        np.save(tmp_path / "a.npy", array)
        return open_paths(f"file://{tmp_path}/a.npy", ahead_bytes="4MB"), array


@pytest.fixture
def http_url(bucket):
    bucket.put_npy("a.npy", ARRAY)
    return f"http://127.0.0.1:{bucket.proxy.port}/{bucket.name}/a.npy"


@pytest.mark.slow
def test_rows_are_read_over_http(http_url):
    assert_rows(open_paths(http_url), slice(0, 20), [ARRAY])


def test_a_refused_signed_url_is_reported_without_its_signature(bucket, http_url):
    bucket.proxy.refusals.extend([refuse(403, "AccessDenied")] * 9)
    with pytest.raises(StoreError, match=r"Signature=\*\*\*'?\)?: access was denied"):
        open_paths(f"{http_url}?X-Amz-Signature=abcdef")


def test_the_error_names_an_object_that_changes_behind_http(bucket, http_url):
    source = open_paths(http_url)
    bucket.put_npy("a.npy", ARRAY + 1)
    with pytest.raises(SourceChangedError, match=r"a\.npy was replaced or deleted"):
        source.gather(slice(0, 20), [np.empty((20, 3))])


def test_the_error_names_an_object_that_changes_in_memory():
    memory = fsspec.filesystem("memory")
    memory.pipe("/a.npy", npy_bytes(ARRAY))
    source = open_paths("memory://a.npy")
    memory.pipe("/a.npy", npy_bytes(ARRAY + 1))
    with pytest.raises(SourceChangedError, match=r"memory://.*a\.npy was replaced or deleted"):
        source.gather(slice(0, 20), [np.empty((20, 3))])


def test_blocks_on_disk_are_not_read_from_the_store_again(tmp_path):
    np.save(tmp_path / "a.npy", ARRAY)
    url = f"file://{tmp_path}/a.npy"
    assert_rows(open_paths(url, cache=tmp_path / "cache"), slice(0, 20), [ARRAY])
    again = open_paths(url, cache=tmp_path / "cache")
    assert_rows(again, slice(0, 20), [ARRAY])
    # Opening reads the header: at most as many bytes as this small file has. Reading the blocks would double that.
    assert again.counters()["fetched_nbytes"] < (tmp_path / "a.npy").stat().st_size * 2
    assert again.counters()["cached_nbytes"] == (tmp_path / "a.npy").stat().st_size


def test_a_cache_that_cannot_be_written_loses_no_row(tmp_path):
    np.save(tmp_path / "a.npy", ARRAY)
    source = open_paths(f"file://{tmp_path}/a.npy", cache=tmp_path / "a.npy")
    assert_rows(source, slice(0, 20), [ARRAY])
    assert "read-only" in [decision.choice for decision in source.decisions()]


def test_paths_in_two_kinds_of_stores_are_refused():
    with pytest.raises(SourceError, match="several kinds of stores: memory and s3"):
        open_paths(["memory://a.npy", "s3://bucket/b.npy"])


@pytest.mark.parametrize("option", ["connections", "attempts"])
def test_counts_below_one_are_refused(option):
    with pytest.raises(SourceError, match=f"{option}=0 is not a positive integer"):
        open_paths("memory://rows.npy", **{option: 0})


def test_options_that_are_not_a_dict_are_refused_without_showing_their_value():
    with pytest.raises(SourceError, match=r"storage_options is a str\. Pass a dict\.$"):
        open_paths("memory://rows.npy", storage_options="secret")


def test_an_unknown_protocol_is_reported():
    with pytest.raises(StoreError, match=r"cannot open nonsense://a\.npy"):
        open_paths("nonsense://a.npy")


def test_a_missing_package_is_reported():
    with pytest.raises(FrameworkError, match=r"gdrive:// needs a package that is not installed"):
        open_paths("gdrive://a.npy")


def test_a_closed_source_raises_an_error(tmp_path):
    np.save(tmp_path / "a.npy", ARRAY)
    source = open_paths(f"file://{tmp_path}/a.npy")
    source.close()
    with pytest.raises(SourceError, match="the source was closed"):
        source.gather(slice(0, 4), [np.empty((4, 3))])
