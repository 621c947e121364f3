"""Arrow IPC files and streams, including Feather 2, as a source.

Arrow stores columns of numbers without nulls, and of lists that all have the same length, in the layout of a NumPy
array. Rows of these columns are gathered from the mapped file. Other columns are converted one record batch at a time:
booleans, which Arrow stores as bits, columns in compressed batches, and columns with a decode function.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from forebay.core.spec import Array, Tree
from forebay.errors import SourceError
from forebay.sources.files.chunked import ChunkedColumn
from forebay.sources.files.columns import ColumnProtocol, ColumnsSource, FileHandle, dict_structure
from forebay.sources.files.mapped import MappedFile, PathName
from forebay.sources.files.segmented import SegmentedColumn
from forebay.sources.formats.arrow_columns import ArrowColumn, ColumnDecoders, select_columns

__all__ = ["open_arrow"]

_MAGIC = b"ARROW1"


def open_arrow(
    path: PathName,
    *,
    spec: Tree | None = None,
    columns: Sequence[str] | None = None,
    decode: ColumnDecoders | None = None,
    max_held_nbytes: int = 2**30,
) -> ColumnsSource:
    """Open one Arrow file as a source.

    A row is a dict with one array per column. The file may have the IPC file format or the IPC stream format.
    `open_parquet` describes the options.
    """
    mapped_file = MappedFile(path)
    memory = mapped_file.array((mapped_file.nbytes,), np.dtype(np.uint8), offset=0)
    batches = _read_batches(mapped_file, memory)
    selected_columns = select_columns(
        mapped_file.path,
        batches.schema,
        columns=columns,
        spec=spec,
        decode=decode,
        read_first_value=batches.read_first_value,
    )
    leaf_columns = [_open_column(memory, batches, column) for column in selected_columns]
    handle = FileHandle(mapped_file.path, mapped_file.check_size, lambda: None)
    structure = dict_structure([column.name for column in selected_columns])
    return ColumnsSource(handle, leaf_columns, structure, spec=spec, max_held_nbytes=max_held_nbytes)


@dataclass(frozen=True, slots=True)
class _Batches:
    """The record batches of one file."""

    file: MappedFile
    schema: Any
    boundaries: Array  # first row of each batch, then the number of rows
    read: Callable[[int], Any]  # batch number -> record batch; thread-safe; copies only compressed batches

    def read_column(self, name: str, batch: int) -> Any:
        try:
            column = self.read(batch).column(name)
            column.validate()  # otherwise a damaged file could crash the process later
            return column
        except (pa.ArrowException, OSError, ValueError) as error:
            raise SourceError(
                f"record batch {batch} of {self.file.path} cannot be read: {error}. Write or download the file again."
            ) from error

    def read_first_value(self, name: str) -> Any:
        for batch, rows in enumerate(np.diff(self.boundaries)):
            if rows:
                return self.read_column(name, batch)[0].as_py()
        raise SourceError(
            f"{self.file.path} has no rows, so the result of decode= for {name!r} is unknown. Describe it with spec=."
        )


def _read_batches(mapped_file: MappedFile, memory: Array) -> _Batches:
    try:
        _validate_end(memory)
        schema, messages = _read_messages(memory)
        _ = schema.names  # raises UnicodeDecodeError (a ValueError) if a name is not UTF-8
        if any(pa.types.is_dictionary(column_type) for column_type in schema.types):
            batches = _read_all_batches(memory)
            row_counts, read = [batch.num_rows for batch in batches], batches.__getitem__
        else:
            row_counts = [_parse_row_count(message) for message in messages]
            read = partial(_read_message, schema, messages)
        if min(row_counts, default=0) < 0:
            raise ValueError(f"a record batch claims to have {min(row_counts)} rows")
    except (pa.ArrowException, OSError, EOFError, ValueError, struct.error) as error:
        raise SourceError(
            f"{mapped_file.path} cannot be read as Arrow: {error}. Write or download it again."
        ) from error
    return _Batches(mapped_file, schema, np.concatenate([[0], np.cumsum(row_counts, dtype=np.int64)]), read)


def _validate_end(memory: Array) -> None:
    if _is_file_format(memory) and bytes(memory[-6:]) != _MAGIC:
        raise EOFError("it is truncated: it begins as an Arrow file, but does not end as one")


def _is_file_format(memory: Array) -> bool:
    return bytes(memory[:6]) == _MAGIC


def _read_messages(memory: Array) -> tuple[Any, list[Any]]:
    """Return the schema and the record batch messages.

    The file format contains a stream after its first 8 bytes.
    """
    start = 8 if _is_file_format(memory) else 0
    reader = pa.ipc.MessageReader.open_stream(pa.BufferReader(pa.py_buffer(memory[start:])))
    messages = list(reader)
    if not messages:
        raise EOFError("it is empty")
    return pa.ipc.read_schema(messages[0]), [message for message in messages if message.type == "record batch"]


def _read_message(schema: Any, messages: Sequence[Any], number: int) -> Any:
    return pa.ipc.read_record_batch(messages[number], schema)


def _read_all_batches(memory: Array) -> list[Any]:
    """Read all batches with the dictionaries that they share.

    This copies only compressed batches.
    """
    reader = pa.BufferReader(pa.py_buffer(memory))
    if not _is_file_format(memory):
        return list(pa.ipc.open_stream(reader))
    batches = pa.ipc.open_file(reader)
    return [batches.get_batch(number) for number in range(batches.num_record_batches)]


def _parse_row_count(message: Any) -> int:
    """Parse the row count from the FlatBuffers metadata of a batch.

    pyarrow would read the data as well. Field 2 of a `Message` is its `RecordBatch`, whose field 0 is the row count.
    """
    metadata = message.metadata.to_pybytes()
    (message_table,) = struct.unpack_from("<I", metadata)
    batch_field = _find_field(metadata, message_table, 2)
    if not batch_field:
        return 0
    batch_table = batch_field + struct.unpack_from("<I", metadata, batch_field)[0]
    count_field = _find_field(metadata, batch_table, 0)
    return int(struct.unpack_from("<q", metadata, count_field)[0]) if count_field else 0


def _find_field(data: bytes, table: int, number: int) -> int:
    """Return the position of a field in a FlatBuffers table, or 0 if missing."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    (vtable_nbytes,) = struct.unpack_from("<H", data, vtable)
    entry = 4 + 2 * number
    (offset,) = struct.unpack_from("<H", data, vtable + entry) if entry < vtable_nbytes else (0,)
    return table + offset if offset else 0


