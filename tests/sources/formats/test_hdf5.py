"""HDF5 files: Forebay maps uncompressed data, and decompresses other data chunk by chunk."""

import os
import subprocess
import sys

import h5py
import hdf5plugin
import numpy as np
import pytest

import forebay as fb
from forebay.core.spec import ArraySpec
from forebay.errors import SourceChangedError, SourceError, SpecError
from forebay.sources.files.many_files import open_files
from forebay.sources.formats.hdf5 import open_hdf5
from forebay.sources.formats.hdf5_chunks import Hdf5Chunks
from forebay.testing.sources import SourceTests, assert_rows, random_rows


def tree():
    rng = np.random.default_rng(0)
    return {"x": rng.integers(0, 100, (50, 5, 3)).astype("f4"), "y": np.arange(50, dtype="i8")}


def write(path, arrays, **options):
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, **options)
    return path


class TestContiguous(SourceTests):
    def make_source(self, tmp_path):
        return open_hdf5(write(tmp_path / "x.h5", tree())), tree()


class TestForeignByteOrder(SourceTests):
    def make_source(self, tmp_path):
        arrays = {"x": tree()["x"].astype(">f4"), "y": tree()["y"].astype(">i2")}
        return open_hdf5(write(tmp_path / "x.h5", arrays)), arrays


class TestUncompressedChunks(SourceTests):
    def make_source(self, tmp_path):
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file.create_dataset("x", data=tree()["x"], chunks=(8, 5, 3))
            file.create_dataset("y", data=tree()["y"].astype(">i4"), chunks=(7,))
        return open_hdf5(tmp_path / "x.h5"), {"x": tree()["x"], "y": tree()["y"].astype("i4")}


class TestUncompressedChunksThatAreNotAdjacent(SourceTests):
    def make_source(self, tmp_path):
        rows = np.random.default_rng(0).random((30, 331))
        with h5py.File(tmp_path / "x.h5", "w") as file:
            stored = file.create_dataset("x", rows.shape, rows.dtype, chunks=(4, 331))
            # Written between the chunks of x, so that these are not adjacent in the file.
            between = file.create_dataset("between", (300,), "u1", chunks=(3,), maxshape=(None,))
            for start in range(0, 30, 4):
                stored[start : start + 4] = rows[start : start + 4]
                between[start * 3 : start * 3 + 3] = 1
        return open_hdf5(tmp_path / "x.h5", members=["x"]), {"x": rows}


class TestDeflated(SourceTests):
    def make_source(self, tmp_path):
        return open_hdf5(write(tmp_path / "x.h5", tree(), compression="gzip", chunks=True)), tree()


class TestDeflatedAndShuffled(SourceTests):
    def make_source(self, tmp_path):
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file.create_dataset("x", data=tree()["x"], compression="gzip", shuffle=True, chunks=(8, 5, 3))
            file.create_dataset("y", data=tree()["y"].astype(">u2"), compression="gzip", shuffle=True, chunks=(9,))
        return open_hdf5(tmp_path / "x.h5"), {"x": tree()["x"], "y": tree()["y"].astype("u2")}


class TestChunksNarrowerThanARow(SourceTests):
    def make_source(self, tmp_path):
        path = write(tmp_path / "x.h5", {"x": tree()["x"]}, compression="gzip", chunks=(8, 2, 2))
        return open_hdf5(path), {"x": tree()["x"]}


class TestMoreChunksThanTheBudgetHolds(SourceTests):
    def make_source(self, tmp_path):
        rows = np.random.default_rng(0).integers(0, 9, (200, 6))
        path = write(tmp_path / "x.h5", {"x": rows}, compression="gzip", chunks=(3, 6))
        return open_hdf5(path, max_held_nbytes=5 * 3 * 48), {"x": rows}


class TestReadByH5py(SourceTests):
    def make_source(self, tmp_path):
        path = write(tmp_path / "x.h5", tree(), compression="lzf", fletcher32=True)
        return open_hdf5(path), tree()


class TestFilterOfAPlugin(SourceTests):
    def make_source(self, tmp_path):
        return open_hdf5(write(tmp_path / "x.h5", {"x": tree()["x"]}, **hdf5plugin.Zstd())), {"x": tree()["x"]}


class TestUnwrittenChunks(SourceTests):
    def make_source(self, tmp_path):
        rows = np.full((40, 2), 7.0)
        rows[8:12] = 1.0
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file.create_dataset("x", (40, 2), "f8", chunks=(4, 2), fillvalue=7.0)[8:12] = 1.0
            file.create_dataset("none", (40,), "f8", chunks=(4,), compression="gzip", fillvalue=3.0)
        return open_hdf5(tmp_path / "x.h5"), {"none": np.full(40, 3.0), "x": rows}


