"""Zarr stores: Forebay decompresses chunks as rows need them, and holds chunks within the budget."""

import shutil
import subprocess
import sys

import numpy as np
import pytest
import zarr

import forebay as fb
from forebay.core.spec import ArraySpec
from forebay.errors import SourceChangedError, SourceError, SpecError
from forebay.sources.files.many_files import open_files
from forebay.sources.formats.zarr import open_zarr
from forebay.testing.sources import SourceTests, assert_rows, random_rows


def tree():
    rng = np.random.default_rng(0)
    return {"x": rng.integers(0, 100, (50, 5, 3)).astype("f4"), "y": np.arange(50, dtype="i8")}


def write(path, arrays, *, chunk_rows=8, zarr_format=3, **options):
    group = zarr.create_group(str(path), zarr_format=zarr_format)
    for name, array in arrays.items():
        group.create_array(name, data=array, chunks=(chunk_rows, *array.shape[1:]), **options)
    return path


class TestCompressed(SourceTests):
    def make_source(self, tmp_path):
        return open_zarr(write(tmp_path / "x.zarr", tree())), tree()


class TestPlain(SourceTests):
    def make_source(self, tmp_path):
        return open_zarr(write(tmp_path / "x.zarr", tree(), compressors=None)), tree()


class TestBlosc(SourceTests):
    def make_source(self, tmp_path):
        path = write(tmp_path / "x.zarr", tree(), compressors=zarr.codecs.BloscCodec(cname="lz4"))
        return open_zarr(path), tree()


class TestForeignByteOrder(SourceTests):
    def make_source(self, tmp_path):
        arrays = {"y": tree()["y"].astype(">i4")}
        return open_zarr(write(tmp_path / "x.zarr", arrays)), {"y": tree()["y"].astype("i4")}


class TestVersionTwo(SourceTests):
    def make_source(self, tmp_path):
        return open_zarr(write(tmp_path / "x.zarr", tree(), zarr_format=2)), tree()


class TestSharded(SourceTests):
    def make_source(self, tmp_path):
        group = zarr.create_group(str(tmp_path / "x.zarr"))
        group.create_array("x", data=tree()["x"], chunks=(2, 5, 3), shards=(16, 5, 3))
        return open_zarr(tmp_path / "x.zarr"), {"x": tree()["x"]}


class TestChunksNarrowerThanARow(SourceTests):
    def make_source(self, tmp_path):
        zarr.create_array(str(tmp_path / "x.zarr"), data=tree()["x"], chunks=(7, 2, 2))
        return open_zarr(tmp_path / "x.zarr"), tree()["x"]


class TestMoreChunksThanTheBudgetHolds(SourceTests):
    def make_source(self, tmp_path):
        rows = np.random.default_rng(0).integers(0, 9, (60, 6))
        five_chunks_nbytes = 5 * 8 * 48  # 8 rows per chunk, 48 bytes per row
        return open_zarr(write(tmp_path / "x.zarr", {"x": rows}), max_held_nbytes=five_chunks_nbytes), {"x": rows}


class TestManyStores(SourceTests):
    def make_source(self, tmp_path):
        parts = [np.arange(length * 3.0).reshape(length, 3) for length in (7, 12, 1, 5)]
        [write(tmp_path / f"{number}.zarr", {"x": part}, chunk_rows=4) for number, part in enumerate(parts)]
        return open_files(tmp_path / "*.zarr", max_open_files=2), {"x": np.concatenate(parts)}


def test_a_single_array_has_no_name_unless_the_spec_gives_one(tmp_path):
    zarr.create_array(str(tmp_path / "x.zarr"), data=tree()["y"], chunks=(8,))
    source = open_zarr(tmp_path / "x.zarr", spec={"label": "int64"})
    assert open_zarr(tmp_path / "x.zarr").structure.kind is None  # a row is the array itself, not a dict
    assert source.structure.paths == ("label",)


def test_arrays_in_groups_are_named_by_their_path(tmp_path):
    write(tmp_path / "x.zarr", {"train/x": tree()["x"], "train/y": tree()["y"]})
    assert open_zarr(tmp_path / "x.zarr").structure.paths == ("train/x", "train/y")


def test_a_group_can_be_selected(tmp_path):
    write(tmp_path / "x.zarr", {"train/x": tree()["x"], "test/x": tree()["x"][:3]})
    assert_rows(open_zarr(tmp_path / "x.zarr", group="test"), slice(0, 3), [tree()["x"][:3]])


