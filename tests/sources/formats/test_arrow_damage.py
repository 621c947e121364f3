"""Damaged and hostile Parquet and Arrow files raise a Forebay error that names the file.

They never crash the process, run foreign code or allocate more than the budget.
"""

import io
import os
import pickle
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forebay.core.spec import ArraySpec
from forebay.errors import BudgetError, ForebayError, SourceError
from forebay.sources.formats import arrow_columns
from forebay.sources.formats.arrow import open_arrow
from forebay.sources.formats.arrow_messages import declared_nbytes, parse_row_count
from forebay.sources.formats.parquet import ParquetFile, open_parquet

# All examples of a test share one `tmp_path`; each example overwrites the file.
in_a_folder = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

TABLE = pa.table({"x": np.arange(50), "raw": [b"ab"] * 50, "pair": [[1.0, 2.0]] * 50})
OPTIONS = [
    {"columns": ["x"]},
    {"columns": ["raw"], "decode": {"raw": lambda raw: np.frombuffer(raw, "u1")}},
    {"columns": ["pair"], "spec": {"pair": ArraySpec((2,), "float64")}},
]


def arrow_bytes(table, *, new_writer=pa.ipc.new_stream, compression=None, rows=20):
    stream = io.BytesIO()
    with new_writer(stream, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, max_chunksize=rows)
    return stream.getvalue()


def parquet_bytes(table, **options):
    stream = io.BytesIO()
    pq.write_table(table, stream, **options)
    return stream.getvalue()


def read_messages(content):
    return list(pa.ipc.MessageReader.open_stream(pa.BufferReader(content)))


@st.composite
def damaged_files(draw, files):
    """Draw a file with changed bytes."""
    content = bytearray(draw(st.sampled_from(files)))
    places = st.integers(0, len(content) - 1)
    for place, value in draw(st.lists(st.tuples(places, st.integers(0, 255)), min_size=1, max_size=4)):
        content[place] = value
    return bytes(content)


ARROW_FILES = [
    arrow_bytes(TABLE, new_writer=new_writer, compression=compression)
    for new_writer in (pa.ipc.new_file, pa.ipc.new_stream)
    for compression in (None, "lz4", "zstd")
]
PARQUET_FILES = [parquet_bytes(TABLE, row_group_size=20, compression=name) for name in ("none", "snappy", "zstd")]


@in_a_folder
@given(content=damaged_files(ARROW_FILES), options=st.sampled_from(OPTIONS))
def test_a_damaged_arrow_file_is_read_or_named_in_an_error(tmp_path, content, options):
    read_or_refuse(open_arrow, tmp_path / "x.arrow", content, options)


@in_a_folder
@given(content=damaged_files(PARQUET_FILES), options=st.sampled_from(OPTIONS))
def test_a_damaged_parquet_file_is_read_or_named_in_an_error(tmp_path, content, options):
    read_or_refuse(open_parquet, tmp_path / "x.parquet", content, options)


def read_or_refuse(opener, path, content, options):
    path.write_bytes(content)
    message = str(path)
    try:
        source = opener(path, max_held_nbytes=2**20, **options)
        rows = min(len(source), 60)
        source.gather(slice(0, rows), [spec.empty(rows) for spec in source.specs])
    except ForebayError as error:
        message = str(error)
    assert str(path) in message


@pytest.mark.parametrize("values", [[b"ab"] * 9, ["ab"] * 9])
def test_wrong_offsets_of_decoded_values_do_not_crash_the_process(tmp_path, values):
    content = arrow_bytes(pa.table({"raw": values}))
    offsets = struct.pack("<9i", *range(0, 18, 2))
    assert offsets in content
    path = tmp_path / "x.arrow"
    path.write_bytes(content.replace(offsets, struct.pack("<9i", 0, 2, 4, 6, 2**30, 2**31 - 1, -5, 14, 16)))
    with pytest.raises(SourceError, match=r"'raw' in .*x\.arrow is damaged from row 0 on"):
        open_arrow(path, decode={"raw": len})


def test_a_stream_without_a_schema_is_refused(tmp_path):
    _schema, *batches = pa.ipc.MessageReader.open_stream(arrow_bytes(TABLE))
    sink = pa.BufferOutputStream()
    batches[0].serialize_to(sink)
    (tmp_path / "a.arrow").write_bytes(sink.getvalue().to_pybytes())
    with pytest.raises(SourceError, match=r"a\.arrow cannot be read as Arrow: its first message is a record batch"):
        open_arrow(tmp_path / "a.arrow")