def _open_column(memory: Array, batches: _Batches, column: ArrowColumn) -> ColumnProtocol:
    offsets = _find_offsets(memory, batches, column)
    if offsets is not None:
        return SegmentedColumn(column.spec, batches.boundaries, memory, offsets)

    def decompress(batch: int, target: Array) -> None:
        target[...] = column.to_numpy(batches.read_column(column.name, batch), int(batches.boundaries[batch]))

    return ChunkedColumn(column.spec, batches.boundaries, decompress)


def _find_offsets(memory: Array, batches: _Batches, column: ArrowColumn) -> Array | None:
    """Return the file offset of the first row of each batch.

    Return None if the file does not store the rows in the layout of a NumPy array, or has no record batches.
    """
    if column.decode is not None or column.spec.dtype == np.bool_ or column.spec.nbytes == 0:
        return None
    memory_address = memory.__array_interface__["data"][0]
    offsets = np.zeros(len(batches.boundaries) - 1, np.int64)
    for batch, rows in enumerate(np.diff(batches.boundaries).tolist()):
        if rows:
            values = column.to_numpy(batches.read_column(column.name, batch), int(batches.boundaries[batch]))
            offsets[batch] = values.__array_interface__["data"][0] - memory_address
            if not 0 <= offsets[batch] <= len(memory) - values.nbytes:
                return None  # Arrow decompressed or copied the values
    return offsets if len(offsets) else None