def test_a_nested_spec_finds_arrays_in_groups(tmp_path):
    write(tmp_path / "x.zarr", {"train/x": tree()["x"], "test/x": tree()["x"][:3]})
    source = open_zarr(tmp_path / "x.zarr", spec={"train": {"x": ArraySpec((5, 3), "float32")}})
    assert source.structure.paths == ("train.x",)


def test_a_missing_group_is_refused(tmp_path):
    with pytest.raises(SourceError, match=r"group 'valid' of .* cannot be read as Zarr"):
        open_zarr(write(tmp_path / "x.zarr", tree()), group="valid")


def test_a_missing_array_is_refused_and_the_error_lists_the_arrays(tmp_path):
    with pytest.raises(SourceError, match=r"no array 'z'\. It has 'x', 'y'"):
        open_zarr(write(tmp_path / "x.zarr", tree()), members=["z"])


def test_arrays_of_unequal_length_are_refused_with_their_lengths(tmp_path):
    path = write(tmp_path / "x.zarr", {"x": np.zeros(3), "y": np.zeros(4)})
    with pytest.raises(SpecError, match="'x' has 3, 'y' has 4"):
        open_zarr(path)


def test_a_single_value_is_refused_and_the_error_suggests_a_fix(tmp_path):
    zarr.create_group(str(tmp_path / "x.zarr")).create_array("mean", data=np.asarray(3.0))
    with pytest.raises(SourceError, match=r"'mean' in .* is a single value.*members="):
        open_zarr(tmp_path / "x.zarr")


def test_a_folder_that_is_not_a_store_is_refused(tmp_path):
    (tmp_path / "x.zarr").mkdir()
    with pytest.raises(SourceError, match=r"x\.zarr cannot be read as Zarr"):
        open_files(tmp_path / "x.zarr")


def test_damaged_metadata_is_refused(tmp_path):
    path = write(tmp_path / "x.zarr", tree())
    (path / "x" / "zarr.json").write_text("{")
    with pytest.raises(SourceError, match="cannot be read as Zarr"):
        open_zarr(path)


def test_a_damaged_chunk_is_named_by_its_rows(tmp_path):
    path = write(tmp_path / "x.zarr", {"y": tree()["y"]})
    (path / "y" / "c" / "2").write_bytes(b"damaged")
    source = open_zarr(path)
    assert_rows(source, slice(0, 16), [tree()["y"]])
    with pytest.raises(SourceError, match=r"'y' in .*, rows 16 to 23, cannot be decompressed"):
        source.gather(slice(0, 50), [np.empty(50, "i8")])


def test_a_deleted_store_raises_an_error_instead_of_returning_the_fill_value(tmp_path):
    path = write(tmp_path / "x.zarr", {"y": tree()["y"]})
    source = open_zarr(path)
    shutil.rmtree(path)
    with pytest.raises(SourceChangedError, match="does not exist"):
        source.gather(slice(0, 50), [np.empty(50, "i8")])


def test_held_bytes_stay_within_the_budget(tmp_path):
    source = open_zarr(write(tmp_path / "x.zarr", {"x": np.arange(1000.0)}), max_held_nbytes=640)
    assert_rows(source, random_rows(source, 100), [np.arange(1000.0)])
    assert source.held_nbytes == 640  # 10 chunks of 8 rows of 8 bytes


def test_a_store_larger_than_the_budget_is_shuffled_by_chunks_and_explain_shows_their_length(tmp_path):
    path = write(tmp_path / "x.zarr", {"x": np.arange(400)}, chunk_rows=10)
    with fb.from_files(path, max_held_bytes=800).shuffle(seed=1).batch(100).feed("numpy") as feed:
        rows = np.concatenate([batch["x"] for batch in feed])
        explanation = feed.explain()
    assert sorted(rows.tolist()) == list(range(400))
    assert "block-shuffled" in explanation
    assert "chunks of 10 rows" in explanation


def test_without_zarr_the_error_names_the_extra(tmp_path):
    path = write(tmp_path / "x.zarr", tree())
    script = f"import sys; sys.modules['zarr'] = None\nimport forebay as fb\nfb.from_files({str(path)!r})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "pip install --upgrade 'forebay[zarr]'" in done.stderr