def test_text_that_is_not_utf8_is_refused(tmp_path):
    path = tmp_path / "x.parquet"
    path.write_bytes(parquet_bytes(pa.table({"text": ["abcd"]}), compression="none").replace(b"abcd", b"ab\xff\xfe"))
    with pytest.raises(SourceError, match=r"'text' in .*x\.parquet is damaged from row 0 on"):
        open_parquet(path, decode={"text": len})


def test_the_checksum_of_a_parquet_page_is_verified(tmp_path):
    path, table = tmp_path / "x.parquet", pa.table({"x": np.arange(1000, 1050)})
    content = parquet_bytes(table, compression="none", use_dictionary=False, write_page_checksum=True)
    value = struct.pack("<q", 1030)
    assert content.count(value) == 1
    path.write_bytes(content.replace(value, struct.pack("<q", 7)))
    source = open_parquet(path)
    with pytest.raises(SourceError, match=r"'x' in .*x\.parquet cannot be read: .*CRC"):
        source.gather(slice(0, 50), [spec.empty(50) for spec in source.specs])


def test_a_batch_with_fewer_rows_than_its_metadata_says_is_refused(tmp_path):
    content = arrow_bytes(pa.table({"x": np.arange(1000, 1007)}))
    counts = [place for place in range(len(content) - 8) if content[place : place + 8] == struct.pack("<q", 7)]
    for place in counts:
        path = tmp_path / f"{place}.arrow"
        path.write_bytes(content[:place] + struct.pack("<q", 8) + content[place + 8 :])
        with pytest.raises(SourceError, match=rf"{place}\.arrow"):
            open_arrow(path)
    assert len(counts) == 2  # the length of the batch and of its column


@pytest.mark.parametrize("rows", [-1, 2**40, 2**62])
def test_a_batch_that_claims_an_absurd_number_of_rows_is_refused(tmp_path, rows):
    content = arrow_bytes(pa.table({"x": np.arange(1000, 1007)}))
    path = tmp_path / "x.arrow"
    path.write_bytes(content.replace(struct.pack("<q", 7), struct.pack("<q", rows)))
    with pytest.raises(ForebayError, match=r"x\.arrow"):
        open_arrow(path, decode={"x": np.float64})


@pytest.mark.parametrize("options", [{}, {"decode": {"x": lambda value: np.zeros(3)}}])
def test_a_row_group_larger_than_the_budget_is_refused_with_a_fix(tmp_path, options):
    """Equal values take almost no space in the file."""
    path = tmp_path / "x.parquet"
    path.write_bytes(parquet_bytes(pa.table({"x": np.zeros(2**24)}), row_group_size=2**24))
    assert path.stat().st_size < 2**20
    with pytest.raises(BudgetError, match=r"x\.parquet claims 16777216 rows.*max_held_bytes=[0-9]+ or more"):
        open_parquet(path, max_held_nbytes=2**20, **options)


@pytest.mark.parametrize("has_dictionary", [False, True])
def test_a_compressed_batch_larger_than_the_budget_is_refused_before_it_is_decompressed(tmp_path, has_dictionary):
    table = bomb(has_dictionary)
    path = tmp_path / "x.arrow"
    path.write_bytes(arrow_bytes(table, compression="zstd"))
    assert path.stat().st_size < 2**20
    with pytest.raises(BudgetError, match=r"x\.arrow claims batches that decompress to [0-9]+ bytes.*max_held_bytes="):
        open_arrow(path, columns=["x"], max_held_nbytes=2**20)


@pytest.mark.parametrize("spec", [None, {"text": ArraySpec((), "float64")}])
def test_a_row_group_whose_texts_exceed_the_budget_is_refused_before_it_is_decompressed(tmp_path, spec):
    (tmp_path / "x.parquet").write_bytes(parquet_bytes(bomb(False), compression="zstd"))
    message = r"row group 0 of 'text' in .*x\.parquet claims to decompress to [0-9]+ bytes.*max_held_bytes="
    with pytest.raises(BudgetError, match=message):
        read_text(tmp_path / "x.parquet", spec)


def test_a_row_group_after_an_empty_one_is_refused_before_it_is_decompressed(tmp_path):
    table = bomb(False)
    with pq.ParquetWriter(tmp_path / "x.parquet", table.schema, compression="zstd") as writer:
        writer.write_table(table[:0])
        writer.write_table(table)
    with pytest.raises(BudgetError, match=r"row group 1 of 'text' in .* claims to decompress to [0-9]+ bytes"):
        read_text(tmp_path / "x.parquet", None)


