"""Parquet and Arrow files: columns of numbers become leaves; a `decode` function reads other columns."""

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import forebay as fb
from forebay.core.spec import ArraySpec
from forebay.errors import SourceChangedError, SourceError, SpecError
from forebay.sources.files.many_files import open_files
from forebay.sources.formats.arrow import open_arrow
from forebay.sources.formats.parquet import open_parquet
from forebay.testing.sources import SourceTests, assert_rows, random_rows


def tree(rows=50):
    rng = np.random.default_rng(0)
    return {
        "id": np.arange(rows, dtype="i4"),
        "x": rng.random((rows, 3)).astype("f4"),
        "half": rng.random(rows).astype("f2"),
        "flag": rng.random(rows) < 0.5,
    }


def lists(array):
    """Return an array as an Arrow array of numbers or of fixed-size lists."""
    if array.ndim == 1:
        return pa.array(array)
    return pa.FixedSizeListArray.from_arrays(lists(array.reshape(-1, *array.shape[2:])), array.shape[1])


def table(arrays):
    return pa.table({name: lists(array) for name, array in arrays.items()})


def write_parquet(path, arrays, **options):
    pq.write_table(table(arrays), path, **options)
    return path


def write_arrow(path, content, *, new_writer=pa.ipc.new_file, rows=8, compression=None):
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with new_writer(str(path), content.schema, options=options) as writer:
        writer.write_table(content, max_chunksize=rows)
    return path


class TestOneRowGroup(SourceTests):
    def make_source(self, tmp_path):
        return open_parquet(write_parquet(tmp_path / "x.parquet", tree())), tree()


class TestManyRowGroups(SourceTests):
    def make_source(self, tmp_path):
        return open_parquet(write_parquet(tmp_path / "x.parquet", tree(), row_group_size=7)), tree()


class TestRowGroupsOfUnequalLength(SourceTests):
    def make_source(self, tmp_path):
        whole = table(tree())
        with pq.ParquetWriter(tmp_path / "x.parquet", whole.schema) as writer:
            for start, stop in [(0, 3), (3, 20), (20, 21), (21, 50)]:
                writer.write_table(whole.slice(start, stop - start))
        return open_parquet(tmp_path / "x.parquet"), tree()


class TestMoreRowGroupsThanTheBudgetHolds(SourceTests):
    def make_source(self, tmp_path):
        arrays = {"x": np.arange(600.0).reshape(200, 3)}
        path = write_parquet(tmp_path / "x.parquet", arrays, row_group_size=3, compression="zstd")
        return open_parquet(path, max_held_nbytes=400), arrays


class TestNestedLists(SourceTests):
    def make_source(self, tmp_path):
        arrays = {"image": np.arange(50 * 4 * 3, dtype="u1").reshape(50, 4, 3)}
        return open_parquet(write_parquet(tmp_path / "x.parquet", arrays, row_group_size=9)), arrays


class TestTensors(SourceTests):
    def make_source(self, tmp_path):
        values = np.arange(50 * 6, dtype="f8").reshape(50, 2, 3)
        content = pa.table({"x": pa.FixedShapeTensorArray.from_numpy_ndarray(values)})
        pq.write_table(content, tmp_path / "x.parquet", row_group_size=9)
        return open_parquet(tmp_path / "x.parquet"), {"x": values}


class TestListsWithALengthFromTheSpec(SourceTests):
    def make_source(self, tmp_path):
        values = np.arange(150.0).reshape(50, 3)
        pq.write_table(pa.table({"x": list(values)}), tmp_path / "x.parquet", row_group_size=9)
        return open_parquet(tmp_path / "x.parquet", spec={"x": ArraySpec((3,), "float64")}), {"x": values}


class TestDecodedColumn(SourceTests):
    def make_source(self, tmp_path):
        values = np.arange(150, dtype="i2").reshape(50, 3)
        content = pa.table({"raw": [row.tobytes() for row in values]})
        pq.write_table(content, tmp_path / "x.parquet", row_group_size=9)
        return open_parquet(tmp_path / "x.parquet", decode={"raw": lambda raw: np.frombuffer(raw, "i2")}), {
            "raw": values
        }


class TestManyParquetFiles(SourceTests):
    def make_source(self, tmp_path):
        parts = [np.arange(length * 3.0).reshape(length, 3) for length in (7, 12, 1, 5)]
        for number, part in enumerate(parts):
            write_parquet(tmp_path / f"{number}.parquet", {"x": part}, row_group_size=4)
        return open_files(tmp_path / "*.parquet", max_open_files=2), {"x": np.concatenate(parts)}


class TestArrowFile(SourceTests):
    def make_source(self, tmp_path):
        return open_arrow(write_arrow(tmp_path / "x.arrow", table(tree()))), tree()


