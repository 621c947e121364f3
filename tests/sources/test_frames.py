"""Frames of pandas, polars and Arrow become sources, without a copy where possible."""

import datetime as dt
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.errors import SpecError
from forebay.sources.frames import FrameSource
from forebay.testing import SourceTests

LIBRARIES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}
DTYPES = ["bool", "int8", "uint16", "int32", "int64", "uint64", "float16", "float32", "float64"]
each_library = pytest.mark.parametrize("make", LIBRARIES.values(), ids=LIBRARIES)


def read(frame, **options):
    """Return all rows of a frame as a dict of arrays."""
    source = FrameSource(frame, **options)
    out = [spec.empty(len(source)) for spec in source.specs]
    source.gather(np.arange(len(source)), out)
    return source.structure.unflatten(out)


class TestPandasRows(SourceTests):
    def make_source(self, tmp_path):
        data = {"a": np.arange(40.0), "b": np.arange(40, dtype="int16"), "c": np.arange(40) % 3 == 0}
        return FrameSource(pd.DataFrame(data)), data


class TestStackedRows(SourceTests):
    def make_source(self, tmp_path):
        rows = np.random.default_rng(0).random((50, 3)).astype("float32")
        frame = pl.DataFrame(dict(zip("abc", rows.T, strict=True)))
        return FrameSource(frame, columns={"x": ["c", "a"], "b": "b"}), {"x": rows[:, [2, 0]], "b": rows[:, 1]}


@each_library
@given(data=st.data())
def test_columns_keep_their_names_values_and_dtypes(make, data):
    length = data.draw(st.integers(1, 20))
    dtypes = data.draw(st.lists(st.sampled_from(DTYPES), min_size=1, max_size=4))
    columns = {f"c{number}": np.arange(length).astype(dtype) for number, dtype in enumerate(dtypes)}
    found = read(make(columns))
    assert list(found) == list(columns)
    for name, column in columns.items():
        assert found[name].dtype == column.dtype
        assert found[name].tolist() == column.tolist()


@pytest.mark.parametrize("frame", [pd.DataFrame({"a": np.arange(9.0)}), pl.DataFrame({"a": np.arange(9.0)})])
def test_numbers_are_not_copied(frame):
    source = FrameSource(frame)
    assert np.shares_memory(source.arrays[0], frame["a"].to_numpy())
    assert source.held_nbytes == 0
    assert "no column was copied" in source.read_decision.why


def test_arrow_numbers_are_not_copied():
    table = pa.table({"a": np.arange(9.0)})
    assert FrameSource(table).arrays[0].__array_interface__["data"][0] == table["a"].chunk(0).buffers()[1].address


def test_columns_in_several_chunks_are_joined():
    table = pa.concat_tables([pa.table({"a": [1, 2]}), pa.table({"a": [3]})])
    polars = pl.concat([pl.DataFrame({"a": [1, 2]}), pl.DataFrame({"a": [3]})], rechunk=False)
    for frame in (table, polars):
        assert read(frame)["a"].tolist() == [1, 2, 3]
        assert FrameSource(frame).held_nbytes == 24


def test_a_record_batch_and_a_slice_of_a_table_have_their_own_rows():
    table = pa.table({"a": np.arange(6), "v": pa.array([[i, i] for i in range(6)], pa.list_(pa.int8(), 2))})
    found = read(table.slice(2, 3))
    assert found["a"].tolist() == [2, 3, 4]
    assert found["v"].tolist() == [[2, 2], [3, 3], [4, 4]]
    assert read(table.to_batches()[0])["a"].tolist() == [0, 1, 2, 3, 4, 5]


def test_rows_of_a_pandas_frame_may_change_and_those_of_other_frames_cannot():
    data = {"a": np.arange(4.0)}
    assert not FrameSource(pd.DataFrame(data)).immutable
    assert FrameSource(pl.DataFrame(data)).immutable
    assert FrameSource(pa.table(data)).immutable


def test_categories_become_codes_and_class_names():
    texts = ["cat", "dog", "cat"]
    for frame in (
        pd.DataFrame({"y": pd.Categorical(texts)}),
        pl.DataFrame({"y": texts}, schema={"y": pl.Categorical}),
        pl.DataFrame({"y": texts}, schema={"y": pl.Enum(["cat", "dog"])}),
        pa.table({"y": pa.array(texts).dictionary_encode()}),
        pd.DataFrame({"y": pd.array(texts, pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string())))}),
    ):
        assert read(frame)["y"].tolist() == [0, 1, 0]
        assert FrameSource(frame).class_names == ("cat", "dog")