def test_a_row_group_with_fewer_rows_than_its_metadata_says_is_refused(tmp_path, monkeypatch):
    (tmp_path / "x.parquet").write_bytes(parquet_bytes(pa.table({"text": ["1", "2"]})))
    monkeypatch.setattr(ParquetFile, "_iter_batches", lambda *_: iter(()))
    message = "row group 0 of 'text' in .* cannot be read: its metadata claims 2 more rows than it has. Write or"
    with pytest.raises(SourceError, match=message):
        read_text(tmp_path / "x.parquet", None)


def read_text(path, spec):
    source = open_parquet(path, columns=["text"], spec=spec, decode={"text": float}, max_held_nbytes=2**20)
    source.gather(slice(0, 1), [np.empty(1)])


def test_damaged_statistics_do_not_crash_the_process(tmp_path):
    """pyarrow ends the process in `RowGroupMetaData.column` of such a file."""
    content = parquet_bytes(pa.table({"pair": [[1, 2], [3]]}))
    for place in range(len(content) // 2, len(content)):
        damaged = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
        spec = {"pair": ArraySpec((2,), "int64")}
        read_or_refuse(open_parquet, tmp_path / "x.parquet", damaged, {"spec": spec})


def test_a_text_that_many_rows_repeat_is_decoded_in_parts(tmp_path, monkeypatch):
    texts = ["x" * 2**20, "y" * 2**20] * 500  # 1,000 MiB, stored in a dictionary of 2 MiB
    (tmp_path / "x.parquet").write_bytes(parquet_bytes(pa.table({"text": pa.array(texts).dictionary_encode()})))
    sizes = []
    validate = arrow_columns._validate_values
    monkeypatch.setattr(
        arrow_columns, "_validate_values", lambda *args: sizes.append(args[2].nbytes) or validate(*args)
    )
    decode = {"text": lambda text: np.int64(ord(text[-1]))}
    source = open_parquet(tmp_path / "x.parquet", decode=decode, max_held_nbytes=2**20)
    out = [np.empty(1000, "i8")]
    source.gather(slice(0, 1000), out)
    assert out[0].tolist() == [ord("x"), ord("y")] * 500
    assert max(sizes) < 70 * 2**20


def bomb(has_dictionary):
    """Return a table of one row with 128 MiB of text, which compress to a few kilobytes."""
    text = pa.array(["x" * 2**27])
    return pa.table({"x": [1], "text": text.dictionary_encode() if has_dictionary else text})


@pytest.mark.parametrize("opener", [open_arrow, open_parquet])
def test_two_columns_of_one_name_are_refused(tmp_path, opener):
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    path = tmp_path / "x"
    path.write_bytes(arrow_bytes(table) if opener is open_arrow else parquet_bytes(table))
    with pytest.raises(SourceError, match="has two columns named 'x'"):
        opener(path)


def test_a_parquet_column_is_not_confused_with_one_that_extends_its_name(tmp_path):
    path = tmp_path / "x.parquet"
    path.write_bytes(parquet_bytes(pa.table({"a.b": [1, 2], "a": [3, 4]})))
    out = np.empty(2, "i8")
    open_parquet(path, columns=["a"]).gather(slice(0, 2), [out])
    assert out.tolist() == [3, 4]


class Payload:
    """An object that makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("opener", [open_arrow, open_parquet])
def test_a_pickle_in_the_type_of_a_column_is_never_loaded(tmp_path, opener):
    metadata = {
        "ARROW:extension:name": "arrow.py_extension_type",
        "ARROW:extension:metadata": pickle.dumps(Payload(tmp_path / "trapped"), protocol=0),
    }
    schema = pa.schema([pa.field("x", pa.int64(), metadata=metadata)])
    table = pa.Table.from_arrays([pa.array([1, 2])], schema=schema)
    path = tmp_path / "x"
    path.write_bytes(arrow_bytes(table) if opener is open_arrow else parquet_bytes(table))
    read_or_refuse(opener, path, path.read_bytes(), {})
    assert not (tmp_path / "trapped").exists()


@given(
    columns=st.lists(st.lists(st.integers(0, 9), min_size=5, max_size=5), min_size=1, max_size=3),
    compression=st.sampled_from([None, "lz4", "zstd"]),
)
def test_the_metadata_of_a_message_has_its_rows_and_its_decompressed_size(columns, compression):
    table = pa.table({str(number): column for number, column in enumerate(columns)})
    _, message = read_messages(arrow_bytes(table, compression=compression))
    assert parse_row_count(message) == 5
    assert declared_nbytes(message) in (0, 40 * len(columns))