class TestArrowStream(SourceTests):
    def make_source(self, tmp_path):
        return open_arrow(write_arrow(tmp_path / "x.arrow", table(tree()), new_writer=pa.ipc.new_stream)), tree()


class TestCompressedArrowFile(SourceTests):
    def make_source(self, tmp_path):
        return open_arrow(write_arrow(tmp_path / "x.arrow", table(tree()), compression="lz4")), tree()


class TestCompressedArrowStream(SourceTests):
    def make_source(self, tmp_path):
        path = write_arrow(tmp_path / "x.arrow", table(tree()), new_writer=pa.ipc.new_stream, compression="zstd")
        return open_arrow(path, max_held_nbytes=300), tree()


class TestLongRowsInAnArrowFile(SourceTests):
    def make_source(self, tmp_path):
        arrays = {"x": np.arange(50 * 331, dtype="f4").reshape(50, 331)}
        return open_arrow(write_arrow(tmp_path / "x.arrow", table(arrays), rows=3)), arrays


class TestFeather(SourceTests):
    def make_source(self, tmp_path):
        feather.write_feather(table(tree()), str(tmp_path / "x.feather"), chunksize=8)
        return open_arrow(tmp_path / "x.feather"), tree()


class TestNumbersNextToCategories(SourceTests):
    def make_source(self, tmp_path):
        content = table(tree()).append_column("kind", pa.array(["a", "b"] * 25).dictionary_encode())
        return open_arrow(write_arrow(tmp_path / "x.arrow", content), columns=["x", "id"]), {
            "x": tree()["x"],
            "id": tree()["id"],
        }


class TestNumbersNextToCategoriesInAStream(SourceTests):
    def make_source(self, tmp_path):
        content = table(tree()).append_column("kind", pa.array(["a", "b"] * 25).dictionary_encode())
        path = write_arrow(tmp_path / "x.arrow", content, new_writer=pa.ipc.new_stream)
        return open_arrow(path, columns=["id"]), {"id": tree()["id"]}


class TestWrittenSliceOfATable(SourceTests):
    def make_source(self, tmp_path):
        path = write_arrow(tmp_path / "x.arrow", table(tree()).slice(5, 40))
        return open_arrow(path), {name: array[5:45] for name, array in tree().items()}


def test_uncompressed_arrow_columns_are_mapped_and_not_copied(tmp_path):
    source = open_arrow(write_arrow(tmp_path / "x.arrow", table({"x": tree()["x"]}), rows=20))
    assert_rows(source, random_rows(source, 30), [tree()["x"]])
    assert source.held_nbytes == 0
    assert [(extent.first, extent.rows) for extent in source.memory_extents()[0]] == [(0, 20), (20, 20), (40, 10)]


def test_compressed_batches_are_decompressed_when_their_rows_are_read(tmp_path):
    source = open_arrow(write_arrow(tmp_path / "x.arrow", table({"x": tree()["x"]}), compression="lz4"))
    before = source.held_nbytes
    source.gather(slice(0, 1), [np.empty((1, 3), "f4")])
    assert (before, source.held_nbytes) == (0, 8 * 12)


def test_strings_are_refused_and_the_error_suggests_columns_or_decode(tmp_path):
    pq.write_table(pa.table({"name": ["a", "b"]}), tmp_path / "x.parquet")
    with pytest.raises(SourceError, match=r"'name' in .* holds string.*columns=.*decode=\{'name': function\}"):
        open_parquet(tmp_path / "x.parquet")


def test_columns_selects_the_columns(tmp_path):
    pq.write_table(pa.table({"name": ["a", "b"], "x": [1, 2]}), tmp_path / "x.parquet")
    assert open_parquet(tmp_path / "x.parquet", columns=["x"]).structure.paths == ("x",)


def test_a_missing_column_is_refused_and_the_error_lists_the_columns(tmp_path):
    path = write_parquet(tmp_path / "x.parquet", {"x": np.zeros(3)})
    with pytest.raises(SourceError, match=r"no column 'y'\. It has 'x'"):
        open_parquet(path, columns=["y"])


def test_lists_of_any_length_are_refused_and_the_error_suggests_a_spec(tmp_path):
    pq.write_table(pa.table({"x": [[1], [2, 3]]}), tmp_path / "x.parquet")
    with pytest.raises(SourceError, match=r"'x' in .* lists of any length.*spec="):
        open_parquet(tmp_path / "x.parquet")


def test_lists_whose_length_differs_from_the_spec_are_refused(tmp_path):
    pq.write_table(pa.table({"x": [[1], [2, 3]]}), tmp_path / "x.parquet")
    source = open_parquet(tmp_path / "x.parquet", spec={"x": ArraySpec((2,), "int64")})
    with pytest.raises(SourceError, match="lists of 1 to 2 values"):
        source.gather(slice(0, 2), [np.empty((2, 2), "i8")])