def test_other_categorical_columns_of_the_process_do_not_change_the_codes_of_polars():
    keep = pl.Series(["zebra", "dog"], dtype=pl.Categorical)
    found = read(pl.DataFrame({"y": ["dog", "cat"]}, schema={"y": pl.Categorical}))
    assert (found["y"].tolist(), len(keep)) == ([1, 0], 2)


def test_dictionaries_of_several_chunks_share_their_codes():
    chunks = [pa.array(texts).dictionary_encode() for texts in (["a", "b"], ["b", "c"])]
    source = FrameSource(pa.table({"y": pa.chunked_array(chunks)}))
    assert source.arrays[0].tolist() == [0, 1, 1, 2]
    assert source.class_names == ("a", "b", "c")


def test_the_codes_of_a_polars_categorical_count_as_a_copy_and_those_of_an_enum_do_not():
    data = {"y": ["cat", "dog", "cat"]}
    categorical = FrameSource(pl.DataFrame(data, schema={"y": pl.Categorical}))
    assert categorical.held_nbytes == categorical.arrays[0].nbytes
    assert "copied once ('y')" in categorical.read_decision.why
    assert FrameSource(pl.DataFrame(data, schema={"y": pl.Enum(["cat", "dog"])})).held_nbytes == 0


def test_two_categorical_columns_have_no_class_names():
    frame = pd.DataFrame({"a": pd.Categorical(["x"]), "b": pd.Categorical(["y"])})
    assert FrameSource(frame).class_names == ()


def test_datetimes_keep_their_unit_and_time_zones_become_utc():
    when = dt.datetime(2020, 1, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    aware = pd.DataFrame({"t": pd.Series([when]).dt.tz_convert("Europe/Berlin")})
    utc = np.datetime64("2020-01-01T10:00:00")
    assert read(aware)["t"][0] == utc
    assert read(pl.DataFrame({"t": [when]}))["t"][0] == utc
    assert read(pa.table({"t": [when]}))["t"][0] == utc
    assert read(pd.DataFrame({"t": np.array(["2020-01-01"], "M8[s]")}))["t"].dtype == "M8[s]"


def test_datetimes_become_ticks_without_a_copy():
    frame = pl.DataFrame({"t": np.array([5, 6], "M8[us]")})
    source = FrameSource(frame, dtype={"t": "int64"})
    assert (source.arrays[0].tolist(), source.held_nbytes) == ([5, 6], 0)


def test_missing_times_are_refused_as_ticks():
    frame = pd.DataFrame({"t": np.array(["2020-01-01", "NaT"], "M8[s]")})
    assert np.isnat(read(frame)["t"]).tolist() == [False, True]
    with pytest.raises(SpecError, match=r"column 't' has 1 missing times \(NaT\).*Fill them with"):
        FrameSource(frame, dtype="int64")


def test_integers_become_any_integer_dtype_that_holds_them():
    assert read(pd.DataFrame({"a": [0, 255]}), dtype="uint8")["a"].tolist() == [0, 255]
    assert read(pd.DataFrame({"a": np.array([7], "uint64")}), dtype="int8")["a"].tolist() == [7]
    for value in (-1, 256):
        with pytest.raises(SpecError, match="'a' has values that uint8 cannot hold"):
            FrameSource(pd.DataFrame({"a": [0, value]}), dtype="uint8")


def test_a_tuple_of_names_is_a_vector_unless_it_is_the_name_of_a_column():
    frame = pd.DataFrame({"a": [1], "b": [2]})
    assert read(frame, columns={"x": ("a", "b")})["x"].tolist() == [[1, 2]]
    frame[[("a", "b")]] = 5
    assert read(frame, columns={"x": ("a", "b")})["x"].tolist() == [5]


def test_nullable_columns_without_nulls_are_accepted():
    frame = pd.DataFrame({"i": pd.array([1, 2], "Int64"), "b": pd.array([True, False], "boolean")})
    source = FrameSource(frame)
    assert [str(spec.dtype) for spec in source.specs] == ["int64", "bool"]
    assert np.shares_memory(source.arrays[0], frame["i"].array._data)
    assert FrameSource(pd.DataFrame({"i": pd.array([1, 2], "int64[pyarrow]")})).arrays[0].tolist() == [1, 2]


def test_nan_is_kept_as_a_value():
    for make in LIBRARIES.values():
        assert np.isnan(read(make({"a": np.array([1.0, np.nan])}))["a"]).tolist() == [False, True]


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"bad": pd.array([1, None], "Int64")}),
        pd.DataFrame({"bad": pd.array([True, None], "boolean")}),
        pd.DataFrame({"bad": pd.Categorical(["a", None])}),
        pd.DataFrame({"bad": pd.array([1, None], "int64[pyarrow]")}),
        pl.DataFrame({"bad": [1, None]}),
        pl.DataFrame({"bad": [[1, None]]}, schema={"bad": pl.Array(pl.Int32, 2)}),
        pl.DataFrame({"bad": [[[1, None]]]}, schema={"bad": pl.Array(pl.Array(pl.Int32, 2), 1)}),
        pl.DataFrame({"bad": [[[1, 2], None]]}, schema={"bad": pl.Array(pl.Array(pl.Int32, 2), 2)}),
        pl.DataFrame({"bad": ["a", None]}, schema={"bad": pl.Categorical}),
        pl.DataFrame({"bad": [None, None]}),
        pa.table({"bad": [1, None]}),
        pa.table({"bad": pa.array(["a", None]).dictionary_encode()}),
        pa.table({"bad": pa.array([[1, None]], pa.list_(pa.int32(), 2))}),
        pa.table({"bad": pa.array([[[1, 2], None]], pa.list_(pa.list_(pa.int32(), 2), 2))}),
    ],
)
def test_null_values_are_refused_with_the_name_of_the_column(frame):
    with pytest.raises(SpecError, match=r"column 'bad' has \d null values.*Fill them with"):
        FrameSource(frame)


