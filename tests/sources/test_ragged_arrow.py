"""List columns of Arrow tables become rows of different length."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import forebay as fb
from forebay.errors import SpecError

lists = st.lists(st.lists(st.integers(0, 99), max_size=6), min_size=1, max_size=20)


def rows_of(pipeline):
    source = pipeline.source
    return [[leaf.tolist() for leaf in row] for row in source.gather_rows(np.arange(len(source)))]


@given(rows=lists, is_large=st.booleans(), cut=st.integers(0, 20))
def test_rows_equal_the_lists_of_the_column(rows, is_large, cut):
    column_type = pa.large_list(pa.int32()) if is_large else pa.list_(pa.int32())
    column = pa.array(rows, column_type)
    assert rows_of(fb.from_ragged(column)) == [[row] for row in rows]
    start = min(cut, len(rows) - 1)
    assert rows_of(fb.from_ragged(column[start:])) == [[row] for row in rows[start:]]


@given(chunks=st.lists(lists, min_size=1, max_size=4))
def test_the_chunks_of_a_column_are_one_sequence_of_rows(chunks):
    column = pa.chunked_array([pa.array(rows, pa.list_(pa.int64())) for rows in chunks])
    pipeline = fb.from_ragged({"tokens": column, "copy": column})
    rows = [row for rows in chunks for row in rows]
    assert rows_of(pipeline) == [[row, row] for row in rows]
    assert pipeline.source.row_lengths(1).tolist() == [len(row) for row in rows]


def test_a_mapped_file_is_not_copied(tmp_path):
    table = pa.table({"tokens": [[1, 2], [3], [], [4, 5, 6]]})
    with pa.OSFile(str(tmp_path / "texts.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, 2)
    before = pa.total_allocated_bytes()
    mapped = pa.ipc.open_stream(pa.memory_map(str(tmp_path / "texts.arrow"))).read_all()
    (batch,) = fb.from_ragged(mapped["tokens"]).pack(6).batch(1).feed("numpy")
    assert sorted(batch["tokens"].tolist()) == [[1, 2, 3, 4, 5, 6]]
    assert pa.total_allocated_bytes() == before


def test_a_column_of_a_parquet_file_is_packed(tmp_path):
    pq.write_table(pa.table({"tokens": [[1, 2], [3], [4, 5, 6]]}), tmp_path / "texts.parquet", row_group_size=2)
    tokens = pq.read_table(tmp_path / "texts.parquet")["tokens"]
    (batch,) = fb.from_ragged(tokens).pack(3).batch(2).feed("numpy")
    assert sorted(batch["tokens"].tolist()) == [[1, 2, 3], [4, 5, 6]]


def test_nulls_outside_a_slice_are_ignored():
    column = pa.array([[1, None], [2], [3, 4], [None]], pa.list_(pa.int32()))
    assert rows_of(fb.from_ragged(column[1:3])) == [[[2]], [[3, 4]]]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (np.arange(3), "offsets="),
        (pa.array([1, 2]), "holds int64"),
        (pa.table({"x": [[1]]}), "holds Table"),
        (pa.array([["a"]]), "lists of numbers"),
        (pa.array([[[1]]]), "lists of numbers"),
        (pa.array([[True]]), "lists of numbers"),
        (pa.array([[1], None]), "null"),
        (pa.array([[1, None]]), "null"),
        (pa.chunked_array([], pa.list_(pa.int64())), "no rows"),
        ({"x": pa.array([[1], [2]]), "y": pa.array([[1]])}, "different lengths"),
    ],
)
def test_columns_without_plain_lists_of_numbers_are_refused(columns, message):
    with pytest.raises(SpecError, match=message):
        fb.from_ragged(columns)


def test_a_damaged_column_is_refused():
    offsets = pa.py_buffer(np.array([0, 2, 1, 2], np.int32))
    column = pa.ListArray.from_buffers(pa.list_(pa.int64()), 3, [None, offsets], children=[pa.array([1, 2])])
    with pytest.raises(SpecError, match="row 1 of 'array' begins at offset 2 and ends at 1"):
        fb.from_ragged(column)