def test_nulls_are_refused(tmp_path):
    pq.write_table(pa.table({"x": [1, None, 3]}), tmp_path / "x.parquet")
    source = open_parquet(tmp_path / "x.parquet")
    with pytest.raises(SourceError, match=r"'x' in .* has 1 null values"):
        source.gather(slice(0, 3), [np.empty(3, "i8")])


def test_nulls_in_an_arrow_file_are_refused(tmp_path):
    path = write_arrow(tmp_path / "x.arrow", pa.table({"x": [1, None, 3]}))
    with pytest.raises(SourceError, match=r"'x' in .* has 1 null values"):
        open_arrow(path)


def test_the_error_names_a_decoded_row_with_another_shape_than_the_first(tmp_path):
    pq.write_table(pa.table({"raw": [b"ab", b"cd", b"efg"]}), tmp_path / "x.parquet")
    source = open_parquet(tmp_path / "x.parquet", decode={"raw": lambda raw: np.frombuffer(raw, "u1")})
    with pytest.raises(SpecError, match=r"uint8\[3\] for row 2 of .* but uint8\[2\] is expected"):
        source.gather(slice(0, 3), [np.empty((3, 2), "u1")])


def test_an_error_in_a_decode_function_keeps_its_type(tmp_path):
    pq.write_table(pa.table({"raw": ["1", "x"]}), tmp_path / "x.parquet")
    with pytest.raises(ValueError, match="invalid literal"), open_feed(tmp_path / "x.parquet") as feed:
        list(feed)


def open_feed(path):
    return fb.from_files(path, decode={"raw": int}).batch(2).feed("numpy")


@pytest.mark.parametrize("content", [b"", b"no table", b"PAR1" * 10])
def test_a_file_that_is_not_parquet_is_refused(tmp_path, content):
    (tmp_path / "x.parquet").write_bytes(content)
    with pytest.raises(SourceError, match=r"x\.parquet cannot be read as Parquet"):
        open_parquet(tmp_path / "x.parquet")


@pytest.mark.parametrize("content", [b"", b"no table", b"ARROW1" * 10, b"\xff" * 100])
def test_a_file_that_is_not_arrow_is_refused(tmp_path, content):
    (tmp_path / "x.arrow").write_bytes(content)
    with pytest.raises(SourceError, match=r"x\.arrow cannot be read as Arrow"):
        open_arrow(tmp_path / "x.arrow")


def test_a_truncated_parquet_file_is_refused(tmp_path):
    path = write_parquet(tmp_path / "x.parquet", tree())
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(SourceError, match="cannot be read as Parquet"):
        open_parquet(path)


@pytest.mark.parametrize("new_writer", [pa.ipc.new_file, pa.ipc.new_stream])
def test_a_truncated_arrow_file_is_refused(tmp_path, new_writer):
    path = write_arrow(tmp_path / "x.arrow", table(tree()), new_writer=new_writer)
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(SourceError, match=r"cut short|cannot be read as Arrow"):
        open_arrow(path)


def test_the_error_names_a_damaged_row_group(tmp_path):
    path = write_parquet(tmp_path / "x.parquet", {"x": np.arange(1000)}, row_group_size=100, compression="zstd")
    data = bytearray(path.read_bytes())
    data[30:80] = b"\xff" * 50
    path.write_bytes(data)
    with pytest.raises(SourceError, match=r"row group 0 of 'x' in .* cannot be read"):
        open_parquet(path).gather(slice(0, 10), [np.empty(10, "i8")])


def test_a_file_that_shrinks_while_open_raises_an_error(tmp_path):
    path = write_arrow(tmp_path / "x.arrow", table(tree()))
    source = open_arrow(path, columns=["id"])
    os.truncate(path, 100)
    with pytest.raises(SourceChangedError, match="has 100 now"):
        source.gather(slice(0, 1), [np.empty(1, "i4")])


def test_a_file_larger_than_the_budget_is_shuffled_by_row_groups_and_explain_shows_their_length(tmp_path):
    path = write_parquet(tmp_path / "x.parquet", {"x": np.arange(1000)}, row_group_size=10)
    with fb.from_files(path, max_held_bytes=800).shuffle(seed=1).batch(100).feed("numpy") as feed:
        rows = np.concatenate([batch["x"] for batch in feed])
        explanation = feed.explain()
    assert sorted(rows.tolist()) == list(range(1000))
    assert "block-shuffled" in explanation
    assert "chunks of 10 rows" in explanation


def test_without_pyarrow_the_error_names_the_extra(tmp_path):
    path = write_parquet(tmp_path / "x.parquet", tree())
    script = f"import sys; sys.modules['pyarrow'] = None\nimport forebay as fb\nfb.from_files({str(path)!r})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "'forebay[arrow]'" in done.stderr