@pytest.mark.parametrize(
    ("frame", "advice"),
    [
        (pd.DataFrame({"bad": ["a"]}), "astype"),
        (pd.DataFrame({"bad": np.array([object()], object)}), "astype"),
        (pd.DataFrame({"bad": pd.arrays.SparseArray([0, 1])}), "to_dense"),
        (pd.DataFrame({"bad": pd.period_range("2020", periods=1, freq="D")}), "columns="),
        (pd.DataFrame({"bad": pd.array(["a"], "string[pyarrow]")}), "astype"),
        (pl.DataFrame({"bad": ["a"]}), r"cast\(pl.Categorical\)"),
        (pl.DataFrame({"bad": [[1, 2]]}), "to_array"),
        (pl.DataFrame({"bad": [["a", "b"]]}, schema={"bad": pl.Array(pl.String, 2)}), "cast"),
        (pl.DataFrame({"bad": [dt.time(1)]}), "cast"),
        (pl.DataFrame({"bad": [{"a": 1}]}), "cast"),
        (pl.DataFrame({"bad": [1]}, schema={"bad": pl.Decimal(10, 2)}), r"cast\(pl.Float64\)"),
        (pa.table({"bad": ["a"]}), "dictionary_encode"),
        (pa.table({"bad": [[1, 2]]}), "cast"),
        (pa.table({"bad": pa.array([1], pa.decimal128(10, 2))}), "cast"),
    ],
)
def test_unsupported_types_are_refused_with_a_remedy(frame, advice):
    with pytest.raises(SpecError, match=f"column 'bad' has the type .*{advice}"):
        FrameSource(frame)


def test_vectors_of_fixed_length_become_one_field():
    vectors = [[1.0, 2.0], [3.0, 4.0]]
    tensor = pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.float32(), [1, 2]), pa.array(vectors, pa.list_(pa.float32(), 2))
    )
    assert read(pl.DataFrame({"v": vectors}, schema={"v": pl.Array(pl.Float32, 2)}))["v"].tolist() == vectors
    assert read(pa.table({"v": pa.array(vectors, pa.list_(pa.float32(), 2))}))["v"].tolist() == vectors
    assert read(pa.table({"v": tensor}))["v"].shape == (2, 1, 2)
    permuted = pa.fixed_shape_tensor(pa.float32(), [1, 2], permutation=[1, 0])
    with pytest.raises(SpecError, match=r"permuted axes \[1, 0\]. Store them"):
        FrameSource(pa.table({"v": pa.ExtensionArray.from_storage(permuted, tensor.storage)}))


