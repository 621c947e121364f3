"""Arrow IPC files and streams, including Feather 2, as a source.

Without nulls, Arrow stores a column of numbers in the layout of a NumPy array, and also a column of lists of numbers if
all lists have the same length. Forebay gathers the rows of such a column directly from the mapped file. It converts
three kinds of columns one record batch at a time: booleans (stored as bits), columns in compressed batches, and columns
with a decode function.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from forebay.core.spec import Array, Tree
from forebay.errors import BudgetError, ForebayError, SourceError
from forebay.sources.files.chunked import ChunkedColumn
from forebay.sources.files.columns import ColumnProtocol, ColumnsSource, FileHandle, dict_structure
from forebay.sources.files.held_budget import HeldBudget
from forebay.sources.files.mapped import MappedFile, PathName
from forebay.sources.files.segmented import SegmentedColumn
from forebay.sources.formats.arrow_columns import (
    ArrowColumn,
    ColumnDecoders,
    make_boundaries,
    read_value,
    select_columns,
    validate_chunks,
    validate_row_count,
)
from forebay.sources.formats.arrow_messages import declared_nbytes, parse_row_count

__all__ = ["RecordBatches", "open_arrow", "read_batches"]

_MAGIC = b"ARROW1"
_BATCH_TYPES = ("record batch", "dictionary")


def open_arrow(
    path: PathName,
    *,
    spec: Tree | None = None,
    columns: Sequence[str] | None = None,
    decode: ColumnDecoders | None = None,
    max_held_nbytes: int | None = None,
) -> ColumnsSource:
    """Open one Arrow file as a source.

    A row is a dict with one array per column. The file may have the IPC file format or the IPC stream format.
    `open_parquet` describes the options.
    """
    mapped_file, budget = MappedFile(path), HeldBudget.of(max_held_nbytes)
    batches = read_batches(mapped_file, budget)
    selected_columns = select_columns(mapped_file.path, batches, columns=columns, spec=spec, decode=decode)
    offsets = [_find_offsets(batches, column) for column in selected_columns]
    stored_columns = list(zip(selected_columns, offsets, strict=True))
    validate_chunks([column for column, found in stored_columns if found is None], batches.boundaries, budget)
    leaf_columns = [_open_column(batches, column, found) for column, found in stored_columns]
    handle = FileHandle(mapped_file.path, mapped_file.check_unchanged, lambda: None)
    structure = dict_structure([column.name for column in selected_columns])
    return ColumnsSource(handle, leaf_columns, structure, spec=spec, max_held_nbytes=budget.cached_nbytes)


@dataclass(frozen=True, slots=True)
class RecordBatches:
    """The record batches of one file."""

    file: MappedFile
    memory: Array  # the bytes of the file
    schema: Any
    decompressed_nbytes: int  # decompressed size of all compressed batches
    boundaries: Array  # number of the first row of each batch, then the number of rows in the file
    read: Callable[[int], Any]  # batch number -> record batch; thread-safe; copies only compressed batches

    def read_column(self, name: str, batch: int) -> Any:
        try:
            column = self.read(batch).column(name)
            column.validate()  # otherwise a damaged file could crash the process later
        except BudgetError:
            raise
        except Exception as error:  # for a damaged file, pyarrow raises anything from KeyError to MemoryError
            raise SourceError(
                f"record batch {batch} of {self.file.path} cannot be read: {error}. Write or download the file again."
            ) from error
        validate_row_count(self.file.path, f"record batch {batch}", column, self.boundaries[batch : batch + 2])
        return column

    def read_first_value(self, name: str) -> Any:
        for batch, rows in enumerate(np.diff(self.boundaries)):
            if rows:
                return read_value(self.file.path, name, self.read_column(name, batch))
        raise SourceError(
            f"{self.file.path} has no rows, so the result of decode= for {name!r} is unknown. Describe it with spec=."
        )


def read_batches(mapped_file: MappedFile, budget: HeldBudget) -> RecordBatches:
    """Return the record batches of a file.

    If batches share dictionaries, read all batches now. Otherwise, `RecordBatches.read` reads a batch when needed.
    """
    memory = mapped_file.array((mapped_file.nbytes,), np.dtype(np.uint8), offset=0)
    try:
        _validate_end(memory)
        schema, messages = _read_messages(memory)
        _ = schema.names  # raises UnicodeDecodeError if a name is not UTF-8
        if any(pa.types.is_dictionary(column_type) for column_type in schema.types):
            _validate_budget(mapped_file.path, messages, budget)
            batches = _read_all_batches(memory)
            row_counts, read = [batch.num_rows for batch in batches], batches.__getitem__
        else:
            record_batches = [message for message in messages if message.type == "record batch"]
            row_counts = list(map(parse_row_count, record_batches))
            read = partial(_read_message, mapped_file.path, schema, record_batches, budget)
        boundaries = make_boundaries(mapped_file.path, row_counts)
        return RecordBatches(mapped_file, memory, schema, sum(map(declared_nbytes, messages)), boundaries, read)
    except ForebayError:
        raise
    except Exception as error:  # for a damaged file, pyarrow raises anything from OSError to MemoryError
        raise SourceError(
            f"{mapped_file.path} cannot be read as Arrow: {error}. Write or download it again."
        ) from error


def _validate_end(memory: Array) -> None:
    if _is_file_format(memory) and bytes(memory[-6:]) != _MAGIC:
        raise EOFError("it is truncated: it begins as an Arrow file, but does not end as one")


def _is_file_format(memory: Array) -> bool:
    return bytes(memory[:6]) == _MAGIC


def _read_messages(memory: Array) -> tuple[Any, list[Any]]:
    """Return the schema, and the messages of record batches and dictionaries.

    A file in the IPC file format has an IPC stream after its first 8 bytes.
    """
    start = 8 if _is_file_format(memory) else 0
    reader = pa.ipc.MessageReader.open_stream(pa.BufferReader(pa.py_buffer(memory[start:])))
    messages = list(reader)
    if not messages:
        raise EOFError("it is empty")
    if messages[0].type != "schema":  # with another message, `read_schema` would crash the process
        raise ValueError(f"its first message is a {messages[0].type}, not a schema")
    return pa.ipc.read_schema(messages[0]), [message for message in messages if message.type in _BATCH_TYPES]


def _read_message(path: Path, schema: Any, messages: Sequence[Any], budget: HeldBudget, number: int) -> Any:
    """Read record batch `number` of a file without dictionaries."""
    _validate_budget(path, messages[number : number + 1], budget)
    return pa.ipc.read_record_batch(messages[number], schema)


def _validate_budget(path: Path, messages: Sequence[Any], budget: HeldBudget) -> None:
    """Raise BudgetError if decompressing the batches of `messages` would exceed the budget."""
    nbytes = sum(map(declared_nbytes, messages))
    budget.validate(f"{path} claims batches that decompress to {nbytes} bytes", nbytes)


def _read_all_batches(memory: Array) -> list[Any]:
    """Read all batches with the dictionaries that they share.

    This copies only compressed batches.
    """
    reader = pa.BufferReader(pa.py_buffer(memory))
    if not _is_file_format(memory):
        return list(pa.ipc.open_stream(reader))
    batches = pa.ipc.open_file(reader)
    return [batches.get_batch(number) for number in range(batches.num_record_batches)]


def _open_column(batches: RecordBatches, column: ArrowColumn, offsets: Array | None) -> ColumnProtocol:
    """Return a column of the mapped file; without `offsets`, a column of decompressed chunks."""
    if offsets is not None:
        return SegmentedColumn(column.spec, batches.boundaries, batches.memory, offsets)

    def decompress(batch: int, target: Array) -> None:
        target[...] = column.to_numpy(batches.read_column(column.name, batch), int(batches.boundaries[batch]))

    return ChunkedColumn(column.spec, batches.boundaries, decompress)


def _find_offsets(batches: RecordBatches, column: ArrowColumn) -> Array | None:
    """Return the file offset of the first row of each batch, or None.

    Return None if the file does not store the rows in the layout of a NumPy array, or has no record batches.
    """
    if column.decode is not None or column.spec.dtype == np.bool_ or column.spec.nbytes == 0:
        return None
    memory_address = batches.memory.__array_interface__["data"][0]
    offsets = np.zeros(len(batches.boundaries) - 1, np.int64)
    for batch, rows in enumerate(np.diff(batches.boundaries).tolist()):
        if rows:
            values = column.to_numpy(batches.read_column(column.name, batch), int(batches.boundaries[batch]))
            offsets[batch] = values.__array_interface__["data"][0] - memory_address
            if not 0 <= offsets[batch] <= len(batches.memory) - values.nbytes:
                return None  # Arrow decompressed or copied the values
    return offsets if len(offsets) else None