class TestVirtualDataset(SourceTests):
    def make_source(self, tmp_path):
        layout = h5py.VirtualLayout((100,), "i8")
        for number in range(2):
            path = write(tmp_path / f"{number}.part", {"y": tree()["y"]})
            layout[number * 50 : number * 50 + 50] = h5py.VirtualSource(path, "y", (50,))
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file.create_virtual_dataset("y", layout)
        return open_hdf5(tmp_path / "x.h5", external_files="read"), {"y": np.tile(tree()["y"], 2)}


class TestManyFiles(SourceTests):
    def make_source(self, tmp_path):
        arrays = [np.arange(length * 3.0).reshape(length, 3) for length in (7, 12, 1, 5)]
        for number, array in enumerate(arrays):
            write(tmp_path / f"{number}.hdf5", {"x": array}, compression="gzip", chunks=(1 + len(array) // 3, 3))
        return open_files(tmp_path / "*.hdf5", max_open_files=2, max_held_bytes=100), {"x": np.concatenate(arrays)}


class TestBehindAUserBlock(SourceTests):
    def make_source(self, tmp_path):
        with h5py.File(tmp_path / "x.h5", "w", userblock_size=512) as file:
            file["x"] = tree()["x"]
            file.create_dataset("y", data=tree()["y"], chunks=(8,))
        return open_hdf5(tmp_path / "x.h5"), tree()


def test_contiguous_datasets_have_memory_extents(tmp_path):
    source = open_hdf5(write(tmp_path / "x.h5", tree()))
    assert [(extent.rows, extent.stride) for leaf in source.memory_extents() for extent in leaf] == [(50, 60), (50, 8)]


def test_uncompressed_chunks_have_memory_extents(tmp_path):
    source = open_hdf5(write(tmp_path / "x.h5", {"y": tree()["y"]}, chunks=(20,)))
    assert [(extent.first, extent.rows) for extent in source.memory_extents()[0]] == [(0, 20), (20, 20), (40, 10)]


def test_datasets_in_groups_are_named_by_their_path(tmp_path):
    write(tmp_path / "x.h5", {"train/x": tree()["x"], "train/y": tree()["y"]})
    assert open_hdf5(tmp_path / "x.h5").structure.paths == ("train/x", "train/y")


def test_a_group_can_be_selected(tmp_path):
    write(tmp_path / "x.h5", {"train/x": tree()["x"], "test/x": tree()["x"][:3]})
    source = open_hdf5(tmp_path / "x.h5", group="test")
    assert_rows(source, slice(0, 3), [tree()["x"][:3]])


def test_a_nested_spec_finds_datasets_in_groups(tmp_path):
    write(tmp_path / "x.h5", {"train/x": tree()["x"], "test/x": tree()["x"][:3]})
    source = open_hdf5(tmp_path / "x.h5", spec={"train": {"x": ArraySpec((5, 3), "float32")}})
    assert source.structure.paths == ("train.x",)


def test_a_missing_group_is_refused_and_the_error_lists_the_members(tmp_path):
    with pytest.raises(SourceError, match=r"no group 'valid'\. It has 'x', 'y'"):
        open_hdf5(write(tmp_path / "x.h5", tree()), group="valid")


def test_a_missing_dataset_is_refused_and_the_error_lists_the_datasets(tmp_path):
    with pytest.raises(SourceError, match=r"no dataset 'z'\. It has 'x', 'y'"):
        open_hdf5(write(tmp_path / "x.h5", tree()), members=["z"])


def test_datasets_of_unequal_length_are_refused_with_their_lengths(tmp_path):
    path = write(tmp_path / "x.h5", {"x": np.zeros(3), "y": np.zeros(4)})
    with pytest.raises(SpecError, match="'x' has 3, 'y' has 4"):
        open_hdf5(path)


def test_a_spec_that_does_not_match_is_refused_with_both_specs(tmp_path):
    with pytest.raises(SpecError, match=r"holds y int64\[\], but spec= says y float32\[\]"):
        open_hdf5(write(tmp_path / "x.h5", tree()), spec={"y": "float32"})


def test_strings_are_refused_and_the_error_suggests_members(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["name"] = ["a", "bc"]
    with pytest.raises(SourceError, match=r"'name' in .* holds strings .*members="):
        open_hdf5(tmp_path / "x.h5")


def test_a_single_value_is_refused_and_the_error_suggests_a_fix(tmp_path):
    with pytest.raises(SourceError, match=r"'mean' in .* is a single value.*members="):
        open_hdf5(write(tmp_path / "x.h5", {"mean": 3.0}))


def test_a_file_that_is_not_hdf5_is_refused(tmp_path):
    (tmp_path / "x.h5").write_bytes(b"not at all")
    with pytest.raises(SourceError, match=r"x\.h5 cannot be read as HDF5"):
        open_hdf5(tmp_path / "x.h5")


def test_a_truncated_file_is_refused(tmp_path):
    path = write(tmp_path / "x.h5", {"x": np.zeros(5000)})
    os.truncate(path, 20_000)
    with pytest.raises(SourceError, match="truncated"):
        open_hdf5(path)


def test_a_file_that_shrinks_while_open_raises_an_error(tmp_path):
    path = write(tmp_path / "x.h5", {"x": np.zeros(5000)})
    source = open_hdf5(path)
    os.truncate(path, 1000)
    with pytest.raises(SourceChangedError, match="has 1000 now"):
        source.gather(slice(0, 5000), [np.empty(5000)])


def test_the_error_names_a_damaged_chunk(tmp_path):
    path = write(tmp_path / "x.h5", {"x": np.arange(1000.0)}, compression="gzip", chunks=(100,))
    with h5py.File(path) as file:
        place = file["x"].id.get_chunk_info_by_coord((300,)).byte_offset
    with path.open("r+b") as damaged:
        damaged.seek(place)
        damaged.write(b"\xff" * 20)
    source = open_hdf5(path)
    assert_rows(source, slice(0, 300), [np.arange(1000.0)])
    with pytest.raises(SourceError, match=r"chunk of 'x' in .* begins at \(300,\) cannot be decompressed"):
        source.gather(slice(0, 1000), [np.empty(1000)])


def test_each_chunk_is_decompressed_once_if_the_budget_holds_all(tmp_path, monkeypatch):
    path = write(tmp_path / "x.h5", {"x": np.arange(100.0)}, compression="gzip", chunks=(10,))
    decompress, calls = Hdf5Chunks.decompress, []
    monkeypatch.setattr(
        Hdf5Chunks, "decompress", lambda self, number, target: calls.append(number) or decompress(self, number, target)
    )
    source = open_hdf5(path)
    assert_rows(source, random_rows(source, 300), [np.arange(100.0)])
    assert_rows(source, slice(0, 100), [np.arange(100.0)])
    assert sorted(calls) == list(range(10))


def test_held_bytes_stay_within_the_budget(tmp_path):
    path = write(tmp_path / "x.h5", {"x": np.arange(1000.0)}, compression="gzip", chunks=(10,))
    source = open_hdf5(path, max_held_nbytes=800)
    assert_rows(source, random_rows(source, 300), [np.arange(1000.0)])
    assert source.held_nbytes == 800


def test_a_file_larger_than_the_budget_is_shuffled_by_chunks_and_explain_shows_their_length(tmp_path):
    path = write(tmp_path / "x.h5", {"x": np.arange(1000)}, compression="gzip", chunks=(10,))
    with fb.from_files(path, max_held_bytes=800).shuffle(seed=1).batch(100).feed("numpy") as feed:
        rows = np.concatenate([batch["x"] for batch in feed])
        explanation = feed.explain()
    assert sorted(rows.tolist()) == list(range(1000))
    assert "block-shuffled" in explanation
    assert "chunks of 10 rows" in explanation


def test_explain_names_datasets_that_only_h5py_can_read(tmp_path):
    write(tmp_path / "x.h5", tree(), compression="lzf")
    with fb.from_files(tmp_path / "x.h5").batch(10).feed("numpy") as feed:
        assert "h5py itself reads '/x', one thread at a time" in feed.explain()


def test_a_file_within_the_budget_is_shuffled_exactly(tmp_path):
    path = write(tmp_path / "x.h5", {"x": np.arange(1000)}, compression="gzip", chunks=(10,))
    assert fb.from_files(path).shuffle(seed=1).order.describe()[0] == "shuffled"


def test_without_h5py_the_error_names_the_extra(tmp_path):
    path = write(tmp_path / "x.h5", tree())
    script = f"import sys; sys.modules['h5py'] = None\nimport forebay as fb\nfb.from_files({str(path)!r})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "pip install --upgrade 'forebay[hdf5]'" in done.stderr