@given(st.integers(1, 9000), st.permutations(range(5)), st.integers(1, 5), st.sampled_from(["float32", "int64"]))
def test_stacked_columns_equal_a_numpy_stack(rows, order, count, dtype):
    data = np.arange(rows * 5, dtype="int32").reshape(rows, 5)
    frame, names = pd.DataFrame(data, columns=list("abcde")), ["abcde"[number] for number in order[:count]]
    found = read(frame, columns={"x": names}, dtype=dtype)["x"]
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, data[:, order[:count]])


def test_adjacent_columns_are_stacked_without_a_copy():
    data = np.random.default_rng(0).random((20, 4)).astype("float32")
    frame = pd.DataFrame(data, copy=False, columns=list("abcd"))
    source = FrameSource(frame, columns={"x": ["b", "c"]})
    assert source.held_nbytes == 0
    assert np.shares_memory(source.arrays[0], data)
    np.testing.assert_array_equal(source.arrays[0], data[:, 1:3])
    assert FrameSource(frame, columns={"x": ["c", "b"]}).held_nbytes == 160


def test_a_copy_is_explained_and_counted():
    source = FrameSource(pl.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}), columns={"x": ["a", "b"]})
    assert source.held_nbytes == 32
    assert "copied once ('x')" in source.read_decision.why


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": "a"}, "single name"),
        ({"columns": 3}, "columns=3 is not a list"),
        ({"columns": []}, "no columns"),
        ({"columns": {"x": []}}, "no columns"),
        ({"columns": ["z"]}, "no column 'z'"),
        ({"columns": {"x": ["a", "y"]}}, "different types.*dtype="),
        ({"dtype": {"z": "int8"}}, "dtype= names 'z'"),
        ({"dtype": "nonsense"}, "not a dtype"),
        ({"dtype": {"y": "S2"}}, "not a dtype of numbers"),
        ({"dtype": {"a": "int64"}}, "'a' is float64, which int64 cannot hold"),
        ({"dtype": {"y": "int8"}}, "wider dtype"),
    ],
)
def test_wrong_arguments_are_refused(options, message):
    frame = pd.DataFrame({"a": [1.5], "y": [300]})
    with pytest.raises(SpecError, match=message):
        FrameSource(frame, **options)


def test_ambiguous_and_empty_frames_are_refused():
    levels = pd.MultiIndex.from_tuples([("a", "b")])
    for frame, message in (
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "two columns named 'a'"),
        (pd.DataFrame([[1, 2]], columns=[0, "0"]), "two columns named '0'"),
        (pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]), "two columns named 'a'"),
        (pd.DataFrame([[1]], columns=levels), "MultiIndex"),
        (pd.DataFrame(index=[0, 1]), "no columns"),
        (pl.LazyFrame({"a": [1]}), "collect"),
        (np.zeros(3), r"from_frame\(\) got ndarray"),
        (pd.Series([1]), r"from_frame\(\) got Series"),
    ):
        with pytest.raises(SpecError, match=message):
            FrameSource(frame)


def test_columns_that_are_not_selected_may_have_any_name_or_type():
    frame = pd.DataFrame([[1, 2, 3.0, "text"]], columns=["a", "a", "b", "c"])
    assert read(frame, columns=["b"])["b"].tolist() == [3.0]
    assert list(read(pd.DataFrame([[1, 2]]))) == ["0", "1"]
    assert read(pd.DataFrame([[1, 2]]), columns={"x": [1, 0]})["x"].tolist() == [[2, 1]]


def test_the_index_of_a_pandas_frame_is_ignored():
    frame = pd.DataFrame({"a": [1, 2, 3]}, index=[9, 9, 1])
    assert read(frame)["a"].tolist() == [1, 2, 3]


def test_a_subclass_of_a_frame_is_a_frame():
    class Table(pd.DataFrame):
        pass

    assert read(Table({"a": [1]}))["a"].tolist() == [1]


def test_arrays_import_no_library_of_frames():
    script = (
        "import sys, numpy, forebay; forebay.from_arrays(numpy.arange(3)); forebay.from_source([1, 2]); "
        "print(*{'pandas', 'polars', 'pyarrow', 'scipy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
